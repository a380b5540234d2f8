// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The main figures of a run, in words.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "report/page.h"
#include "report/units.h"

namespace logitless::report {
namespace {

using Json = nlohmann::ordered_json;

std::vector<const Point*> largest_with_quotients(const BenchRun& run) {
  std::vector<const Point*> largest;
  for (const Point& point : run.points) {
    if (!point.has_quotients()) continue;
    if (!largest.empty() && point.shape.size() > largest.front()->shape.size()) largest.clear();
    if (largest.empty() || point.shape.size() == largest.front()->shape.size()) largest.push_back(&point);
  }
  return largest;
}

// A quotient, or what it ranges over; null where it is 0 ÷ 0 or a division by 0 everywhere.
Json figure_of(std::vector<double> quotients, std::string (*text_of)(double), const char* words,
               const std::string& detail) {
  std::erase_if(quotients, [](double quotient) { return !std::isfinite(quotient); });
  if (quotients.empty()) return nullptr;
  const auto [low, high] = std::ranges::minmax(quotients);
  const std::string first = text_of(low), last = text_of(high);
  return {{"figure", first == last ? first : first + " to " + last}, {"words", words}, {"detail", detail}};
}

// Null where the contender ran at none of the points.
Json claim_of(const std::string& contender, const std::vector<const Point*>& points) {
  std::vector<double> memory, time;
  std::string plans, memory_detail, time_detail;  // "one_pass", or "one_pass or two_pass" where they differ.
  for (const Point* point : points) {
    const Measurement *dense = point->find_ok(kDense), *own = point->find_ok(contender);
    if (!own) continue;
    if (plans.find(own->plan) == std::string::npos) plans += (plans.empty() ? "" : " or ") + own->plan;
    memory.push_back(value_of(*point, *own, Unit::kMemoryRatio));
    time.push_back(value_of(*point, *own, Unit::kTimeRatio));
    memory_detail = human_bytes(own->extra_peak_bytes) + ", not " + human_bytes(dense->extra_peak_bytes);
    time_detail = human_seconds(own->median_s) + ", not " + human_seconds(dense->median_s);
  }
  if (time.empty()) return nullptr;
  if (time.size() > 1) memory_detail = time_detail = "over " + std::to_string(time.size()) + " points";
  Json figures = Json::array();
  for (const Json& figure : {figure_of(memory, memory_ratio, "extra peak memory of dense ÷ its own", memory_detail),
                             figure_of(time, time_ratio, "the time of dense", time_detail)}) {
    if (!figure.is_null()) figures.push_back(figure);
  }
  const std::string remark = contender == kForward ? "the loss alone, no gradients"
                             : contender == kAuto  ? "chose " + plans
                                                   : "";
  return {{"contender", contender}, {"remark", remark}, {"figures", figures}};
}

// Where dense gave up and another contender did not: what this library is for.
void add_dense_failures(const BenchRun& run, Json& remarks) {
  const Point* largest = nullptr;
  for (const Point& point : run.points) {
    const Measurement* dense = point.find(kDense);
    if (!dense || dense->ok()) continue;
    if (!largest || point.shape.size() > largest->shape.size()) largest = &point;
  }
  if (!largest) return;
  std::string text = "At " + common_shape({largest}) + " dense failed (" + largest->find(kDense)->error + ")";
  for (const Measurement& m : largest->measurements) {
    if (m.ok())
      text += "; " + m.contender + " took " + human_seconds(m.median_s) + " and " + human_bytes(m.extra_peak_bytes);
  }
  remarks.push_back(text + ".");
}

void add_counts(const BenchRun& run, Json& remarks) {
  size_t failures = 0, expected = 1;
  for (const Point& point : run.points) {
    for (const Measurement& m : point.measurements) failures += !m.ok();
  }
  for (const SweptKey& swept : run.sweep) expected *= swept.values.size();
  if (failures > 0) {
    remarks.push_back(std::to_string(failures) + (failures == 1 ? " measurement" : " measurements") +
                      " failed; the table says why.");
  }
  if (run.points.size() < expected) {
    remarks.push_back("The run is not complete: " + std::to_string(run.points.size()) + " of " +
                      std::to_string(expected) + " points of the sweep are in the file.");
  }
}

}  // namespace

Json headline(const BenchRun& run) {
  const std::vector<const Point*> points = largest_with_quotients(run);
  Json claims = Json::array(), remarks = Json::array();
  for (const std::string& contender : run.contenders) {
    if (contender == kDense) continue;
    if (const Json claim = claim_of(contender, points); !claim.is_null()) claims.push_back(claim);
  }
  add_dense_failures(run, remarks);
  add_counts(run, remarks);
  const std::string lead =
      points.empty() ? "There is no point at which dense and another contender both ran, so there are no quotients."
                     : "At the largest shape, " + common_shape(points) + ":";
  return {{"lead", lead}, {"claims", claims}, {"remarks", remarks}};
}

}  // namespace logitless::report

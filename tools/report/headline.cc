// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "report/headline.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "report/metric.h"
#include "report/sweep.h"

namespace logitless::report {
namespace {

std::vector<const Point*> largest_with_quotients(const BenchRun& run) {
  std::vector<const Point*> largest;
  for (const Point& point : run.points) {
    if (!point.has_quotients()) continue;
    if (!largest.empty() && point.shape.size() > largest.front()->shape.size()) largest.clear();
    if (largest.empty() || point.shape.size() == largest.front()->shape.size()) largest.push_back(&point);
  }
  return largest;
}

// The quotients of one contender over several points.
struct Quotients {
  std::vector<double> memory, time;  // dense ÷ contender, contender ÷ dense
  const Measurement* dense = nullptr;
  const Measurement* own = nullptr;
  std::string plans;  // "one_pass", or "one_pass or two_pass" where they differ.
};

Quotients quotients_of(const std::string& contender, const std::vector<const Point*>& points) {
  Quotients quotients;
  for (const Point* point : points) {
    const Measurement *dense = point->find_ok(kDense), *own = point->find_ok(contender);
    if (!own) continue;
    if (quotients.plans.find(own->plan) == std::string::npos) {
      quotients.plans += (quotients.plans.empty() ? "" : " or ") + own->plan;
    }
    quotients.dense = dense;
    quotients.own = own;
    quotients.memory.push_back(value_of(*point, *own, Unit::kMemoryRatio));
    quotients.time.push_back(value_of(*point, *own, Unit::kTimeRatio));
  }
  return quotients;
}

template <class Format>
std::string range_text(const std::vector<double>& values, Format format) {
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  const std::string first = format(*low), last = format(*high);
  return first == last ? first : first + " to " + last;
}

// A quotient of memory in words that fit it; none where all are 0 ÷ 0.
std::optional<Figure> memory_figure(std::vector<double> quotients, const std::string& detail) {
  std::erase_if(quotients, [](double quotient) { return std::isnan(quotient); });
  if (quotients.empty()) return std::nullopt;
  if (std::all_of(quotients.begin(), quotients.end(), [](double quotient) { return std::isinf(quotient); })) {
    return Figure{human_bytes(0), "of extra peak memory", detail};
  }
  const bool more = *std::max_element(quotients.begin(), quotients.end()) < 1;
  if (more) {
    for (double& quotient : quotients) quotient = 1 / quotient;
  }
  const std::string text = range_text(quotients, memory_ratio);
  if (text == memory_ratio(1)) return Figure{text, "the extra peak memory of dense", detail};
  return Figure{text, more ? "more extra peak memory than dense" : "less extra peak memory than dense", detail};
}

Claim claim_of(const std::string& contender, const Quotients& quotients) {
  Claim claim{contender, "", {}};
  if (contender == kForward) claim.remark = "the loss alone, no gradients";
  if (contender == kAuto) claim.remark = "chose " + quotients.plans;
  const Measurement &own = *quotients.own, &dense = *quotients.dense;
  std::string memory = human_bytes(own.extra_peak_bytes) + ", not " + human_bytes(dense.extra_peak_bytes);
  std::string time = human_seconds(own.median_s) + ", not " + human_seconds(dense.median_s);
  if (quotients.time.size() > 1) memory = time = "over " + std::to_string(quotients.time.size()) + " points";
  if (const auto figure = memory_figure(quotients.memory, memory)) claim.figures.push_back(*figure);
  claim.figures.push_back({range_text(quotients.time, time_ratio), "the time of dense", time});
  return claim;
}

// Where dense gave up and another contender did not: what this library is for.
void add_dense_failures(const BenchRun& run, Headline& headline) {
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
  headline.remarks.push_back(text + ".");
}

void add_counts(const BenchRun& run, Headline& headline) {
  size_t failures = 0, expected = 1;
  for (const Point& point : run.points) {
    failures += static_cast<size_t>(std::count_if(point.measurements.begin(), point.measurements.end(),
                                                  [](const Measurement& m) { return !m.ok(); }));
  }
  for (const SweptKey& swept : run.sweep) expected *= swept.values.size();
  if (failures > 0) {
    headline.remarks.push_back(std::to_string(failures) + (failures == 1 ? " measurement" : " measurements") +
                               " failed; the table says why.");
  }
  if (run.points.size() < expected) {
    headline.remarks.push_back("The run is not complete: " + std::to_string(run.points.size()) + " of " +
                               std::to_string(expected) + " points of the sweep are in the file.");
  }
}

}  // namespace

Headline headline(const BenchRun& run) {
  Headline headline;
  const std::vector<const Point*> points = largest_with_quotients(run);
  if (points.empty()) {
    headline.lead = "There is no point at which dense and another contender both ran, so there are no quotients.";
  } else {
    headline.lead = "At the largest shape, " + common_shape(points) + ":";
    for (const std::string& contender : run.contenders) {
      if (contender == kDense) continue;
      const Quotients quotients = quotients_of(contender, points);
      if (quotients.own) headline.claims.push_back(claim_of(contender, quotients));
    }
  }
  add_dense_failures(run, headline);
  add_counts(run, headline);
  return headline;
}

}  // namespace logitless::report

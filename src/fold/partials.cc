// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "fold/partials.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "fold/wire.h"
#include "problem/id_sets.h"
#include "stats/statistics.h"

namespace logitless::fold {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

}  // namespace

template <class Visit>
void SoftmaxPartials::logit(double& value, Visit& visit) const {
  visit_logit(problem().in_double(), value, visit);
}

template <class Visit>
void SoftmaxPartials::each_sent(kernels::RowStats& stats, Visit& visit) const {
  logit(stats.max, visit);
  visit(stats.rest, double());
  if (problem().request.entropy) visit(stats.weighted, double());
  if (problem().request.cross) {
    visit(stats.cross, double());
    visit(stats.cross_mass, double());
  }
  if (problem().request.argmax) visit(stats.argmax, int64_t());
}

void SoftmaxPartials::join_parts(int64_t row, const kernels::RowStats& part, kernels::RowStats& whole) const {
  whole = kernels::merge(whole, part, problem().inverse_temperature(row));
}

size_t SoftmaxPartials::wire_bytes(int64_t row) const {
  size_t bytes = 0;
  const auto count = [&](auto&, auto as) { bytes += sizeof as; };
  kernels::RowStats any;
  each_sent(any, count);
  for (int64_t pick = problem().pick_begin(row); pick < problem().pick_end(row); ++pick) logit(any.max, count);
  return bytes;
}

template <class ValueOf>
std::byte* SoftmaxPartials::put(int64_t row, kernels::RowStats stats, const ValueOf& value_of, std::byte* to) const {
  Writer write(to);
  each_sent(stats, write);
  for (int64_t pick = problem().pick_begin(row); pick < problem().pick_end(row); ++pick) {
    double value = value_of(static_cast<size_t>(pick));
    logit(value, write);
  }
  return write.end();
}

std::byte* SoftmaxPartials::put(int64_t row, int64_t place, const stats::Columns& columns, std::byte* to) const {
  // Only the slice that contains a token id has its logit.
  const auto value_of = [&](size_t pick) {
    const int64_t entry = problem().picks.ids[pick] - problem().first_entry;
    return entry >= 0 && entry < problem().entries ? columns.picked[pick] : kNan;
  };
  return put(row, *of(0, place), value_of, to);
}

std::byte* SoftmaxPartials::put_empty(int64_t row, std::byte* to) const {
  return put(
      row, kernels::RowStats(), [](size_t) { return kNan; }, to);
}

const std::byte* SoftmaxPartials::join(int64_t row, int64_t place, bool first, const std::byte* from,
                                       stats::Columns& columns) const {
  Reader read(from);
  kernels::RowStats part;
  each_sent(part, read);
  join_next(row, place, first, part);
  for (int64_t pick = problem().pick_begin(row); pick < problem().pick_end(row); ++pick) {
    double& picked = columns.picked[static_cast<size_t>(pick)];
    double value = kNan;
    logit(value, read);
    if (first || !std::isnan(value)) picked = value;
  }
  return read.end();
}

void SoftmaxPartials::finish(int64_t row, int64_t place, stats::Columns& columns) const {
  const kernels::RowStats& folded = *of(0, place);
  TokenStats& stats = columns.stats;
  const auto i = static_cast<size_t>(row);
  const bool valid = folded.defined();
  const double log_sum = valid ? folded.log_sum() : kNan;
  stats.max_logit[i] = valid ? folded.max : kNan;
  stats.log_sum[i] = log_sum;
  for (int64_t pick = problem().pick_begin(row); pick < problem().pick_end(row); ++pick) {
    const auto k = static_cast<size_t>(pick);
    stats.logp[k] = stats::logp_of(problem(), stats, row, columns.picked[k]);
  }
  stats.lse[i] = stats.max_logit[i] / problem().logit_temperature(row) + log_sum;
  if (problem().request.entropy) stats.entropy[i] = log_sum - folded.weighted / (1 + folded.rest);
  if (problem().request.cross) stats.cross[i] = folded.cross - log_sum * folded.cross_mass;
  if (problem().request.argmax) stats.argmax[i] = valid ? folded.argmax : -1;
}

template <class Visit>
void LogSumPartials::each_sent(kernels::RowStats& stats, Visit& visit) const {
  visit(stats.max, double());
  visit(stats.rest, double());
  if (wants_entropy()) visit(stats.weighted, double());
  if (wants_argmax()) visit(stats.argmax, int64_t());
}

void LogSumPartials::join_parts(int64_t row, const kernels::RowStats& part, kernels::RowStats& whole) const {
  whole = kernels::merge(whole, part, problem().inverse_of(temperature(row)));
}

size_t LogSumPartials::wire_bytes(int64_t) const {
  size_t bytes = 0;
  const auto count = [&](auto&, auto as) { bytes += sizeof as; };
  kernels::RowStats any;
  each_sent(any, count);
  return bytes;
}

std::byte* LogSumPartials::put(int64_t, int64_t place, const stats::Columns&, std::byte* to) const {
  Writer write(to);
  each_sent(*of(0, place), write);
  return write.end();
}

std::byte* LogSumPartials::put_empty(int64_t, std::byte* to) const {
  Writer write(to);
  kernels::RowStats none;
  each_sent(none, write);
  return write.end();
}

const std::byte* LogSumPartials::join(int64_t row, int64_t place, bool first, const std::byte* from,
                                      stats::Columns&) const {
  Reader read(from);
  kernels::RowStats part;
  each_sent(part, read);
  join_next(row, place, first, part);
  return read.end();
}

void OutsidePartials::finish(int64_t row, int64_t place, stats::Columns& columns) const {
  const kernels::RowStats& folded = *of(0, place);
  TokenStats& stats = columns.stats;
  const auto i = static_cast<size_t>(row);
  if (std::isnan(stats.max_logit[i])) {
    stats.outside[i] = stats.outside_max[i] = kNan;
    return;
  }
  stats.outside_max[i] = folded.max;
  stats.outside[i] = folded.max;  // -inf if these entries have no mass
  if (!folded.defined()) return;
  // If the picks have little mass, the difference of two log-sums loses its digits.
  double picks = 0;
  problem::for_each_distinct(problem(), row, [&](int64_t, int64_t pick, int64_t, int64_t) {
    picks += std::exp(stats.logp[static_cast<size_t>(pick)] * problem().logp_temperature(row));
  });
  const double below = (folded.max - stats.max_logit[i]) / problem().logit_temperature(row);
  stats.outside[i] = picks < 0.5 ? std::log1p(-picks) : below + folded.log_sum() - stats.log_sum[i];
}

void SquarePartials::finish(int64_t row, int64_t place, stats::Columns& columns) const {
  const kernels::RowStats& folded = *of(0, place);
  TokenStats& stats = columns.stats;
  const auto i = static_cast<size_t>(row);
  // Both sums are relative to the row's maximum, which cancels.
  stats.square_sum[i] =
      std::isnan(stats.max_logit[i]) ? kNan : std::min(1.0, std::exp(folded.log_sum() - 2 * stats.log_sum[i]));
}

void AbovePartials::finish(int64_t row, int64_t place, stats::Columns& columns) const {
  const auto i = static_cast<size_t>(row);
  const bool defined = problem().target(row) && !std::isnan(columns.stats.max_logit[i]);
  columns.stats.rank[i] = defined ? 1 + *of(0, place) : 0;
}

}  // namespace logitless::fold

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The partials that a teacher adds.
#include <cmath>
#include <cstring>
#include <limits>

#include "fold/partials.h"
#include "fold/wire.h"
#include "stats/divergence.h"

namespace logitless::fold {

double SidePartials::temperature(int64_t row) const {
  const problem::DivergenceTask& task = *problem().divergence;
  return (is_teacher() ? task.teacher : task.student).of(row);
}

template <class Visit>
void SidePartials::each_sent(kernels::RowStats& stats, Visit& visit) const {
  visit(stats.max, double());
  visit(stats.rest, double());
  if (wants_entropy()) visit(stats.weighted, double());
  if (wants_argmax()) visit(stats.argmax, int64_t());
}

void SidePartials::join_parts(int64_t row, const kernels::RowStats& part, kernels::RowStats& whole) const {
  whole = kernels::merge(whole, part, problem().inverse_of(temperature(row)));
}

size_t SidePartials::wire_bytes(int64_t) const {
  size_t bytes = 0;
  const auto count = [&](auto&, auto as) { bytes += sizeof as; };
  kernels::RowStats any;
  each_sent(any, count);
  return bytes;
}

std::byte* SidePartials::put(int64_t, int64_t place, const stats::Columns&, std::byte* to) const {
  Writer write(to);
  each_sent(*of(0, place), write);
  return write.end();
}

std::byte* SidePartials::put_nothing(int64_t, std::byte* to) const {
  Writer write(to);
  kernels::RowStats none;
  each_sent(none, write);
  return write.end();
}

const std::byte* SidePartials::join(int64_t row, int64_t place, bool first, const std::byte* from,
                                    stats::Columns&) const {
  Reader read(from);
  kernels::RowStats part;
  each_sent(part, read);
  join_next(row, place, first, part);
  return read.end();
}

void SidePartials::finish(int64_t row, int64_t place, stats::Columns& columns) const {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  const kernels::RowStats& folded = *of(0, place);
  DivergenceStats& stats = columns.stats.divergence;
  const auto i = static_cast<size_t>(row);
  const bool valid = folded.defined();
  const double log_sum = valid ? folded.log_sum() : kNan;
  const double entropy = log_sum - folded.weighted / (1 + folded.rest);
  if (!is_teacher()) {
    stats.log_sum[i] = log_sum;
    if (wants_entropy()) stats.entropy[i] = entropy;
    return;
  }
  stats.teacher_max_logit[i] = valid ? folded.max : kNan;
  stats.teacher_log_sum[i] = log_sum;
  if (wants_entropy()) stats.teacher_entropy[i] = entropy;
  if (wants_argmax()) stats.teacher_argmax[i] = valid ? folded.argmax : -1;
  if (!problem().divergence->shares_softmax) return;
  // What the first partials have found of the student serves the divergence, too.
  stats.log_sum[i] = columns.stats.log_sum[i];
  if (wants_entropy()) stats.entropy[i] = columns.stats.entropy[i];
}

std::byte* DivergencePartials::put(int64_t, int64_t place, const stats::Columns&, std::byte* to) const {
  std::memcpy(to, of(0, place), sizeof(kernels::DivergenceSums));
  return to + sizeof(kernels::DivergenceSums);
}

std::byte* DivergencePartials::put_nothing(int64_t, std::byte* to) const {
  const kernels::DivergenceSums none;
  std::memcpy(to, &none, sizeof none);
  return to + sizeof none;
}

const std::byte* DivergencePartials::join(int64_t row, int64_t place, bool first, const std::byte* from,
                                          stats::Columns&) const {
  kernels::DivergenceSums part;
  std::memcpy(&part, from, sizeof part);
  join_next(row, place, first, part);
  return from + sizeof part;
}

void DivergencePartials::finish(int64_t row, int64_t place, stats::Columns& columns) const {
  stats::finish_divergence(*problem().divergence, *of(0, place), row, columns.stats.divergence);
}

}  // namespace logitless::fold

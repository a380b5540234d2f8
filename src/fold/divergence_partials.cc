// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The partials of calls with a teacher.
#include <cmath>
#include <limits>

#include "fold/partials.h"
#include "stats/divergence.h"

namespace logitless::fold {

double SidePartials::temperature(int64_t row) const {
  const problem::DivergenceTask& task = *problem().divergence;
  return (is_teacher() ? task.teacher : task.student).of(row);
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
  // The divergence uses the student's statistics from SoftmaxPartials.
  stats.log_sum[i] = columns.stats.log_sum[i];
  if (wants_entropy()) stats.entropy[i] = columns.stats.entropy[i];
}

void DivergencePartials::finish(int64_t row, int64_t place, stats::Columns& columns) const {
  stats::finish_divergence(*problem().divergence, *of(0, place), row, columns.stats.divergence);
}

}  // namespace logitless::fold

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "stats/divergence.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace logitless::stats {
namespace {

using kernels::DivergenceForm;
using kernels::DivergenceSums;
using kernels::PairSlope;
using problem::DivergenceTask;

// At the limits of its parameter, a divergence is exactly another one.
Divergence kind_of(const DivergenceTask& task) {
  switch (task.kind) {
    case Divergence::kJsd:
      if (task.parameter == 0) return Divergence::kForwardKl;
      if (task.parameter == 1) return Divergence::kReverseKl;
      break;
    case Divergence::kSkewKl:
      if (task.parameter == 0) return Divergence::kForwardKl;
      break;
    case Divergence::kSkewReverseKl:
      if (task.parameter == 0) return Divergence::kReverseKl;
      break;
    default:
      break;
  }
  return task.kind;
}

// The coefficients of KL(t ‖ s), of KL(s ‖ t) and of ½ Σ |s - t| in a divergence of form kKl.
struct Shares {
  double forward = 0;
  double reverse = 0;
  double variation = 0;
};

Shares shares_of(const DivergenceTask& task, double overlap) {
  switch (kind_of(task)) {
    case Divergence::kForwardKl:
      return {.forward = 1};
    case Divergence::kReverseKl:
      return {.reverse = 1};
    case Divergence::kTotalVariation:
      return {.variation = 1};
    case Divergence::kMixedKl:
      return {.forward = task.parameter, .reverse = 1 - task.parameter};
    case Divergence::kLkHybrid: {
      const double kl = std::exp(-task.parameter * overlap);
      return {.forward = kl, .variation = 1 - kl};
    }
    default:
      return {};
  }
}

// Returns share · value, with 0 · ∞ = 0: a summand without a share does not count.
double shared(double share, double value) { return share == 0 ? 0 : share * value; }

// Returns ½ Σ |s - t| = 1 - Σ min(s, t), from the sum that has more digits.
double variation(const DivergenceSums& sums) {
  const double half = sums.distance / 2;
  return half < 0.5 ? half : 1 - sums.overlap;
}

double value_of(const DivergenceTask& task, const DivergenceSums& sums, double overlap) {
  switch (kind_of(task)) {
    case Divergence::kJsd:
      return task.parameter * sums.forward + (1 - task.parameter) * sums.reverse;
    case Divergence::kSkewKl:
      return sums.forward;
    case Divergence::kSkewReverseKl:
      return sums.reverse;
    case Divergence::kAcceptance:
      // 1 - ½ Σ |s - t| is accurate for an overlap near 1, the sum in log-space for an overlap near 0.
      if (sums.distance < 1) return -std::log1p(-sums.distance / 2);
      return -(sums.most + std::log(sums.shared));
    default: {
      const Shares shares = shares_of(task, overlap);
      return shared(shares.forward, sums.forward) + shared(shares.reverse, sums.reverse) +
             shared(shares.variation, variation(sums));
    }
  }
}

double mean_of(const DivergenceTask& task, const DivergenceSums& sums) {
  if (divergence_rule<double>(task).form == DivergenceForm::kOverlap) return sums.below / sums.shared;
  return sums.slope;
}

// Returns the slope of a divergence of form kKl. No divergence has both a reverse KL and a variation.
PairSlope slope_of(const DivergenceTask& task) {
  const Divergence kind = kind_of(task);
  if (kind == Divergence::kTotalVariation || kind == Divergence::kLkHybrid) return PairSlope::kSign;
  return shares_of(task, 1).reverse != 0 ? PairSlope::kLogRatio : PairSlope::kNone;
}

}  // namespace

template <class T>
kernels::DivergenceRule<T> divergence_rule(const DivergenceTask& task) {
  kernels::DivergenceRule<T> rule;
  const double x = task.parameter;
  double teacher = 0, by_log = 0, by_ratio = 0;
  switch (kind_of(task)) {
    case Divergence::kJsd:
      teacher = x, by_log = 1 - x;
      break;
    case Divergence::kSkewKl:
      teacher = x, by_ratio = (1 - x) * (1 - x);
      break;
    case Divergence::kSkewReverseKl:
      teacher = 1 - x, by_log = 1, by_ratio = -x * (1 - x);
      break;
    case Divergence::kAcceptance:
      rule.form = DivergenceForm::kOverlap;
      return rule;
    default:
      rule.slope = slope_of(task);
      return rule;
  }
  rule.form = DivergenceForm::kMixture;
  // Weights are at least the smallest normal number of T, so that a mixture never loses one of its two parts.
  const double least = std::numeric_limits<T>::min();
  const bool reverse = task.kind == Divergence::kSkewReverseKl;
  rule.teacher_weight = static_cast<T>(std::max(teacher, least));
  rule.student_weight = static_cast<T>(std::max(reverse ? x : 1 - x, least));
  rule.by_log = static_cast<T>(by_log);
  rule.by_ratio = static_cast<T>(by_ratio);
  return rule;
}

template <class T>
kernels::PairMass<T> pair_mass(const DivergenceTask& task) {
  if (divergence_rule<T>(task).form == DivergenceForm::kMixture) return {0, 1, 1};
  switch (kind_of(task)) {
    case Divergence::kForwardKl:
      return {1, 0, 0};
    case Divergence::kReverseKl:
      return {0, 1, 1};
    case Divergence::kMixedKl:
      return {1, 1, 1};
    case Divergence::kLkHybrid:
      return {1, 1, 0};
    default:
      return {0, 1, 0};
  }
}

template <class T>
kernels::RowPair<T> row_pair(const problem::TokenProblem& problem, const TokenStats& stats, int64_t row) {
  const auto i = static_cast<size_t>(row);
  const DivergenceTask& task = *problem.divergence;
  kernels::RowPair<T> pair;
  pair.student = {static_cast<T>(stats.max_logit[i]), static_cast<T>(stats.divergence.log_sum[i]),
                  static_cast<T>(problem.inverse_of(task.student.of(row)))};
  pair.teacher = {static_cast<T>(stats.divergence.teacher_max_logit[i]),
                  static_cast<T>(stats.divergence.teacher_log_sum[i]),
                  static_cast<T>(problem.inverse_of(task.teacher.of(row)))};
  return pair;
}

void finish_divergence(const DivergenceTask& task, const DivergenceSums& sums, int64_t row, DivergenceStats& stats) {
  const auto i = static_cast<size_t>(row);
  stats.overlap[i] = 1 - variation(sums);
  stats.value[i] = value_of(task, sums, stats.overlap[i]);
  stats.mean[i] = mean_of(task, sums);
}

double divergence_scale(const problem::TokenProblem& problem, const TokenGrads& grads, int64_t row) {
  if (grads.divergence.empty()) return 0;
  return grads.divergence[static_cast<size_t>(row)] / problem.divergence->student.of(row);
}

double largest_scale(const problem::TokenProblem& problem, const TokenStats& stats, const TokenGrads& grads,
                     int64_t row) {
  const auto g = row_divergence<double>(problem, stats, grads, row);
  const auto rule = divergence_rule<double>(*problem.divergence);
  if (rule.form == DivergenceForm::kOverlap) {
    return std::abs(g.by_difference) * std::max(std::exp(-g.log_overlap), std::abs(g.mean));
  }
  const double by_slope = rule.slope == PairSlope::kSign ? 0.5 + std::abs(g.mean) : std::max(1.0, std::abs(g.mean));
  return std::max(std::abs(g.by_difference), shared(std::abs(g.by_slope), by_slope));
}

template <class T>
kernels::RowDivergence<T> row_divergence(const problem::TokenProblem& problem, const TokenStats& stats,
                                         const TokenGrads& grads, int64_t row) {
  const auto i = static_cast<size_t>(row);
  const DivergenceTask& task = *problem.divergence;
  const DivergenceStats& of = stats.divergence;
  const double scale = divergence_scale(problem, grads, row);
  kernels::RowDivergence<T> out;
  out.pair = row_pair<T>(problem, stats, row);
  out.mean = static_cast<T>(of.mean[i]);
  switch (divergence_rule<double>(task).form) {
    case DivergenceForm::kKl: {
      const Shares shares = shares_of(task, of.overlap[i]);
      out.by_difference = static_cast<T>(scale * shares.forward);
      out.by_slope = static_cast<T>(scale * (shares.reverse + shares.variation));
      break;
    }
    case DivergenceForm::kMixture:
      out.by_slope = static_cast<T>(scale);
      break;
    case DivergenceForm::kOverlap:
      out.by_difference = static_cast<T>(scale);
      out.log_overlap = static_cast<T>(-of.value[i]);
      break;
  }
  return out;
}

#define LOGITLESS_INSTANTIATE(T)                                                                     \
  template kernels::DivergenceRule<T> divergence_rule(const DivergenceTask&);                        \
  template kernels::PairMass<T> pair_mass(const DivergenceTask&);                                    \
  template kernels::RowPair<T> row_pair(const problem::TokenProblem&, const TokenStats&, int64_t);   \
  template kernels::RowDivergence<T> row_divergence(const problem::TokenProblem&, const TokenStats&, \
                                                    const TokenGrads&, int64_t);
LOGITLESS_INSTANTIATE(float)
LOGITLESS_INSTANTIATE(double)
#undef LOGITLESS_INSTANTIATE

}  // namespace logitless::stats

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "stats/row_gradients.h"

#include <cmath>

namespace logitless::stats {
namespace {

double entry(const std::vector<double>& values, int64_t row) {
  return values.empty() ? 0.0 : values[static_cast<size_t>(row)];
}

}  // namespace

bool has_gradient(const TokenGrads& grads, int64_t row) {
  return entry(grads.logp, row) != 0 || entry(grads.lse, row) != 0 || entry(grads.entropy, row) != 0 ||
         entry(grads.cross, row) != 0;
}

template <class T>
kernels::RowGradient<T> row_gradient(const problem::TokenProblem& problem, const TokenStats& stats,
                                     const TokenGrads& grads, int64_t row) {
  const auto i = static_cast<size_t>(row);
  const double scale = 1 / problem.logit_temperature(row);
  const double g_logp = entry(grads.logp, row) / problem.logp_temperature(row);
  const double g_lse = entry(grads.lse, row);
  const double g_entropy = entry(grads.entropy, row);
  const double g_cross = entry(grads.cross, row);
  const double entropy = g_entropy != 0 ? stats.entropy[i] : 0;
  const std::optional<int64_t> target = problem.target(row);

  double at_target = 0;
  if (target) {
    // DL/da of the target's column; 1 - p = -expm1(log p) keeps its digits as p nears 1.
    const double log_p = stats.logp[i] * problem.logp_temperature(row);
    const double p = std::exp(log_p);
    at_target = -g_logp * std::expm1(log_p) + g_cross * problem.cross_weight(*target);
    at_target += p * (g_lse - g_cross * problem.cross.mass);
    if (p > 0 && g_entropy != 0) at_target -= g_entropy * p * (log_p + entropy);
  }

  kernels::RowGradient<T> out;
  out.max = static_cast<T>(stats.max_logit[i]);
  out.log_sum = static_cast<T>(stats.log_sum[i]);
  out.inverse_temperature = static_cast<T>(scale);
  out.softmax_scale = static_cast<T>((g_logp - g_lse + g_cross * problem.cross.mass) * scale);
  out.entropy_scale = static_cast<T>(g_entropy * scale);
  out.entropy = static_cast<T>(entropy);
  out.cross_scale = static_cast<T>(g_cross * scale);
  out.target_gradient = static_cast<T>(at_target * scale);
  out.target = static_cast<int32_t>(target.value_or(-1));
  return out;
}

template kernels::RowGradient<float> row_gradient(const problem::TokenProblem&, const TokenStats&, const TokenGrads&,
                                                  int64_t);
template kernels::RowGradient<double> row_gradient(const problem::TokenProblem&, const TokenStats&, const TokenGrads&,
                                                   int64_t);

}  // namespace logitless::stats

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "engine/row_gradients.h"

#include <cmath>

namespace logitless::engine {
namespace {

double entry(const std::vector<double>& values, int64_t row) {
  return values.empty() ? 0.0 : values[static_cast<size_t>(row)];
}

}  // namespace

bool has_gradient(const TokenGrads& grads, int64_t row) {
  return entry(grads.logp, row) != 0 || entry(grads.lse, row) != 0 || entry(grads.entropy, row) != 0 ||
         entry(grads.prior, row) != 0;
}

template <class T>
rows::RowGradient<T> row_gradient(const TokenProblem& problem, const TokenStats& stats, const TokenGrads& grads,
                                  int64_t row) {
  const auto i = static_cast<size_t>(row);
  const double scale = 1 / problem.logit_temperature(row);
  const double g_logp = entry(grads.logp, row) / problem.logp_temperature(row);
  const double g_lse = entry(grads.lse, row);
  const double g_entropy = entry(grads.entropy, row);
  const double g_prior = entry(grads.prior, row);
  const double entropy = g_entropy != 0 ? stats.entropy[i] : 0;
  const int64_t target = problem.targets[i];

  double at_target = 0;
  if (target >= 0) {
    // dL/da of the target's column; 1 - p = -expm1(log p) keeps its digits as p nears 1.
    const double log_p = stats.logp[i] * problem.logp_temperature(row);
    const double p = std::exp(log_p);
    at_target = -g_logp * std::expm1(log_p) + g_prior * problem.prior_weight(target);
    at_target += p * (g_lse - g_prior * problem.prior_mass);
    if (p > 0 && g_entropy != 0) at_target -= g_entropy * p * (log_p + entropy);
  }

  rows::RowGradient<T> out;
  out.max = static_cast<T>(stats.max_logit[i]);
  out.log_sum = static_cast<T>(stats.log_sum[i]);
  out.inverse_temperature = static_cast<T>(scale);
  out.softmax_term = static_cast<T>((g_logp - g_lse + g_prior * problem.prior_mass) * scale);
  out.entropy_term = static_cast<T>(g_entropy * scale);
  out.entropy = static_cast<T>(entropy);
  out.prior_term = static_cast<T>(g_prior * scale);
  out.target_gradient = static_cast<T>(at_target * scale);
  out.target = static_cast<int32_t>(target);
  return out;
}

template rows::RowGradient<float> row_gradient(const TokenProblem&, const TokenStats&, const TokenGrads&, int64_t);
template rows::RowGradient<double> row_gradient(const TokenProblem&, const TokenStats&, const TokenGrads&, int64_t);

}  // namespace logitless::engine

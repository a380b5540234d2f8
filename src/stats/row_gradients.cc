// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "stats/row_gradients.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace logitless::stats {
namespace {

double entry(const std::vector<double>& values, int64_t index) {
  return values.empty() ? 0.0 : values[static_cast<size_t>(index)];
}

// Adds the gradient of `outside` to all columns except picks, whose gradients include it already. In the
// other columns it is
//
//     g_outside p_v (1 / p_outside - 1)
//
// and p_outside may be too small for its reciprocal. So the kernel gets the maximum and the log-sum over
// these columns alone, and its p_v become p_v / p_outside.
void express_by_outside(const TokenStats& stats, size_t row, double g_outside, kernels::RowGradient<double>& out) {
  const double log_outside = stats.outside[row];
  if (log_outside == -std::numeric_limits<double>::infinity()) return;  // the columns have no mass
  const double outside = std::exp(log_outside);
  out.log_sum += log_outside - (stats.outside_max[row] - stats.max_logit[row]) * out.inverse_temperature;
  out.max = stats.outside_max[row];
  out.softmax_scale = outside * out.softmax_scale + g_outside * std::expm1(log_outside) * out.inverse_temperature;
  out.entropy_scale *= outside;
  // 1 - p_v = p_outside (1 - p_v / p_outside) + 1 - p_outside
  out.softmax_scale -= outside * out.square_scale * std::expm1(log_outside);
  out.square_scale *= outside * outside;
  out.entropy += log_outside;
}

}  // namespace

bool has_gradient(const problem::TokenProblem& problem, const TokenGrads& grads, int64_t row) {
  for (int64_t pick = problem.pick_begin(row); pick < problem.pick_end(row); ++pick) {
    if (entry(grads.logp, pick) != 0) return true;
  }
  return entry(grads.lse, row) != 0 || entry(grads.entropy, row) != 0 || entry(grads.cross, row) != 0 ||
         entry(grads.outside, row) != 0 || entry(grads.divergence, row) != 0 || entry(grads.square_sum, row) != 0;
}

GradientSummands gradient_summands(const TokenGrads& grads) {
  const auto any = [](const std::vector<double>& g) {
    return std::any_of(g.begin(), g.end(), [](double x) { return x != 0; });
  };
  const bool softmax = any(grads.logp) || any(grads.lse) || any(grads.cross) || any(grads.outside);
  return {any(grads.entropy) || any(grads.square_sum), any(grads.cross), softmax};
}

template <class T>
kernels::RowGradient<T> row_gradient(const problem::TokenProblem& problem, const TokenStats& stats,
                                     const TokenGrads& grads, int64_t row, kernels::PickGradient<T>* picks) {
  const auto i = static_cast<size_t>(row);
  const double scale = 1 / problem.logit_temperature(row);
  const double g_lse = entry(grads.lse, row);
  const double g_entropy = entry(grads.entropy, row);
  const double g_cross = entry(grads.cross, row);
  const double g_outside = entry(grads.outside, row);
  const double g_squares = entry(grads.square_sum, row);
  const double squares = g_squares != 0 ? stats.square_sum[i] : 0;
  const double entropy = g_entropy != 0 ? stats.entropy[i] : 0;
  const auto g_logp = [&](int64_t pick) { return entry(grads.logp, pick) / problem.logp_temperature(row); };

  const int64_t begin = problem.pick_begin(row), end = problem.pick_end(row);
  double all = 0;      // Σ g_logp
  int64_t column = 0;  // number of distinct ids so far
  for (int64_t pick = begin; pick < end; ++pick) all += g_logp(pick);
  // A token id with several picks has one column, where their gradients are added.
  for (int64_t pick = begin, next = begin; pick < end; pick = next) {
    const int64_t id = problem.picks.ids[static_cast<size_t>(pick)];
    double here = 0;
    for (; next < end && problem.picks.ids[static_cast<size_t>(next)] == id; ++next) here += g_logp(next);
    const double elsewhere = next - pick == end - begin ? 0 : all - here;
    // dL/da of the column; 1 - p = -expm1(log p) keeps its digits as p nears 1.
    const double log_p = stats.logp[static_cast<size_t>(pick)] * problem.logp_temperature(row);
    const double p = std::exp(log_p);
    double gradient = -here * std::expm1(log_p) + g_cross * problem.cross_weight(row, id);
    gradient += p * (g_lse - g_cross * problem.cross_mass(row) - g_outside - elsewhere);
    if (p > 0 && g_entropy != 0) gradient -= g_entropy * p * (log_p + entropy);
    gradient += 2 * g_squares * p * ((1 - squares) + std::expm1(log_p));
    std::fill(picks + (pick - begin), picks + (next - begin),
              kernels::PickGradient<T>{problem.over_picks ? column : id, static_cast<T>(gradient * scale)});
    ++column;
  }

  kernels::RowGradient<double> wide;
  wide.max = stats.max_logit[i];
  wide.log_sum = stats.log_sum[i];
  wide.inverse_temperature = scale;
  wide.softmax_scale = (all - g_lse + g_cross * problem.cross_mass(row) - 2 * g_squares * (1 - squares)) * scale;
  wide.entropy_scale = g_entropy * scale;
  wide.entropy = entropy;
  wide.square_scale = 2 * g_squares * scale;
  if (g_outside != 0) express_by_outside(stats, i, g_outside, wide);
  if (g_squares != 0) wide.others = -std::expm1(-wide.log_sum);

  kernels::RowGradient<T> out;
  out.max = static_cast<T>(wide.max);
  out.log_sum = static_cast<T>(wide.log_sum);
  out.inverse_temperature = static_cast<T>(scale);
  out.softmax_scale = static_cast<T>(wide.softmax_scale);
  out.entropy_scale = static_cast<T>(wide.entropy_scale);
  out.entropy = static_cast<T>(wide.entropy);
  out.square_scale = static_cast<T>(wide.square_scale);
  out.others = static_cast<T>(wide.others);
  out.cross_scale = static_cast<T>(g_cross * scale);
  out.weights = problem.own_weights<T>(row);
  out.picks = picks;
  out.pick_count = static_cast<int32_t>(end - begin);
  return out;
}

template kernels::RowGradient<float> row_gradient(const problem::TokenProblem&, const TokenStats&, const TokenGrads&,
                                                  int64_t, kernels::PickGradient<float>*);
template kernels::RowGradient<double> row_gradient(const problem::TokenProblem&, const TokenStats&, const TokenGrads&,
                                                   int64_t, kernels::PickGradient<double>*);

}  // namespace logitless::stats

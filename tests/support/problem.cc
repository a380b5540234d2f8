// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "support/problem.h"

#include <utility>

namespace logitless::oracle {

Problem read_problem(const HiddenStates& hidden, const HeadMatrices& head, Tokens tokens) {
  Problem problem{std::move(tokens), {}, {}, {}};
  problem.softcap = head.softcap;
  problem.hidden = read_hidden(hidden, problem);
  problem.weight = read_weight(head, 0, head.vocab_size());
  problem.bias = read_bias(head);
  return problem;
}

Statistics compute_statistics(const Problem& problem) {
  const int64_t tokens = problem.tokens();
  const int64_t vocab = problem.vocab();
  Statistics stats{TokenStatistics(tokens), {}, {}, {}};
  stats.raw = problem.hidden * problem.weight.transpose();
  stats.raw.rowwise() += problem.bias.transpose();
  stats.raw = stats.raw.unaryExpr([&](double sum) { return raw_logit(problem, sum); }).eval();
  stats.shifted = stats.log_p = MatrixXd::Zero(tokens, vocab);
  for (int64_t i = 0; i < tokens; ++i) {
    if (!problem.is_active(i)) continue;
    const VectorXd a = stats.raw.row(i).unaryExpr([&](double r) { return final_logit(problem, i, r); }).transpose();
    add_row_statistics(problem, i, a, stats);
    stats.shifted.row(i) = (a.array() - stats.max[i]).transpose();
    stats.log_p.row(i) = stats.shifted.row(i).array() - stats.log_sum[i];
  }
  return stats;
}

LogitGradients compute_logit_gradients(const Problem& problem, const Statistics& stats, const TokenGradients& grads) {
  const LogitGradientFormula formula(problem, stats, grads);
  LogitGradients result;
  result.d_final = result.d_raw = MatrixXd::Zero(problem.tokens(), problem.vocab());
  result.slope = MatrixXd::Ones(problem.tokens(), problem.vocab());
  for (int64_t i = 0; i < problem.tokens(); ++i) {
    if (!problem.is_active(i) || grads.all_zero(i)) continue;
    for (int64_t v = 0; v < problem.vocab(); ++v) {
      const LogitGradient gradient = formula.at(i, v, stats.raw(i, v));
      result.d_final(i, v) = gradient.d_final;
      result.slope(i, v) = gradient.slope;
      result.d_raw(i, v) = gradient.d_raw;
    }
  }
  return result;
}

ParameterGradients compute_parameter_gradients(const Problem& problem, const MatrixXd& d_raw) {
  MatrixXd used = problem.hidden;
  ParameterGradients result;
  result.d_hidden = d_raw * problem.weight;
  for (int64_t i = 0; i < problem.tokens(); ++i) {
    if (!(d_raw.row(i).array() == 0).all()) continue;
    used.row(i).setZero();  // 0 · NaN would be NaN
    result.d_hidden.row(i).setZero();
  }
  result.d_weight = d_raw.transpose() * used;
  result.d_bias = d_raw.colwise().sum().transpose();
  return result;
}

}  // namespace logitless::oracle

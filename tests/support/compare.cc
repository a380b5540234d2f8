// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "support/compare.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

namespace logitless::testing {

using oracle::MatrixXd;
using oracle::VectorXd;

namespace {

std::string element_name(const std::string& what, int64_t row, int64_t col) {
  return what + "[" + std::to_string(row) + ", " + std::to_string(col) + "]";
}

// One gradient output. want, element and mean_square are [vocabulary entries or tokens, H]; `transposed`
// means that the tensor is not.
struct OutputCheck {
  std::string what;
  const HostTensor& got;
  bool transposed;
  const MatrixXd& want;
  const MatrixXd& element;
  const MatrixXd& mean_square;
  std::function<double(int64_t row, int64_t col)> held;  // indexed by the tensor's own row and column
  double (*sum_error)(const oracle::Problem&, const Arithmetic&);
};

void expect_output_near(const OutputCheck& check, const Expected& expected) {
  EXPECT_TRUE(check.got.padding_is_intact()) << check.what << ": written between the rows";
  double squared_error = 0, squared_tolerance = 0, worst = 0;
  std::string worst_element;
  bool finite = true;
  // An independent error has a root mean square within 1 of the model; for n of them it stays below 1 + 7 /
  // sqrt(n).
  const double deviations = 1 + (kElementSigmas - 1) / std::sqrt(expected.independent_rows);
  const double held_share = check.sum_error(expected.problem, expected.arithmetic);
  for (int64_t r = 0; r < check.want.rows(); ++r) {
    for (int64_t c = 0; c < check.want.cols(); ++c) {
      const int64_t row = check.transposed ? c : r, col = check.transposed ? r : c;
      const double got = check.got.get(row, col);
      const double held = check.held(row, col);
      const double want = check.want(r, c) + held;
      // The initial value is one more term of the sum, and part of every partial sum.
      const double from_held = held_share * std::abs(held);
      const double sum_error = check.element(r, c) + from_held;
      const double rounding = std::isfinite(want) ? half_ulp(std::abs(want) + sum_error, check.got.dtype()) : 0.0;
      const double tolerance = sum_error + rounding;
      if (!is_near(got, want, tolerance)) {
        const double excess = std::isfinite(got) && std::isfinite(want) ? std::abs(got - want) / tolerance : INFINITY;
        if (worst_element.empty() || excess > worst) {
          worst = excess;
          worst_element = element_name(check.what, row, col) + " is " + ::testing::PrintToString(got) + ", not " +
                          ::testing::PrintToString(want) + " within " + ::testing::PrintToString(tolerance);
        }
      }
      if (!std::isfinite(want)) {
        finite = false;
        continue;
      }
      squared_error += (got - want) * (got - want);
      squared_tolerance += std::pow(deviations * check.mean_square(r, c) + from_held + rounding, 2);
    }
  }
  EXPECT_TRUE(worst_element.empty()) << "worst element: " << worst_element;
  if (finite) {
    EXPECT_TRUE(squared_error <= squared_tolerance)
        << check.what << ": L2 norm of the error is " << std::sqrt(squared_error) << ", the bound "
        << std::sqrt(squared_tolerance) << ", the norm " << check.want.norm();
  }
}

void expect_sign(const char* what, double value, int sign, int64_t row) {
  if (std::isnan(value)) return;  // another comparison checks whether it may be NaN
  EXPECT_TRUE(sign * value >= 0) << what << "[" << row << "] is " << value;
}

// Entries that rounding cannot order relative to the target may count as before or after it.
void expect_ranks(const std::vector<int64_t>& got, const Expected& expected) {
  const oracle::Problem& problem = expected.problem;
  const oracle::Statistics& want = expected.stats;
  const MatrixXd& bounds = expected.stat_bounds.shifted;
  ASSERT_EQ(static_cast<int64_t>(got.size()), problem.tokens());
  for (int64_t i = 0; i < problem.tokens(); ++i) {
    int64_t least = want.rank[i], most = want.rank[i];
    if (least > 0) {
      const int64_t label = problem.labels[i];
      for (int64_t v = 0; v < problem.vocab(); ++v) {
        const double lead = want.shifted(i, v) - want.shifted(i, label), gap = bounds(i, v) + bounds(i, label);
        if (v == label || !std::isfinite(lead) || !(std::abs(lead) <= gap)) continue;
        lead > 0 ? --least : ++most;
      }
    }
    EXPECT_TRUE(least <= got[i] && got[i] <= most)
        << "rank[" << i << "] is " << got[i] << ", not from " << least << " to " << most;
  }
}

}  // namespace

Expected expect_statistics(oracle::Problem problem, const Arithmetic& arithmetic) {
  Expected expected;
  expected.problem = std::move(problem);
  expected.arithmetic = arithmetic;
  expected.stats = oracle::compute_statistics(expected.problem);
  expected.abs_products = absolute_products(expected.problem);
  expected.stat_bounds = bound_statistics(expected.problem, expected.stats, expected.abs_products, arithmetic);
  return expected;
}

void add_gradients(Expected& expected, const oracle::TokenGradients& grads,
                   const oracle::TokenGradients& token_errors) {
  const oracle::Problem& problem = expected.problem;
  expected.grads = grads;
  const auto logit_gradients = oracle::compute_logit_gradients(problem, expected.stats, grads);
  expected.gradients = oracle::compute_parameter_gradients(problem, logit_gradients.d_raw);
  const oracle::ParameterGradients abs_gradients = absolute_gradients(problem, logit_gradients.d_raw);
  const auto bound = [&](const StatisticBounds& stat_bounds, const Arithmetic& arithmetic, MatrixXd& d_raw_bound) {
    d_raw_bound =
        bound_logit_gradients(problem, expected.stats, stat_bounds, grads, token_errors, logit_gradients, arithmetic);
    return bound_parameter_gradients(problem, abs_gradients, d_raw_bound, arithmetic);
  };
  MatrixXd d_raw_bound;
  expected.element_bounds = bound(expected.stat_bounds, expected.arithmetic, d_raw_bound);
  Arithmetic mean_square = expected.arithmetic;
  mean_square.sigmas = kMeanSquareSigmas;
  expected.mean_square_bounds =
      bound(bound_statistics(problem, expected.stats, expected.abs_products, mean_square), mean_square, d_raw_bound);
  const VectorXd weights = d_raw_bound.rowwise().squaredNorm();
  const double sum = weights.sum(), squares = weights.squaredNorm();
  if (squares > 0) expected.independent_rows = std::max(1.0, sum * sum / squares);
}

bool is_near(double got, double want, double tolerance) {
  if (std::isnan(want)) return std::isnan(got);
  if (std::isinf(want)) return got == want;
  return std::abs(got - want) <= tolerance;
}

void expect_near(const std::string& what, double got, double want, double tolerance) {
  EXPECT_TRUE(is_near(got, want, tolerance))
      << what << " is " << ::testing::PrintToString(got) << ", not " << ::testing::PrintToString(want) << " within "
      << tolerance << " (off by " << std::abs(got - want) << ")";
}

void expect_column_near(const std::string& what, const std::vector<double>& got, const VectorXd& want,
                        const VectorXd& tolerance) {
  ASSERT_EQ(static_cast<int64_t>(got.size()), want.size()) << what;
  for (size_t i = 0; i < got.size(); ++i)
    expect_near(what + "[" + std::to_string(i) + "]", got[i], want[i], tolerance[i]);
}

void expect_gradients_near(const GradientOutputs& outputs, const Expected& expected, const RunSpec& run,
                           HeadLayout layout) {
  const auto held = [&](int64_t row, int64_t col) { return outputs.held(row, col); };
  const auto& [want, element, mean_square] =
      std::tie(expected.gradients, expected.element_bounds, expected.mean_square_bounds);
  if (run.d_hidden) {
    EXPECT_TRUE(outputs.d_hidden().padding_is_intact()) << "d_hidden: written between the rows";
    const HostTensor all = outputs.d_hidden();
    expect_output_near(
        {"d_hidden", all, false, want.d_hidden, element.d_hidden, mean_square.d_hidden, held, sum_over_vocab},
        expected);
  }
  if (run.d_weight) {
    const auto held_weight = [&](int64_t row, int64_t col) { return run.sink ? 0.0 : outputs.held(row, col); };
    expect_output_near({"d_weight", outputs.d_weight(), layout == HeadLayout::kHiddenVocab, want.d_weight,
                        element.d_weight, mean_square.d_weight, held_weight, sum_over_tokens},
                       expected);
  }
  if (outputs.d_bias().cols() > 0) {
    const MatrixXd bias = want.d_bias, bias_element = element.d_bias, bias_mean_square = mean_square.d_bias;
    expect_output_near({"d_bias", outputs.d_bias(), true, bias, bias_element, bias_mean_square, held, sum_over_tokens},
                       expected);
  }
  if (run.sink && run.d_weight) {
    EXPECT_EQ(outputs.words_received(), expected.problem.vocab()) << "vocabulary entries that reached the sink";
    EXPECT_EQ(outputs.sink_complaints(), "");
  }
}

void expect_statistics_near(const TokenStats& got, const Expected& expected) {
  const oracle::Problem& problem = expected.problem;
  const oracle::Statistics& want = expected.stats;
  const StatisticBounds& bounds = expected.stat_bounds;
  expect_column_near("logp", got.logp, want.logp, bounds.logp);
  expect_column_near("lse", got.lse, want.lse, bounds.lse);
  if (!got.entropy.empty()) expect_column_near("entropy", got.entropy, want.entropy, bounds.entropy);
  if (!got.cross.empty()) expect_column_near("cross", got.cross, want.cross, bounds.cross);
  expect_column_near("log_sum", got.log_sum, want.log_sum, bounds.log_sum);
  ASSERT_EQ(static_cast<int64_t>(got.max_logit.size()), problem.tokens());
  for (int64_t i = 0; i < problem.tokens(); ++i) {
    expect_near("max_logit[" + std::to_string(i) + "]", got.max_logit[i], want.max[i] * problem.logit_divisor(i),
                bounds.max[i] * problem.logit_divisor(i));
    expect_sign("logp", got.logp[i], -1, i);
    if (!got.cross.empty()) expect_sign("cross", got.cross[i], -1, i);
    if (!got.entropy.empty()) expect_sign("entropy", got.entropy[i], 1, i);
  }
  if (!got.rank.empty()) expect_ranks(got.rank, expected);
  if (got.argmax.empty()) return;
  ASSERT_EQ(static_cast<int64_t>(got.argmax.size()), problem.tokens());
  for (int64_t i = 0; i < problem.tokens(); ++i) {
    const int64_t entry = got.argmax[i];
    if (!problem.takes_part(i)) {
      EXPECT_EQ(entry, -1) << "argmax[" << i << "]";
    } else if (!std::isnan(want.max[i])) {
      ASSERT_TRUE(entry >= 0 && entry < problem.vocab()) << "argmax[" << i << "] is " << entry;
      // It may differ from the oracle's entry only if rounding can have put it first; of equal logits the
      // first entry is required.
      const double gap = bounds.shifted(i, entry) + bounds.shifted(i, want.argmax[i]);
      EXPECT_TRUE(entry == want.argmax[i] || (gap > 0 && want.shifted(i, entry) + gap >= 0))
          << "argmax[" << i << "] is " << entry << ", not " << want.argmax[i];
    }
  }
}

void expect_loss_near(const CrossEntropyResult& got, const Expected& expected, const oracle::Loss& want,
                      const oracle::Loss& tolerance, const CrossEntropy& options) {
  expect_near("loss", got.loss, want.loss, tolerance.loss);
  ASSERT_EQ(got.per_token_loss.size(), want.per_token_loss.size());
  for (size_t i = 0; i < want.per_token_loss.size(); ++i) {
    expect_near("per_token_loss[" + std::to_string(i) + "]", got.per_token_loss[i], want.per_token_loss[i],
                tolerance.per_token_loss[i]);
  }
  expect_column_near("per_token_logps", got.per_token_logps, expected.stats.logp, expected.stat_bounds.logp);
  EXPECT_EQ(got.metrics.tokens, want.metrics.tokens);
  const double nll_error = tolerance.metrics.mean_nll;
  expect_near("mean_nll", got.metrics.mean_nll, want.metrics.mean_nll, nll_error);
  expect_near("perplexity", got.metrics.perplexity, want.metrics.perplexity,
              want.metrics.perplexity * (std::expm1(nll_error) + 0x1p-50));
  expect_near("metrics.z_loss", got.metrics.z_loss, want.metrics.z_loss, tolerance.metrics.z_loss);
  if (want.metrics.tokens == 0) return;
  if (options.want_entropy) {
    expect_near("mean_entropy", got.metrics.mean_entropy, want.metrics.mean_entropy, tolerance.metrics.mean_entropy);
  }
  if (options.want_accuracy) {
    // Rows whose two largest logits rounding cannot tell apart may count either way.
    double ambiguous = 0;
    for (int64_t i = 0; i < expected.problem.tokens(); ++i) {
      if (!expected.problem.takes_part(i)) continue;
      const int64_t best = expected.stats.argmax[i];
      for (int64_t v = 0; v < expected.problem.vocab(); ++v) {
        const double gap = expected.stat_bounds.shifted(i, v) + expected.stat_bounds.shifted(i, best);
        if (v == best || !(expected.stats.shifted(i, v) + gap >= 0)) continue;
        ambiguous += 1;
        break;
      }
    }
    expect_near("accuracy", got.metrics.accuracy, want.metrics.accuracy,
                ambiguous / static_cast<double>(want.metrics.tokens) + 0x1p-50);
  }
}

}  // namespace logitless::testing

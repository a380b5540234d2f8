// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Compares results with the oracle. Comparisons are written as !(difference <= tolerance), so that NaN fails.
#pragma once

#include <string>
#include <vector>

#include "logitless/cross_entropy.h"
#include "support/bounds.h"
#include "support/inputs.h"
#include "support/problem.h"

namespace logitless::testing {

/// The oracle's results for a problem with gradients, and an engine's error bounds.
struct Expected {
  oracle::Problem problem;
  oracle::Statistics stats;
  oracle::MatrixXd abs_products;
  StatisticBounds stat_bounds;
  Arithmetic arithmetic;
  oracle::TokenGradients grads;
  oracle::ParameterGradients gradients;
  oracle::ParameterGradients element_bounds;
  oracle::ParameterGradients mean_square_bounds;
  /// The number of independent errors in a mean square: rows of equal weight in the error of a sum over rows.
  double independent_rows = 1;
};

/// Computes the statistics of a problem.
Expected expect_statistics(oracle::Problem problem, const Arithmetic& arithmetic);
/// Adds the gradients. `token_errors` bounds the errors of `grads` themselves.
void add_gradients(Expected& expected, const oracle::TokenGradients& grads, const oracle::TokenGradients& token_errors);

/// Returns whether both are NaN, both are the same infinity, or `got` is within `tolerance` of `want`.
bool is_near(double got, double want, double tolerance);
void expect_near(const std::string& what, double got, double want, double tolerance);

/// Expects one entry per row. Entries of ignored rows must be exactly 0.
void expect_column_near(const std::string& what, const std::vector<double>& got, const oracle::VectorXd& want,
                        const oracle::VectorXd& tolerance);

/// Compares every element and the root mean square of each output that `run` requests, and checks the
/// padding.
void expect_gradients_near(const GradientOutputs& outputs, const Expected& expected, const RunSpec& run,
                           HeadLayout layout);

/// Compares logp, lse, entropy, cross, argmax and rank, unless they are empty; the signs of logp, cross and
/// entropy, and whether argmax and ranks are possible with rounding.
void expect_statistics_near(const TokenStats& got, const Expected& expected);

/// Compares loss, per_token_loss, per_token_logps and metrics.
void expect_loss_near(const CrossEntropyResult& got, const Expected& expected, const oracle::Loss& want,
                      const oracle::Loss& tolerance, const CrossEntropy& options);

}  // namespace logitless::testing

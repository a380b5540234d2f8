// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Compares results with the oracle. Every comparison is one that a NaN fails: !(difference <= tolerance).
#pragma once

#include <string>
#include <vector>

#include "logitless/cross_entropy.h"
#include "support/bounds.h"
#include "support/inputs.h"
#include "support/problem.h"

namespace logitless::testing {

/// The oracle's truth of a problem with gradients, and how far from it an engine may be.
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
  /// Rows of equal weight in the error of a sum over rows: how many independent errors a mean square is taken
  /// over.
  double independent_rows = 1;
};

/// Computes the statistics of a problem.
Expected expect_statistics(oracle::Problem problem, const Arithmetic& arithmetic);
/// Adds the gradients. `token_errors` bounds the errors of `grads` themselves.
void add_gradients(Expected& expected, const oracle::TokenGradients& grads, const oracle::TokenGradients& token_errors);

/// Tells whether both are NaN, both are the same infinity, or `got` is within `tolerance` of `want`.
bool is_near(double got, double want, double tolerance);
void expect_near(const std::string& what, double got, double want, double tolerance);

/// Expects one entry a row. Entries of rows that take no part must be exactly 0.
void expect_column_near(const std::string& what, const std::vector<double>& got, const oracle::VectorXd& want,
                        const oracle::VectorXd& tolerance);

/// Compares every element of every output that `run` asks for, each output's root mean square, and the
/// padding.
void expect_gradients_near(const GradientOutputs& outputs, const Expected& expected, const RunSpec& run,
                           HeadLayout layout);

/// Compares every statistic that is not empty, the signs of logp, cross and entropy, the vocabulary entries
/// argmax may be and the ranks that rounding can give.
void expect_statistics_near(const TokenStats& got, const Expected& expected);

/// Compares loss, per_token_loss, per_token_logps and metrics.
void expect_loss_near(const CrossEntropyResult& got, const Expected& expected, const oracle::Loss& want,
                      const oracle::Loss& tolerance, const CrossEntropy& options);

}  // namespace logitless::testing

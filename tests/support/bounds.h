// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// How far a correct engine may be from the oracle: a running error analysis of the formulas in oracle.h, on
// the data of the problem at hand. No bound is fitted to what the engine gives.
//
// The one model behind all of it: a sum of k terms, in any order, in arithmetic with unit roundoff u, errs by
// at most g(k) · Σ|terms|. Always g(k) <= k u; and when rounding errors are independent with mean 0, g(k) <=
// s sqrt(k) u but for a probability below 2 exp(-s²/2) (Higham and Mary, "A new approach to probabilistic
// rounding error analysis", SIAM J. Sci. Comput. 41(5), 2019, theorem 2.4). An element may err by s = 8
// (1e-14: never, in a test suite); a root mean square over many elements only by s = 1, which is where loss
// of digits shows first.
#pragma once

#include <string>

#include "support/problem.h"

namespace logitless::testing {

/// The factors s of the model above.
inline constexpr double kElementSigmas = 8;
inline constexpr double kMeanSquareSigmas = 1;

/// Errors that exp, log1p, expm1 and tanh of the engine may have, in units of u: 4 ulp, the contract of its
/// kernels.
inline constexpr double kFunctionUnits = 8;

struct Arithmetic {
  double unit = 0x1p-24;       ///< u of products and sums
  double smallest = 0x1p-126;  ///< below it results may be flushed to 0
  double gradient_unit = 0;    ///< relative error of dL/dlogits as the gradient GEMMs read them
  bool exact_logits = false;   ///< the test's inputs are small integers: r has no error at all
  double sigmas = kElementSigmas;

  double sum(double terms) const;
};

/// Returns the arithmetic that a context's calls run for inputs of this type. For float64 the oracle errs as
/// much as the engine, so the unit is doubled.
Arithmetic arithmetic_for(DType inputs, const Context& context);

/// The relative errors of the sums that end in d_hidden, and in d_weight and d_bias.
double sum_over_vocab(const oracle::Problem& problem, const Arithmetic& arithmetic);
double sum_over_tokens(const oracle::Problem& problem, const Arithmetic& arithmetic);

/// Σ_h |x_ih| |w_vh|, [N, V].
oracle::MatrixXd absolute_products(const oracle::Problem& problem);
/// The sums of the gradients with every term's absolute value.
oracle::ParameterGradients absolute_gradients(const oracle::Problem& problem, const oracle::MatrixXd& d_raw);

/// Bounds |engine - oracle| for everything in oracle::Statistics.
struct StatisticBounds {
  oracle::MatrixXd raw;      ///< of r, [N, V]
  oracle::MatrixXd shifted;  ///< of a - m, apart from an error that all vocabulary entries share, [N, V]
  oracle::MatrixXd log_p;    ///< [N, V]
  oracle::VectorXd max, log_sum, logp, lse, entropy, cross, outside, square_sum;
};

StatisticBounds bound_statistics(const oracle::Problem& problem, const oracle::Statistics& stats,
                                 const oracle::MatrixXd& abs_products, const Arithmetic& arithmetic);

/// Bounds dL/dr, [N, V]. `token_errors` bounds the errors of `grads` themselves.
oracle::MatrixXd bound_logit_gradients(const oracle::Problem& problem, const oracle::Statistics& stats,
                                       const StatisticBounds& bounds, const oracle::TokenGradients& grads,
                                       const oracle::TokenGradients& token_errors,
                                       const oracle::LogitGradients& logit_gradients, const Arithmetic& arithmetic);

/// Bounds the sums, before the rounding to the output's type and without what an accumulating output held.
oracle::ParameterGradients bound_parameter_gradients(const oracle::Problem& problem,
                                                     const oracle::ParameterGradients& abs_gradients,
                                                     const oracle::MatrixXd& d_raw_bound, const Arithmetic& arithmetic);

/// Of gradients that are rounded to one term of bfloat16.
inline constexpr double kBfloat16Unit = 0x1p-8;
/// Adds to the bounds of products with such gradients, which are off by `d_bound`. What rounding leaves of
/// a row, or of a vocabulary entry, is put back with the mean row of some part of the head or of the states
/// (sink/kept_residuals.h), none of whose elements is above the largest of its column.
void add_put_back(const oracle::MatrixXd& d_bound, const oracle::MatrixXd& abs_hidden,
                  const oracle::MatrixXd& abs_weight, oracle::MatrixXd& d_hidden, oracle::MatrixXd& d_weight);

/// Bounds a Loss: loss, per_token_loss and grads (metrics but for z_loss follow from the statistics; mean_nll
/// and mean_entropy hold their bounds).
oracle::Loss bound_loss(const oracle::Problem& problem, const oracle::Statistics& stats, const StatisticBounds& bounds,
                        const CrossEntropy& options, const oracle::Loss& loss, const Arithmetic& arithmetic);

}  // namespace logitless::testing

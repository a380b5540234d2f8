// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Bounds the difference between a correct engine and the oracle: a running error analysis of the formulas in
// oracle.h, on the data of the given problem. No bound is fitted to the engine's results.
//
// All bounds use one model: a sum of k terms, in any order, in arithmetic with unit roundoff u, has an error
// of at most g(k) · Σ|terms|. Always g(k) <= k u. If rounding errors are independent with mean 0, then g(k)
// <= s sqrt(k) u, except with a probability below 2 exp(-s²/2) (Higham and Mary, "A new approach to
// probabilistic rounding error analysis", SIAM J. Sci. Comput. 41(5), 2019, theorem 2.4). For single elements
// s = 8 (probability 1e-14: never, in a test suite). For a root mean square over many elements s = 1, which
// is the first place where a loss of digits becomes visible.
#pragma once

#include <string>

#include "support/problem.h"

namespace logitless::testing {

/// The factors s of the model above.
inline constexpr double kElementSigmas = 8;
inline constexpr double kMeanSquareSigmas = 1;

/// Largest error of the engine's exp, log1p, expm1 and tanh, in units of u: 4 ulp, as in the contract of the
/// kernels.
inline constexpr double kFunctionUnits = 8;

struct Arithmetic {
  double unit = 0x1p-24;       ///< u of products and sums
  double smallest = 0x1p-126;  ///< results below it may be flushed to 0
  double gradient_unit = 0;    ///< relative error of dL/dlogits as input of the gradient GEMMs
  double sigmas = kElementSigmas;

  double sum(double terms) const;
};

/// Returns the arithmetic of a context's calls for inputs of this type. For float64 the oracle has the same
/// errors as the engine, so the unit is doubled.
Arithmetic arithmetic_for(DType inputs, const Context& context);

/// The relative errors of the sums for d_hidden, and for d_weight and d_bias.
double sum_over_vocab(const oracle::Problem& problem, const Arithmetic& arithmetic);
double sum_over_tokens(const oracle::Problem& problem, const Arithmetic& arithmetic);

/// Σ_h |x_ih| |w_vh|, [N, V].
oracle::MatrixXd absolute_products(const oracle::Problem& problem);
/// The gradients' sums over the absolute values of all terms.
oracle::ParameterGradients absolute_gradients(const oracle::Problem& problem, const oracle::MatrixXd& d_raw);

/// Bounds |engine - oracle|. Other statistics are compared on drawn calls only.
struct StatisticBounds {
  oracle::MatrixXd raw;      ///< of r, [N, V]
  oracle::MatrixXd shifted;  ///< of a - m, except for an error common to all vocabulary entries, [N, V]
  oracle::MatrixXd log_p;    ///< [N, V]
  oracle::VectorXd max, log_sum, logp, lse, entropy, cross;
};

StatisticBounds bound_statistics(const oracle::Problem& problem, const oracle::Statistics& stats,
                                 const oracle::MatrixXd& abs_products, const Arithmetic& arithmetic);

/// Bounds dL/dr, [N, V]. `token_errors` bounds the errors of `grads` themselves.
oracle::MatrixXd bound_logit_gradients(const oracle::Problem& problem, const oracle::Statistics& stats,
                                       const StatisticBounds& bounds, const oracle::TokenGradients& grads,
                                       const oracle::TokenGradients& token_errors,
                                       const oracle::LogitGradients& logit_gradients, const Arithmetic& arithmetic);

/// Bounds the sums before rounding to the output's type, without the initial value of an accumulating output.
oracle::ParameterGradients bound_parameter_gradients(const oracle::Problem& problem,
                                                     const oracle::ParameterGradients& abs_gradients,
                                                     const oracle::MatrixXd& d_raw_bound, const Arithmetic& arithmetic);

/// Relative rounding error of gradients with one bfloat16 term.
inline constexpr double kBfloat16Unit = 0x1p-8;
/// Adds the error of correcting rounding residuals to the bounds of products with such gradients; `d_bound`
/// bounds the rounding errors. The residuals of a row or a vocabulary entry are multiplied by the mean row of
/// some part of the head or the states (sink/kept_residuals.h), whose elements are at most the largest of
/// their column.
void add_put_back(const oracle::MatrixXd& d_bound, const oracle::MatrixXd& abs_hidden,
                  const oracle::MatrixXd& abs_weight, oracle::MatrixXd& d_hidden, oracle::MatrixXd& d_weight);

/// Bounds a Loss: loss, per_token_loss and grads. Metrics except z_loss follow from the statistics; mean_nll
/// and mean_entropy hold their bounds.
oracle::Loss bound_loss(const oracle::Problem& problem, const oracle::Statistics& stats, const StatisticBounds& bounds,
                        const CrossEntropy& options, const oracle::Loss& loss, const Arithmetic& arithmetic);

}  // namespace logitless::testing

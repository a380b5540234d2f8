// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The error bounds of docs/numerics.md for the mean cross-entropy.
#pragma once

#include <Eigen/Core>
#include <string>

#include "support/inputs.h"

namespace logitless::testing {

/// A gradient in float64, and the bounds of its elements.
struct BoundedGradient {
  Eigen::MatrixXd exact, bound;
};

/// The mean cross-entropy in float64, and the bounds of the library's results. d_weight is [V, H].
class BoundedCrossEntropy {
 public:
  /// `backend` multiplies. `sigmas` is 8 for elements, and 1 for the root mean square.
  BoundedCrossEntropy(const Inputs& inputs, const std::string& backend, double sigmas);

  BoundedGradient d_hidden() const { return product(d_, d_bound_, w_); }
  BoundedGradient d_weight() const { return product(d_.transpose(), d_bound_.transpose(), x_); }
  BoundedGradient d_bias() const;
  /// The number of independent errors of a mean square: rows of equal weight.
  double independent_rows() const;

  Eigen::VectorXd logp, logp_bound;

 private:
  double gamma(double terms) const;
  void add_row(int64_t i, int64_t target, double g);
  BoundedGradient product(const Eigen::MatrixXd& d, const Eigen::MatrixXd& d_bound, const Eigen::MatrixXd& by) const;

  double u_, gradient_unit_, sigmas_;
  Eigen::MatrixXd x_, w_, d_, d_bound_;  ///< states (0 in ignored rows), head, dL/dlogits
  Eigen::VectorXd bias_;
};

/// Compares all outputs of a call: every element, and the root mean square of each output. NaN must be NaN,
/// and an infinity the same one.
void expect_within(const GradientOutputs& outputs, HeadLayout layout, const BoundedCrossEntropy& element,
                   const BoundedCrossEntropy& mean_square);

}  // namespace logitless::testing

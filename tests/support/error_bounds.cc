// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "support/error_bounds.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace logitless::testing {

using Eigen::MatrixXd;
using Eigen::VectorXd;

BoundedCrossEntropy::BoundedCrossEntropy(const Inputs& inputs, const std::string& backend, double sigmas)
    : sigmas_(sigmas) {
  const InputSpec& spec = inputs.spec;
  // A backend that multiplies bfloat16 reads dL/dlogits in it. These are named here, so that a new backend is
  // tested with the tighter bounds.
  const bool narrow = backend == "amx" || backend == "bfmmla" || backend == "onednn";
  gradient_unit_ = narrow && spec.dtype == DType::kBFloat16 ? 0x1p-8 : 0;
  // In float64 the reference errs as much as the library.
  u_ = spec.dtype == DType::kFloat64 ? 2 * 0x1p-53 : 0x1p-24;
  d_ = d_bound_ = MatrixXd::Zero(spec.tokens, spec.vocab);
  x_ = MatrixXd::Zero(spec.tokens, spec.hidden);
  w_ = MatrixXd(spec.vocab, spec.hidden);
  bias_ = VectorXd(spec.vocab);
  logp = logp_bound = VectorXd::Zero(spec.tokens);
  for (int64_t v = 0; v < spec.vocab; ++v) {
    bias_[v] = inputs.bias.get(0, v);
    for (int64_t h = 0; h < spec.hidden; ++h) w_(v, h) = inputs.weight_at(v, h);
  }
  const auto active =
      static_cast<double>(std::ssize(inputs.targets) - std::ranges::count(inputs.targets, spec.ignore_index));
  for (int64_t i = 0; i < spec.tokens; ++i) {
    const int64_t target = inputs.targets[static_cast<size_t>(i)];
    if (target == spec.ignore_index) continue;
    for (int64_t h = 0; h < spec.hidden; ++h) x_(i, h) = inputs.hidden.get(i, h);
    add_row(i, target, 1 / active);
  }
}

double BoundedCrossEntropy::gamma(double terms) const {
  return std::min(terms * u_, sigmas_ * std::sqrt(terms) * u_) / (1 - terms * u_);
}

BoundedGradient BoundedCrossEntropy::d_bias() const {
  const BoundedGradient sums = product(d_.transpose(), d_bound_.transpose(), MatrixXd::Ones(d_.rows(), 1));
  return {sums.exact.transpose(), sums.bound.transpose()};
}

double BoundedCrossEntropy::independent_rows() const {
  const VectorXd weights = d_bound_.rowwise().squaredNorm();
  return std::max(1.0, std::pow(weights.sum(), 2) / weights.squaredNorm());
}

void BoundedCrossEntropy::add_row(int64_t i, int64_t target, double g) {
  const auto vocab = static_cast<double>(w_.rows());
  const VectorXd r = w_ * x_.row(i).transpose() + bias_;
  const VectorXd h = w_.cwiseAbs() * x_.row(i).cwiseAbs().transpose() + bias_.cwiseAbs();
  const VectorXd shifted = r.array() - r.maxCoeff();
  const auto exp = [](double x) { return std::exp(x); };  // Eigen's exp(-inf) is not 0
  const double l = std::log(shifted.unaryExpr(exp).sum());
  const VectorXd log_p = shifted.array() - l, p = log_p.unaryExpr(exp);
  VectorXd e = gamma(static_cast<double>(w_.cols() + 1)) * h + 4 * u_ * shifted.cwiseAbs();
  for (int64_t v = 0; v < w_.rows(); ++v) {
    if (p[v] == 0) e[v] = 0;  // a masked entry
  }
  const double growth = p.dot(e.unaryExpr([](double error) { return std::expm1(error); }));
  const double e_l = (8 * u_ + gamma(vocab)) * -std::expm1(-l) + 4 * u_ * l + vocab * 0x1p-126;
  for (int64_t v = 0; v < w_.rows(); ++v) {
    // The sum of p_w (e^{E_w + E_v} - 1) over all entries except v.
    const double others = std::max(0.0, growth - p[v] * std::expm1(e[v]));
    const double delta = std::exp(e[v]) * others - std::expm1(log_p[v]) * std::expm1(e[v]) + e_l +
                         2 * u_ * (std::abs(shifted[v]) + std::abs(log_p[v]));
    const double own = v == target ? std::expm1(log_p[v]) : p[v];
    const double from_p = p[v] == 0 ? 0 : p[v] * std::expm1(delta);
    d_(i, v) = g * own;
    d_bound_(i, v) = g * (from_p + (16 * u_ + gradient_unit_) * std::abs(own) + 5 * 0x1p-126);
    if (v == target) logp[i] = log_p[v], logp_bound[i] = delta + 2 * u_ * std::abs(log_p[v]);
  }
}

BoundedGradient BoundedCrossEntropy::product(const MatrixXd& d, const MatrixXd& d_bound, const MatrixXd& by) const {
  const MatrixXd size = by.cwiseAbs();
  MatrixXd bound = d_bound * size + gamma(static_cast<double>(by.rows() + 2)) * (d.cwiseAbs() * size);
  // Correcting the rounding residuals of bfloat16 multiplies them by a mean row (sink/kept_residuals.h).
  if (gradient_unit_ > 0 && by.cols() > 1) bound += d_bound.rowwise().sum() * size.colwise().maxCoeff();
  BoundedGradient out{d * by, bound};
  for (int64_t i = 0; i < d.rows(); ++i) {
    // The library skips such rows; here 0 times NaN would be NaN.
    if ((d.row(i).array() == 0).all()) out.exact.row(i).setZero(), out.bound.row(i).setZero();
  }
  return out;
}

namespace {

void expect_gradient_within(const char* name, const HostTensor& got, bool transposed, const BoundedGradient& element,
                            const BoundedGradient& mean_square, double independent_rows) {
  EXPECT_TRUE(got.padding_is_intact()) << name << ": written between the rows";
  // An independent error has a root mean square within 1 of the model; for n of them it stays below
  // 1 + 7 / sqrt(n).
  const double deviations = 1 + 7 / std::sqrt(independent_rows);
  double errors = 0, bounds = 0;
  bool finite = true;
  for (int64_t r = 0; r < element.exact.rows(); ++r) {
    for (int64_t c = 0; c < element.exact.cols(); ++c) {
      const double value = got.get(transposed ? c : r, transposed ? r : c), want = element.exact(r, c);
      if (!std::isfinite(want)) {
        ASSERT_TRUE(std::isnan(want) ? std::isnan(value) : value == want) << name << "[" << r << ", " << c << "]";
        finite = false;
        continue;
      }
      const double error = std::abs(value - want);
      const double stored = half_ulp(std::abs(want) + element.bound(r, c), got.dtype());
      ASSERT_TRUE(error <= element.bound(r, c) + stored) << name << "[" << r << ", " << c << "] is off by " << error;
      errors += error * error, bounds += std::pow(deviations * mean_square.bound(r, c) + stored, 2);
    }
  }
  if (finite) {
    EXPECT_LE(errors, bounds) << name;
  }
}

}  // namespace

void expect_within(const GradientOutputs& outputs, HeadLayout layout, const BoundedCrossEntropy& element,
                   const BoundedCrossEntropy& mean_square) {
  const double rows = mean_square.independent_rows();
  const bool hidden_vocab = layout == HeadLayout::kHiddenVocab;
  expect_gradient_within("d_hidden", outputs.d_hidden(), false, element.d_hidden(), mean_square.d_hidden(), rows);
  expect_gradient_within("d_weight", outputs.d_weight(), hidden_vocab, element.d_weight(), mean_square.d_weight(),
                         rows);
  expect_gradient_within("d_bias", outputs.d_bias(), false, element.d_bias(), mean_square.d_bias(), rows);
}

}  // namespace logitless::testing

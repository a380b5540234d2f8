// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// A number that knows how it depends on the inputs (forward differentiation), so that a formula on paper and its
// gradient are one text: sg, clamp and min are the functions of docs/losses.md, conventions for ties included.
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <vector>

namespace logitless::oracle {

struct Number {
  double value = 0;
  /// The value where every input is at the point at which sg() holds it. The same as `value`, unless one takes finite
  /// differences.
  double held = 0;
  Eigen::VectorXd slope;  ///< ∂value/∂input with nothing through sg(); empty: 0
  Eigen::VectorXd reach;  ///< ∂value/∂input with everything through sg(): how an error of an input arrives; empty: 0

  Number() = default;
  Number(double constant) : value(constant), held(constant) {}
  /// Input `index` of `count`.
  static Number input(double value, double held, int64_t index, int64_t count) {
    Number x;
    x.value = value;
    x.held = held;
    x.slope = x.reach = Eigen::VectorXd::Unit(count, index);
    return x;
  }

  double slope_at(int64_t index) const { return slope.size() == 0 ? 0.0 : slope[index]; }
  /// How far errors of the inputs move the value, to first order.
  double reached_by(const Eigen::VectorXd& errors) const {
    return reach.size() == 0 ? 0.0 : reach.cwiseAbs().dot(errors);
  }
};

namespace detail {

inline Eigen::VectorXd combine(double a, const Eigen::VectorXd& x, double b, const Eigen::VectorXd& y) {
  if (x.size() == 0 && y.size() == 0) return {};
  if (x.size() == 0) return b * y;
  if (y.size() == 0) return a * x;
  return a * x + b * y;
}

// A function of x and y with partial derivatives dx and dy.
inline Number function(double value, double held, double dx, const Number& x, double dy = 0, const Number& y = {}) {
  Number result;
  result.value = value;
  result.held = held;
  result.slope = combine(dx, x.slope, dy, y.slope);
  result.reach = combine(dx, x.reach, dy, y.reach);
  return result;
}

}  // namespace detail

inline Number operator+(const Number& x, const Number& y) {
  return detail::function(x.value + y.value, x.held + y.held, 1, x, 1, y);
}
inline Number operator-(const Number& x, const Number& y) {
  return detail::function(x.value - y.value, x.held - y.held, 1, x, -1, y);
}
inline Number operator*(const Number& x, const Number& y) {
  return detail::function(x.value * y.value, x.held * y.held, y.value, x, x.value, y);
}
inline Number operator/(const Number& x, double divisor) {
  return detail::function(x.value / divisor, x.held / divisor, 1 / divisor, x);
}
inline Number operator-(const Number& x) { return detail::function(-x.value, -x.held, -1, x); }
inline Number exp(const Number& x) {
  return detail::function(std::exp(x.value), std::exp(x.held), std::exp(x.value), x);
}
inline Number expm1(const Number& x) {
  return detail::function(std::expm1(x.value), std::expm1(x.held), std::exp(x.value), x);
}
/// 1 / (1 + e^-x).
inline Number sigmoid(const Number& x) {
  const auto of = [](double z) { return 1 / (1 + std::exp(-z)); };
  return detail::function(of(x.value), of(x.held), of(x.value) * of(-x.value), x);
}

/// x with no gradient.
inline Number sg(const Number& x) {
  Number result;
  result.value = result.held = x.held;
  result.reach = x.reach;
  return result;
}

/// A place where a formula has no derivative, or jumps.
struct Kink {
  double distance = 0;
  Number from;  ///< its reach says which inputs lead there
};

/// The functions that have kinks; they note how near the data come.
class Kinks {
 public:
  /// Passes the gradient where low <= x <= high, equality included.
  Number clamp(const Number& x, double low, double high) {
    note(x, low);
    note(x, high);
    const bool inside = low <= x.value && x.value <= high;
    return detail::function(std::clamp(x.value, low, high), std::clamp(x.held, low, high), inside ? 1 : 0, x);
  }
  /// Of equal values the first: the gradient flows where x stands on the bound.
  Number min(const Number& x, double bound) {
    note(x, bound);
    return detail::function(std::min(x.value, bound), std::min(x.held, bound), x.value <= bound ? 1 : 0, x);
  }
  bool at_most(const Number& x, const Number& bound) {
    note(x, bound);
    return x.value <= bound.value;
  }
  bool below(const Number& x, double bound) {
    note(x, bound);
    return x.value < bound;
  }
  bool above(const Number& x, double bound) {
    note(x, bound);
    return x.value > bound;
  }

  const std::vector<Kink>& all() const { return all_; }

 private:
  void note(const Number& x, const Number& bound) {
    const Number gap = x - bound;
    if (gap.reach.size() > 0 && !gap.reach.isZero(0)) all_.push_back({std::abs(gap.value), gap});
  }

  std::vector<Kink> all_;
};

}  // namespace logitless::oracle

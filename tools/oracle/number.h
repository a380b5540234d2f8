// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// A number that knows its derivatives with respect to the inputs (reverse differentiation), so that a formula
// and its gradient are written once. sg, clamp and min are the functions of docs/losses.md, including the
// conventions for ties.
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

namespace logitless::oracle {

/// The steps of a computation. Each comes after the steps that it depends on, so that derivatives can be
/// propagated backward from any result.
class Tape {
 public:
  struct Edge {
    int64_t from = -1;  ///< an earlier step; -1: none
    double partial = 0;
  };
  struct Step {
    Edge edges[2];
    int64_t input = -1;  ///< index of the input; -1: not an input
    bool held = false;   ///< sg(): no gradient flows
  };

  int64_t add(const Step& step) {
    steps_.push_back(step);
    return static_cast<int64_t>(steps_.size()) - 1;
  }

  /// Returns ∂step/∂input for every input that the step depends on. `through_sg` treats sg() as the identity.
  std::map<int64_t, double> derivatives(int64_t step, bool through_sg) const {
    std::map<int64_t, double> of_inputs;
    // Derivatives still to be propagated, latest step first: a step is reached after all steps that depend on
    // it.
    std::map<int64_t, double, std::greater<>> pending = {{step, 1.0}};
    while (!pending.empty()) {
      const auto [at, derivative] = *pending.begin();
      pending.erase(pending.begin());
      const Step& here = steps_[at];
      if (here.input >= 0) of_inputs[here.input] += derivative;
      if (here.held && !through_sg) continue;
      for (const Edge& edge : here.edges) {
        if (edge.from >= 0) pending[edge.from] += derivative * edge.partial;
      }
    }
    return of_inputs;
  }

 private:
  std::vector<Step> steps_;
};

struct Number {
  double value = 0;
  /// The value if every input is at the point at which sg() holds it. Differs from `value` only in finite
  /// differences.
  double held = 0;
  Tape* tape = nullptr;  ///< nullptr: a constant
  int64_t step = -1;

  Number() = default;
  Number(double constant) : value(constant), held(constant) {}
  Number(double value_, double held_, Tape* tape_, const Tape::Step& step_)
      : value(value_), held(held_), tape(tape_), step(tape_ ? tape_->add(step_) : -1) {}
  static Number input(Tape& tape, double value, double held, int64_t index) {
    return {value, held, &tape, {.edges = {}, .input = index}};
  }

  /// Returns ∂value/∂input, with no gradient through sg().
  std::map<int64_t, double> slopes() const {
    return tape ? tape->derivatives(step, false) : std::map<int64_t, double>();
  }
  /// Returns how far errors of the inputs move the value, to first order. They pass through sg() too.
  double error_from(const Eigen::VectorXd& errors) const {
    double reached = 0;
    if (!tape) return reached;
    for (const auto& [input, derivative] : tape->derivatives(step, true)) {
      reached += std::abs(derivative) * errors[input];
    }
    return reached;
  }
};

namespace detail {

// A function of x and y with partial derivatives dx and dy.
inline Number function(double value, double held, double dx, const Number& x, double dy = 0, const Number& y = {}) {
  return {value, held, x.tape ? x.tape : y.tape, {.edges = {{x.step, dx}, {y.step, dy}}}};
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
inline Number sg(const Number& x) { return {x.held, x.held, x.tape, {.edges = {{x.step, 1}}, .held = true}}; }

/// A point where a formula has no derivative, or jumps.
struct Kink {
  double distance = 0;
  Number from;

  /// Returns true if errors of the inputs, or twice as large ones, can reach it.
  bool is_near(const Eigen::VectorXd& errors) const {
    const double reached = from.error_from(errors);
    return reached > 0 && !(distance > 2 * reached);
  }
};

/// The functions that have kinks. They record how close the data come to each.
class Kinks {
 public:
  /// The gradient flows where low <= x <= high, including equality.
  Number clamp(const Number& x, double low, double high) {
    note(x, low);
    note(x, high);
    const bool inside = low <= x.value && x.value <= high;
    return detail::function(std::clamp(x.value, low, high), std::clamp(x.held, low, high), inside ? 1 : 0, x);
  }
  /// At x = bound the gradient flows.
  Number min(const Number& x, double bound) {
    note(x, bound);
    return detail::function(std::min(x.value, bound), std::min(x.held, bound), x.value <= bound ? 1 : 0, x);
  }
  /// |x|; its gradient at 0 is 0.
  Number absolute(const Number& x) {
    note(x, 0);
    const double sign = x.value > 0 ? 1 : x.value < 0 ? -1 : 0;
    return detail::function(std::abs(x.value), std::abs(x.held), sign, x);
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
    if (gap.tape) all_.push_back({std::abs(gap.value), gap});
  }

  std::vector<Kink> all_;
};

}  // namespace logitless::oracle

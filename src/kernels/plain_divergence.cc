// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The row kernels of two heads as readable scalar code. Tests compare the SIMD kernels with these.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/divergence_kernels.h"
#include "kernels/plain_tile.h"

namespace logitless::kernels {
namespace {

// Returns φ(x) = exp(x) - 1 - x, from its series where the subtraction would cancel.
template <class T>
T phi(T x) {
  if (!(std::abs(x) < T{0.5})) return std::expm1(x) - x;
  T summand = x * x / 2, sum = 0;
  for (int k = 3; std::abs(summand) > std::numeric_limits<T>::epsilon() / 8 * std::abs(sum); ++k) {
    sum += summand;
    summand *= x / static_cast<T>(k);
  }
  return sum;
}

template <class T>
T log_probability(const RowSoftmax<T>& row, T capped) {
  return (capped - row.max) * row.inverse_temperature - row.log_sum;
}

// The quantities of one column.
template <class T>
struct Pair {
  T log_s, log_t, s, t;
  T log_ratio;   // Δ; 0 if s and t are both 0
  T difference;  // s - t

  Pair(const RowPair<T>& row, T student, T teacher)
      : log_s(log_probability(row.student, student)),
        log_t(log_probability(row.teacher, teacher)),
        s(std::exp(log_s)),
        t(std::exp(log_t)),
        log_ratio(std::isnan(log_s - log_t) ? 0 : log_s - log_t),
        difference(log_ratio > 0 ? -s * std::expm1(-log_ratio) : t * std::expm1(log_ratio)) {}

  T slope(PairSlope of) const {
    if (of == PairSlope::kLogRatio) return log_ratio;
    if (of == PairSlope::kNone || log_ratio == 0) return 0;
    return log_ratio > 0 ? T{0.5} : T{-0.5};
  }
};

// Returns mass · φ(x), given rest = mass · (exp(x) - 1).
template <class T>
T weighted_phi(T mass, T x, T rest) {
  if (std::abs(x) < T{0.5}) return mass * phi(x);
  return mass > 0 ? rest - mass * x : rest;
}

// The quantities of a mixture m in one column.
template <class T>
struct Mixed {
  T by_student, by_teacher;  // log(m / s), log(m / t)
  T relative;                // (s - t) / m

  Mixed(const DivergenceRule<T>& rule, const Pair<T>& pair) {
    const bool student_high = pair.log_ratio > 0;
    const T size = std::abs(pair.log_ratio);
    const T b = student_high ? rule.student_weight : rule.teacher_weight;
    const T c = student_high ? rule.teacher_weight : rule.student_weight;
    const T y = c * std::expm1(-size);
    const T mixed = b + c * std::exp(-size);  // m over the larger of s and t
    const T of_larger = y > T{-0.5} ? std::log1p(y) : std::log(mixed);
    by_student = student_high ? of_larger : of_larger + size;
    by_teacher = student_high ? of_larger + size : of_larger;
    relative = (student_high ? -1 : 1) * std::expm1(-size) / (y > T{-0.5} ? 1 + y : mixed);
  }

  T slope(const DivergenceRule<T>& rule) const { return rule.by_ratio * relative - rule.by_log * by_student; }
};

template <class T>
DivergenceSums row_sums(const DivergenceFoldArgs<T>& args, int64_t r, const T* student, const T* teacher,
                        float* masses) {
  const DivergenceRule<T>& rule = args.rule;
  DivergenceSums out;
  for (int64_t v = 0; v < args.shape.cols; ++v) {
    const Pair<T> pair(args.rows[r], student[v], teacher[v]);
    T h = 0;
    out.distance += std::abs(pair.difference);
    out.overlap += std::min(pair.s, pair.t);
    switch (rule.form) {
      case DivergenceForm::kKl:
        out.forward += weighted_phi(pair.t, pair.log_ratio, pair.difference);
        out.reverse += weighted_phi(pair.s, -pair.log_ratio, -pair.difference);
        h = pair.slope(rule.slope);
        if (pair.s > 0) out.slope += pair.s * h;
        break;
      case DivergenceForm::kMixture: {
        const Mixed<T> mixed(rule, pair);
        out.forward += weighted_phi(pair.t, mixed.by_teacher, rule.student_weight * pair.difference);
        out.reverse += weighted_phi(pair.s, mixed.by_student, -rule.teacher_weight * pair.difference);
        h = mixed.slope(rule);
        if (pair.s > 0) out.slope += pair.s * h;
        break;
      }
      case DivergenceForm::kOverlap: {
        DivergenceSums one;
        one.most = std::min(pair.log_s, pair.log_t);
        one.shared = std::isinf(one.most) ? 0 : 1;
        one.below = pair.log_ratio < 0 ? one.shared : 0;
        DivergenceSums joined = merge(out, one);
        out.most = joined.most;
        out.shared = joined.shared;
        out.below = joined.below;
        break;
      }
    }
    if (!masses) continue;
    T mass = args.mass.difference * std::abs(pair.difference);
    if (pair.s > 0) mass += pair.s * (args.mass.student + (args.mass.slope == 0 ? 0 : args.mass.slope * std::abs(h)));
    masses[v / kSegment] += static_cast<float>(mass);
  }
  return out;
}

template <class T>
void fold(const DivergenceFoldArgs<T>& args) {
  const int64_t cols = args.shape.cols;
  if (cols == 0) return;
  T* const student = args.scratch;
  T* const teacher = args.scratch + cols;
  for (int64_t r = 0; r < args.shape.rows; ++r) {
    cap(args.shape, args.logits + r * args.shape.stride, student);
    cap(args.teacher_shape, args.teacher_logits + r * args.teacher_shape.stride, teacher);
    float* const masses = args.begin_masses(r);
    args.sums[r] = args.rows[r].defined() ? merge(args.sums[r], row_sums(args, r, student, teacher, masses))
                                          : DivergenceSums::undefined();
  }
}

template <class T>
T divergence_gradient(const DivergenceRule<T>& rule, const RowDivergence<T>& g, T student, T teacher) {
  const Pair<T> pair(g.pair, student, teacher);
  T h = 0;
  switch (rule.form) {
    case DivergenceForm::kKl:
      h = pair.slope(rule.slope);
      return g.by_difference * pair.difference + (pair.s > 0 ? pair.s * (g.by_slope * (h - g.mean)) : 0);
    case DivergenceForm::kMixture:
      h = Mixed<T>(rule, pair).slope(rule);
      return pair.s > 0 ? pair.s * (g.by_slope * (h - g.mean)) : 0;
    case DivergenceForm::kOverlap:
      h = pair.log_ratio < 0 ? std::exp(std::min(T{0}, pair.log_s - g.log_overlap)) : T{0};
      return g.by_difference * (pair.s * g.mean - h);
  }
  return 0;
}

template <class T, class Gradient>
void gradient(const DivergenceGradientArgs<T, Gradient>& args) {
  const GradientArgs<T, Gradient>& base = args.base;
  const TileShape<T>& shape = base.shape;
  const int64_t cols = shape.cols;
  clear_residuals(base);
  T* const raw = base.scratch;
  T* const student = base.scratch + cols;
  T* const teacher = base.scratch + 2 * cols;
  for (int64_t k = 0; k < base.count; ++k) {
    const RowDivergence<T>& g = args.divergences[k];
    const RowGradient<T>& softmax = base.gradients[k];
    // The row's gradients may overwrite its logits.
    std::copy_n(base.logits + base.places[k] * shape.stride, cols, raw);
    cap(shape, raw, student);
    cap(args.teacher_shape, args.teacher_logits + base.places[k] * args.teacher_shape.stride, teacher);
    const bool defined =
        g.pair.defined() && !(args.softmax && (std::isnan(softmax.max) || std::isnan(softmax.log_sum)));
    for (int64_t v = 0; v < cols; ++v) {
      T d = divergence_gradient(args.rule, g, student[v], teacher[v]);
      if (args.softmax) {
        T hard = -softmax.softmax_scale *
                 std::exp((student[v] - softmax.max) * softmax.inverse_temperature - softmax.log_sum);
        for_each_pick(softmax.picks, softmax.picks + softmax.pick_count, base.first_column + v, 1,
                      [&](const PickGradient<T>& pick, int64_t) { hard = pick.gradient; });
        d += hard;
      }
      d *= cap_derivative(raw_logit(shape, raw, v), shape.softcap);
      if (!defined) d = std::numeric_limits<T>::quiet_NaN();
      store_gradient(base, k, v, d);
    }
  }
}

}  // namespace

void set_plain_divergences(RowKernels& kernels) {
  kernels.for_each_type([]<class Sum, class Logit, class Gradient>(TypedKernels<Sum, Logit, Gradient>& typed) {
    typed.divergence_fold = fold<Logit>;
    typed.divergence_gradient = gradient<Logit, Gradient>;
  });
}

}  // namespace logitless::kernels

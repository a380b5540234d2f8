// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The contracts of the row kernels that read the logits of two heads together: a student's and a teacher's.
// With log s and log t of a vocabulary entry, Δ = log s − log t, and φ(x) = exp(x) − 1 − x >= 0,
//
//   KL(t ‖ s) = Σ t φ(Δ)    KL(s ‖ t) = Σ s φ(−Δ)    KL(t ‖ m) = Σ t φ(log m − log t)
//
// because probabilities sum to 1. No summand is negative, and an error of the log-sum-exps, which shifts all
// Δ equally, enters only at second order. Entries with s = 0 or t = 0 (in float32: below 1.7e-38) contribute
// their limits. Nothing is clamped: a KL is infinite if the first distribution has mass where the second one
// is 0.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/row_kernels.h"

namespace logitless::kernels {

/// What a kernel sums and differentiates.
enum class DivergenceForm {
  kKl,       // functions of s, t and Δ
  kMixture,  // also functions of m = teacher_weight · t + student_weight · s
  kOverlap,  // log Σ min(s, t)
};

/// The slope h of a column under kKl: 0, Δ, or ½ sign(s − t).
enum class PairSlope { kNone, kLogRatio, kSign };

/// A form with its slope and the weights of its mixture, which are normal numbers of T. In a mixture, the
/// slope h of a column is −by_log · log(m / s) + by_ratio · (s − t) / m.
template <class T>
struct DivergenceRule {
  DivergenceForm form = DivergenceForm::kKl;
  PairSlope slope = PairSlope::kNone;
  T teacher_weight = 0;
  T student_weight = 0;
  T by_log = 0;
  T by_ratio = 0;
};

/// Maps a capped logit c to its log-probability: (c − max) · inverse_temperature − log_sum.
template <class T>
struct RowSoftmax {
  T max = 0;
  T log_sum = 0;
  T inverse_temperature = 1;

  bool defined() const { return !std::isnan(max) && !std::isnan(log_sum); }
};
template <class T>
struct RowPair {
  RowSoftmax<T> student;
  RowSoftmax<T> teacher;

  bool defined() const { return student.defined() && teacher.defined(); }
};

/// The running sums of one row over some of its columns.
struct DivergenceSums {
  double forward = 0;   // Σ t φ(Δ), or Σ t φ(log m − log t)
  double reverse = 0;   // Σ s φ(−Δ), or Σ s φ(log m − log s)
  double distance = 0;  // Σ |s − t|
  double overlap = 0;   // Σ min(s, t)
  double slope = 0;     // Σ s h
  // kOverlap only: most is the largest min(log s, log t); shared is Σ exp(min(log s, log t) − most) over all
  // columns, and below the same sum over the columns with s < t.
  double most = -std::numeric_limits<double>::infinity();
  double shared = 0;
  double below = 0;

  /// Returns the sums of a row whose statistics are NaN.
  static DivergenceSums undefined() {
    constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
    return {kNan, kNan, kNan, kNan, kNan, kNan, kNan, kNan};
  }
};

/// Returns the sums of two disjoint parts of a row.
inline DivergenceSums merge(const DivergenceSums& a, const DivergenceSums& b) {
  DivergenceSums out;
  out.forward = a.forward + b.forward;
  out.reverse = a.reverse + b.reverse;
  out.distance = a.distance + b.distance;
  out.overlap = a.overlap + b.overlap;
  out.slope = a.slope + b.slope;
  if (std::isnan(a.most) || std::isnan(b.most)) {
    out.most = out.shared = out.below = std::numeric_limits<double>::quiet_NaN();
    return out;
  }
  out.most = std::max(a.most, b.most);
  for (const DivergenceSums* part : {&a, &b}) {
    if (std::isinf(part->most)) continue;
    const double scale = std::exp(part->most - out.most);
    out.shared += scale * part->shared;
    out.below += scale * part->below;
  }
  return out;
}

/// The weights in the mass of a column, from which sampled gradients choose segments:
///     difference |s − t| + s (student + slope |h|)
template <class T>
struct PairMass {
  T difference = 0;
  T student = 0;
  T slope = 0;
};

/// Adds the tile's columns to each row's sums.
///   logits, teacher_logits   [rows, cols] each, with separate shapes; read only.
///   rows     [shape.rows]; scratch [2 * cols], may hold anything on entry.
///   sums     [shape.rows]; merged into. A row that is not defined() becomes undefined().
/// cols = 0 has no effect. Summation adds an error below (cols / lanes + 16) · eps of Σ |summand|; the
/// summands carry the error of log s and log t: eps · max(1, |log s|, |log t|).
template <class T>
struct DivergenceFoldArgs {
  DivergenceRule<T> rule;
  TileShape<T> shape;
  const T* logits = nullptr;
  TileShape<T> teacher_shape;
  const T* teacher_logits = nullptr;
  const RowPair<T>* rows = nullptr;
  T* scratch = nullptr;
  DivergenceSums* sums = nullptr;
  // masses[r * masses_stride + (0 .. cols / kSegment, rounded up)] get the masses of each kSegment columns,
  // or NaN in a row that is not defined(). Null: not requested.
  PairMass<T> mass = {};
  float* masses = nullptr;
  int64_t masses_stride = 0;

  /// Initialises the masses of a row before its columns are added, and returns them, or null.
  float* begin_masses(int64_t row) const {
    if (!masses) return nullptr;
    float* const of_row = masses + row * masses_stride;
    std::fill_n(of_row, (shape.cols + kSegment - 1) / kSegment,
                rows[row].defined() ? 0.0F : std::numeric_limits<float>::quiet_NaN());
    return of_row;
  }
};

/// The gradient kernel's input for one row. The scales are already divided by the student's temperature. The
/// gradient of a column is
///   kKl        by_difference (s − t) + s by_slope (h − mean)
///   kMixture   s by_slope (h − mean)
///   kOverlap   −by_difference ([s < t] exp(log s − log_overlap) − s mean)
/// Here h has the same bits as in the fold, so if one entry has all of the student's mass, h − mean is
/// exactly 0.
template <class T>
struct RowDivergence {
  RowPair<T> pair;
  T by_difference = 0;
  T by_slope = 0;
  T mean = 0;
  T log_overlap = 0;

  /// Multiplies the row's gradient by `factor`.
  void scale(T factor) {
    by_difference *= factor;
    by_slope *= factor;
  }
};

/// Computes gradients as `base` specifies, with a different formula: the gradient of a column is the
/// divergence's gradient plus, if `softmax` is set, −softmax_scale · p from the row's RowGradient. In the
/// columns of picks, the pick's gradient replaces the row's softmax gradient. Gradients of entropy and cross
/// are not supported. `softmax` must be set if some softmax_scale or pick gradient is not 0.
///   base.logits, base.out   as in GradientArgs
///   base.scratch            [3 * cols]
///   teacher_logits          [shape.rows, cols] with teacher_shape, read only; must not overlap `out`.
///                           Rows places[k] are read.
template <class Logit, class Gradient>
struct DivergenceGradientArgs {
  GradientArgs<Logit, Gradient> base;
  DivergenceRule<Logit> rule;
  bool softmax = false;
  const RowDivergence<Logit>* divergences = nullptr;  // [count]
  TileShape<Logit> teacher_shape;
  const Logit* teacher_logits = nullptr;
};

}  // namespace logitless::kernels

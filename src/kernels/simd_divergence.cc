// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The sums of divergences and their gradients, from the logits of two heads. Compiled once per Highway
// target, for the tables of simd.cc.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd_divergence.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep

#include "hwy/highway.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "hwy/contrib/math/math-inl.h"
#include "kernels/divergence_kernels.h"
#include "kernels/simd_base-inl.h"
#include "kernels/simd_gradient-inl.h"

HWY_BEFORE_NAMESPACE();
namespace logitless::kernels {
namespace HWY_NAMESPACE {

// Below this |x|, exp(x) - 1 and φ(x) are computed from their series; above it, a subtraction loses at most
// two bits.
constexpr double kNear = 0.5;

struct Coefficients {
  double of[16] = {};  // 1 / (k + 2)!

  constexpr Coefficients() {
    double factorial = 2;
    for (int k = 0; k < 16; ++k) {
      of[k] = 1 / factorial;
      factorial *= k + 3;
    }
  }
};

// Computes the sums of the even and of the odd powers in φ(x) / x² = Σ x^k / (k + 2)!, the latter divided by
// x, from z = x². For |x| < 0.5 the first omitted summand is below eps / 2 of the sum.
template <class D, class V = hn::Vec<D>>
HWY_INLINE void series(D d, V z, V& even, V& odd) {
  using T = hn::TFromD<D>;
  constexpr Coefficients kCoefficients;
  constexpr int kCount = sizeof(T) == 4 ? 8 : 16;
  even = hn::Set(d, static_cast<T>(kCoefficients.of[kCount - 2]));
  odd = hn::Set(d, static_cast<T>(kCoefficients.of[kCount - 1]));
  for (int k = kCount - 4; k >= 0; k -= 2) {
    even = hn::MulAdd(even, z, hn::Set(d, static_cast<T>(kCoefficients.of[k])));
    odd = hn::MulAdd(odd, z, hn::Set(d, static_cast<T>(kCoefficients.of[k + 1])));
  }
}

// Returns mass · φ(x), given rest = mass · (exp(x) - 1). If mass is 0 and x is not near 0, the result is
// `rest`.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V weighted_phi(D d, V mass, V x, V rest) {
  const V z = hn::Mul(x, x);
  V even, odd;
  series(d, z, even, odd);
  const V near = hn::Mul(mass, hn::Mul(z, hn::MulAdd(x, odd, even)));
  const V far = hn::Sub(rest, hn::IfThenElseZero(hn::Gt(mass, hn::Zero(d)), hn::Mul(mass, x)));
  using T = hn::TFromD<D>;
  return hn::IfThenElse(hn::Lt(hn::Abs(x), hn::Set(d, static_cast<T>(kNear))), near, far);
}

template <class D, class T, class V = hn::Vec<D>>
HWY_INLINE V log_probability(D d, const RowSoftmax<T>& row, const T* capped) {
  return hn::MulSub(hn::Sub(hn::LoadU(d, capped), hn::Set(d, row.max)), hn::Set(d, row.inverse_temperature),
                    hn::Set(d, row.log_sum));
}

// Computes the quantities of a column. The larger of s and t is computed by an exponential, and the lesser
// from the larger.
//   log_ratio   Δ; 0 if both are 0          size       |Δ|
//   ratio       lesser / larger             less_one   ratio - 1, accurate near 0
//   difference  s - t, accurate for Δ near 0
// They are not members of a struct, because the vectors of some instruction sets cannot be members.
template <class D, class V = hn::Vec<D>>
HWY_INLINE void read_pair(D d, V log_s, V log_t, V& s, V& t, V& log_ratio, V& size, V& ratio, V& less_one,
                          V& difference) {
  using T = hn::TFromD<D>;
  const V apart = hn::Sub(log_s, log_t);
  log_ratio = hn::IfThenElse(hn::IsNaN(apart), hn::Zero(d), apart);
  size = hn::Abs(log_ratio);
  ratio = exp_nonpositive(d, hn::Neg(size));
  const V larger = exp_nonpositive(d, hn::Max(log_s, log_t));
  const V lesser = hn::Mul(larger, ratio);
  const V z = hn::Mul(size, size);
  V even, odd;
  series(d, z, even, odd);
  const V near = hn::MulSub(z, hn::NegMulAdd(size, odd, even), size);
  less_one = hn::IfThenElse(hn::Lt(size, hn::Set(d, static_cast<T>(kNear))), near, hn::Sub(ratio, hn::Set(d, T{1})));
  const auto student_high = hn::Gt(log_ratio, hn::Zero(d));
  s = hn::IfThenElse(student_high, larger, lesser);
  t = hn::IfThenElse(student_high, lesser, larger);
  const V gap = hn::Mul(larger, less_one);
  difference = hn::IfThenElse(student_high, hn::Neg(gap), gap);
}

// Returns the slope h of kKl: 0, Δ, or ½ sign(s - t).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V pair_slope(D d, PairSlope slope, V log_ratio) {
  using T = hn::TFromD<D>;
  const V zero = hn::Zero(d);
  if (slope == PairSlope::kLogRatio) return log_ratio;
  if (slope == PairSlope::kNone) return zero;
  const V half = hn::CopySign(hn::Set(d, T{0.5}), log_ratio);
  return hn::IfThenElse(hn::Eq(log_ratio, zero), zero, half);
}

// Computes log(m / s), log(m / t) and (s - t) / m of a mixture. m / larger = b + c ratio = 1 + c (ratio - 1),
// where b and c are the weights of the larger and the lesser. The first form is accurate near b, the second
// near 1.
template <class D, class T, class V = hn::Vec<D>>
HWY_INLINE void mix(D d, const DivergenceRule<T>& rule, V log_ratio, V size, V ratio, V less_one, V& by_student,
                    V& by_teacher, V& relative) {
  const V one = hn::Set(d, T{1});
  const auto student_high = hn::Gt(log_ratio, hn::Zero(d));
  const V student = hn::Set(d, rule.student_weight), teacher = hn::Set(d, rule.teacher_weight);
  const V b = hn::IfThenElse(student_high, student, teacher);
  const V c = hn::IfThenElse(student_high, teacher, student);
  const V y = hn::Mul(c, less_one);
  const auto near = hn::Gt(y, hn::Set(d, static_cast<T>(-kNear)));
  const V mixed = hn::IfThenElse(near, hn::Add(one, y), hn::MulAdd(c, ratio, b));
  const V plain = hn::Log(d, mixed);
  // Log(1 + y), accurate for y near 0: the quotient cancels the rounding of 1 + y.
  const V rounded = hn::Sub(mixed, one);
  const auto none = hn::Eq(rounded, hn::Zero(d));
  const V corrected = hn::IfThenElse(none, y, hn::Mul(plain, hn::Div(y, hn::IfThenElse(none, one, rounded))));
  const V of_larger = hn::IfThenElse(near, corrected, plain);
  const V of_lesser = hn::Add(of_larger, size);
  by_student = hn::IfThenElse(student_high, of_larger, of_lesser);
  by_teacher = hn::IfThenElse(student_high, of_lesser, of_larger);
  const V gap = hn::Div(less_one, mixed);
  relative = hn::IfThenElse(student_high, hn::Neg(gap), gap);
}

// Returns the slope h of a mixture; valid if s > 0.
template <class D, class T, class V = hn::Vec<D>>
HWY_INLINE V mixture_slope(D d, const DivergenceRule<T>& rule, V by_student, V relative) {
  return hn::NegMulAdd(hn::Set(d, rule.by_log), by_student, hn::Mul(hn::Set(d, rule.by_ratio), relative));
}

// Returns the sum of the masses of the vector's columns.
template <class D, class T, class V = hn::Vec<D>>
HWY_INLINE float mass_of(D d, const PairMass<T>& mass, V s, V difference, V h) {
  V by_student = hn::Set(d, mass.student);
  // 0 · ∞ must be 0.
  if (mass.slope != 0) by_student = hn::MulAdd(hn::Set(d, mass.slope), hn::Abs(h), by_student);
  by_student = hn::IfThenElseZero(hn::Gt(s, hn::Zero(d)), hn::Mul(s, by_student));
  const V all = hn::MulAdd(hn::Set(d, mass.difference), hn::Abs(difference), by_student);
  return static_cast<float>(hn::GetLane(hn::SumOfLanes(d, all)));
}

template <DivergenceForm kForm, class D, class T>
HWY_INLINE void sum_columns(D d, const DivergenceFoldArgs<T>& args, const RowPair<T>& row, const T* student,
                            const T* teacher, T most, int64_t begin, int64_t end, float* masses, DivergenceSums& sums) {
  using V = hn::Vec<D>;
  const DivergenceRule<T>& rule = args.rule;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const V zero = hn::Zero(d);
  V forward = zero, reverse = zero, distance = zero, overlap = zero, slope = zero, shared = zero, below = zero;
  for (int64_t v = begin; v < end; v += lanes) {
    const V log_s = log_probability(d, row.student, student + v);
    const V log_t = log_probability(d, row.teacher, teacher + v);
    V s, t, log_ratio, size, ratio, less_one, difference;
    read_pair(d, log_s, log_t, s, t, log_ratio, size, ratio, less_one, difference);
    const auto has_student = hn::Gt(s, zero);
    distance = hn::Add(distance, hn::Abs(difference));
    overlap = hn::Add(overlap, hn::Min(s, t));
    V h = zero;
    if constexpr (kForm == DivergenceForm::kKl) {
      forward = hn::Add(forward, weighted_phi(d, t, log_ratio, difference));
      reverse = hn::Add(reverse, weighted_phi(d, s, hn::Neg(log_ratio), hn::Neg(difference)));
      h = pair_slope(d, rule.slope, log_ratio);
    }
    if constexpr (kForm == DivergenceForm::kMixture) {
      V by_student, by_teacher, relative;
      mix(d, rule, log_ratio, size, ratio, less_one, by_student, by_teacher, relative);
      forward = hn::Add(forward, weighted_phi(d, t, by_teacher, hn::Mul(hn::Set(d, rule.student_weight), difference)));
      reverse = hn::Add(reverse, weighted_phi(d, s, by_student, hn::Mul(hn::Set(d, -rule.teacher_weight), difference)));
      h = mixture_slope(d, rule, by_student, relative);
    }
    slope = hn::Add(slope, hn::IfThenElseZero(has_student, hn::Mul(s, h)));
    if constexpr (kForm == DivergenceForm::kOverlap) {
      const V mass = exp_nonpositive(d, hn::Sub(hn::Min(log_s, log_t), hn::Set(d, most)));
      shared = hn::Add(shared, mass);
      below = hn::Add(below, hn::IfThenElseZero(hn::Lt(log_ratio, zero), mass));
    }
    if (masses) masses[v / kSegment] += mass_of(d, args.mass, s, difference, h);
  }
  const auto total = [d](V value) HWY_ATTR { return static_cast<double>(hn::GetLane(hn::SumOfLanes(d, value))); };
  sums.forward += total(forward);
  sums.reverse += total(reverse);
  sums.distance += total(distance);
  sums.overlap += total(overlap);
  sums.slope += total(slope);
  sums.shared += total(shared);
  sums.below += total(below);
}

// Returns the largest min(log s, log t) of a row.
template <class T>
HWY_NOINLINE T largest_shared(const RowPair<T>& row, const T* student, const T* teacher, int64_t cols) {
  T most = -std::numeric_limits<T>::infinity();
  const hn::ScalableTag<T> wide;
  auto largest = hn::Set(wide, most);
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(wide));
  const auto least = [&](auto d, int64_t v) HWY_ATTR {
    return hn::Min(log_probability(d, row.student, student + v), log_probability(d, row.teacher, teacher + v));
  };
  int64_t v = 0;
  for (; v + lanes <= cols; v += lanes) largest = hn::Max(largest, least(wide, v));
  // MaxOfLanes of the emulated target starts from the lowest finite number.
  if (!hn::AllTrue(wide, hn::Eq(largest, hn::Set(wide, most)))) most = hn::GetLane(hn::MaxOfLanes(wide, largest));
  const hn::CappedTag<T, 1> narrow;
  for (; v < cols; ++v) {
    const T one = hn::GetLane(least(narrow, v));
    if (one > most) most = one;
  }
  return most;
}

// Returns the capped logits of a row: `logits` if capping changes nothing, else `to`.
template <class T>
HWY_INLINE const T* capped_row(const TileShape<T>& shape, const T* logits, T* to) {
  if (shape.plain()) return logits;
  cap_row<T>(shape, logits, to, nullptr);
  return to;
}

template <DivergenceForm kForm, class T>
HWY_NOINLINE void fold_pairs(const DivergenceFoldArgs<T>& args) {
  const int64_t cols = args.shape.cols;
  const hn::ScalableTag<T> wide;
  const hn::CappedTag<T, 1> narrow;
  const int64_t whole = cols - cols % static_cast<int64_t>(hn::Lanes(wide));
  for (int64_t r = 0; r < args.shape.rows; ++r) {
    const RowPair<T>& row = args.rows[r];
    float* const masses = args.begin_masses(r);
    if (!row.defined()) {
      args.sums[r] = DivergenceSums::undefined();
      continue;
    }
    const T* student = capped_row(args.shape, args.logits + r * args.shape.stride, args.scratch);
    const T* teacher =
        capped_row(args.teacher_shape, args.teacher_logits + r * args.teacher_shape.stride, args.scratch + cols);
    DivergenceSums tile;
    T most = 0;
    if constexpr (kForm == DivergenceForm::kOverlap) {
      most = largest_shared(row, student, teacher, cols);
      tile.most = most;
      // Without a column in which both have mass, any finite number keeps the sums at 0.
      if (std::isinf(most)) most = 0;
    }
    sum_columns<kForm>(wide, args, row, student, teacher, most, 0, whole, masses, tile);
    if (whole < cols) sum_columns<kForm>(narrow, args, row, student, teacher, most, whole, cols, masses, tile);
    args.sums[r] = merge(args.sums[r], tile);
  }
}

// Calls call(form) with the form as a type.
template <class Call>
void with_form(DivergenceForm form, const Call& call) {
  switch (form) {
    case DivergenceForm::kKl:
      return call(std::integral_constant<DivergenceForm, DivergenceForm::kKl>());
    case DivergenceForm::kMixture:
      return call(std::integral_constant<DivergenceForm, DivergenceForm::kMixture>());
    case DivergenceForm::kOverlap:
      return call(std::integral_constant<DivergenceForm, DivergenceForm::kOverlap>());
  }
}

template <class T>
void fold_divergence(const DivergenceFoldArgs<T>& args) {
  if (args.shape.cols == 0) return;
  with_form(args.rule.form, [&](auto form) HWY_ATTR { fold_pairs<form.value>(args); });
}

template <DivergenceForm kForm, class D, class T, class V = hn::Vec<D>>
HWY_INLINE V divergence_gradient(D d, const DivergenceRule<T>& rule, const RowDivergence<T>& g, V log_s, V log_t) {
  const V zero = hn::Zero(d);
  V s, t, log_ratio, size, ratio, less_one, difference;
  read_pair(d, log_s, log_t, s, t, log_ratio, size, ratio, less_one, difference);
  const V by_difference = hn::Set(d, g.by_difference), mean = hn::Set(d, g.mean);
  if constexpr (kForm == DivergenceForm::kOverlap) {
    // Without a shared column, log_overlap is -inf and the gradient is NaN.
    const V share = exp_nonpositive(d, hn::Min(zero, hn::Sub(log_s, hn::Set(d, g.log_overlap))));
    const V below = hn::IfThenElseZero(hn::Lt(log_ratio, zero), share);
    return hn::Mul(by_difference, hn::MulSub(s, mean, below));
  }
  V h = zero;
  if constexpr (kForm == DivergenceForm::kKl) {
    h = pair_slope(d, rule.slope, log_ratio);
  }
  if constexpr (kForm == DivergenceForm::kMixture) {
    V by_student, by_teacher, relative;
    mix(d, rule, log_ratio, size, ratio, less_one, by_student, by_teacher, relative);
    h = mixture_slope(d, rule, by_student, relative);
  }
  const V scaled = hn::Mul(hn::Set(d, g.by_slope), hn::Sub(h, mean));
  const V by_slope = hn::IfThenElseZero(hn::Gt(s, zero), hn::Mul(s, scaled));
  if constexpr (kForm == DivergenceForm::kMixture) return by_slope;
  return hn::MulAdd(by_difference, difference, by_slope);
}

template <DivergenceForm kForm, class D, class T, class Gradient, class Row>
HWY_INLINE void gradient_columns(D d, const DivergenceGradientArgs<T, Gradient>& args, int64_t k, const T* student,
                                 const T* teacher, const T* derivative, int64_t begin, int64_t end, const Row& row) {
  using V = hn::Vec<D>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const RowDivergence<T>& g = args.divergences[k];
  const RowGradient<T>& softmax = args.base.gradients[k];
  V residuals = hn::Zero(d);
  for (int64_t v = begin; v < end; v += lanes) {
    V out = divergence_gradient<kForm>(d, args.rule, g, log_probability(d, g.pair.student, student + v),
                                       log_probability(d, g.pair.teacher, teacher + v));
    if (args.softmax) {
      const V u = hn::Sub(hn::LoadU(d, student + v), hn::Set(d, softmax.max));
      const V log_p = hn::MulSub(u, hn::Set(d, softmax.inverse_temperature), hn::Set(d, softmax.log_sum));
      out = hn::NegMulAdd(hn::Set(d, softmax.softmax_scale), exp_nonpositive(d, log_p), out);
    }
    if (derivative) out = hn::Mul(out, hn::LoadU(d, derivative + v));
    row.store(d, out, v, residuals);
  }
  row.keep(hn::GetLane(hn::SumOfLanes(d, residuals)));
}

template <DivergenceForm kForm, class T, class Gradient, class RowAt>
HWY_NOINLINE void gradient_pairs(const DivergenceGradientArgs<T, Gradient>& args, const RowAt& row_at) {
  const GradientArgs<T, Gradient>& base = args.base;
  const TileShape<T>& shape = base.shape;
  const hn::ScalableTag<T> wide;
  const hn::CappedTag<T, 1> narrow;
  const int64_t cols = shape.cols, whole = cols - cols % static_cast<int64_t>(hn::Lanes(wide));
  T* const derivative = shape.softcap > 0 ? base.scratch : nullptr;
  // Gradients may overwrite the logits, and columns of picks are read twice.
  T* const student = base.scratch + cols;
  for (int64_t k = 0; k < base.count; ++k) {
    const RowDivergence<T>& g = args.divergences[k];
    const RowGradient<T>& softmax = base.gradients[k];
    const auto row = row_at(k);
    const T* const logits = base.logits + base.places[k] * shape.stride;
    if (!g.pair.defined() || (args.softmax && (std::isnan(softmax.max) || std::isnan(softmax.log_sum)))) {
      const T nan = std::numeric_limits<T>::quiet_NaN();
      for (int64_t v = 0; v < cols; ++v) store_one(narrow, row, hn::Set(narrow, nan), v);
      continue;
    }
    if (shape.plain()) {
      std::memcpy(student, logits, static_cast<size_t>(cols) * sizeof(T));
    } else {
      cap_row<T>(shape, logits, student, derivative);
    }
    const T* teacher = capped_row(args.teacher_shape, args.teacher_logits + base.places[k] * args.teacher_shape.stride,
                                  base.scratch + 2 * cols);
    const PickGradient<T>* const picks_end = softmax.picks + softmax.pick_count;
    if constexpr (decltype(row)::kSumsResiduals) {
      // The pick's gradient replaces the softmax's, so the residual with the latter must not be counted.
      const TakenBackRow back = {row.kept, row.total};
      const auto take_back = [&](const PickGradient<T>&, int64_t column) HWY_ATTR {
        gradient_columns<kForm>(narrow, args, k, student, teacher, derivative, column, column + 1, back);
      };
      if (args.softmax) for_each_picked_column(softmax.picks, picks_end, base.first_column, cols, take_back);
    }
    gradient_columns<kForm>(wide, args, k, student, teacher, derivative, 0, whole, row);
    if (whole < cols) gradient_columns<kForm>(narrow, args, k, student, teacher, derivative, whole, cols, row);
    if (!args.softmax) continue;
    for_each_picked_column(
        softmax.picks, picks_end, base.first_column, cols, [&](const PickGradient<T>& pick, int64_t column) HWY_ATTR {
          auto out = divergence_gradient<kForm>(narrow, args.rule, g,
                                                log_probability(narrow, g.pair.student, student + column),
                                                log_probability(narrow, g.pair.teacher, teacher + column));
          out = hn::Add(out, hn::Set(narrow, pick.gradient));
          const auto slope = hn::Set(narrow, derivative ? derivative[column] : T{1});
          store_one(narrow, row, hn::Mul(out, slope), column);
        });
  }
}

template <class T, class Gradient>
void gradient_divergence(const DivergenceGradientArgs<T, Gradient>& args) {
  with_rows(args.base, [&](const auto& row_at) {
    with_form(args.rule.form, [&](auto form) HWY_ATTR { gradient_pairs<form.value>(args, row_at); });
  });
}

void set_divergences(RowKernels& kernels) {
  kernels.for_each_type([]<class Sum, class Logit, class Gradient>(TypedKernels<Sum, Logit, Gradient>& typed) {
    typed.divergence_fold = fold_divergence<Logit>;
    typed.divergence_gradient = gradient_divergence<Logit, Gradient>;
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace logitless::kernels
HWY_AFTER_NAMESPACE();

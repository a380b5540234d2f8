// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// This makes gradients of logits, and sums them.
// It is compiled once for each target: its guard is toggled by foreach_target.h.
#if defined(LOGITLESS_KERNELS_GRADIENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOGITLESS_KERNELS_GRADIENT_INL_H_
#undef LOGITLESS_KERNELS_GRADIENT_INL_H_
#else
#define LOGITLESS_KERNELS_GRADIENT_INL_H_
#endif

#include <cmath>
#include <cstdint>
#include <limits>

#include "hwy/highway.h"
#include "kernels/row_kernels.h"
#include "kernels/simd_base-inl.h"

HWY_BEFORE_NAMESPACE();
namespace logitless::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <bool kEntropy, Prior kPrior, bool kCap, class D, class T>
HWY_INLINE void gradient_columns(D d, const RowGradient<T>& g, const T* capped, const T* derivative,
                                 const float* weights, T uniform_prior, int64_t begin, int64_t end, T* to) {
  using V = hn::Vec<D>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const V max = hn::Set(d, g.max);
  const V scale = hn::Set(d, g.inverse_temperature);
  const V log_sum = hn::Set(d, g.log_sum);
  const V softmax_term = hn::Set(d, -g.softmax_term);
  for (int64_t v = begin; v < end; v += lanes) {
    const V log_p = hn::MulSub(hn::Sub(hn::LoadU(d, capped + v), max), scale, log_sum);
    const V p = exp_nonpositive(d, log_p);
    V term = softmax_term;
    if constexpr (kEntropy) {
      // p is 0 long before -1000: the bound only keeps 0 · (-inf) from being NaN.
      const V bounded = hn::Max(log_p, hn::Set(d, T{-1000}));
      term = hn::NegMulAdd(hn::Set(d, g.entropy_term), hn::Add(bounded, hn::Set(d, g.entropy)), term);
    }
    V out = hn::Mul(p, term);
    if constexpr (kPrior == Prior::kUniform) out = hn::Add(out, hn::Set(d, g.prior_term * uniform_prior));
    if constexpr (kPrior == Prior::kWeights) {
      const V q = load_weights(d, weights + v);
      out = hn::MulAdd(hn::Set(d, g.prior_term), q, out);
    }
    if constexpr (kCap) out = hn::Mul(out, hn::LoadU(d, derivative + v));
    hn::StoreU(out, d, to + v);
  }
}

template <bool kEntropy, Prior kPrior, bool kCap, class T>
HWY_NOINLINE void gradient_rows(const GradientArgs<T>& args) {
  const TileShape<T>& shape = args.shape;
  const hn::ScalableTag<T> wide;
  const hn::CappedTag<T, 1> narrow;
  const int64_t whole = shape.cols - shape.cols % static_cast<int64_t>(hn::Lanes(wide));
  const T uniform = static_cast<T>(args.uniform_prior);
  for (int64_t k = 0; k < args.count; ++k) {
    const RowGradient<T>& g = args.gradients[k];
    const T* from = args.logits + g.source_row * shape.stride;
    T* to = args.out + k * shape.stride;
    if (std::isnan(g.max) || std::isnan(g.log_sum)) {
      for (int64_t v = 0; v < shape.cols; ++v) to[v] = std::numeric_limits<T>::quiet_NaN();
      continue;
    }
    if (!shape.plain()) {
      cap_row<T>(shape, from, to, kCap ? args.scratch : nullptr);
      from = to;
    }
    gradient_columns<kEntropy, kPrior, kCap>(wide, g, from, args.scratch, args.prior_weights, uniform, 0, whole, to);
    if (whole < shape.cols) {
      gradient_columns<kEntropy, kPrior, kCap>(narrow, g, from, args.scratch, args.prior_weights, uniform, whole,
                                               shape.cols, to);
    }
    if (g.target >= 0 && g.target < shape.cols)
      to[g.target] = g.target_gradient * (kCap ? args.scratch[g.target] : T{1});
  }
}

template <class T>
void gradient(const GradientArgs<T>& args) {
  with_terms(args, [&](auto entropy, auto prior) HWY_ATTR {
    with_flag(args.shape.softcap > 0,
              [&](auto cap) HWY_ATTR { gradient_rows<entropy.value, prior.value, cap.value>(args); });
  });
}

template <class T>
void add_column_sums(const T* tile, int64_t stride, int64_t rows, int64_t cols, bool accumulate, T* sums) {
  for_each_vector<T>(cols, [&](auto d, int64_t v) HWY_ATTR {
    auto sum = hn::Zero(d);
    for (int64_t row = 0; row < rows; ++row) sum = hn::Add(sum, hn::LoadU(d, tile + row * stride + v));
    if (accumulate) sum = hn::Add(sum, hn::LoadU(d, sums + v));
    hn::StoreU(sum, d, sums + v);
  });
}

template <class T>
void add(const T* from, int64_t count, T* to) {
  for_each_vector<T>(count, [&](auto d, int64_t i) HWY_ATTR {
    hn::StoreU(hn::Add(hn::LoadU(d, to + i), hn::LoadU(d, from + i)), d, to + i);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace logitless::kernels
HWY_AFTER_NAMESPACE();

#endif  // LOGITLESS_KERNELS_GRADIENT_INL_H_

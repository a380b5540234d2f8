// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The row kernels as readable scalar code. Tests compare the SIMD kernels with these.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "kernels/plain_tile.h"
#include "kernels/row_kernels.h"
#include "kernels/top_kernels.h"

namespace logitless::kernels {
namespace {

template <class T>
RowStats row_stats(const FoldArgs<T>& args, int64_t row) {
  const TileShape<T>& shape = args.shape;
  const T* logits = args.logits + row * shape.stride;
  RowStats out;
  T max = -std::numeric_limits<T>::infinity();
  bool nan = false;
  for (int64_t v = 0; v < shape.cols; ++v) {
    args.scratch[v] = capped(raw_logit(shape, logits, v), shape.softcap);
    nan |= std::isnan(args.scratch[v]);
    if (args.scratch[v] > max) {
      max = args.scratch[v];
      if (args.argmax) out.argmax = args.first_column + v;
    }
  }
  args.for_each_pick(row, [&](double* picked, int64_t column) { *picked = args.scratch[column]; });
  float* const masses = args.begin_masses(row, nan ? std::numeric_limits<double>::quiet_NaN() : max);
  if (nan) {
    out = {};
    out.max = std::numeric_limits<double>::quiet_NaN();
    return out;
  }
  out.max = max;
  const T* own = args.row_weights ? args.row_weights + args.call_rows[row] * args.row_weights_stride : nullptr;
  if (args.cross && args.cross_weights) out.cross_mass = args.weights_mass;
  double below = 0;  // Σ exp(u) of columns below the largest
  int64_t largest = 0;
  for (int64_t v = 0; v < shape.cols; ++v) {
    double q = !args.cross ? 0 : args.cross_weights ? args.cross_weights[v] : args.uniform_cross;
    if (args.cross && own) q = own[v];
    if (!args.cross_weights) out.cross_mass += q;
    if (std::isinf(max)) continue;  // no column has mass, or +inf makes the row undefined anyway
    const T u = (args.scratch[v] - max) * args.inverse_temperature[row];
    const T mass = std::exp(u);
    if (masses) masses[v / kSegment] += static_cast<float>(mass);
    if (u < 0) {
      below += mass;
    } else {
      ++largest;
    }
    if (args.entropy && mass > 0) out.weighted += mass * u;
    if (q > 0) out.cross += q * u;
  }
  if (largest > 0) out.rest = below + static_cast<double>(largest - 1);
  return out;
}

template <class T>
void fold(const FoldArgs<T>& args) {
  if (args.shape.cols == 0) return;
  for (int64_t row = 0; row < args.shape.rows; ++row) {
    args.stats[row] = merge(args.stats[row], row_stats(args, row), args.inverse_temperature[row]);
  }
}

template <class T>
void count_above(const CountArgs<T>& args) {
  const TileShape<T>& shape = args.shape;
  for (int64_t row = 0; row < shape.rows; ++row) {
    const T* logits = args.logits + row * shape.stride;
    for (int64_t v = 0; v < shape.cols; ++v) {
      args.counts[row] += capped(raw_logit(shape, logits, v), shape.softcap) > args.threshold[row];
    }
  }
}

template <class T>
void top(const TopArgs<T>& args) {
  for (int64_t v = 0; v < args.cols; ++v) {
    if (!std::isnan(args.capped[v])) args.list.offer({args.capped[v], args.first_column + v});
  }
}

void widen_bf16(const bfloat16* from, int64_t count, float* to) {
  for (int64_t i = 0; i < count; ++i) to[i] = widened(from[i]);
}

void round_bf16(const float* from, int64_t count, bool accumulate, bfloat16* to) {
  for (int64_t i = 0; i < count; ++i) to[i] = rounded(accumulate ? from[i] + widened(to[i]) : from[i]);
}

template <class T, class Gradient>
void gradient(const GradientArgs<T, Gradient>& args) {
  const TileShape<T>& shape = args.shape;
  clear_residuals(args);
  for (int64_t k = 0; k < args.count; ++k) {
    const RowGradient<T>& g = args.gradients[k];
    // The row's gradients may overwrite its logits.
    const T* from = args.logits + args.places[k] * shape.stride;
    std::copy_n(from, shape.cols, args.scratch);
    for (int64_t v = 0; v < shape.cols; ++v) {
      const T raw = raw_logit(shape, args.scratch, v);
      const T c = capped(raw, shape.softcap);
      const T log_p = (c - g.max) * g.inverse_temperature - g.log_sum;
      const T p = std::exp(log_p);
      T d = 0;
      const T others = c == g.max ? g.others : 1 - p;
      if (p != 0) d = -p * (g.softmax_scale + g.entropy_scale * (log_p + g.entropy) + g.square_scale * others);
      if (args.cross) {
        const auto q = static_cast<T>(args.cross_weights ? args.cross_weights[v] : args.uniform_cross);
        d += g.cross_scale * (args.row_weights ? g.weights[args.first_column + v] : q);
      }
      for_each_pick(g.picks, g.picks + g.pick_count, args.first_column + v, 1,
                    [&](const PickGradient<T>& pick, int64_t) { d = pick.gradient; });
      d *= cap_derivative(raw, shape.softcap);
      if (std::isnan(g.max) || std::isnan(g.log_sum)) d = std::numeric_limits<T>::quiet_NaN();
      store_gradient(args, k, v, d);
    }
  }
}

float widened_gradient(bfloat16 x) { return widened(x); }
template <class T>
T widened_gradient(T x) {
  return x;
}

template <class T, class Gradient>
void add_column_sums(const Gradient* tile, int64_t stride, int64_t rows, int64_t cols, bool accumulate, T* sums) {
  for (int64_t v = 0; v < cols; ++v) {
    T sum = 0;
    for (int64_t row = 0; row < rows; ++row) sum += widened_gradient(tile[row * stride + v]);
    sums[v] = accumulate ? sums[v] + sum : sum;
  }
}

template <class T>
void add(const T* from, int64_t count, T* to) {
  for (int64_t i = 0; i < count; ++i) to[i] += from[i];
}

template <class T>
void add_scaled(const T* from, T scale, int64_t count, T* to) {
  for (int64_t i = 0; i < count; ++i) to[i] += scale * from[i];
}

void widen_f16(const float16* from, int64_t count, float* to) {
  for (int64_t i = 0; i < count; ++i) to[i] = widened(from[i]);
}

void round_f16(const float* from, int64_t count, bool accumulate, float16* to) {
  for (int64_t i = 0; i < count; ++i) {
    const float value = accumulate ? from[i] + widened(to[i]) : from[i];
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    const uint32_t sign = (bits >> 16) & 0x8000;
    const auto magnitude = static_cast<float>(std::abs(nearest(value, DType::kFloat16)));
    uint32_t half = (std::bit_cast<uint32_t>(magnitude) - (112u << 23)) >> 13;
    if (magnitude < 0x1p-14f) half = static_cast<uint32_t>(magnitude * 0x1p24f);
    if (std::isinf(magnitude)) half = 0x7C00;
    if (std::isnan(value)) half = 0x7E00 | ((bits >> 13) & 0x3FF);  // quiet, so that it stays a NaN
    to[i].bits = static_cast<uint16_t>(sign | half);
  }
}

template <class T, class Stored>
void few_rows_of(const FewRowsArgs<T>& args) {
  const auto* b = static_cast<const Stored*>(args.b);
  const auto wide = [](Stored x) {
    if constexpr (std::is_same_v<T, Stored>) {
      return x;
    } else {
      return widened(x);
    }
  };
  for (int64_t row = 0; row < args.rows; ++row) {
    for (int64_t col = 0; col < args.cols; ++col) {
      T sum = 0;
      for (int64_t k = 0; k < args.depth; ++k) {
        sum += args.a[row * args.a_stride + k] *
               wide(b[args.b_transposed ? col * args.b_stride + k : k * args.b_stride + col]);
      }
      T& c = args.c[row * args.c_stride + col];
      c = args.accumulate ? c + sum : sum;
    }
  }
}

void few_rows(const FewRowsArgs<float>& args) {
  switch (args.b_dtype) {
    case DType::kFloat16:
      return few_rows_of<float, float16>(args);
    case DType::kBFloat16:
      return few_rows_of<float, bfloat16>(args);
    default:
      return few_rows_of<float, float>(args);
  }
}
void few_rows(const FewRowsArgs<double>& args) { few_rows_of<double, double>(args); }

}  // namespace

const RowKernels& plain_kernels() {
  static const RowKernels kKernels = [] {
    RowKernels kernels;
    kernels.name = "plain";
    kernels.for_each_type([]<class Sum, class Logit, class Gradient>(TypedKernels<Sum, Logit, Gradient>& typed) {
      typed.fold = fold<Logit>;
      typed.count_above = count_above<Logit>;
      typed.top = top<Logit>;
      typed.cap = cap<Logit>;
      typed.gradient = gradient<Logit, Gradient>;
      typed.add_column_sums = add_column_sums<Sum, Gradient>;
      typed.add = add<Sum>;
      typed.add_scaled = add_scaled<Sum>;
      typed.few_rows = few_rows;
    });
    set_plain_divergences(kernels);
    set_plain_draws(kernels);
    kernels.unpack = plain_unpack_kernels();
    kernels.widen_bf16 = widen_bf16;
    kernels.round_bf16 = round_bf16;
    kernels.widen_f16 = widen_f16;
    kernels.round_f16 = round_f16;
    return kernels;
  }();
  return kKernels;
}

}  // namespace logitless::kernels

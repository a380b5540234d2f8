// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/measure/differences.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "io/safetensors.h"

namespace logitless::cli {
namespace {

// Elements of one partial sum. Blocks are added in order, whichever thread summed them.
constexpr int64_t kBlock = int64_t{1} << 18;

struct Partial {
  double max_abs = 0;
  double difference_squares = 0;
  double reference_squares = 0;
};

double widen(float value) { return value; }
double widen(double value) { return value; }
double widen(bfloat16 value) { return io::to_float(value); }
double widen(float16 value) { return io::to_float(value); }

// Once NaN, a maximum stays NaN: std::max would drop it or not, by the order of its arguments.
double sticky_max(double a, double b) { return !(a >= b) && a == a ? b : a; }

template <class T>
Partial sum_block(const T* a, const T* b, int64_t count) {
  Partial sum;
  for (int64_t i = 0; i < count; ++i) {
    const double reference = widen(a[i]), difference = reference - widen(b[i]);
    sum.max_abs = sticky_max(sum.max_abs, std::abs(difference));
    sum.difference_squares += difference * difference;
    sum.reference_squares += reference * reference;
  }
  return sum;
}

template <class T>
TensorDifference compare(const T* a, const T* b, int64_t count) {
  const int64_t blocks = (count + kBlock - 1) / kBlock;
  std::vector<Partial> partials(static_cast<size_t>(blocks));
#pragma omp parallel for schedule(dynamic)
  for (int64_t i = 0; i < blocks; ++i) {
    const int64_t first = i * kBlock;
    partials[static_cast<size_t>(i)] = sum_block(a + first, b + first, std::min(kBlock, count - first));
  }
  Partial sum;
  for (const Partial& partial : partials) {
    sum.max_abs = sticky_max(sum.max_abs, partial.max_abs);
    sum.difference_squares += partial.difference_squares;
    sum.reference_squares += partial.reference_squares;
  }
  if (sum.difference_squares == 0) return {sum.max_abs, 0};
  return {sum.max_abs, std::sqrt(sum.difference_squares / sum.reference_squares)};
}

}  // namespace

TensorDifference difference_of(const TensorBytes& a, const TensorBytes& b, DType dtype) {
  const int64_t count = a.count(size_of(dtype));
  if (dtype == DType::kFloat64) return compare(a.as<double>(), b.as<double>(), count);
  if (dtype == DType::kFloat32) return compare(a.as<float>(), b.as<float>(), count);
  if (dtype == DType::kFloat16) return compare(a.as<float16>(), b.as<float16>(), count);
  return compare(a.as<bfloat16>(), b.as<bfloat16>(), count);
}

}  // namespace logitless::cli

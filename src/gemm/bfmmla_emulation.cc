// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// BFMMLA in plain C++, as bfmmla_tiles.h says what it does. The thread rounds to nearest, as threads do.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "gemm/bfmmla_tiles.h"

namespace logitless::gemm::bfmmla {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

float flushed(float x) { return std::abs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x; }

// Rounds sum + lost to odd: of the two floats around a number that is none, to the one whose last bit is 1.
// `lost` is less than the last bit of `sum`.
float rounded_to_odd(double sum, double lost) {
  if (std::isnan(sum)) return kNaN;
  if (lost != 0 && (lost > 0) != (sum > 0)) sum = std::nextafter(sum, 0.0);
  if (std::abs(sum) >= 0x1p128) return std::copysign(kInfinity, static_cast<float>(sum));
  if (std::abs(sum) < 0x1p-126) return std::copysign(0.0f, static_cast<float>(sum));
  constexpr uint64_t kCut = (uint64_t{1} << 29) - 1;  // of the 53 bits of a double, all but 24
  const auto bits = std::bit_cast<uint64_t>(sum);
  const auto cut = static_cast<float>(std::bit_cast<double>(bits & ~kCut));
  const bool exact = (bits & kCut) == 0 && lost == 0;
  return exact ? cut : std::bit_cast<float>(std::bit_cast<uint32_t>(cut) | 1);
}

// Returns the sum of x and y, rounded to odd.
float added(float x, float y) {
  const float near = x + y;  // the nearest float
  if (std::abs(near) >= 0x1p-100f && std::abs(near) <= 0x1p100f) {
    const float part = near - x;
    const float lost = (x - (near - part)) + (y - part);
    const auto bits = std::bit_cast<uint32_t>(near);
    if (lost == 0 || (bits & 1) == 1) return near;
    return std::bit_cast<float>((lost > 0) == (near > 0) ? bits + 1 : bits - 1);
  }
  const double a = x, b = y, sum = a + b;
  if (sum == 0 || !std::isfinite(sum)) return rounded_to_odd(sum, 0);
  const double part = sum - a;
  return rounded_to_odd(sum, (a - (sum - part)) + (b - part));
}

// A double holds the product of two bfloat16 exactly, and so does a float unless it is too large or small.
float product(uint16_t a, uint16_t b) {
  const float x = flushed(widened_bfloat16(a)), y = flushed(widened_bfloat16(b));
  const float near = x * y;
  if (std::abs(near) >= 0x1p-100f && std::abs(near) <= 0x1p100f) return near;
  return rounded_to_odd(static_cast<double>(x) * static_cast<double>(y), 0);
}

float with_products(float c, const uint16_t* a, const uint16_t* b) {
  for (int64_t p = 0; p < kTileDepth; p += 2) {
    c = added(flushed(c), added(product(a[p], b[p]), product(a[p + 1], b[p + 1])));
  }
  return c;
}

// Where element p of an edge stands in the panel of a step.
int64_t place(int64_t edge, int64_t p) {
  return (p / kTileDepth * kTilesOfDepth + edge / kTileEdge) * kTileElements + edge % kTileEdge * kTileDepth +
         p % kTileDepth;
}

void pack(const View<uint16_t>& view, int64_t edges, int64_t depth, uint16_t* panel) {
  for (int64_t step = 0; step < depth; step += kStep, panel += kStepElements) {
    for (int64_t i = 0; i < kPanel; ++i) {
      for (int64_t p = 0; p < kStep; ++p) {
        const bool there = i < edges && step + p < depth;
        panel[place(i, p)] = there ? view.data[i * view.edge + (step + p) * view.depth] : uint16_t{0};
      }
    }
  }
}

void multiply(const uint16_t* a, const uint16_t* b, int64_t steps, float* c, int64_t ldc, bool accumulate) {
  for (int64_t i = 0; i < kPanel; ++i) {
    for (int64_t j = 0; j < kPanel; ++j) {
      float sum = accumulate ? c[i * ldc + j] : 0;
      for (int64_t p = 0; p < steps * kStep; p += kTileDepth) {
        sum = with_products(sum, a + place(i, p), b + place(j, p));
      }
      c[i * ldc + j] = sum;
    }
  }
}

}  // namespace

const TileUnit& emulated_unit() {
  static constexpr auto nothing = [] {};
  static constexpr TileUnit unit = {.name = "BFMMLA, emulated",
                                    .emulated = true,
                                    .flops_per_byte = kFlopsPerByte,
                                    .few_rows = kFewRows,
                                    .tile_entries = kTileEntries,
                                    .pack_a = pack,
                                    .pack_b = pack,
                                    .begin = nothing,
                                    .end = nothing,
                                    .multiply = multiply,
                                    .split = nullptr,
                                    .multiply_terms = nullptr,
                                    .add_terms = nullptr};
  return unit;
}

}  // namespace logitless::gemm::bfmmla

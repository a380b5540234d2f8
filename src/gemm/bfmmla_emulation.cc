// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// BFMMLA in plain C++, as defined in bfmmla_tiles.h. The thread must round to nearest, the default.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "gemm/bfmmla_tiles.h"

namespace logitless::gemm::tiles::bfmmla {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Rounds sum + lost to odd: to the float itself, or to the neighbour whose last bit is 1. `lost` is less than
// the last bit of `sum`.
float rounded_to_odd(double sum, double lost) {
  if (std::isnan(sum)) return kNaN;
  if (lost != 0 && (lost > 0) != (sum > 0)) sum = std::nextafter(sum, 0.0);
  if (std::abs(sum) >= 0x1p128) return std::copysign(kInfinity, static_cast<float>(sum));
  if (std::abs(sum) < 0x1p-126) return std::copysign(0.0f, static_cast<float>(sum));
  constexpr uint64_t kCut = (uint64_t{1} << 29) - 1;  // all except 24 of the 53 bits of a double
  const auto bits = std::bit_cast<uint64_t>(sum);
  const auto cut = static_cast<float>(std::bit_cast<double>(bits & ~kCut));
  const bool exact = (bits & kCut) == 0 && lost == 0;
  return exact ? cut : std::bit_cast<float>(std::bit_cast<uint32_t>(cut) | 1);
}

// Returns the index of element p of an edge within a step of a panel.
int64_t place(int64_t edge, int64_t p) {
  return (p / kTileDepth * kTilesOfDepth + edge / kTileEdge) * kTileElements + edge % kTileEdge * kTileDepth +
         p % kTileDepth;
}

float added(float x, float y) {
  const double a = x, b = y, sum = a + b;
  if (sum == 0 || !std::isfinite(sum)) return rounded_to_odd(sum, 0);
  const double addend = sum - a;
  return rounded_to_odd(sum, (a - (sum - addend)) + (b - addend));
}

// A double holds the product of two bfloat16 exactly.
float multiplied(float a, float b) { return rounded_to_odd(static_cast<double>(a) * static_cast<double>(b), 0); }

// The same functions for four columns, which fit a vector register of most CPUs. A lane of `known` becomes 0
// if the lane's result may be wrong: if it is very large or small, NaN, or a zero that was rounded.
using Floats = float __attribute__((vector_size(16)));
using Words = int32_t __attribute__((vector_size(16)));
constexpr int64_t kLanes = 4;

Words is_moderate(Words bits) {
  const Words size = bits & 0x7fffffff;
  return (size > (27 << 23)) & (size < (227 << 23));  // 2^-100 and 2^100
}

Floats added(Floats x, Floats y, Words& known) {
  const Floats near = x + y, addend = near - x, lost = (x - (near - addend)) + (y - addend);
  const auto bits = reinterpret_cast<Words>(near);
  known &= is_moderate(bits) | (near == 0);
  const Words away_from_zero = ~((lost > 0) ^ (near > 0));  // -1 or 0
  return reinterpret_cast<Floats>(bits + ((lost != 0) & ((bits & 1) == 0) & (-1 - 2 * away_from_zero)));
}

Floats multiplied(float a, Floats b, Words& known) {
  const Floats near = a * b;
  known &= is_moderate(reinterpret_cast<Words>(near)) | ((near == 0) & ((b == 0) | (a == 0 ? -1 : 0)));
  return near;
}

/// A step of a panel as floats: at[p][i] is element p of edge i.
struct Widened {
  float at[kStep][kPanel];

  explicit Widened(const uint16_t* step) {
    for (int64_t p = 0; p < kStep; ++p) {
      for (int64_t i = 0; i < kPanel; ++i) at[p][i] = flushed(widened_bfloat16(step[place(i, p)]));
    }
  }
};

// Adds the products of two elements of a row with two elements of four columns to four elements of C.
Floats with_products(Floats c, const float* a, const float* b) {
  Words known = is_moderate(reinterpret_cast<Words>(c)) | (c == 0);
  Floats one, two;
  std::memcpy(&one, b, sizeof one);
  std::memcpy(&two, b + kPanel, sizeof two);
  const Floats products = added(multiplied(a[0], one, known), multiplied(a[kPanel], two, known), known);
  const Floats sums = added(c, products, known);
  if (known[0] & known[1] & known[2] & known[3]) return sums;
  for (int64_t j = 0; j < kLanes; ++j) {
    c[j] = added(flushed(c[j]), added(multiplied(a[0], one[j]), multiplied(a[kPanel], two[j])));
  }
  return c;
}

void reorder(const View& view, int64_t edges, int64_t depth, uint16_t* panel) {
  tiles::reorder(view, edges, depth, panel, place);
}

void multiply(const uint16_t* a, const uint16_t* b, int64_t steps, float* c, int64_t ldc, bool accumulate) {
  for (int64_t step = 0; step < steps; ++step, a += kStepElements, b += kStepElements) {
    const Widened rows(a), columns(b);
    for (int64_t i = 0; i < kPanel; ++i) {
      for (int64_t j = 0; j < kPanel; j += kLanes) {
        float* const element = c + i * ldc + j;
        Floats sums = {};
        if (accumulate || step > 0) std::memcpy(&sums, element, sizeof sums);
        for (int64_t p = 0; p < kStep; p += 2) sums = with_products(sums, &rows.at[p][i], &columns.at[p][j]);
        std::memcpy(element, &sums, sizeof sums);
      }
    }
  }
}

}  // namespace

const TileUnit& emulated_unit() {
  static constexpr TileUnit unit = {true, reorder, reorder, nullptr, nullptr, multiply};
  return unit;
}

}  // namespace logitless::gemm::tiles::bfmmla

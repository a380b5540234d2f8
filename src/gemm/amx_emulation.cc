// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// A tile unit in plain C++ with the bits of TDPBF16PS, as volume 2 of the Intel 64 and IA-32 Architectures
// Software Developer's Manual defines it. For each element of C
//   even = odd = 0;  for k = 0 .. 15:  even += a[2k] b[2k],  odd += a[2k + 1] b[2k + 1];  C += even + odd
// where each += rounds once, to nearest even (multiply-adds are fused). Operands below 2^-126 count as zeros,
// and results that would be below it once rounded become zeros. (Intel's Intrinsics Guide adds all products
// to C one after the other; docs/numerics.md bounds sums in any order.) The thread must round to nearest, the
// default.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "gemm/amx_kernels-inl.h"
#include "gemm/amx_tiles.h"

namespace logitless::gemm::tiles::amx {
namespace {

using tiles::flushed;

constexpr int64_t kPairs = 16;    // of a row of A
constexpr int64_t kColumns = 16;  // of a tile of B or C

// Returns c + a b, rounded once. A double holds the product exactly, and the sum except for its last bits. If
// any are lost, the last bit of the double is made 1, which decides ties between two floats.
float fused(float a, float b, float c) {
  const double product = static_cast<double>(a) * static_cast<double>(b);
  const double sum = product + static_cast<double>(c);
  if (!std::isfinite(sum)) return static_cast<float>(sum);
  const double addend = sum - product;
  const double lost = (product - (sum - addend)) + (static_cast<double>(c) - addend);
  auto bits = std::bit_cast<uint64_t>(sum);
  if (lost != 0 && (bits & 1) == 0) bits += (lost > 0) == (sum > 0) ? uint64_t{1} : ~uint64_t{0};
  const double exact = std::bit_cast<double>(bits);
  // A sum just below 2^-126 is kept if a float with more exponents would round it to 2^-126.
  if (std::abs(exact) < 0x1p-126 - 0x1p-151) return std::copysign(0.0f, static_cast<float>(exact));
  return static_cast<float>(exact);
}

// Four numbers, which fit a vector register of most CPUs.
using Floats = float __attribute__((vector_size(16)));
using Words = int32_t __attribute__((vector_size(16)));
constexpr int64_t kLanes = 4;
constexpr int64_t kVectors = kColumns / kLanes;

Floats flushed(Floats x) {
  const auto bits = reinterpret_cast<Words>(x);
  return reinterpret_cast<Floats>(bits & ~(((bits & 0x7fffffff) < 0x00800000) & 0x7fffffff));
}

/// One number per column.
struct Row {
  Floats vectors[kVectors] = {};

  float get(int64_t n) const { return vectors[n / kLanes][n % kLanes]; }
  void set(int64_t n, float x) { vectors[n / kLanes][n % kLanes] = x; }
};

int exponent(float x) { return static_cast<int>(std::bit_cast<uint32_t>(x) >> 23 & 0xff); }

/// The even or the odd numbers of 16 pairs, and the range of exponents of those that are not zero.
struct Numbers {
  Row row;
  int least = 255, most = 0;

  void put(int64_t i, uint16_t bits) {
    const float x = flushed(widened_bfloat16(bits));
    row.set(i, x);
    if (x == 0) return;
    least = std::min(least, exponent(x));
    most = std::max(most, exponent(x));
  }

  // Returns whether each product with a is zero or a normal float, and so exact.
  bool exact_with(float a) const {
    const int e = exponent(a);
    return e < 255 && most < 255 && (e == 0 || e + least >= 2 * 127 - 126) && e + most + 2 <= 2 * 127 + 128;
  }
};

// A sum of two floats below 2^-126 is exact, so it is flushed in the same cases as on the unit.
void add_products(float a, const Numbers& b, Row& sums) {
  if (b.exact_with(a)) {
    for (int64_t v = 0; v < kVectors; ++v) sums.vectors[v] = flushed(sums.vectors[v] + a * b.row.vectors[v]);
    return;
  }
  for (int64_t n = 0; n < kColumns; ++n) sums.set(n, fused(a, b.row.get(n), sums.get(n)));
}

struct alignas(64) Tile {
  std::byte bytes[kTileRows * kRowBytes];

  uint16_t half(int64_t row, int64_t i) const { return read<uint16_t>(row, i); }
  float word(int64_t row, int64_t i) const { return read<float>(row, i); }
  void put(int64_t row, int64_t i, float value) {
    std::memcpy(bytes + row * kRowBytes + i * static_cast<int64_t>(sizeof value), &value, sizeof value);
  }

 private:
  template <class T>
  T read(int64_t row, int64_t i) const {
    T value;
    std::memcpy(&value, bytes + row * kRowBytes + i * static_cast<int64_t>(sizeof value), sizeof value);
    return value;
  }
};

void add_dot_products(const Tile& a, const Tile& b, Tile& c) {
  Numbers even[kPairs], odd[kPairs];
  for (int64_t k = 0; k < kPairs; ++k) {
    for (int64_t n = 0; n < kColumns; ++n) {
      even[k].put(n, b.half(k, 2 * n));
      odd[k].put(n, b.half(k, 2 * n + 1));
    }
  }
  for (int64_t row = 0; row < kTileRows; ++row) {
    Row even_sums, odd_sums;
    for (int64_t k = 0; k < kPairs; ++k) {
      add_products(flushed(widened_bfloat16(a.half(row, 2 * k))), even[k], even_sums);
      add_products(flushed(widened_bfloat16(a.half(row, 2 * k + 1))), odd[k], odd_sums);
    }
    for (int64_t n = 0; n < kColumns; ++n) {
      c.put(row, n, flushed(flushed(c.word(row, n)) + flushed(even_sums.get(n) + odd_sums.get(n))));
    }
  }
}

struct EmulatedTiles {
  Tile tiles[8];

  template <int kTile>
  void load(const void* from, int64_t stride) {
    for (int64_t row = 0; row < kTileRows; ++row) {
      std::memcpy(tiles[kTile].bytes + row * kRowBytes, static_cast<const std::byte*>(from) + row * stride, kRowBytes);
    }
  }
  template <int kTile>
  void store(void* to, int64_t stride) {
    for (int64_t row = 0; row < kTileRows; ++row) {
      std::memcpy(static_cast<std::byte*>(to) + row * stride, tiles[kTile].bytes + row * kRowBytes, kRowBytes);
    }
  }
  template <int kTile>
  void zero() {
    tiles[kTile] = {};
  }
  template <int kC, int kA, int kB>
  void dot() {
    add_dot_products(tiles[kA], tiles[kB], tiles[kC]);
  }
};

// Rows 0 to 15 of a step are one tile, and rows 16 to 31 the next.
void reorder_a(const View& view, int64_t edges, int64_t depth, uint16_t* panel) {
  reorder(view, edges, depth, panel, [](int64_t i, int64_t p) { return i * kStep + p; });
}

void reorder_b(const View& view, int64_t edges, int64_t depth, uint16_t* panel) {
  reorder(view, edges, depth, panel, [](int64_t i, int64_t p) {
    return i / kColumns * kTileElements + p / 2 * 2 * kColumns + 2 * (i % kColumns) + p % 2;
  });
}

void multiply(const uint16_t* a, const uint16_t* b, int64_t steps, float* c, int64_t ldc, bool accumulate) {
  EmulatedTiles tiles;
  multiply_block(tiles, a, b, steps, c, ldc, accumulate);
}

}  // namespace

const TileUnit& emulated_unit() {
  static constexpr TileUnit unit = {true, reorder_a, reorder_b, nullptr, nullptr, multiply};
  return unit;
}

}  // namespace logitless::gemm::tiles::amx

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// A tile unit in plain C++ that gives the bits of TDPBF16PS as the Intel 64 and IA-32 Architectures Software
// Developer's Manual, volume 2, states its operation. For each element of C
//   even = odd = 0;  for k = 0 .. 15:  even += a[2k] b[2k],  odd += a[2k + 1] b[2k + 1];  C += even + odd
// where each += rounds once, to nearest even (the products are fused), operands below 2^-126 are zeros, and
// so are results that would be below it once rounded. (Intel's Intrinsics Guide adds all products to C, one
// after the other; docs/numerics.md bounds sums in any order.) The thread rounds to nearest, as threads do.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "gemm/amx_kernels-inl.h"
#include "gemm/amx_tiles.h"

namespace logitless::gemm::amx {
namespace {

constexpr int64_t kPairs = 16;    // of a row of A
constexpr int64_t kColumns = 16;  // of a tile of B or C
constexpr float kLeastNormal = 0x1p-126f;

float flushed(float x) { return std::abs(x) < kLeastNormal ? std::copysign(0.0f, x) : x; }

// Returns c + a b, rounded once. A double holds the product, and the sum but for its last bits: where any are
// lost, the last bit that is left says so, and decides what lies half way between two floats.
float fused(float a, float b, float c) {
  const double product = static_cast<double>(a) * static_cast<double>(b);
  const double sum = product + static_cast<double>(c);
  if (!std::isfinite(sum)) return static_cast<float>(sum);
  const double part = sum - product;
  const double lost = (product - (sum - part)) + (static_cast<double>(c) - part);
  auto bits = std::bit_cast<uint64_t>(sum);
  if (lost != 0 && (bits & 1) == 0) bits += (lost > 0) == (sum > 0) ? uint64_t{1} : ~uint64_t{0};
  const double exact = std::bit_cast<double>(bits);
  // What a float of any exponent would round to 2^-126 is not below it.
  if (std::abs(exact) < 0x1p-126 - 0x1p-151) return std::copysign(0.0f, static_cast<float>(exact));
  return static_cast<float>(exact);
}

// Four numbers, in a register of most CPUs.
using Floats = float __attribute__((vector_size(16)));
using Words = int32_t __attribute__((vector_size(16)));
constexpr int64_t kLanes = 4;
constexpr int64_t kVectors = kColumns / kLanes;

Floats flushed(Floats x) {
  const auto bits = reinterpret_cast<Words>(x);
  return reinterpret_cast<Floats>(bits & ~(((bits & 0x7fffffff) < 0x00800000) & 0x7fffffff));
}

/// One number for each column.
struct Row {
  Floats part[kVectors] = {};

  float get(int64_t n) const { return part[n / kLanes][n % kLanes]; }
  void set(int64_t n, float x) { part[n / kLanes][n % kLanes] = x; }
};

int exponent(float x) { return static_cast<int>(std::bit_cast<uint32_t>(x) >> 23 & 0xff); }

/// The same half of 16 pairs, and the exponents of those that are not zeros.
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

  // Returns whether every product with a is a normal float, which holds it exactly, or zero.
  bool exact_with(float a) const {
    const int e = exponent(a);
    return e < 255 && most < 255 && (e == 0 || e + least >= 2 * 127 - 126) && e + most + 2 <= 2 * 127 + 128;
  }
};

// A sum of two floats that is below 2^-126 is exact: it is flushed wherever the unit would.
void add_products(float a, const Numbers& b, Row& sums) {
  if (b.exact_with(a)) {
    for (int64_t v = 0; v < kVectors; ++v) sums.part[v] = flushed(sums.part[v] + a * b.row.part[v]);
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

// Puts element (i, p) of a panel where place(i, p) says, within the tile of its step and half of the edge.
template <class Place>
void pack(const View& view, int64_t edges, int64_t depth, uint16_t* panel, const Place& place) {
  for (int64_t step = 0; step < depth; step += kStep, panel += kStepElements) {
    for (int64_t i = 0; i < kPanel; ++i) {
      for (int64_t p = 0; p < kStep; ++p) {
        const bool there = i < edges && step + p < depth;
        panel[i / kTileRows * kTileElements + place(i % kTileRows, p)] =
            there ? view.data[i * view.edge + (step + p) * view.depth] : uint16_t{0};
      }
    }
  }
}

void pack_a(const View& view, int64_t edges, int64_t depth, uint16_t* panel) {
  pack(view, edges, depth, panel, [](int64_t i, int64_t p) { return i * kStep + p; });
}

void pack_b(const View& view, int64_t edges, int64_t depth, uint16_t* panel) {
  pack(view, edges, depth, panel, [](int64_t i, int64_t p) { return p / 2 * 2 * kColumns + 2 * i + p % 2; });
}

void multiply(const uint16_t* a, const uint16_t* b, int64_t steps, float* c, int64_t ldc, bool accumulate) {
  EmulatedTiles tiles;
  multiply_block(tiles, a, b, steps, c, ldc, accumulate);
}

}  // namespace

const TileUnit& emulated_unit() {
  static constexpr auto nothing = [] {};
  static constexpr TileUnit unit = {.name = "AMX, emulated",
                                    .variable = "LOGITLESS_AMX",
                                    .emulated = true,
                                    .flops_per_byte = kFlopsPerByte,
                                    .few_rows = kFewRows,
                                    .tile_entries = kTileEntries,
                                    .pack_a = pack_a,
                                    .pack_b = pack_b,
                                    .begin = nothing,
                                    .end = nothing,
                                    .multiply = multiply};
  return unit;
}

}  // namespace logitless::gemm::amx

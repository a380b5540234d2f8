// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The loops that drive a tile unit: the CPU's (amx_tiles.cc) or the emulated one (amx_emulation.cc). A
// `Unit` has eight tiles of 16 rows of 64 bytes, named by template arguments:
//   load<T>(from, stride)   reads rows that are `stride` bytes apart      zero<T>()
//   store<T>(to, stride)    writes them                                   dot<C, A, B>()   TDPBF16PS: C += A · B
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "gemm/amx_tiles.h"

namespace logitless::gemm::amx {

inline constexpr int64_t kTileRows = 16;
inline constexpr int64_t kTileElements = kTileRows * kStep;  // 1 KiB
inline constexpr int64_t kRowBytes = 64;

// Of the eight tiles four hold a block of C, two a step of A and two one of B.
template <class Unit>
inline void load_block(Unit& unit, const float* c, int64_t ldc, bool accumulate) {
  if (!accumulate) {
    unit.template zero<0>();
    unit.template zero<1>();
    unit.template zero<2>();
    unit.template zero<3>();
    return;
  }
  const int64_t stride = ldc * static_cast<int64_t>(sizeof(float));
  unit.template load<0>(c, stride);
  unit.template load<1>(c + kTileRows, stride);
  unit.template load<2>(c + kTileRows * ldc, stride);
  unit.template load<3>(c + kTileRows * ldc + kTileRows, stride);
}

template <class Unit>
inline void store_block(Unit& unit, float* c, int64_t ldc) {
  const int64_t stride = ldc * static_cast<int64_t>(sizeof(float));
  unit.template store<0>(c, stride);
  unit.template store<1>(c + kTileRows, stride);
  unit.template store<2>(c + kTileRows * ldc, stride);
  unit.template store<3>(c + kTileRows * ldc + kTileRows, stride);
}

// Adds the products of a step.
template <class Unit>
inline void multiply_step(Unit& unit, const uint16_t* a, const uint16_t* b) {
  unit.template load<4>(a, kRowBytes);
  unit.template load<6>(b, kRowBytes);
  unit.template dot<0, 4, 6>();
  unit.template load<7>(b + kTileElements, kRowBytes);
  unit.template dot<1, 4, 7>();
  unit.template load<5>(a + kTileElements, kRowBytes);
  unit.template dot<2, 5, 6>();
  unit.template dot<3, 5, 7>();
}

template <class Unit>
inline void multiply_block(Unit& unit, const uint16_t* a, const uint16_t* b, int64_t steps, int64_t step_elements,
                           float* c, int64_t ldc, bool accumulate) {
  load_block(unit, c, ldc, accumulate);
  for (int64_t step = 0; step < steps; ++step, a += step_elements, b += step_elements) multiply_step(unit, a, b);
  store_block(unit, c, ldc);
}

template <class Unit>
inline void multiply_loaded(Unit& unit) {
  unit.template dot<0, 4, 6>();
  unit.template dot<1, 4, 7>();
  unit.template dot<2, 5, 6>();
  unit.template dot<3, 5, 7>();
}
// Multiplies what is loaded, and loads another term of A, or of B, as soon as its tiles are free.
template <class Unit>
inline void multiply_then_load_a(Unit& unit, const uint16_t* a) {
  unit.template dot<0, 4, 6>();
  unit.template dot<1, 4, 7>();
  unit.template load<4>(a, kRowBytes);
  unit.template dot<2, 5, 6>();
  unit.template dot<3, 5, 7>();
  unit.template load<5>(a + kTileElements, kRowBytes);
}
template <class Unit>
inline void multiply_then_load_b(Unit& unit, const uint16_t* b) {
  unit.template dot<0, 4, 6>();
  unit.template dot<2, 5, 6>();
  unit.template load<6>(b, kRowBytes);
  unit.template dot<1, 4, 7>();
  unit.template dot<3, 5, 7>();
  unit.template load<7>(b + kTileElements, kRowBytes);
}

// Adds the products 1·3, 1·2, 2·2, 2·1 and 3·1 of a step. From one to the next one operand changes, so there
// are 12 loads for 20 products of tiles. 1·1 is not among them, because the four tiles of C hold one sum.
template <class Unit>
inline void multiply_low_step(Unit& unit, const uint16_t* a, const uint16_t* b) {
  unit.template load<4>(a, kRowBytes);
  unit.template load<5>(a + kTileElements, kRowBytes);
  unit.template load<6>(b + 2 * kStepElements, kRowBytes);
  unit.template load<7>(b + 2 * kStepElements + kTileElements, kRowBytes);
  multiply_then_load_b(unit, b + kStepElements);
  multiply_then_load_a(unit, a + kStepElements);
  multiply_then_load_b(unit, b);
  multiply_then_load_a(unit, a + 2 * kStepElements);
  multiply_loaded(unit);
}

// Adds the products 1·2 and 2·1 of a step of two terms.
template <class Unit>
inline void multiply_low_step_of_two(Unit& unit, const uint16_t* a, const uint16_t* b) {
  multiply_step(unit, a, b + kStepElements);
  multiply_step(unit, a + kStepElements, b);
}

template <class Unit>
inline void multiply_low_block(Unit& unit, const uint16_t* a, const uint16_t* b, int64_t steps, int64_t terms,
                               float* low, int64_t stride, bool accumulate) {
  const int64_t elements = terms * kStepElements;
  load_block(unit, low, stride, accumulate);
  for (int64_t step = 0; step < steps; ++step, a += elements, b += elements) {
    terms == kTerms ? multiply_low_step(unit, a, b) : multiply_low_step_of_two(unit, a, b);
  }
  store_block(unit, low, stride);
}

// split() of one row, which is the whole of it in plain C++.
inline void split_row(const float* from, int64_t columns, uint16_t* terms) {
  for (int64_t i = 0; i < columns; ++i) {
    const auto split = terms_of(from[i]);
    for (int64_t t = 0; t < kTerms; ++t) terms[t * kStepElements + i] = split[static_cast<size_t>(t)];
  }
}

// A high sum that is not finite has an infinity or a NaN in its row of A or column of B, or is too large. Its
// low products may then be 0 · infinity, or of the other sign.
inline void add_terms_of_row(const float* high, const float* low, int64_t columns, float* c, bool accumulate) {
  for (int64_t n = 0; n < columns; ++n) {
    const float sum = high[n] + (std::abs(high[n]) <= std::numeric_limits<float>::max() ? low[n] : 0.0f);
    c[n] = accumulate ? c[n] + sum : sum;
  }
}

}  // namespace logitless::gemm::amx

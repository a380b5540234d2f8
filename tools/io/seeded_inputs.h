// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Inputs drawn from a seed. Each value is a function of (seed, tensor, index) only, whatever the number of
// threads, the layout and the order of filling.
#pragma once

#include <cstdint>
#include <string_view>

#include "logitless/dtype.h"

namespace logitless::io {

class SeededNumbers {
 public:
  /// Each tensor of a call has its own draws. `tensor` must be listed in seeded_inputs.cc.
  SeededNumbers(uint64_t seed, std::string_view tensor);

  uint64_t word(int64_t i) const;                 ///< 64 random bits
  double uniform(int64_t i) const;                ///< in [0, 1)
  int64_t below(int64_t i, int64_t bound) const;  ///< uniform in [0, bound)
  double normal(int64_t i) const;                 ///< N(0, 1)

  /// Fills vectors of `length` values ~ N(0, scale²), rounded to `dtype`, as [vectors, length] or, if
  /// `transposed`, the same values as [length, vectors].
  void fill(DType dtype, double scale, int64_t vectors, int64_t length, void* out, bool transposed = false) const;

 private:
  uint64_t start_;
};

}  // namespace logitless::io

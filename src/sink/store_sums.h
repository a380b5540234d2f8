// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/matrices.h"
#include "kernels/row_kernels.h"

namespace logitless::sink {

/// Copies, adds or rounds (once) `count` finished sums to the output `to`, whose type is Sum's or a 16-bit
/// type. Every sink that keeps its sums apart from the output stores them with this function.
template <class Sum>
void store_sums(const kernels::RowKernels& kernels, const Sum* sums, int64_t count, WriteMode mode, void* to,
                DType dtype) {
  const bool accumulate = mode == WriteMode::kAccumulate;
  if (dtype != DTypeOf<Sum>::value) {
    kernels.round(sums, count, accumulate, to, dtype);
  } else if (accumulate) {
    kernels.typed<Sum>().add(sums, count, static_cast<Sum*>(to));
  } else {
    std::copy_n(sums, count, static_cast<Sum*>(to));
  }
}

}  // namespace logitless::sink

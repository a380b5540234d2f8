// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/matrices.h"
#include "kernels/row_kernels.h"

namespace logitless::sink {

/// The one place where finished sums become an output: `count` of them are copied, added or rounded
/// once to `to`, whose type is that of the sums or a 16-bit one.
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

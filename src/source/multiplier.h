// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "gemm/gemm.h"
#include "kernels/row_kernels.h"

namespace logitless::source {

/// Scratch for one product at a time.
struct Scratch {
  void* gemm = nullptr;
  void* head = nullptr;  // for Head::operand()
};

/// Computes products on the calling thread, or on a team of threads of the backend.
struct Multiplier {
  const gemm::Backend& gemm;
  const kernels::RowKernels& kernels;
  Scratch scratch;
  int team = 0;  // 0: only the calling thread, which may be in a parallel region

  template <class T>
  void operator()(const gemm::Product<T>& product) const {
    if (team > 0) return gemm.multiply_parallel(product, kernels, scratch.gemm, team);
    gemm.multiply(product, kernels, scratch.gemm);
  }
};

}  // namespace logitless::source

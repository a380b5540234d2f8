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

/// Computes products on the calling thread, which may be in a parallel region.
struct Multiplier {
  const gemm::Backend& gemm;
  const kernels::RowKernels& kernels;
  Scratch scratch;

  template <class T>
  void operator()(const gemm::Product<T>& product) const {
    gemm.multiply(product, kernels, scratch.gemm);
  }
};

}  // namespace logitless::source

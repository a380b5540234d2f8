// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
/// @file
/// This is the measure of efficiency: what a machine's matrix units give at best, in the same process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "logitless/context.h"
#include "logitless/dtype.h"
#include "logitless/export.h"

namespace logitless {

/// This is one large product of a context's backend on all of its threads. A plan's efficiency is its own
/// multiply-adds a second divided by this product's. For a type that the backend cannot read it is the
/// product in float32. Two threads may not run it at once.
class LOGITLESS_API LargeGemm {
 public:
  /// Allocates the operands. Throws std::bad_alloc.
  LargeGemm(const Context& context, DType dtype);

  /// Multiplies once.
  void run();
  /// Returns the floating-point operations of one run(): a multiply-add counts as two.
  double flops() const;

 private:
  template <class T>
  void multiply();

  Context context_;
  DType dtype_;
  int threads_;
  int64_t cols_;
  std::vector<std::byte> a_, b_, scratch_, c_;
};

}  // namespace logitless

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// What a machine's matrix units give at best: the rate that the command's efficiencies are shares of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "dense/products.h"
#include "logitless/context.h"
#include "logitless/dtype.h"

namespace logitless::dense {

/// One large product of a context's backend on all of its threads; in float32 for a type that the backend
/// cannot read. Two threads may not run it at once.
class LargeGemm {
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

  Products multiply_;
  DType dtype_;
  int64_t cols_;
  std::vector<std::byte> a_, b_, c_;
};

}  // namespace logitless::dense

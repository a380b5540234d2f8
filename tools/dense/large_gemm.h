// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The peak rate of a machine's matrix units, for the efficiencies that the command reports.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "dense/products.h"
#include "logitless/context.h"
#include "logitless/dtype.h"

namespace logitless::dense {

/// One large product of a context's backend on all of its threads; in float32 if the backend cannot read the
/// type. Not for use by two threads at once.
class LargeGemm {
 public:
  /// Allocates the operands. Throws std::bad_alloc.
  LargeGemm(const Context& context, DType dtype);

  /// Multiplies once.
  void run();
  /// Returns the floating-point operations of one run(); a multiply-add counts as two.
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

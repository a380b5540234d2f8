// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "logitless/context.h"
#include "logitless/dtype.h"

namespace logitless::timing {

/// One large product of a context's backend on all of its threads: what the machine gives at best. A plan's efficiency
/// is its own multiply-adds a second divided by this product's. Of a type that the backend has to widen it is the
/// product in float32.
class LargeGemm {
 public:
  LargeGemm(const Context& context, DType dtype);

  void run();
  /// Two a multiply-add.
  double flops() const { return 2.0 * kRows * kDepth * static_cast<double>(cols_); }

 private:
  static constexpr int64_t kRows = 1024;
  static constexpr int64_t kDepth = 1024;
  static constexpr int64_t kColsPerThread = 2048;  // 4.3 GFLOP a thread: long enough to time, whatever the machine

  template <class T>
  void multiply();

  Context context_;
  DType dtype_;
  int threads_;
  int64_t cols_;
  std::vector<std::byte> a_, b_, c_;
};

}  // namespace logitless::timing

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "gemm/gemm.h"

namespace logitless::gemm {

/// Computes products with float32 sums of operands of one type, float32 or bfloat16. Sizes are at least 1.
class Routine {
 public:
  virtual ~Routine() = default;
  /// Returns the library's name, as in Plan::gemm_library.
  virtual const char* library() const = 0;
  /// Returns the name with versions and instruction sets, for the user.
  virtual std::string description() const = 0;
  /// Returns one line, or "".
  virtual std::string warning() const { return ""; }
  virtual Costs costs() const { return {}; }

  /// See Backend for these.
  virtual RowRule row_rule(int64_t n, int64_t k, bool b_transposed, int64_t most_rows) const = 0;
  virtual size_t scratch_bytes(int64_t /*n*/, int64_t /*k*/) const { return 0; }
  virtual size_t internal_bytes(int64_t m, int64_t n, int64_t k) const = 0;
  virtual size_t reordered_bytes(int64_t /*rows*/, int64_t /*depth*/) const { return 0; }
  virtual void reorder_rows(const Operand& /*a*/, int64_t /*rows*/, int64_t /*depth*/, void* /*to*/) const {}

  /// Multiplies on the calling thread, for which OpenMP is set to one thread.
  virtual void multiply(const Product<float>& product, void* scratch) const = 0;
};

}  // namespace logitless::gemm

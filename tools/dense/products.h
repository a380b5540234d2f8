// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Products of whole matrices on all threads of a context. The library itself multiplies tiles, one thread
// each.
#pragma once

#include <cstddef>
#include <memory>

#include "gemm/gemm.h"
#include "logitless/context.h"

namespace logitless::dense {

/// Multiplies with the libraries and kernels of a context's backend. OpenBLAS and oneDNN start teams of their
/// own.
class Products {
 public:
  explicit Products(const Context& context) : context_(context), threads_(context.threads()) {}

  const Context& context() const { return context_; }
  int threads() const { return threads_; }
  /// Computes one product. Call it outside of parallel regions, and from one thread at a time.
  template <class T>
  void operator()(const gemm::Product<T>& product);

 private:
  template <class T>
  void multiply_parts(const gemm::Product<T>& product);
  void* scratch(size_t bytes);

  Context context_;
  int threads_;
  size_t scratch_bytes_ = 0;
  std::unique_ptr<std::byte[]> scratch_;
};

}  // namespace logitless::dense

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "gemm/gemm.h"

namespace logitless::gemm {

/// This leaves everything to another backend. One that does some products itself derives from it and
/// overrides what these change.
class Delegating : public Backend {
 public:
  const char* name() const override { return others_.name(); }
  Description describe() const override { return others_.describe(); }
  int max_threads() const override { return others_.max_threads(); }
  bool reads(DType a, DType b) const override { return others_.reads(a, b); }
  const char* library_of(DType a, DType b) const override { return others_.library_of(a, b); }
  double flops_per_byte(DType a, DType b) const override { return others_.flops_per_byte(a, b); }
  int64_t few_rows(DType a, DType b) const override { return others_.few_rows(a, b); }
  int64_t tile_entries(DType a, DType b, bool logits_stay) const override {
    return others_.tile_entries(a, b, logits_stay);
  }
  RowRule row_rule(const RowFamily& family, int64_t most_rows) const override {
    return others_.row_rule(family, most_rows);
  }
  size_t scratch_bytes(int64_t m, int64_t n, int64_t k, DType a, DType b) const override {
    return others_.scratch_bytes(m, n, k, a, b);
  }
  size_t packed_rows_bytes(int64_t rows, int64_t depth, DType a, DType b) const override {
    return others_.packed_rows_bytes(rows, depth, a, b);
  }
  void pack_rows(const Operand& a, DType b, int64_t rows, int64_t depth, const kernels::RowKernels& kernels,
                 void* to) const override {
    others_.pack_rows(a, b, rows, depth, kernels, to);
  }
  void multiply(const Product<float>& p, const kernels::RowKernels& kernels, void* scratch) const override {
    others_.multiply(p, kernels, scratch);
  }
  void multiply(const Product<double>& p, const kernels::RowKernels& kernels, void* scratch) const override {
    others_.multiply(p, kernels, scratch);
  }
  std::shared_ptr<void> single_threaded_region() const override { return others_.single_threaded_region(); }
  size_t packing_bytes(int64_t m, int64_t n, int64_t k, DType a, DType b) const override {
    return others_.packing_bytes(m, n, k, a, b);
  }

 protected:
  explicit Delegating(const Backend& others) : others_(others) {}

  const Backend& others_;
};

}  // namespace logitless::gemm

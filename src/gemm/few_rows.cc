// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "gemm/few_rows.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "core/integers.h"
#include "core/views.h"
#include "gemm/bfloat16_dots.h"
#include "gemm/delegating.h"
#include "kernels/row_kernels.h"

namespace logitless::gemm {
namespace {

template <class T>
kernels::FewRowsArgs<T> arguments(const Product<T>& p, const T* a, int64_t a_stride, T* scratch) {
  kernels::FewRowsArgs<T> args;
  args.rows = p.m;
  args.cols = p.n;
  args.depth = p.k;
  args.a = a;
  args.a_stride = a_stride;
  args.b = p.b.data;
  args.b_dtype = p.b.dtype;
  args.b_stride = p.b.stride;
  args.b_transposed = p.b.transposed;
  args.c = p.c;
  args.c_stride = p.ldc;
  args.accumulate = p.accumulate;
  args.scratch = scratch;
  return args;
}

class FewRows final : public Delegating {
 public:
  explicit FewRows(const Backend& others)
      : Delegating(others), dots_(others.reads(DType::kBFloat16, DType::kBFloat16) ? bfloat16_dots() : nullptr) {}

  const char* library_of(DType, DType) const override { return "logitless"; }

  // What is asked about has few rows.
  RowRule row_rule(const RowFamily&, int64_t) const override { return {}; }

  size_t scratch_bytes(int64_t m, int64_t n, int64_t k, DType a, DType b) const override {
    // A product of fewer rows than these may be one of ours.
    const int64_t rows = std::min(m, kFewRows);
    const auto elements = rows * aligned_stride(k) + (b == DType::kFloat16 ? few_rows_scratch(k) : 0);
    const size_t element = core::sums_in_double(a) ? sizeof(double) : sizeof(float);
    return std::max(others_.scratch_bytes(m, n, k, a, b), static_cast<size_t>(elements) * element);
  }

  // Rows are read as they stand.
  size_t packed_rows_bytes(int64_t, int64_t, DType, DType) const override { return 0; }

  void multiply(const Product<float>& p, const kernels::RowKernels& kernels, void* scratch) const override {
    if (!is_ours(p)) return others_.multiply(p, kernels, scratch);
    if (write_empty(p)) return;
    if (dots_ && p.a.dtype == DType::kBFloat16 && p.b.dtype == DType::kBFloat16) return multiply_dots(p, scratch);
    auto* const rows = static_cast<float*>(scratch);
    const int64_t stride = aligned_stride(p.k);
    for (int64_t row = 0; row < p.m; ++row) {
      const void* from = core::element(p.a.data, p.a.dtype, row * p.a.stride);
      if (is_stored_narrow(p.a.dtype)) {
        kernels.widen(from, p.a.dtype, p.k, rows + row * stride);
      } else {
        std::copy_n(static_cast<const float*>(from), p.k, rows + row * stride);
      }
    }
    kernels.few_rows_f32(arguments(p, static_cast<const float*>(rows), stride, rows + p.m * stride));
  }
  void multiply(const Product<double>& p, const kernels::RowKernels& kernels, void* scratch) const override {
    if (!is_ours(p)) return others_.multiply(p, kernels, scratch);
    if (write_empty(p)) return;
    auto* const rows = static_cast<double*>(scratch);
    const int64_t stride = aligned_stride(p.k);
    for (int64_t row = 0; row < p.m; ++row) {
      std::copy_n(static_cast<const double*>(p.a.data) + row * p.a.stride, p.k, rows + row * stride);
    }
    kernels.few_rows_f64(arguments<double>(p, rows, stride, nullptr));
  }

 private:
  // Rows are copied to the begin of cache lines: loads that straddle two of them would take twice as long.
  static int64_t aligned_stride(int64_t k) { return core::round_up(k, int64_t{16}); }
  static bool is_stored_narrow(DType dtype) { return size_of(dtype) == 2; }
  static int64_t few_rows_scratch(int64_t k) { return kernels::FewRowsArgs<float>::scratch_elements(k); }

  // Its rows are half as large as the float ones that scratch_bytes() counts.
  void multiply_dots(const Product<float>& p, void* scratch) const {
    auto* const rows = static_cast<uint16_t*>(scratch);
    const int64_t stride = core::round_up(p.k, Bfloat16Dots::kStep);
    for (int64_t row = 0; row < p.m; ++row) {
      uint16_t* const to = rows + row * stride;
      std::fill(std::copy_n(static_cast<const uint16_t*>(p.a.data) + row * p.a.stride, p.k, to), to + stride,
                uint16_t{0});
    }
    Bfloat16Dots dots;
    dots.rows = p.m;
    dots.cols = p.n;
    dots.depth = p.k;
    dots.a = rows;
    dots.a_stride = stride;
    dots.b = static_cast<const uint16_t*>(p.b.data);
    dots.b_stride = p.b.stride;
    dots.b_transposed = p.b.transposed;
    dots.c = p.c;
    dots.c_stride = p.ldc;
    dots.accumulate = p.accumulate;
    dots_(dots);
  }

  // d_weight has A transposed: its rows are vocabulary entries, or components of hidden.
  template <class T>
  static bool is_ours(const Product<T>& p) {
    return p.m <= kFewRows && !p.a.transposed;
  }

  // Multiplies bfloat16 as it stands, where the other backend does that, too; else null.
  void (*const dots_)(const Bfloat16Dots&);
};

}  // namespace

const Backend& backend_for_rows(const Backend& backend, int64_t rows, DType a, DType b) {
  if (rows > backend.few_rows(a, b)) return backend;
  static std::mutex mutex;
  static std::map<const Backend*, FewRows> made;
  const std::lock_guard<std::mutex> lock(mutex);
  return made.try_emplace(&backend, backend).first->second;
}

}  // namespace logitless::gemm

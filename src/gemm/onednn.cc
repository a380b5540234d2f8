// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "gemm/onednn.h"

#include <dnnl.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "core/integers.h"
#include "core/views.h"
#include "gemm/openblas.h"
#include "gemm/openblas_core.h"
#include "kernels/row_kernels.h"

// Versions 2 and 3 export this function as they do dnnl_sgemm, but declare it only in their tests. The
// reference is weak: if the function is missing, the program still starts, and onednn_bfloat16() is null.
extern "C" __attribute__((weak)) dnnl_status_t dnnl_gemm_bf16bf16f32(char transa, char transb, dnnl_dim_t m,
                                                                     dnnl_dim_t n, dnnl_dim_t k, float alpha,
                                                                     const uint16_t* a, dnnl_dim_t lda,
                                                                     const uint16_t* b, dnnl_dim_t ldb, float beta,
                                                                     float* c, dnnl_dim_t ldc);

namespace logitless::gemm {
namespace {

// In other builds of the library (TBB, SYCL, the caller's thread pool) OpenMP's settings do not keep a
// product on the calling thread.
bool stays_on_its_thread() {
  const unsigned runtime = dnnl_version()->cpu_runtime;
  return runtime == DNNL_RUNTIME_OMP || runtime == DNNL_RUNTIME_SEQ;
}

// DNNL_MAX_CPU_ISA may forbid instructions that the CPU has.
bool may_use(dnnl_cpu_isa_t isa) {
  return (static_cast<unsigned>(dnnl_get_effective_cpu_isa()) & static_cast<unsigned>(isa)) ==
         static_cast<unsigned>(isa);
}

bool is_intel() {
#if defined(__x86_64__)
  return __builtin_cpu_is("intel") != 0;
#else
  return false;
#endif
}

// Below AVX512-BF16 the library widens operands itself, at a third of OpenBLAS's float32 rate. AMD's
// AVX512-BF16 does twice the multiply-adds of its float32 units. Intel's does half of them (Emerald
// Rapids: 75 and 150 GFLOP/s per core), because Intel relies on AMX, which a virtual machine may hide.
bool multiplies_bfloat16() {
  if (dnnl_gemm_bf16bf16f32 == nullptr) return false;
  return may_use(dnnl_cpu_isa_avx512_core_amx) || (may_use(dnnl_cpu_isa_avx512_core_bf16) && !is_intel());
}

// Returns the width of the library's float32 kernels, or nothing if OpenBLAS's are as wide.
std::optional<VectorLevel> useful_float32_level() {
  for (const auto& [isa, level] :
       {std::pair{dnnl_cpu_isa_avx512_core, VectorLevel::kAvx512}, std::pair{dnnl_cpu_isa_avx2, VectorLevel::kAvx2}}) {
    if (may_use(isa)) return is_narrower(openblas_core(), level) ? std::optional(level) : std::nullopt;
  }
  return std::nullopt;
}

std::string library_version() {
  const dnnl_version_t& version = *dnnl_version();
  return "oneDNN " + std::to_string(version.major) + "." + std::to_string(version.minor) + "." +
         std::to_string(version.patch);
}

// Estimates the copies of blocks of both operands that each call makes (versions 2.6.3 and 3.7.1): at most
// 9984 columns and 384 rows, and 128 to `most_depth` of the depth. The 64 KiB exceed what rounding up adds.
size_t copied_bytes(int64_t m, int64_t n, int64_t k, int64_t most_depth, size_t element) {
  const int64_t edges = std::min<int64_t>(n, 9984) + std::min<int64_t>(m, 384);
  return static_cast<size_t>(edges * std::clamp<int64_t>(k, 128, most_depth)) * element + (size_t{64} << 10);
}

void check(dnnl_status_t status, const char* type) {
  if (status == dnnl_success) return;
  if (status == dnnl_out_of_memory) throw std::bad_alloc();
  throw std::runtime_error(std::string("oneDNN refused a product of ") + type + ": status " + std::to_string(status));
}

char transposition(const Operand& operand) { return operand.transposed ? 'T' : 'N'; }

void multiply_bfloat16(const Product<float>& p) {
  check(dnnl_gemm_bf16bf16f32(
            transposition(p.a), transposition(p.b), p.m, p.n, p.k, 1.0f, static_cast<const uint16_t*>(p.a.data),
            p.a.stride, static_cast<const uint16_t*>(p.b.data), p.b.stride, p.accumulate ? 1.0f : 0.0f, p.c, p.ldc),
        "bfloat16");
}

void multiply_float32(const Product<float>& p) {
  check(dnnl_sgemm(transposition(p.a), transposition(p.b), p.m, p.n, p.k, 1.0f, static_cast<const float*>(p.a.data),
                   p.a.stride, static_cast<const float*>(p.b.data), p.b.stride, p.accumulate ? 1.0f : 0.0f, p.c, p.ldc),
        "float32");
}

// The library has two sets of float32 kernels: one reorders its operands, the other reads them directly. It
// chooses by the sizes and strides of a product, and each set divides the depth in its own way. The following
// two constants keep a row's bits the same in every product.

// With AVX-512 both sets sum up to this much of the depth in one chain of multiply-adds per element of C, in
// the order of the depth. Products of at most this depth have the same bits in both.
constexpr int64_t kChain = 384;
// With AVX2 the sets have different bits. Operands of products with fewer than 264 rows are never reordered,
// and 252 is the largest multiple of 12 below that.
constexpr int64_t kMostRowsInPlace = 252;

// Calls multiply_float32() for blocks of the product, so that float32_rule() holds for its rows.
void multiply_float32_blocks(const Product<float>& p, VectorLevel level) {
  const int64_t blocks = core::div_up(p.k, kChain);
  const int64_t depth = core::round_up(core::div_up(p.k, blocks), int64_t{16});
  const int64_t rows = level == VectorLevel::kAvx512 || p.a.transposed ? p.m : kMostRowsInPlace;
  const auto block_of = [](const Operand& m, int64_t row, int64_t col) {
    const int64_t offset = m.transposed ? col * m.stride + row : row * m.stride + col;
    return Operand{core::element(m.data, m.dtype, offset), m.dtype, m.stride, m.transposed};
  };
  for (int64_t k = 0; k < p.k; k += depth) {
    for (int64_t row = 0; row < p.m; row += rows) {
      multiply_float32({std::min(rows, p.m - row), p.n, std::min(depth, p.k - k), block_of(p.a, row, k),
                        block_of(p.b, k, 0), p.c + row * p.ldc, p.ldc, p.accumulate || k > 0});
    }
  }
}

// Found by multiplying equal rows and comparing bits, with version 2.6.3; the relevant code of version 3.7.1
// is the same. gemm_rows_test checks the machine that it runs on.
RowRule float32_rule(VectorLevel level) {
  // Up to 16 rows are multiplied as vectors, with several sums per element.
  if (level == VectorLevel::kAvx512) return {.least_rows = 17};
  return {.row_step = 12, .least_rows = 12};  // kernels of 6 rows, in blocks whose halves are whole kernels
}

class Float32 final : public Routine {
 public:
  explicit Float32(VectorLevel level) : level_(level) {}

  const char* library() const override { return "onednn"; }
  std::string description() const override {
    return library_version() + (level_ == VectorLevel::kAvx512 ? " (AVX-512)" : " (AVX2)");
  }
  RowRule row_rule(int64_t, int64_t, bool, int64_t) const override { return float32_rule(level_); }
  size_t internal_bytes(int64_t m, int64_t n, int64_t k) const override {
    return copied_bytes(m, n, k, kChain, sizeof(float));
  }
  void multiply(const Product<float>& p, void* /*scratch*/) const override { multiply_float32_blocks(p, level_); }

 private:
  VectorLevel level_;
};

class BFloat16 final : public Routine {
 public:
  const char* library() const override { return "onednn"; }
  std::string description() const override { return library_version() + (amx_ ? " (AMX)" : " (AVX512-BF16)"); }
  // With AMX the library is faster from 17 rows on; without it, our kernels are faster for all few rows. On
  // Zen 4 two pass takes the same time with 512 to 1,024 entries per tile.
  Costs costs() const override {
    return amx_ ? Costs{50, 16, 1024, 1024, 4} : Costs{16, kernels::kMostFewRows, 1024, 640};
  }
  // The library multiplies a single row as a vector, and sums in another order then. No other row was found
  // to depend on its neighbours, with AVX512-BF16 in versions 2.6.3 and 3.7.2 and with AMX in 2.6.3;
  // gemm_rows_test checks the machine that it runs on.
  RowRule row_rule(int64_t, int64_t, bool, int64_t) const override { return {.least_rows = 2}; }
  size_t internal_bytes(int64_t m, int64_t n, int64_t k) const override {
    return copied_bytes(m, n, k, 768, sizeof(uint16_t));
  }
  void multiply(const Product<float>& p, void* /*scratch*/) const override { multiply_bfloat16(p); }

 private:
  const bool amx_ = may_use(dnnl_cpu_isa_avx512_core_amx);
};

bool is_usable() {
  static const bool usable = [] {
    const char* setting = std::getenv("LOGITLESS_ONEDNN");
    return (!setting || std::string_view(setting) != "0") && stays_on_its_thread();
  }();
  return usable;
}

}  // namespace

const Routine* onednn_float32() {
  static const std::optional<VectorLevel> level = is_usable() ? useful_float32_level() : std::nullopt;
  if (!level) return nullptr;
  static const Float32 routine(*level);
  return &routine;
}

const Routine* onednn_bfloat16() {
  static const bool useful = is_usable() && multiplies_bfloat16();
  if (!useful) return nullptr;
  static const BFloat16 routine;
  return &routine;
}

void multiply_by_onednn(const Product<float>& p) {
  p.a.dtype == DType::kBFloat16 ? multiply_bfloat16(p) : multiply_float32(p);
}

}  // namespace logitless::gemm

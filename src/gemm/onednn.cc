// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "gemm/onednn.h"

#include <dnnl.h>

#include <algorithm>
#include <new>
#include <stdexcept>
#include <string>

#include "core/parallel.h"
#include "gemm/delegating.h"
#include "gemm/openblas.h"
#include "gemm/team.h"

// The library exports this beside dnnl_sgemm, from 2.x to 3.x, and declares it in its tests alone. The
// reference is weak, so that a version without it gives no backend instead of no program.
extern "C" __attribute__((weak)) dnnl_status_t dnnl_gemm_bf16bf16f32(char transa, char transb, dnnl_dim_t m,
                                                                     dnnl_dim_t n, dnnl_dim_t k, float alpha,
                                                                     const uint16_t* a, dnnl_dim_t lda,
                                                                     const uint16_t* b, dnnl_dim_t ldb, float beta,
                                                                     float* c, dnnl_dim_t ldc);

namespace logitless::gemm {
namespace {

bool is_native(DType a, DType b) { return a == DType::kBFloat16 && b == DType::kBFloat16; }

// In other builds of the library (TBB, SYCL, a pool of the caller's) no OpenMP setting would keep a product
// on the calling thread.
bool stays_on_its_thread() {
  const unsigned runtime = dnnl_version()->cpu_runtime;
  return runtime == DNNL_RUNTIME_OMP || runtime == DNNL_RUNTIME_SEQ;
}

// Below AVX512-BF16 the library widens by itself, at a third of OpenBLAS's float32 rate.
bool cpu_has_bf16() {
  constexpr unsigned kNeeded = dnnl_cpu_isa_avx512_core_bf16;
  return (static_cast<unsigned>(dnnl_get_effective_cpu_isa()) & kNeeded) == kNeeded;
}

bool cpu_has_amx() {
  constexpr unsigned kAmx = dnnl_cpu_isa_avx512_core_amx;
  return (static_cast<unsigned>(dnnl_get_effective_cpu_isa()) & kAmx) == kAmx;
}

bool is_intel() {
#if defined(__x86_64__)
  return __builtin_cpu_is("intel") != 0;
#else
  return false;
#endif
}

void call_dnnl(const Product<float>& p) {
  const dnnl_status_t status =
      dnnl_gemm_bf16bf16f32(p.a.transposed ? 'T' : 'N', p.b.transposed ? 'T' : 'N', p.m, p.n, p.k, 1.0f,
                            static_cast<const uint16_t*>(p.a.data), p.a.stride, static_cast<const uint16_t*>(p.b.data),
                            p.b.stride, p.accumulate ? 1.0f : 0.0f, p.c, p.ldc);
  if (status == dnnl_out_of_memory) throw std::bad_alloc();
  if (status != dnnl_success) {
    throw std::runtime_error("oneDNN refused a product of bfloat16: status " + std::to_string(status));
  }
}

class OneDnn final : public Delegating {
 public:
  using Delegating::multiply;
  using Delegating::multiply_parallel;

  OneDnn() : Delegating(openblas_backend()) {}

  const char* name() const override { return "onednn"; }
  Description describe() const override {
    Description out = others_.describe();
    const dnnl_version_t& version = *dnnl_version();
    out.bf16 = "oneDNN " + std::to_string(version.major) + "." + std::to_string(version.minor) + "." +
               std::to_string(version.patch) + " (" + (cpu_has_amx() ? "AMX" : "AVX512-BF16") + ")";
    return out;
  }
  bool reads(DType a, DType b) const override { return is_native(a, b) || others_.reads(a, b); }
  const char* library_of(DType a, DType b) const override {
    return is_native(a, b) ? name() : others_.library_of(a, b);
  }

  // With AMX, oneDNN is faster from 17 rows on. Without it, few_rows.cc is faster for all rows that it takes.
  int64_t few_rows(DType a, DType b) const override {
    return is_native(a, b) && cpu_has_amx() ? 16 : others_.few_rows(a, b);
  }
  // On Zen 4 two pass takes the same time with 512 to 1,024 entries.
  int64_t tile_entries(DType a, DType b, bool logits_stay) const override {
    return is_native(a, b) && !logits_stay && !cpu_has_amx() ? 640 : others_.tile_entries(a, b, logits_stay);
  }
  double flops_per_byte(DType a, DType b) const override {
    if (!is_native(a, b)) return others_.flops_per_byte(a, b);
    return cpu_has_amx() ? 50 : 16;
  }

  // A product of one row is a product of a matrix and a vector, which sums in another order. No other row was
  // found to depend on its neighbours, with AVX512-BF16 in versions 2.6.3 and 3.7.2 and with AMX in 2.6.3;
  // gemm_rows_test asks the machine that it runs on.
  RowRule row_rule(const RowFamily& family, int64_t most_rows) const override {
    if (!is_native(family.a, family.b)) return others_.row_rule(family, most_rows);
    RowRule rule;
    rule.least_rows = 2;
    return rule;
  }

  size_t scratch_bytes(int64_t m, int64_t n, int64_t k, DType a, DType b) const override {
    return is_native(a, b) ? 0 : others_.scratch_bytes(m, n, k, a, b);
  }

  size_t packed_rows_bytes(int64_t rows, int64_t depth, DType a, DType b) const override {
    return is_native(a, b) ? 0 : others_.packed_rows_bytes(rows, depth, a, b);
  }

  void multiply(const Product<float>& p, const kernels::RowKernels& kernels, void* scratch) const override {
    if (!is_native(p.a.dtype, p.b.dtype)) return others_.multiply(p, kernels, scratch);
    if (write_empty(p)) return;
    const OmpThreads alone(1);
    call_dnnl(p);
  }

  size_t parallel_scratch_bytes(int64_t m, int64_t n, int64_t k, DType a, DType b, int threads) const override {
    return is_native(a, b) ? 0 : others_.parallel_scratch_bytes(m, n, k, a, b, threads);
  }
  void multiply_parallel(const Product<float>& p, const kernels::RowKernels& kernels, void* scratch,
                         int threads) const override {
    if (!is_native(p.a.dtype, p.b.dtype)) return others_.multiply_parallel(p, kernels, scratch, threads);
    if (write_empty(p)) return;
    // The library counts on a team of the size that it asks for.
    const FixedTeams fixed;
    const OmpThreads team(core::team_size(threads));
    call_dnnl(p);
  }

  size_t packing_bytes(int64_t m, int64_t n, int64_t k, DType a, DType b) const override {
    if (!is_native(a, b)) return others_.packing_bytes(m, n, k, a, b);
    // Each call packs a block of both operands: at most 9984 columns and 384 rows, and 128 to 768 deep. 64
    // KiB are more than what it rounds these up by (version 2.6.3, read off its allocations).
    const int64_t edges = std::min<int64_t>(n, 9984) + std::min<int64_t>(m, 384);
    const int64_t depth = std::clamp<int64_t>(k, 128, 768);
    return static_cast<size_t>(edges * depth) * sizeof(uint16_t) + (size_t{64} << 10);
  }
};

}  // namespace

const Backend* onednn_backend() {
  static const OneDnn backend;
  static const bool usable = dnnl_gemm_bf16bf16f32 != nullptr && stays_on_its_thread() && cpu_has_bf16();
  return usable ? &backend : nullptr;
}

// AMD's AVX512-BF16 does twice the multiply-adds of its float32 units. Intel's does half of them (Emerald
// Rapids: 75 against 150 GFLOP/s a core), because Intel counts on AMX, which a virtual machine may hide.
bool onednn_is_faster() { return cpu_has_amx() || !is_intel(); }

}  // namespace logitless::gemm

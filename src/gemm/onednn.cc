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

#include "core/integers.h"
#include "core/views.h"
#include "gemm/delegating.h"
#include "gemm/openblas.h"
#include "gemm/openblas_core.h"
#include "gemm/team.h"
#include "gemm/widened.h"

// The library exports this beside dnnl_sgemm, from 2.x to 3.x, and declares it in its tests alone. The
// reference is weak, so that a version without it gives no backend instead of no program.
extern "C" __attribute__((weak)) dnnl_status_t dnnl_gemm_bf16bf16f32(char transa, char transb, dnnl_dim_t m,
                                                                     dnnl_dim_t n, dnnl_dim_t k, float alpha,
                                                                     const uint16_t* a, dnnl_dim_t lda,
                                                                     const uint16_t* b, dnnl_dim_t ldb, float beta,
                                                                     float* c, dnnl_dim_t ldc);

namespace logitless::gemm {
namespace {

// In other builds of the library (TBB, SYCL, a pool of the caller's) no OpenMP setting would keep a product
// on the calling thread.
bool stays_on_its_thread() {
  const unsigned runtime = dnnl_version()->cpu_runtime;
  return runtime == DNNL_RUNTIME_OMP || runtime == DNNL_RUNTIME_SEQ;
}

// DNNL_MAX_CPU_ISA may keep the library from units that the CPU has.
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

// Below AVX512-BF16 the library widens by itself, at a third of OpenBLAS's float32 rate. AMD's AVX512-BF16
// does twice the multiply-adds of its float32 units. Intel's does half of them (Emerald Rapids: 75 against
// 150 GFLOP/s per core), because Intel counts on AMX, which a virtual machine may hide.
bool multiplies_bfloat16() {
  if (dnnl_gemm_bf16bf16f32 == nullptr) return false;
  return may_use(dnnl_cpu_isa_avx512_core_amx) || (may_use(dnnl_cpu_isa_avx512_core_bf16) && !is_intel());
}

// How wide the library's float32 kernels are; nothing where they are not wide enough to be of use.
std::optional<VectorLevel> float32_level() {
  if (may_use(dnnl_cpu_isa_avx512_core)) return VectorLevel::kAvx512;
  if (may_use(dnnl_cpu_isa_avx2)) return VectorLevel::kAvx2;
  return std::nullopt;
}

bool multiplies_float32() {
  const std::optional<VectorLevel> level = float32_level();
  return level && is_narrower(openblas_description("").core, *level);
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

// The library has two sets of float32 kernels: one packs its operands, the other reads them in place. It
// chooses by the sizes and strides of a product, and each cuts the depth in its own way. A row would get
// other bits in another product, were it not for the following two constants.

// With AVX-512 either set sums this much of the depth in one chain of multiply-adds per element of C, in the
// order of the depth. Products that are no deeper have the same bits in both, whatever their sizes and
// strides.
constexpr int64_t kChain = 384;
// With AVX2 the sets differ in bits. Products of fewer than 264 rows are never packed, and 252 is the largest
// multiple of 12 below that.
constexpr int64_t kMostRowsInPlace = 252;

// Calls multiply_float32() for parts of the product, whose rows keep float32_rule().
void multiply_float32_rows(const Product<float>& p, VectorLevel level) {
  const int64_t parts = core::div_up(p.k, kChain);
  const int64_t depth = core::round_up(core::div_up(p.k, parts), int64_t{16});
  const int64_t rows = level == VectorLevel::kAvx512 || p.a.transposed ? p.m : kMostRowsInPlace;
  const auto part_of = [](const Operand& m, int64_t row, int64_t col) {
    const int64_t offset = m.transposed ? col * m.stride + row : row * m.stride + col;
    return Operand{core::element(m.data, m.dtype, offset), m.dtype, m.stride, m.transposed};
  };
  for (int64_t k = 0; k < p.k; k += depth) {
    for (int64_t row = 0; row < p.m; row += rows) {
      multiply_float32({std::min(rows, p.m - row), p.n, std::min(depth, p.k - k), part_of(p.a, row, k),
                        part_of(p.b, k, 0), p.c + row * p.ldc, p.ldc, p.accumulate || k > 0});
    }
  }
}

// Found by multiplying equal rows and comparing bits, with version 2.6.3; what decides it in version 3.7.1 is
// the same. gemm_rows_test asks the machine that it runs on.
RowRule float32_rule(VectorLevel level) {
  RowRule rule;
  if (level == VectorLevel::kAvx512) {
    rule.least_rows = 17;  // up to 16 rows are multiplied as vectors, with several sums per element
  } else {
    rule.row_step = rule.least_rows = 12;  // kernels of 6 rows, in blocks whose halves are whole kernels
  }
  return rule;
}

class OneDnn final : public Delegating {
 public:
  using Delegating::multiply;

  OneDnn()
      : Delegating(openblas_backend()),
        bfloat16_(multiplies_bfloat16()),
        float32_(multiplies_float32()),
        amx_(may_use(dnnl_cpu_isa_avx512_core_amx)),
        level_(float32_level().value_or(VectorLevel::kSse)) {}

  bool multiplies(DType dtype) const {
    return (bfloat16_ && dtype == DType::kBFloat16) || (float32_ && dtype == DType::kFloat32);
  }

  const char* name() const override { return "onednn"; }
  Description describe() const override {
    Description out = float32_ ? openblas_description("float64") : others_.describe();
    const dnnl_version_t& version = *dnnl_version();
    const std::string library = "oneDNN " + std::to_string(version.major) + "." + std::to_string(version.minor) + "." +
                                std::to_string(version.patch);
    if (float32_) out.float32 = library + (level_ == VectorLevel::kAvx512 ? " (AVX-512)" : " (AVX2)");
    if (bfloat16_) out.bf16 = library + (amx_ ? " (AMX)" : " (AVX512-BF16)");
    return out;
  }
  bool reads(DType a, DType b) const override { return is_native(a, b) || others_.reads(a, b); }
  const char* library_of(DType a, DType b) const override {
    return is_native(a, b) || is_float32(a) ? name() : others_.library_of(a, b);
  }

  // With AMX, oneDNN is faster from 17 rows on. Without it, few_rows.cc is faster for all rows that it takes.
  int64_t few_rows(DType a, DType b) const override { return is_native(a, b) && amx_ ? 16 : others_.few_rows(a, b); }
  // On Zen 4 two pass takes the same time with 512 to 1,024 entries.
  int64_t tile_entries(DType a, DType b, bool logits_stay) const override {
    return is_native(a, b) && !logits_stay && !amx_ ? 640 : others_.tile_entries(a, b, logits_stay);
  }
  double flops_per_byte(DType a, DType b) const override {
    if (!is_native(a, b)) return others_.flops_per_byte(a, b);
    return amx_ ? 50 : 16;
  }

  // A product of one row of bfloat16 is a product of a matrix and a vector, which sums in another order. No
  // other row was found to depend on its neighbours, with AVX512-BF16 in versions 2.6.3 and 3.7.2 and with
  // AMX in 2.6.3; gemm_rows_test asks the machine that it runs on.
  RowRule row_rule(const RowFamily& family, int64_t most_rows) const override {
    if (is_native(family.a, family.b)) {
      RowRule rule;
      rule.least_rows = 2;
      return rule;
    }
    if (!is_float32(family.a)) return others_.row_rule(family, most_rows);
    return widened_rule(family, most_rows, [&](int64_t, int64_t) { return float32_rule(level_); });
  }

  size_t scratch_bytes(int64_t m, int64_t n, int64_t k, DType a, DType b) const override {
    return is_native(a, b) ? 0 : others_.scratch_bytes(m, n, k, a, b);
  }

  size_t packed_rows_bytes(int64_t rows, int64_t depth, DType a, DType b) const override {
    return is_native(a, b) ? 0 : others_.packed_rows_bytes(rows, depth, a, b);
  }

  void multiply(const Product<float>& p, const kernels::RowKernels& kernels, void* scratch) const override {
    const bool native = is_native(p.a.dtype, p.b.dtype);
    if (!native && !float32_) return others_.multiply(p, kernels, scratch);
    if (write_empty(p)) return;
    const OmpThreads alone(1);
    if (native) return multiply_bfloat16(p);
    multiply_widened(p, kernels, scratch, 1, [&](const Product<float>& part) { multiply_float32_rows(part, level_); });
  }

  // Each call packs a block of both operands (versions 2.6.3 and 3.7.1).
  size_t packing_bytes(int64_t m, int64_t n, int64_t k, DType a, DType b) const override {
    const bool native = is_native(a, b);
    if (!native && !is_float32(a)) return others_.packing_bytes(m, n, k, a, b);
    // At most 9984 columns and 384 rows, and 128 to 768 of the depth, of float32 half of that. 64 KiB are
    // more than what it rounds these up by.
    const int64_t edges = std::min<int64_t>(n, 9984) + std::min<int64_t>(m, 384);
    const int64_t depth = std::clamp<int64_t>(k, 128, native ? 768 : kChain);
    return static_cast<size_t>(edges * depth) * (native ? sizeof(uint16_t) : sizeof(float)) + (size_t{64} << 10);
  }

 private:
  // Whether it multiplies bfloat16 as it is.
  bool is_native(DType a, DType b) const { return bfloat16_ && a == DType::kBFloat16 && b == DType::kBFloat16; }
  // Whether it multiplies what is float32, or was widened to it.
  bool is_float32(DType a) const { return float32_ && !core::sums_in_double(a); }

  bool bfloat16_, float32_, amx_;
  VectorLevel level_;
};

const OneDnn* onednn() {
  static const OneDnn* const usable = []() -> const OneDnn* {
    const char* setting = std::getenv("LOGITLESS_ONEDNN");
    if ((setting && std::string_view(setting) == "0") || !stays_on_its_thread()) return nullptr;
    static const OneDnn backend;
    return backend.multiplies(DType::kBFloat16) || backend.multiplies(DType::kFloat32) ? &backend : nullptr;
  }();
  return usable;
}

}  // namespace

const Backend* onednn_backend() { return onednn(); }

bool onednn_multiplies(DType dtype) { return onednn() && onednn()->multiplies(dtype); }

void multiply_by_onednn(const Product<float>& p) {
  p.a.dtype == DType::kBFloat16 ? multiply_bfloat16(p) : multiply_float32(p);
}

}  // namespace logitless::gemm

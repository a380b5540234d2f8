// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "gemm/openblas.h"

#include <cblas.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <utility>

#include "core/store.h"
#include "core/views.h"
#include "gemm/few_rows.h"
#include "gemm/openblas_core.h"
#include "gemm/openblas_row_rule.h"
#include "gemm/team.h"
#include "gemm/widened.h"
#include "kernels/row_kernels.h"

namespace logitless::gemm {
namespace {

enum class Threading { kSequential = 0, kPthreads = 1, kOpenMp = 2 };

// This is asked at run time, because the system may swap the library under a finished program.
Threading threading() { return static_cast<Threading>(openblas_get_parallel()); }

// The pthreads build has one thread number for the process. Calls that need it to be 1 share it; the last one
// restores it.
class ProcessThreads {
 public:
  static ProcessThreads& instance() {
    static ProcessThreads instance;
    return instance;
  }
  void enter() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (users_++ == 0) {
      before_ = openblas_get_num_threads();
      openblas_set_num_threads(1);
    }
  }
  void leave() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (--users_ == 0) openblas_set_num_threads(before_);
  }

 private:
  std::mutex mutex_;
  int users_ = 0;
  int before_ = 1;
};

// The compiled-in limit stands only in the library's description of itself. Above it OpenBLAS ends the
// process. The description is put together anew by each call, in memory that all threads share, so it is read
// once.
int most_threads() {
  static const int most = [] {
    constexpr const char* kKey = "MAX_THREADS=";
    const char* at = std::strstr(openblas_get_config(), kKey);
    return at ? std::atoi(at + std::strlen(kKey)) : 1;
  }();
  return most;
}

class OpenBlas final : public Backend {
 public:
  const char* name() const override { return "openblas"; }
  Description describe() const override { return openblas_description("float32 and float64"); }
  bool reads(DType a, DType b) const override { return is_wide(a) && is_wide(b); }
  const char* library_of(DType, DType) const override { return name(); }
  double flops_per_byte(DType, DType) const override { return 12; }
  // It packs a head, and widens a 16-bit one before: from so many rows on that no longer matters.
  int64_t few_rows(DType, DType b) const override { return size_of(b) == 2 ? kFewRows : 32; }
  int64_t tile_entries(DType, DType, bool) const override { return 1024; }
  int max_threads() const override { return std::max(1, most_threads()); }

  RowRule row_rule(const RowFamily& family, int64_t most_rows) const override {
    const std::string_view core = openblas_get_corename();
    const bool in_double = core::sums_in_double(family.a);
    const auto rule_of = [&](int64_t n, int64_t k) {
      return openblas_row_rule(core, in_double, n, k, family.b_transposed, most_rows);
    };
    return widened_rule(family, most_rows, rule_of);
  }

  size_t scratch_bytes(int64_t m, int64_t n, int64_t, DType a, DType b) const override {
    return static_cast<size_t>(widened_elements(m, n, a, b)) * sizeof(float);
  }

  void multiply(const Product<float>& p, const kernels::RowKernels& kernels, void* scratch) const override {
    if (write_empty(p)) return;
    const OmpThreads alone(1);
    multiply_widened(p, kernels, scratch, 1, [](const Product<float>& part) { multiply_by_openblas(part); });
  }
  void multiply(const Product<double>& p, const kernels::RowKernels&, void*) const override {
    if (write_empty(p)) return;
    const OmpThreads alone(1);
    multiply_by_openblas(p);
  }

  // OpenBLAS packs for itself, product by product. What it cannot read is widened.
  size_t packed_rows_bytes(int64_t rows, int64_t depth, DType a, DType) const override {
    if (is_wide(a)) return 0;
    constexpr int64_t kCacheLine = 64;
    return static_cast<size_t>(core::round_up(rows * depth * static_cast<int64_t>(sizeof(float)), kCacheLine));
  }
  void pack_rows(const Operand& a, DType, int64_t rows, int64_t depth, const kernels::RowKernels& kernels,
                 void* to) const override {
    widened(a, 0, 0, rows, depth, kernels, static_cast<float*>(to), 1);
  }

  std::shared_ptr<void> single_threaded_region() const override {
    if (threading() != Threading::kPthreads) return nullptr;
    ProcessThreads::instance().enter();
    return std::shared_ptr<void>(
        nullptr, [](void*) { ProcessThreads::instance().leave(); }, core::Allocator<std::byte>());
  }

  size_t packing_bytes(int64_t m, int64_t n, int64_t k, DType a, DType b) const override {
    if (!reads(a, b)) {  // It sees the widened panels alone.
      n = std::min(n, kWidenBreadth);
      k = std::min(k, kWidenDepth);
    }
    // OpenBLAS packs a panel of each operand, at most about 448 deep and 768 rows of A (its Zen and SkylakeX
    // kernels).
    const int64_t elements = (std::min<int64_t>(m, 768) + n) * std::min<int64_t>(k, 448);
    return static_cast<size_t>(elements) * (core::sums_in_double(a) ? sizeof(double) : sizeof(float));
  }
};

}  // namespace

void multiply_by_openblas(const Product<float>& p) {
  cblas_sgemm(CblasRowMajor, p.a.transposed ? CblasTrans : CblasNoTrans, p.b.transposed ? CblasTrans : CblasNoTrans,
              static_cast<blasint>(p.m), static_cast<blasint>(p.n), static_cast<blasint>(p.k), 1.0f,
              static_cast<const float*>(p.a.data), static_cast<blasint>(p.a.stride),
              static_cast<const float*>(p.b.data), static_cast<blasint>(p.b.stride), p.accumulate ? 1.0f : 0.0f, p.c,
              static_cast<blasint>(p.ldc));
}

void multiply_by_openblas(const Product<double>& p) {
  cblas_dgemm(CblasRowMajor, p.a.transposed ? CblasTrans : CblasNoTrans, p.b.transposed ? CblasTrans : CblasNoTrans,
              static_cast<blasint>(p.m), static_cast<blasint>(p.n), static_cast<blasint>(p.k), 1.0,
              static_cast<const double*>(p.a.data), static_cast<blasint>(p.a.stride),
              static_cast<const double*>(p.b.data), static_cast<blasint>(p.b.stride), p.accumulate ? 1.0 : 0.0, p.c,
              static_cast<blasint>(p.ldc));
}

const Backend& openblas_backend() {
  static const OpenBlas backend;
  return backend;
}

Description openblas_description(std::string_view products) {
  Description info;
  info.library = openblas_get_config();
  info.core = openblas_get_corename();
  info.float32 = "OpenBLAS (" + info.core + ")";
  const Threading kind = threading();
  info.threading = kind == Threading::kOpenMp ? "openmp" : kind == Threading::kPthreads ? "pthreads" : "sequential";
  info.max_threads = most_threads();
  if (std::string narrow = narrow_core_warning(info.core, cpu_vector_level(), products); !narrow.empty()) {
    info.warnings.push_back(std::move(narrow));
  }
  if (std::getenv("OPENBLAS_L2_SIZE")) {
    info.warnings.push_back("OPENBLAS_L2_SIZE is set: the BLAS blocks for another cache");
  }
  if (kind == Threading::kPthreads) {
    info.warnings.push_back(
        "the BLAS is a pthreads build: its thread number is switched for the whole process during calls");
  }
  return info;
}

}  // namespace logitless::gemm

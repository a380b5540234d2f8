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
#include "gemm/openblas_core.h"

namespace logitless::gemm {
namespace {

enum class Threading { kSequential = 0, kPthreads = 1, kOpenMp = 2 };

// Queried at run time, because the system may replace the library after the program was built.
Threading threading() { return static_cast<Threading>(openblas_get_parallel()); }

// The pthreads build has one number of threads per process. Calls that need it to be 1 share that setting;
// the last one restores the old number.
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

template <class Gemm, class T>
void multiply(const Gemm& gemm, const Product<T>& p) {
  const auto form = [](const Operand& operand) { return operand.transposed ? CblasTrans : CblasNoTrans; };
  const auto size = [](int64_t count) { return static_cast<blasint>(count); };
  gemm(CblasRowMajor, form(p.a), form(p.b), size(p.m), size(p.n), size(p.k), T{1}, static_cast<const T*>(p.a.data),
       size(p.a.stride), static_cast<const T*>(p.b.data), size(p.b.stride), p.accumulate ? T{1} : T{0}, p.c,
       size(p.ldc));
}

class Float32 final : public Routine {
 public:
  const char* library() const override { return "openblas"; }
  std::string description() const override { return "OpenBLAS (" + std::string(openblas_core()) + ")"; }
  RowRule row_rule(int64_t n, int64_t k, bool b_transposed, int64_t most_rows) const override {
    return openblas_row_rule(openblas_core(), false, n, k, b_transposed, most_rows);
  }
  size_t internal_bytes(int64_t m, int64_t n, int64_t k) const override {
    return openblas_internal_bytes(m, n, k, sizeof(float));
  }
  void multiply(const Product<float>& p, void* /*scratch*/) const override { multiply_by_openblas(p); }
};

}  // namespace

const Routine& openblas_float32() {
  static const Float32 routine;
  return routine;
}

void multiply_by_openblas(const Product<float>& p) { multiply(cblas_sgemm, p); }
void multiply_by_openblas(const Product<double>& p) { multiply(cblas_dgemm, p); }

// OpenBLAS reorders a panel of each operand. The panels of its Zen and SkylakeX kernels are at most about 448
// deep, with 768 rows of A.
size_t openblas_internal_bytes(int64_t m, int64_t n, int64_t k, size_t element) {
  return static_cast<size_t>((std::min<int64_t>(m, 768) + n) * std::min<int64_t>(k, 448)) * element;
}

// The limit is compiled in, and only the library's description of itself states it. Above it OpenBLAS ends
// the process. Each call rebuilds the description in memory that all threads share, so it is read only once.
int openblas_max_threads() {
  static const int most = [] {
    constexpr const char* kKey = "MAX_THREADS=";
    const char* at = std::strstr(openblas_get_config(), kKey);
    return at ? std::max(1, std::atoi(at + std::strlen(kKey))) : 1;
  }();
  return most;
}

std::shared_ptr<void> single_threaded_openblas() {
  if (threading() != Threading::kPthreads) return nullptr;
  ProcessThreads::instance().enter();
  return std::shared_ptr<void>(
      nullptr, [](void*) { ProcessThreads::instance().leave(); }, core::Allocator<std::byte>());
}

std::string_view openblas_core() { return openblas_get_corename(); }

Description openblas_description(std::string_view products) {
  Description info;
  info.library = openblas_get_config();
  info.core = openblas_core();
  const Threading kind = threading();
  info.threading = kind == Threading::kOpenMp ? "openmp" : kind == Threading::kPthreads ? "pthreads" : "sequential";
  info.max_threads = openblas_max_threads();
  if (std::string narrow = narrow_core_warning(info.core, cpu_vector_level(), products); !narrow.empty()) {
    info.warnings.push_back(std::move(narrow));
  }
  if (std::getenv("OPENBLAS_L2_SIZE")) {
    info.warnings.push_back("OPENBLAS_L2_SIZE is set: OpenBLAS sizes its blocks for that cache, not for the CPU's");
  }
  if (kind == Threading::kPthreads) {
    info.warnings.push_back(
        "the BLAS is a pthreads build: during calls, its number of threads is 1 in the whole process");
  }
  return info;
}

}  // namespace logitless::gemm

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "gemm/openblas.h"

#include <cblas.h>
#include <omp.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "core/parallel.h"
#include "core/store.h"
#include "core/views.h"
#include "gemm/few_rows.h"
#include "gemm/openblas_core.h"
#include "gemm/openblas_row_rule.h"
#include "gemm/team.h"
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
  // Runs `call` with `threads` threads, or with one between any enter() and its leave().
  template <class Call>
  void run_with(int threads, const Call& call) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (users_ > 0) {
      lock.unlock();
      call();
      return;
    }
    const Restored restored;
    openblas_set_num_threads(threads);
    call();
  }

 private:
  struct Restored {
    const int before = openblas_get_num_threads();
    ~Restored() { openblas_set_num_threads(before); }
  };

  std::mutex mutex_;
  int users_ = 0;
  int before_ = 1;
};

void call_blas(const Product<float>& p) {
  cblas_sgemm(CblasRowMajor, p.a.transposed ? CblasTrans : CblasNoTrans, p.b.transposed ? CblasTrans : CblasNoTrans,
              static_cast<blasint>(p.m), static_cast<blasint>(p.n), static_cast<blasint>(p.k), 1.0f,
              static_cast<const float*>(p.a.data), static_cast<blasint>(p.a.stride),
              static_cast<const float*>(p.b.data), static_cast<blasint>(p.b.stride), p.accumulate ? 1.0f : 0.0f, p.c,
              static_cast<blasint>(p.ldc));
}

void call_blas(const Product<double>& p) {
  cblas_dgemm(CblasRowMajor, p.a.transposed ? CblasTrans : CblasNoTrans, p.b.transposed ? CblasTrans : CblasNoTrans,
              static_cast<blasint>(p.m), static_cast<blasint>(p.n), static_cast<blasint>(p.k), 1.0,
              static_cast<const double*>(p.a.data), static_cast<blasint>(p.a.stride),
              static_cast<const double*>(p.b.data), static_cast<blasint>(p.b.stride), p.accumulate ? 1.0 : 0.0, p.c,
              static_cast<blasint>(p.ldc));
}

// 16-bit operands are widened panel by panel: a panel is small enough to stay in L2 next to the tile, and
// deep enough that reading and writing C once a panel costs little (256 multiply-adds an element).
constexpr int64_t kWidenDepth = 256;
// A panel has at most 2 MiB of float32, and this is a multiple of every row step.
constexpr int64_t kWidenBreadth = 2016;

// OpenBLAS reads these as they stand; all others are widened.
bool is_read(DType dtype) { return dtype == DType::kFloat32 || dtype == DType::kFloat64; }

// Widens op(M)[row, row + rows) x [col, col + cols) of an operand to a dense float matrix of the same
// orientation. One that is read as it stands is left where it is.
Operand widened(const Operand& m, int64_t row, int64_t col, int64_t rows, int64_t cols,
                const kernels::RowKernels& kernels, float* scratch, int threads) {
  const int64_t stored_row = m.transposed ? col : row;
  const int64_t stored_col = m.transposed ? row : col;
  const void* first = core::element(m.data, m.dtype, stored_row * m.stride + stored_col);
  if (is_read(m.dtype)) return {first, m.dtype, m.stride, m.transposed};
  const int64_t stored_rows = m.transposed ? cols : rows;
  const int64_t stored_cols = m.transposed ? rows : cols;
  core::parallel_ranges(threads, stored_rows, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      kernels.widen(core::element(first, m.dtype, r * m.stride), m.dtype, stored_cols, scratch + r * stored_cols);
    }
  });
  return {scratch, DType::kFloat32, stored_cols, m.transposed};
}

// Returns the part of A that begins at (row, depth), of what pack_rows() has made of it.
Operand packed_rows(const Product<float>& p, int64_t row, int64_t depth) {
  return {static_cast<const float*>(p.a.packed) + row * p.k + depth, DType::kFloat32, p.k, false};
}

template <class Call>
void multiply_widened(const Product<float>& p, const kernels::RowKernels& kernels, void* scratch, int threads,
                      const Call& call) {
  if (is_read(p.a.dtype) && is_read(p.b.dtype)) {
    call(p);
    return;
  }
  float* a_panel = static_cast<float*>(scratch);
  float* b_panel = a_panel + (is_read(p.a.dtype) ? 0 : std::min(p.m, kWidenBreadth) * kWidenDepth);
  for (int64_t n = 0; n < p.n; n += kWidenBreadth) {
    const int64_t n_size = std::min(kWidenBreadth, p.n - n);
    for (int64_t k = 0; k < p.k; k += kWidenDepth) {
      const int64_t k_size = std::min(kWidenDepth, p.k - k);
      const Operand b = widened(p.b, k, n, k_size, n_size, kernels, b_panel, threads);
      for (int64_t m = 0; m < p.m; m += kWidenBreadth) {
        const int64_t m_size = std::min(kWidenBreadth, p.m - m);
        const Operand a =
            p.a.packed ? packed_rows(p, m, k) : widened(p.a, m, k, m_size, k_size, kernels, a_panel, threads);
        call({m_size, n_size, k_size, a, b, p.c + m * p.ldc + n, p.ldc, p.accumulate || k > 0});
      }
    }
  }
}

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
  Description describe() const override {
    Description out = openblas_description();
    if (std::getenv("OPENBLAS_L2_SIZE")) {
      out.warnings.push_back("OPENBLAS_L2_SIZE is set: the BLAS blocks for another cache");
    }
    if (threading() == Threading::kPthreads) {
      out.warnings.push_back(
          "the BLAS is a pthreads build: its thread number is switched for the whole process during calls");
    }
    return out;
  }
  std::string kernel_warning() const override { return core_warning(openblas_core_switch()); }
  bool reads(DType a, DType b) const override { return is_read(a) && is_read(b); }
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
    if (reads(family.a, family.b)) return rule_of(family.n, family.k);
    // Such a product is the sum of products of panels, and the rule has to hold for each of them.
    RowRule rule;
    for (const int64_t n : {std::min(family.n, kWidenBreadth), family.n % kWidenBreadth}) {
      for (const int64_t k : {std::min(family.k, kWidenDepth), family.k % kWidenDepth}) {
        const RowRule panel = rule_of(n, k);
        rule = {panel.row_step, std::max(rule.least_rows, panel.least_rows), panel.class_rows};
      }
    }
    // No row may stand in a panel of another height than its neighbours'.
    if (rule.padded(most_rows) > kWidenBreadth) rule.row_step = rule.least_rows = kWidenBreadth;
    return rule;
  }

  size_t scratch_bytes(int64_t m, int64_t n, int64_t, DType a, DType b) const override {
    const int64_t rows = (is_read(a) ? 0 : std::min(m, kWidenBreadth)) + (is_read(b) ? 0 : std::min(n, kWidenBreadth));
    return static_cast<size_t>(rows * kWidenDepth) * sizeof(float);
  }

  void multiply(const Product<float>& p, const kernels::RowKernels& kernels, void* scratch) const override {
    if (write_empty(p)) return;
    const OmpThreads alone(1);
    multiply_widened(p, kernels, scratch, 1, [](const Product<float>& part) { call_blas(part); });
  }
  void multiply(const Product<double>& p, const kernels::RowKernels&, void*) const override {
    if (write_empty(p)) return;
    const OmpThreads alone(1);
    call_blas(p);
  }

  // OpenBLAS packs for itself, product by product. What it cannot read is widened.
  size_t packed_rows_bytes(int64_t rows, int64_t depth, DType a, DType) const override {
    if (is_read(a)) return 0;
    constexpr int64_t kCacheLine = 64;
    return static_cast<size_t>(core::round_up(rows * depth * static_cast<int64_t>(sizeof(float)), kCacheLine));
  }
  void pack_rows(const Operand& a, DType, int64_t rows, int64_t depth, const kernels::RowKernels& kernels,
                 void* to) const override {
    widened(a, 0, 0, rows, depth, kernels, static_cast<float*>(to), 1);
  }

  size_t parallel_scratch_bytes(int64_t m, int64_t n, int64_t k, DType a, DType b, int) const override {
    return scratch_bytes(m, n, k, a, b);
  }
  void multiply_parallel(const Product<float>& p, const kernels::RowKernels& kernels, void* scratch,
                         int threads) const override {
    if (write_empty(p)) return;
    run_parallel(threads, [&] {
      multiply_widened(p, kernels, scratch, threads, [](const Product<float>& part) { call_blas(part); });
    });
  }
  void multiply_parallel(const Product<double>& p, const kernels::RowKernels&, void*, int threads) const override {
    if (write_empty(p)) return;
    run_parallel(threads, [&] { call_blas(p); });
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

 private:
  // The threads of OpenBLAS's OpenMP build wait for each other inside a product, for as many of them as it
  // thinks that its region has: in a smaller team they wait for ever. So it is told of the team that a region
  // gets here, and only one product at a time may tell it: it keeps the number in one variable of the
  // process.
  template <class Call>
  static void run_parallel(int threads, const Call& call) {
    if (threading() == Threading::kPthreads) {
      const OmpThreads team(threads);
      ProcessThreads::instance().run_with(threads, call);
      return;
    }
    const FixedTeams fixed;
    const OmpThreads team(core::team_size(threads));
    if (omp_get_max_threads() == 1 || omp_in_parallel()) {  // OpenBLAS starts no team
      call();
      return;
    }
    static std::mutex one_at_a_time;
    const std::lock_guard<std::mutex> lock(one_at_a_time);
    call();
  }
};

}  // namespace

const Backend& openblas_backend() {
  static const OpenBlas backend;
  return backend;
}

Description openblas_description() {
  Description info;
  info.library = openblas_get_config();
  info.core = openblas_get_corename();
  const Threading kind = threading();
  info.threading = kind == Threading::kOpenMp ? "openmp" : kind == Threading::kPthreads ? "pthreads" : "sequential";
  info.max_threads = most_threads();
  return info;
}

}  // namespace logitless::gemm

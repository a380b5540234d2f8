// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "dense/products.h"

#include <cblas.h>
#include <omp.h>

#include <algorithm>
#include <string_view>
#include <type_traits>

#include "core/integers.h"
#include "core/parallel.h"
#include "core/views.h"
#include "gemm/onednn.h"
#include "gemm/openblas.h"
#include "gemm/widened.h"
#include "planning/context_state.h"

namespace logitless::dense {
namespace {

// While this lives, OpenMP and OpenBLAS start teams of the size that a region really gets. Inside a product,
// both libraries wait for all threads that they expect: with a smaller team they would wait forever.
class Team {
 public:
  explicit Team(int threads) {
    omp_set_dynamic(0);
    const int size = core::team_size(threads);
    omp_set_num_threads(size);
    if (sets_openblas_) openblas_set_num_threads(size);
  }
  ~Team() {
    if (sets_openblas_) openblas_set_num_threads(openblas_threads_);
    omp_set_num_threads(threads_);
    omp_set_dynamic(dynamic_);
  }
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

 private:
  const int dynamic_ = omp_get_dynamic();
  const int threads_ = omp_get_max_threads();
  const int openblas_threads_ = openblas_get_num_threads();
  const bool sets_openblas_ = openblas_get_parallel() == OPENBLAS_THREAD;
};

// Returns an operand that begins at the given row or column of op(M).
gemm::Operand from_row(gemm::Operand m, int64_t row) {
  m.data = core::element(m.data, m.dtype, m.transposed ? row : row * m.stride);
  return m;
}
gemm::Operand from_column(gemm::Operand m, int64_t column) {
  m.data = core::element(m.data, m.dtype, m.transposed ? column * m.stride : column);
  return m;
}

}  // namespace

void* Products::scratch(size_t bytes) {
  if (bytes > scratch_bytes_) {
    scratch_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
    scratch_bytes_ = bytes;
  }
  return scratch_.get();
}

// For kernels without threads: each thread computes columns or rows of C, whichever there are more of.
template <class T>
void Products::multiply_parts(const gemm::Product<T>& p) {
  const detail::ContextState& state = detail::state_of(context_);
  constexpr int64_t kStep = 64;  // whole panels of both tile units
  const bool by_columns = p.n >= p.m;
  const int64_t edge = std::max(p.m, p.n);
  const int64_t each = core::round_up(core::div_up(edge, int64_t{threads_}), kStep);
  const int64_t parts = core::div_up(edge, each);
  const size_t bytes = state.gemm->scratch_bytes(p.m, p.n, p.k, p.a.dtype, p.b.dtype);
  auto* const all = static_cast<std::byte*>(scratch(static_cast<size_t>(parts) * bytes));
  core::parallel_for(threads_, parts, [&](int64_t part) {
    const int64_t begin = part * each, count = std::min(each, edge - begin);
    gemm::Product<T> own = p;
    (by_columns ? own.n : own.m) = count;
    if (by_columns) {
      own.b = from_column(p.b, begin);
      own.c += begin;
    } else {
      own.a = from_row(p.a, begin);
      own.c += begin * p.ldc;
    }
    state.gemm->multiply(own, *state.kernels, all + static_cast<size_t>(part) * bytes);
  });
}

template <class T>
void Products::operator()(const gemm::Product<T>& p) {
  if (gemm::write_empty(p)) return;
  const detail::ContextState& state = detail::state_of(context_);
  const DType a = p.a.dtype, b = p.b.dtype;
  const std::string_view library = state.gemm->library_of(a, b);
  if (library != "onednn" && library != "openblas") return multiply_parts(p);
  const Team team(threads_);
  if constexpr (std::is_same_v<T, float>) {
    const auto multiply = [&](const gemm::Product<float>& block) {
#ifdef LOGITLESS_ONEDNN
      if (library == "onednn") return gemm::multiply_by_onednn(block);
#endif
      gemm::multiply_by_openblas(block);
    };
    if (state.gemm->reads(a, b)) return multiply(p);
    void* const panels = scratch(static_cast<size_t>(gemm::widened_elements(p.m, p.n, a, b)) * sizeof(float));
    gemm::multiply_widened(p, *state.kernels, panels, threads_, multiply);
  } else {
    gemm::multiply_by_openblas(p);
  }
}

template void Products::operator()(const gemm::Product<float>&);
template void Products::operator()(const gemm::Product<double>&);

}  // namespace logitless::dense

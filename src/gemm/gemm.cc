// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "gemm/gemm.h"

#include <omp.h>

#include <algorithm>

#include "core/views.h"
#include "gemm/bfloat16_dots.h"
#include "gemm/onednn.h"
#include "gemm/openblas.h"
#include "gemm/openblas_core.h"
#include "gemm/routine.h"
#include "gemm/tile_routine.h"
#include "gemm/widened.h"
#include "kernels/row_kernels.h"

namespace logitless::gemm {
namespace {

// While this lives, OpenMP's teams of the calling task have one thread. A library that uses OpenMP runs on
// the calling thread inside a parallel region, but a team of one does not count as a region: there, and in
// threads that OpenMP does not know, only this setting keeps the library from starting a team.
class OneOmpThread {
 public:
  OneOmpThread() {
    if (before_ != 1) omp_set_num_threads(1);
  }
  ~OneOmpThread() {
    if (before_ != 1) omp_set_num_threads(before_);
  }
  OneOmpThread(const OneOmpThread&) = delete;
  OneOmpThread& operator=(const OneOmpThread&) = delete;

 private:
  const int before_ = omp_get_max_threads();
};

// Returns the stride of copied rows of A.
template <class Element>
constexpr int64_t few_rows_stride(int64_t k) {
  return core::round_up(k, sizeof(Element) == 2 ? kDotsDepth : int64_t{16});
}

size_t few_rows_bytes(int64_t m, int64_t k, DType a, DType b) {
  const int64_t rows = std::min(m, kernels::kMostFewRows);
  const int64_t widened = b == DType::kFloat16 ? kernels::FewRowsArgs<float>::scratch_elements(k) : 0;
  const size_t element = core::sums_in_double(a) ? sizeof(double) : sizeof(float);
  return static_cast<size_t>(rows * few_rows_stride<float>(k) + widened) * element;
}

// Copies the rows of A, widened if necessary, to cache-line boundaries, because loads that straddle two lines
// take twice as long. Zeros follow each row.
template <class Element, class T>
kernels::FewRowsArgs<T, Element> with_copied_rows(const Product<T>& p, const kernels::RowKernels& kernels,
                                                  void* scratch) {
  auto* const rows = static_cast<Element*>(scratch);
  const int64_t stride = few_rows_stride<Element>(p.k);
  for (int64_t row = 0; row < p.m; ++row) {
    Element* const to = rows + row * stride;
    const Element* from = kernels.values(core::element(p.a.data, p.a.dtype, row * p.a.stride), p.a.dtype, p.k, to);
    if (from != to) std::copy_n(from, p.k, to);
    std::fill(to + p.k, to + stride, Element{});
  }
  T* const widened_b = reinterpret_cast<T*>(rows + p.m * stride);
  return {p.m, p.n,   p.k,          rows,     stride, p.b.data, p.b.dtype, p.b.stride, p.b.transposed,
          p.c, p.ldc, p.accumulate, widened_b};
}

const Routine& best_float32() {
  const Routine* onednn = onednn_float32();
  return onednn ? *onednn : openblas_float32();
}

/// A backend for calls with any number of rows, and one for calls with few rows.
struct Backends {
  Backends(const char* name, const Routine& float32, const Routine* bfloat16)
      : few_rows(name, float32, bfloat16, nullptr), any_rows(name, float32, bfloat16, &few_rows) {}
  const Backend few_rows, any_rows;
};

const Backend* openblas_backend() {
  static const Backends backends("openblas", openblas_float32(), nullptr);
  return &backends.any_rows;
}

const Backend* onednn_backend() {
  if (!onednn_float32() && !onednn_bfloat16()) return nullptr;
  static const Backends backends("onednn", best_float32(), onednn_bfloat16());
  return &backends.any_rows;
}

const Backend* amx_backend() {
  if (!amx_routine()) return nullptr;
  static const Backends backends("amx", best_float32(), amx_routine());
  return &backends.any_rows;
}

const Backend* bfmmla_backend() {
  if (!bfmmla_routine()) return nullptr;
  static const Backends backends("bfmmla", best_float32(), bfmmla_routine());
  return &backends.any_rows;
}

// Best first. The build, the CPU and OpenBLAS's kernels decide what runs: a choice by timing would change the
// bits from run to run.
std::vector<const Backend*> backends() {
  std::vector<const Backend*> found;
  for (const auto backend : {amx_backend, bfmmla_backend, onednn_backend, openblas_backend}) {
    if (backend()) found.push_back(backend());
  }
  return found;
}

}  // namespace

Description Backend::describe() const {
  const bool only_double = &float32_ != &openblas_float32();
  Description out = openblas_description(only_double ? "float64" : "float32 and float64");
  out.float32 = float32_.description();
  if (!bfloat16_) return out;
  out.bf16 = bfloat16_->description();
  if (std::string warning = bfloat16_->warning(); !warning.empty()) out.warnings.push_back(std::move(warning));
  return out;
}

int Backend::max_threads() { return openblas_max_threads(); }

bool Backend::reads(DType a, DType b) const { return is_native(a, b) || (is_wide(a) && is_wide(b)); }

const char* Backend::library_of(DType a, DType b) const {
  if (!few_rows_) return "logitless";
  if (is_native(a, b)) return bfloat16_->library();
  return core::sums_in_double(a) ? openblas_float32().library() : float32_.library();
}

Costs Backend::costs(DType a, DType b) const {
  if (is_native(a, b)) return bfloat16_->costs();
  Costs costs = float32_.costs();
  if (size_of(b) == 2) costs.few_rows = kernels::kMostFewRows;  // products of many rows widen the head first
  return costs;
}

RowRule Backend::row_rule(const RowFamily& family, int64_t most_rows) const {
  if (!few_rows_) return {};  // products for logits have few rows here
  if (is_native(family.a, family.b)) return bfloat16_->row_rule(family.n, family.k, family.b_transposed, most_rows);
  return widened_rule(family, most_rows, [&](int64_t n, int64_t k) {
    return core::sums_in_double(family.a)
               ? openblas_row_rule(openblas_core(), true, n, k, family.b_transposed, most_rows)
               : float32_.row_rule(n, k, family.b_transposed, most_rows);
  });
}

size_t Backend::scratch_bytes(int64_t m, int64_t n, int64_t k, DType a, DType b) const {
  const size_t bytes = is_native(a, b) ? bfloat16_->scratch_bytes(n, k)
                                       : static_cast<size_t>(widened_elements(m, n, a, b)) * sizeof(float);
  return few_rows_ ? bytes : std::max(bytes, few_rows_bytes(m, k, a, b));
}

size_t Backend::reordered_bytes(int64_t rows, int64_t depth, DType a, DType b) const {
  if (!few_rows_) return 0;
  if (is_native(a, b)) return bfloat16_->reordered_bytes(rows, depth);
  constexpr int64_t kCacheLine = 64;
  const int64_t bytes = is_wide(a) ? 0 : rows * depth * static_cast<int64_t>(sizeof(float));
  return static_cast<size_t>(core::round_up(bytes, kCacheLine));
}

void Backend::reorder_rows(const Operand& a, DType b, int64_t rows, int64_t depth, const kernels::RowKernels& kernels,
                           void* to) const {
  if (is_native(a.dtype, b)) return bfloat16_->reorder_rows(a, rows, depth, to);
  widened(a, 0, 0, rows, depth, kernels, static_cast<float*>(to), 1);
}

template <class T>
bool Backend::has_few_rows(const Product<T>& p) const {
  return !few_rows_ && p.m <= kernels::kMostFewRows && !p.a.transposed;
}

void Backend::multiply(const Product<float>& p, const kernels::RowKernels& kernels, void* scratch) const {
  if (write_empty(p)) return;
  if (has_few_rows(p)) {
    // The CPU's bfloat16 instruction rounds like other native products, unlike products of widened operands.
    const auto dots = is_native(p.a.dtype, p.b.dtype) ? bfloat16_dots() : nullptr;
    if (dots) return dots(with_copied_rows<bfloat16>(p, kernels, scratch));
    return kernels.f32.few_rows(with_copied_rows<float>(p, kernels, scratch));
  }
  const OneOmpThread one_thread;
  if (is_native(p.a.dtype, p.b.dtype)) return bfloat16_->multiply(p, scratch);
  multiply_widened(p, kernels, scratch, 1, [&](const Product<float>& block) { float32_.multiply(block, nullptr); });
}

void Backend::multiply(const Product<double>& p, const kernels::RowKernels& kernels, void* scratch) const {
  if (write_empty(p)) return;
  if (has_few_rows(p)) return kernels.f64.few_rows(with_copied_rows<double>(p, kernels, scratch));
  const OneOmpThread one_thread;
  multiply_by_openblas(p);
}

std::shared_ptr<void> Backend::single_threaded_region() { return single_threaded_openblas(); }

size_t Backend::internal_bytes(int64_t m, int64_t n, int64_t k, DType a, DType b) const {
  if (is_native(a, b)) return bfloat16_->internal_bytes(m, n, k);
  if (core::sums_in_double(a)) return openblas_internal_bytes(m, n, k, sizeof(double));
  // The routine gets only the blocks that were widened.
  return reads(a, b) ? float32_.internal_bytes(m, n, k)
                     : float32_.internal_bytes(m, std::min(n, kWidenBreadth), std::min(k, kWidenDepth));
}

std::vector<std::string_view> backend_names() {
  std::vector<std::string_view> names;
  for (const Backend* backend : backends()) names.push_back(backend->name());
  return names;
}

const Backend* find_backend(std::string_view name) {
  // A request for OpenBLAS by name must not initialise oneDNN, because that fixes the instruction set that
  // oneDNN may use.
  if (name == openblas_backend()->name()) return openblas_backend();
  for (const Backend* backend : backends()) {
    if (name == "auto" || name == backend->name()) return backend;
  }
  return nullptr;
}

}  // namespace logitless::gemm

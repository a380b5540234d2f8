// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The dense path: all logits are in memory, and every product is as large and as parallel as the BLAS
// likes it.
#include <omp.h>

#include <algorithm>
#include <type_traits>

#include "core/arena.h"
#include "core/parallel.h"
#include "core/store.h"
#include "core/views.h"
#include "plan/buffers.h"
#include "plan/hidden_blocks.h"
#include "stats/row_gradients.h"
#include "stats/row_walk.h"
#include "stats/tile_kernels.h"
#include "stream/schedule.h"
#include "stream/store_sums.h"

namespace logitless::stream {
namespace {

template <class Types>
class DenseSchedule final : public Schedule {
 public:
  using Sum = typename Types::Sum;
  using Logit = typename Types::Logit;
  DenseSchedule(const detail::ContextState& context, const HiddenProblem& problem, const Gradients& outputs,
                const Plan& plan)
      : context_(context),
        problem_(problem),
        outputs_(outputs),
        threads_(plan.threads),
        v_(problem.vocab_size),
        gradient_(plan.gradient_dtype),
        arena_(plan.workspace_bytes),
        buffers_(arena_, *context.gemm, problem, gradient_, threads_, outputs),
        tiles_(*context.kernels, problem, stats::kRowColumns,
               plan::widened_bias<Logit>(arena_, context.kernels, problem), problem.head.softcap),
        walk_(tiles_, *context.kernels, v_, stats::kRowColumns) {
    if (buffers_.gathered) gather_rows(problem, problem::all_rows(problem.tokens).rows, threads_, buffers_.gathered);
  }

  int64_t chunks() const override { return 1; }
  std::span<const int64_t> rows(int64_t) const override { return problem_.active(); }

  void fold(int64_t, const stats::Finisher& finish) override {
    make_logits();
    core::parallel_for(threads_, static_cast<int64_t>(problem_.active().size()), [&](int64_t a) {
      const int64_t row = problem_.active()[static_cast<size_t>(a)];
      walk_.statistics(problem_, row, logits(row), DTypeOf<Logit>::value, scratch(), finish);
    });
  }

  void gradients(int64_t, const TokenStats& stats, const TokenGrads& grads) override {
    if (!has_logits_) make_logits();
    core::parallel_for(threads_, problem_.tokens, [&](int64_t row) { make_gradient(row, stats, grads); });
    if (outputs_.wants_d_hidden()) d_hidden();
    if (outputs_.d_weight.data) d_weight();
    if (outputs_.d_bias.data) d_bias();
  }

 private:
  Logit* logits(int64_t row) const { return buffers_.logits + row * v_; }
  const typename stats::RowWalk<Types>::Scratch& scratch() const {
    return buffers_.scratch[static_cast<size_t>(omp_get_thread_num())];
  }

  // One product takes one matrix: rows that stand in two of them, or in sequences apart, have been copied
  // together.
  gemm::Operand hidden() const {
    const DType dtype = problem_.hidden.dtype;
    if (buffers_.gathered) return {buffers_.gathered, dtype, problem_.hidden_size, false};
    return {problem_.hidden.data, dtype, problem_.hidden_places.row_stride, false};
  }

  template <class T>
  void multiply(const gemm::Product<T>& product) const {
    context_.gemm->multiply_parallel(product, *context_.kernels, buffers_.gemm, threads_);
  }

  // The gradients of a row begin where its logits did, in a type that may be narrower.
  gemm::Operand gradients_from(int64_t entry) const {
    const auto stride = v_ * static_cast<int64_t>(sizeof(Logit) / size_of(gradient_));
    return {core::element(static_cast<const void*>(buffers_.logits), gradient_, entry), gradient_, stride, false};
  }

  void make_logits() {
    multiply<Logit>({problem_.tokens, v_, problem_.hidden_size, hidden(), plan::head_operand(problem_.head, 0, 0, true),
                     buffers_.logits, v_, false});
    has_logits_ = true;
  }

  void make_gradient(int64_t row, const TokenStats& stats, const TokenGrads& grads) const {
    if (!problem_.takes_part(row) || !stats::has_gradient(grads, row)) {
      std::fill_n(logits(row), v_, Logit{0});
      return;
    }
    walk_.gradient(stats::row_gradient<Logit>(problem_, stats, grads, row), logits(row), DTypeOf<Logit>::value,
                   logits(row), gradient_, scratch());
  }

  void d_hidden() const {
    gemm::Product<Sum> product{problem_.tokens,
                               problem_.hidden_size,
                               v_,
                               gradients_from(0),
                               plan::head_operand(problem_.head, 0, 0, false),
                               nullptr,
                               0,
                               false};
    if (d_hidden_is_matrix(problem_, outputs_) && !core::is_narrow<Sum>(outputs_.d_hidden.dtype)) {
      Matrix out = outputs_.d_hidden;
      out.stride = problem::d_hidden_places(problem_, outputs_).row_stride;
      return write(product, out, 0, outputs_.d_hidden_mode);
    }
    product.c = buffers_.sums;
    product.ldc = product.n;
    multiply(product);
    store_rows(product, outputs_.d_hidden_mode, problem::d_hidden_dtype(outputs_),
               [&](int64_t row) { return d_hidden_row(problem_, outputs_, row).data; });
  }

  void d_weight() const {
    const Matrix out = core::with_used_stride(outputs_.d_weight);
    const bool hidden_vocab = problem_.head.layout == HeadLayout::kHiddenVocab;
    const int64_t step = core::is_narrow<Sum>(out.dtype) ? plan::kNarrowEntries : v_;
    for (int64_t first = 0; first < v_; first += step) {
      const int64_t entries = std::min(step, v_ - first);
      gemm::Operand states = hidden();
      states.transposed = hidden_vocab;
      gemm::Operand gradients = gradients_from(first);
      gradients.transposed = !hidden_vocab;
      gemm::Product<Sum> product;
      product.m = hidden_vocab ? problem_.hidden_size : entries;
      product.n = hidden_vocab ? entries : problem_.hidden_size;
      product.k = problem_.tokens;
      product.a = hidden_vocab ? states : gradients;
      product.b = hidden_vocab ? gradients : states;
      write(product, out, hidden_vocab ? first : first * out.stride, outputs_.d_weight_mode);
    }
  }

  // Writes the product to `out` from element `offset` on, or adds it, as `mode` says.
  void write(gemm::Product<Sum> product, const Matrix& out, int64_t offset, WriteMode mode) const {
    if (!core::is_narrow<Sum>(out.dtype)) {
      product.c = static_cast<Sum*>(out.data) + offset;
      product.ldc = out.stride;
      product.accumulate = mode == WriteMode::kAccumulate;
      multiply(product);
      return;
    }
    product.c = buffers_.sums;
    product.ldc = product.n;
    multiply(product);
    store_rows(product, mode, out.dtype,
               [&](int64_t row) { return core::element(out.data, out.dtype, offset + row * out.stride); });
  }

  void d_bias() const {
    const Vector& out = outputs_.d_bias;
    const bool accumulate = outputs_.d_bias_mode == WriteMode::kAccumulate;
    Sum* sums = core::is_narrow<Sum>(out.dtype) ? buffers_.sums : static_cast<Sum*>(out.data);
    core::parallel_ranges(threads_, v_, [&](int64_t begin, int64_t end) {
      const int64_t entries = end - begin;
      add_column_sums(begin, entries, accumulate && !core::is_narrow<Sum>(out.dtype), sums + begin);
      if (core::is_narrow<Sum>(out.dtype)) {
        store(sums + begin, entries, outputs_.d_bias_mode, core::element(out.data, out.dtype, begin), out.dtype);
      }
    });
  }

  void add_column_sums(int64_t first, int64_t entries, bool accumulate, Sum* sums) const {
    const gemm::Operand from = gradients_from(first);
    if constexpr (sizeof(Sum) == sizeof(float)) {
      if (gradient_ == DType::kBFloat16) {
        return context_.kernels->bf16.add_column_sums(static_cast<const bfloat16*>(from.data), from.stride,
                                                      problem_.tokens, entries, accumulate, sums);
      }
    }
    tiles_.table().add_column_sums(static_cast<const Sum*>(from.data), from.stride, problem_.tokens, entries,
                                   accumulate, sums);
  }

  // Stores `count` sums where they belong, in the type of the output.
  void store(const Sum* sums, int64_t count, WriteMode mode, void* to, DType dtype) const {
    store_sums(*context_.kernels, tiles_.table(), sums, count, mode, to, dtype);
  }
  // Stores the rows of a product whose sums stand apart: row r goes to place(r).
  template <class Place>
  void store_rows(const gemm::Product<Sum>& product, WriteMode mode, DType dtype, const Place& place) const {
    core::parallel_ranges(threads_, product.m, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) store(product.c + r * product.ldc, product.n, mode, place(r), dtype);
    });
  }

  const detail::ContextState& context_;
  const HiddenProblem& problem_;
  const Gradients& outputs_;
  int threads_;
  int64_t v_;
  DType gradient_;  // of the gradients of the logits
  core::Arena arena_;
  plan::DenseBuffers<Types> buffers_;
  const stats::TileKernels<Types> tiles_;
  const stats::RowWalk<Types> walk_;
  bool has_logits_ = false;
};

}  // namespace

std::shared_ptr<Schedule> dense_schedule(const detail::ContextState& context, const HiddenProblem& problem,
                                         const Gradients& outputs, const Plan& plan) {
  return stats::with_tile_types(problem, [&](auto types) -> std::shared_ptr<Schedule> {
    return core::make_shared<DenseSchedule<decltype(types)>>(context, problem, outputs, plan);
  });
}

}  // namespace logitless::stream

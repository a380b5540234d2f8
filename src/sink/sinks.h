// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// What becomes of the gradients of logits: d_hidden, d_weight or its callback, and d_bias. Each sink says
// where its sums stand, adds parts to them, and hands them to the output. It does not know who calls: the
// order of the parts, and what multiplies, are the schedule's.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "core/parallel.h"
#include "core/views.h"
#include "gemm/gemm.h"
#include "kernels/row_kernels.h"
#include "logitless/tensors.h"
#include "problem/hidden_rows.h"
#include "sink/gradient_part.h"
#include "sink/store_sums.h"
#include "source/source.h"

namespace logitless::sink {

using problem::HiddenProblem;

/// d_hidden [rows, H] (+)= gradients · head.
template <class Sum>
class HiddenSink {
 public:
  /// `sums` [rows, H] are apart from the output; without them every part is added to the output.
  HiddenSink(const kernels::RowKernels& kernels, const HiddenProblem& problem, const Gradients& outputs, Sum* sums)
      : kernels_(kernels), problem_(problem), outputs_(outputs), sums_(sums) {
    if (wanted()) breaks_ = source::breaks_of(problem::d_hidden_rows(problem, outputs));
  }

  bool wanted() const { return outputs_.wants_d_hidden(); }

  /// Adds components [component, component + columns) of the part, whose first row is row `place` of the
  /// sums. `first` says that nothing was added to these rows before. `scratch` [rows, columns] takes the
  /// product of rows that do not follow one another in the output.
  template <class Multiply>
  void add(const GradientPart& part, int64_t place, int64_t component, int64_t columns, bool first, Sum* scratch,
           const Multiply& multiply) const {
    if (part.rows.empty()) return;
    const bool together = part.contiguous && breaks_.same_piece(part.rows.front(), part.rows.back());
    const bool scattered = !sums_ && !together;
    const bool adds = !first || (!sums_ && outputs_.d_hidden_mode == WriteMode::kAccumulate);
    gemm::Product<Sum> product;
    product.m = static_cast<int64_t>(part.rows.size());
    product.n = columns;
    product.k = part.entries;
    product.b = source::Head(problem_.head)
                    .operand(source::Head::Order::kEntriesFirst, part.first_entry, part.entries, component, nullptr);
    if (sums_) {
      product.c = sums_ + place * problem_.hidden_size + component;
      product.ldc = problem_.hidden_size;
    } else if (scattered) {
      product.c = scratch;
      product.ldc = columns;
    } else {
      const problem::RowPlace<void*> row = problem::d_hidden_row(problem_, outputs_, part.rows.front());
      product.c = static_cast<Sum*>(row.data) + component;
      product.ldc = row.stride;
    }
    part.for_each_term([&](const gemm::Operand& gradients, bool first_term) {
      product.a = gradients;
      product.accumulate = !first_term || (adds && !scattered);
      multiply(product);
    });
    if (!scattered) return;
    const WriteMode mode = adds ? WriteMode::kAccumulate : WriteMode::kOverwrite;
    for (const int64_t row : part.rows) {
      Sum* to = static_cast<Sum*>(problem::d_hidden_row(problem_, outputs_, row).data) + component;
      store_sums(kernels_, scratch, columns, mode, to, DTypeOf<Sum>::value);
      scratch += columns;
    }
  }

  /// Hands sums that stand apart to the output: row i of them is row rows[i] of hidden.
  void finish(std::span<const int64_t> rows, int threads) const {
    if (!sums_) return;
    core::parallel_ranges(threads, static_cast<int64_t>(rows.size()), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        void* to = problem::d_hidden_row(problem_, outputs_, rows[static_cast<size_t>(i)]).data;
        store_sums(kernels_, sums_ + i * problem_.hidden_size, problem_.hidden_size, outputs_.d_hidden_mode, to,
                   problem::d_hidden_dtype(outputs_));
      }
    });
  }

 private:
  const kernels::RowKernels& kernels_;
  const HiddenProblem& problem_;
  const Gradients& outputs_;
  Sum* sums_;
  source::RowBreaks breaks_;
};

/// Writes zeros to the rows of an overwritten d_hidden for which has_sums(row) is false.
template <class HasSums>
void clear_other_rows(const HiddenProblem& problem, const Gradients& outputs, const HasSums& has_sums) {
  if (!outputs.wants_d_hidden() || outputs.d_hidden_mode != WriteMode::kOverwrite) return;
  for (int64_t row = 0; row < problem.tokens; ++row) {
    if (has_sums(row)) continue;
    void* to = problem::d_hidden_row(problem, outputs, row).data;
    core::fill_zero(Matrix(to, problem::d_hidden_dtype(outputs), 1, problem.hidden_size));
  }
}

/// d_weight (+)= gradientsᵀ · hidden, in the head's layout, or its callback.
template <class Sum>
class WeightSink {
 public:
  /// `tiles` are sums apart from the output, of at most `tile_entries` vocabulary entries each; tile j stands
  /// in tiles[j % size]. Without them every part is added to the output.
  WeightSink(const kernels::RowKernels& kernels, const HiddenProblem& problem, const Gradients& outputs,
             std::span<Sum* const> tiles, int64_t tile_entries)
      : kernels_(kernels),
        outputs_(outputs),
        tiles_(tiles),
        hidden_vocab_(problem.head.layout == HeadLayout::kHiddenVocab),
        hidden_size_(problem.hidden_size),
        tile_entries_(tile_entries),
        tile_stride_(hidden_vocab_ ? tile_entries : hidden_size_) {}

  bool wanted() const { return outputs_.d_weight.data || outputs_.weight_sink; }
  /// Returns whether each tile is summed apart from the output, and finished once all rows are in it.
  bool apart() const { return !tiles_.empty(); }

  /// Adds components [component, component + components) of the part, whose vocabulary entries are those of
  /// tile j. `first` says that nothing was added to them before.
  template <class Multiply>
  void add(const GradientPart& part, int64_t j, int64_t component, int64_t components, bool first,
           const Multiply& multiply) const {
    gemm::Operand states = part.hidden;
    states.data = core::element(states.data, states.dtype, component);
    states.transposed = hidden_vocab_;
    gemm::Product<Sum> product;
    product.m = hidden_vocab_ ? components : part.entries;
    product.n = hidden_vocab_ ? part.entries : components;
    product.k = static_cast<int64_t>(part.rows.size());
    product.ldc = apart() ? tile_stride_ : core::with_used_stride(outputs_.d_weight).stride;
    const int64_t entry = apart() ? 0 : part.first_entry;
    product.c = (apart() ? tile(j) : static_cast<Sum*>(outputs_.d_weight.data)) +
                (hidden_vocab_ ? component * product.ldc + entry : entry * product.ldc + component);
    const bool adds = !first || (!apart() && outputs_.d_weight_mode == WriteMode::kAccumulate);
    part.for_each_term([&](gemm::Operand gradients, bool first_term) {
      gradients.transposed = !hidden_vocab_;
      product.a = hidden_vocab_ ? states : gradients;
      product.b = hidden_vocab_ ? gradients : states;
      product.accumulate = !first_term || adds;
      multiply(product);
    });
  }

  /// Hands tile j, of vocabulary entries [first_entry, first_entry + entries), to the output or the callback.
  void finish(int64_t j, int64_t first_entry, int64_t entries, int threads) const {
    if (!apart()) return;
    const int64_t rows = hidden_vocab_ ? hidden_size_ : entries, cols = hidden_vocab_ ? entries : hidden_size_;
    if (outputs_.weight_sink) {
      outputs_.weight_sink(first_entry, entries, ConstMatrix(tile(j), rows, cols, tile_stride_));
      return;
    }
    const Matrix out = core::with_used_stride(outputs_.d_weight);
    const int64_t offset = hidden_vocab_ ? first_entry : first_entry * out.stride;
    core::parallel_ranges(threads, rows, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        store_sums(kernels_, tile(j) + r * tile_stride_, cols, outputs_.d_weight_mode,
                   core::element(out.data, out.dtype, offset + r * out.stride), out.dtype);
      }
    });
  }

  /// Makes tile j zeros.
  void clear(int64_t j) const { std::fill_n(tile(j), tile_entries_ * hidden_size_, Sum{0}); }

 private:
  Sum* tile(int64_t j) const { return tiles_[static_cast<size_t>(j) % tiles_.size()]; }

  const kernels::RowKernels& kernels_;
  const Gradients& outputs_;
  std::span<Sum* const> tiles_;
  bool hidden_vocab_;
  int64_t hidden_size_;
  int64_t tile_entries_;
  int64_t tile_stride_;
};

/// d_bias (+)= the sums of the gradients over the rows.
template <class Sum>
class BiasSink {
 public:
  /// `sums` [entries] are apart from the output; without them every part is added to the output.
  BiasSink(const kernels::RowKernels& kernels, const Gradients& outputs, Sum* sums)
      : kernels_(kernels), out_(outputs.d_bias), mode_(outputs.d_bias_mode), sums_(sums) {}

  bool wanted() const { return out_.data; }

  /// `first` says that nothing was added to the part's vocabulary entries before.
  void add(const GradientPart& part, bool first) const {
    Sum* to = (sums_ ? sums_ : static_cast<Sum*>(out_.data)) + part.first_entry;
    const bool adds = !first || (!sums_ && mode_ == WriteMode::kAccumulate);
    const auto rows = static_cast<int64_t>(part.rows.size());
    part.for_each_term([&](const gemm::Operand& gradients, bool first_term) {
      const bool accumulate = !first_term || adds;
      if constexpr (sizeof(Sum) == sizeof(float)) {
        if (gradients.dtype == DType::kBFloat16) {
          return kernels_.bf16.add_column_sums(static_cast<const bfloat16*>(gradients.data), gradients.stride, rows,
                                               part.entries, accumulate, to);
        }
      }
      kernels_.typed<Sum>().add_column_sums(static_cast<const Sum*>(gradients.data), gradients.stride, rows,
                                            part.entries, accumulate, to);
    });
  }

  /// Hands the sums of vocabulary entries [first, first + count) to the output, where they stand apart.
  void finish(int64_t first, int64_t count) const {
    if (!sums_) return;
    store_sums(kernels_, sums_ + first, count, mode_, core::element(out_.data, out_.dtype, first), out_.dtype);
  }

 private:
  const kernels::RowKernels& kernels_;
  const Vector& out_;
  WriteMode mode_;
  Sum* sums_;
};

}  // namespace logitless::sink

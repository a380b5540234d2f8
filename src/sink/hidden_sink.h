// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "core/integers.h"
#include "core/matrices.h"
#include "core/parallel.h"
#include "core/views.h"
#include "kernels/row_kernels.h"
#include "problem/hidden_rows.h"
#include "sink/kept_residuals.h"
#include "sink/sink.h"
#include "sink/store_sums.h"

namespace logitless::sink {

/// If the output is overwritten, sets the rows for which has_sums(row) is false to zero.
template <class HasSums>
void clear_other_rows(const problem::Rows<Matrix>& out, WriteMode mode, const HasSums& has_sums) {
  if (mode != WriteMode::kOverwrite) return;
  for (int64_t row = 0; row < out.count; ++row) {
    if (!has_sums(row)) core::fill_zero(Matrix(out.place(row).data, out.dtype, 1, out.cols));
  }
}

/// The gradient [N, cols] of a product's states: out (+)= gradients · head. For the main product this is
/// d_hidden.
template <class Sum>
class HiddenSink final : public Sink<Sum> {
 public:
  HiddenSink(const kernels::RowKernels& kernels, const source::Head& head, const problem::Rows<Matrix>& out,
             WriteMode mode, const Sizes& sizes)
      : Sink<Sum>(ChainOf::kRowBlock),
        kernels_(kernels),
        head_(head),
        out_(out),
        breaks_(source::breaks_of(out)),
        mode_(mode),
        sizes_(sizes),
        columns_(std::min(sizes.part.hidden_block, out.cols)) {}

  void take_lasting(core::Arena& arena) override {
    if (sizes_.keeps_residuals) residuals_.take_lasting(arena, out_.cols);
  }
  void take(core::Arena& arena) override {
    if (sizes_.keeps_residuals) residuals_.take(arena, sizes_.rows);
    if (sizes_.hidden_apart) {
      sums_ = arena.take<Sum>(sizes_.rows * out_.cols);
    } else if (sizes_.scatter) {
      scratch_.resize(static_cast<size_t>(sizes_.threads));
      for (Sum*& mine : scratch_) mine = arena.take<Sum>(sizes_.part.rows * columns_);
    }
  }

  /// Stores sums that are not kept apart in `out` from now on. It has the shape and type of the previous
  /// output.
  void set_out(const problem::Rows<Matrix>& out) { out_ = out; }

  const source::Head& head() const { return head_; }
  int64_t splits() const override { return core::div_up(out_.cols, columns_); }

  void add(const GradientPart& part, int64_t split, bool first, int thread,
           const source::Multiplier& multiply) override {
    if (part.rows.empty()) return;
    const int64_t component = split * columns_;
    const bool together = part.contiguous && breaks_.evenly_spaced(part.rows.front(), part.rows.back());
    const bool scattered = !sizes_.hidden_apart && !together;
    const bool adds = !first || (!sizes_.hidden_apart && mode_ == WriteMode::kAccumulate);
    gemm::Product<Sum> product;
    product.m = static_cast<int64_t>(part.rows.size());
    product.n = std::min(columns_, out_.cols - component);
    product.k = part.entries;
    product.b = head_.operand(source::Head::Order::kEntriesFirst, part.first_entry, part.entries, component, product.n,
                              multiply);
    if (sizes_.hidden_apart) {
      product.c = sums_ + part.first_row * out_.cols + component;
      product.ldc = out_.cols;
    } else if (scattered) {
      product.c = scratch_[static_cast<size_t>(thread)];
      product.ldc = product.n;
    } else {
      const problem::RowPlace<void*> row = out_.place(part.rows.front());
      product.c = static_cast<Sum*>(row.data) + component;
      product.ldc = row.stride;
    }
    if (part.row_scales && adds) {
      for (size_t r = 0; r < part.rows.size(); ++r) {
        const auto scale = static_cast<Sum>(part.row_scales[r]);
        if (scale == 1) continue;
        Sum* const row = sums(part.first_row + static_cast<int64_t>(r), part.rows[r]) + component;
        for (int64_t h = 0; h < product.n; ++h) row[h] *= scale;
      }
    }
    part.for_each_term([&](const gemm::Operand& gradients, bool first_term) {
      product.a = gradients;
      product.accumulate = !first_term || (adds && !scattered);
      multiply(product);
    });
    if (scattered) scatter(part.rows, product, component, adds);
    if (part.residuals.rows) residuals_.add(part, component, first, product, multiply);
  }

  /// Returns the sums of row `row`, which is row `place` of the chunk.
  Sum* sums(int64_t place, int64_t row) const {
    return sizes_.hidden_apart ? sums_ + place * out_.cols : static_cast<Sum*>(out_.place(row).data);
  }

  /// Corrects the sums of a chunk's rows for the rounding of the gradients.
  void correct_rounding(std::span<const int64_t> rows, int threads) {
    if (!sizes_.keeps_residuals) return;
    residuals_.correct_rounding(kernels_, rows, threads, [&](int64_t i, int64_t row) { return sums(i, row); });
  }

  void finish_chunk(std::span<const int64_t> rows, int threads) override {
    correct_rounding(rows, threads);
    if (!sizes_.hidden_apart) return;
    core::parallel_ranges(threads, static_cast<int64_t>(rows.size()), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        void* to = out_.place(rows[static_cast<size_t>(i)]).data;
        store_sums(kernels_, sums_ + i * out_.cols, out_.cols, mode_, to, out_.dtype);
      }
    });
  }

  void finish(const core::Array<bool>& has_parts, bool) override {
    clear_other_rows(out_, mode_, [&](int64_t row) { return has_parts[static_cast<size_t>(row)]; });
  }

 private:
  void scatter(std::span<const int64_t> rows, const gemm::Product<Sum>& product, int64_t component, bool adds) const {
    const WriteMode mode = adds ? WriteMode::kAccumulate : WriteMode::kOverwrite;
    const Sum* from = product.c;
    for (const int64_t row : rows) {
      Sum* to = static_cast<Sum*>(out_.place(row).data) + component;
      store_sums(kernels_, from, product.n, mode, to, DTypeOf<Sum>::value);
      from += product.ldc;
    }
  }

  const kernels::RowKernels& kernels_;
  const source::Head& head_;
  problem::Rows<Matrix> out_;
  const source::RowBreaks breaks_;
  const WriteMode mode_;
  const Sizes sizes_;
  const int64_t columns_;  // components per task
  Sum* sums_ = nullptr;    // [rows, cols] if sums are apart from the output
  RowResiduals<Sum> residuals_;
  // Per thread, [part.rows, columns]: products for rows that are not consecutive in the output
  core::Array<Sum*> scratch_;
};

}  // namespace logitless::sink

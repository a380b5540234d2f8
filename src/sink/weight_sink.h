// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/integers.h"
#include "core/matrices.h"
#include "core/parallel.h"
#include "core/views.h"
#include "kernels/row_kernels.h"
#include "sink/kept_residuals.h"
#include "sink/sink.h"
#include "sink/store_sums.h"

namespace logitless::sink {

/// Where a head's gradient is summed.
enum class SumsIn {
  kOutput,
  kTiles,  ///< in separate tiles, each stored once it covers all rows
  kWhole,  ///< in one separate matrix until the call ends
};

/// Returns whether d_weight cannot be summed in its output: it has a narrower type, or is a callback.
template <class Sum>
bool is_summed_apart(const GradientMatrices& outputs) {
  return outputs.weight_sink || (outputs.d_weight.data && core::is_narrow<Sum>(outputs.d_weight.dtype));
}

/// The gradient of a product's head: out (+)= gradientsᵀ · states, in the head's layout. The output is
/// d_weight, its callback, or d_lora_b.
template <class Sum>
class WeightSink final : public Sink<Sum> {
 public:
  /// `out` has the head's shape, unless `callback` is set.
  WeightSink(const kernels::RowKernels& kernels, const source::Product& product, const Matrix& out, WriteMode mode,
             const WeightTileSink& callback, SumsIn sums_in, const Sizes& sizes)
      : Sink<Sum>(ChainOf::kVocabTile),
        kernels_(kernels),
        product_(product),
        layout_(product.head.layout()),
        out_(core::with_used_stride(out)),
        place_(out_),
        mode_(mode),
        whole_apart_(sums_in == SumsIn::kWhole),
        callback_(callback),
        sizes_(sizes),
        cols_(product.states.cols()),
        components_(std::min(sizes.part.weight_block, cols_)),
        tile_stride_(layout_.cols(sizes.part.entries, cols_)),
        tiles_(sums_in == SumsIn::kTiles ? static_cast<size_t>(sizes.weight_tiles) : 0) {}

  void take_lasting(core::Arena& arena) override {
    if (!whole_apart_) return;
    const int64_t rows = layout_.rows(sizes_.entries, cols_), cols = layout_.cols(sizes_.entries, cols_);
    place_ = Matrix(arena.take<Sum>(rows * cols), rows, cols);
  }

  void take(core::Arena& arena) override {
    if (sizes_.keeps_residuals) residuals_.take(arena, cols_, sizes_.entries);
    for (Sum*& tile : tiles_) tile = arena.take<Sum>(sizes_.part.entries * cols_);
  }

  int64_t splits() const override { return core::div_up(cols_, components_); }
  int64_t tiles_apart() const override { return static_cast<int64_t>(tiles_.size()); }
  bool finishes_tiles() const override { return apart() || sizes_.keeps_residuals; }

  void begin_chunk(std::span<const int64_t> rows, int threads) override {
    if (sizes_.keeps_residuals) residuals_.begin_chunk(kernels_, product_.states, rows, threads);
  }

  void add(const GradientPart& part, int64_t split, bool first, int, const source::Multiplier& multiply) override {
    const int64_t component = split * components_;
    const int64_t components = std::min(components_, cols_ - component);
    const bool hidden_vocab = layout_.is_hidden_vocab();
    gemm::Operand states = product_.states.operand(part.rows, product_.rows_in(part.gathered));
    states.data = core::element(states.data, states.dtype, component);
    states.transposed = hidden_vocab;
    gemm::Product<Sum> product;
    product.m = layout_.rows(part.entries, components);
    product.n = layout_.cols(part.entries, components);
    product.k = static_cast<int64_t>(part.rows.size());
    product.ldc = apart() ? tile_stride_ : place_.stride;
    const int64_t entry = apart() ? part.first_entry % sizes_.part.entries : part.first_entry;
    product.c = (apart() ? tile(part.first_entry) : static_cast<Sum*>(place_.data)) +
                layout_.offset(entry, component, product.ldc);
    const bool adds = !first || (!apart() && !whole_apart_ && mode_ == WriteMode::kAccumulate);
    part.for_each_term([&](gemm::Operand gradients, bool first_term) {
      gradients.transposed = !hidden_vocab;
      product.a = hidden_vocab ? states : gradients;
      product.b = hidden_vocab ? gradients : states;
      product.accumulate = !first_term || adds;
      multiply(product);
    });
    if (part.residuals.columns && split == 0) residuals_.add(part);
  }

  void finish_tile(int64_t first_entry, int64_t entries, int threads) override {
    if (sizes_.keeps_residuals) correct_rounding(first_entry, entries);
    if (apart()) write_out(tile(first_entry), tile_stride_, first_entry, entries, threads);
  }

  void finish(const core::Array<bool>&, bool any) override {
    if (any && !whole_apart_) return;
    if (!any && !callback_) {
      if (mode_ == WriteMode::kOverwrite) core::fill_zero(out_);
      return;
    }
    auto* const whole = static_cast<Sum*>(place_.data);
    if (!any && whole_apart_) std::fill_n(whole, place_.rows * place_.stride, Sum{0});
    for (Sum* tile : tiles_) std::fill_n(tile, sizes_.part.entries * cols_, Sum{0});
    for (int64_t first = 0; first < sizes_.entries; first += sizes_.part.entries) {
      const int64_t entries = std::min(sizes_.part.entries, sizes_.entries - first);
      if (apart()) {
        write_out(tile(first), tile_stride_, first, entries, 1);
      } else {
        write_out(whole + layout_.offset(first, 0, place_.stride), place_.stride, first, entries, sizes_.threads);
      }
    }
  }

 private:
  // Corrects the sums of these entries for the rounding of a chunk's gradients.
  void correct_rounding(int64_t first_entry, int64_t entries) const {
    const int64_t stride = apart() ? tile_stride_ : place_.stride;
    Sum* const sums =
        apart() ? tile(first_entry) : static_cast<Sum*>(place_.data) + layout_.offset(first_entry, 0, stride);
    const Sum* const mean = residuals_.mean();
    const Sum* const residuals = residuals_.residual_sums() + first_entry;
    const auto add_scaled = kernels_.typed<Sum>().add_scaled;
    const bool hidden_vocab = layout_.is_hidden_vocab();
    for (int64_t r = 0; r < layout_.rows(entries, cols_); ++r) {
      add_scaled(hidden_vocab ? residuals : mean, hidden_vocab ? mean[r] : residuals[r], layout_.cols(entries, cols_),
                 sums + r * stride);
    }
  }

  // Passes the sums of these entries to the callback or stores them, with at most `threads` threads.
  void write_out(const Sum* sums, int64_t stride, int64_t first_entry, int64_t entries, int threads) const {
    const int64_t rows = layout_.rows(entries, cols_), cols = layout_.cols(entries, cols_);
    if (callback_) return callback_(first_entry, entries, ConstMatrix(sums, rows, cols, stride));
    const int64_t offset = layout_.offset(first_entry, 0, out_.stride);
    core::parallel_ranges(threads, rows, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        store_sums(kernels_, sums + r * stride, cols, mode_,
                   core::element(out_.data, out_.dtype, offset + r * out_.stride), out_.dtype);
      }
    });
  }

  bool apart() const { return !tiles_.empty(); }
  // Returns the sums of the vocabulary tile that contains an entry.
  Sum* tile(int64_t first_entry) const {
    return tiles_[static_cast<size_t>(first_entry / sizes_.part.entries) % tiles_.size()];
  }

  const kernels::RowKernels& kernels_;
  const source::Product& product_;
  const source::Layout layout_;
  const Matrix out_;
  Matrix place_;  // where parts are summed, unless they are summed in tiles
  const WriteMode mode_;
  const bool whole_apart_;
  const WeightTileSink& callback_;
  const Sizes sizes_;
  const int64_t cols_;        // columns of the states
  const int64_t components_;  // components per task
  const int64_t tile_stride_;
  EntryResiduals<Sum> residuals_;
  core::Array<Sum*> tiles_;  // [part.entries, cols] each, in the head's layout; empty: sums are in place_
};

}  // namespace logitless::sink

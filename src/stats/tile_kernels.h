// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The one place that fills the arguments of the row kernels: it says what a tile of logits means for
// the rows of a call.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "core/integers.h"
#include "core/store.h"
#include "kernels/row_kernels.h"
#include "problem/token_problem.h"
#include "stats/row_gradients.h"

namespace logitless::stats {

/// Calls call(types) with the TileTypes of a problem's tensors, and returns what it returns.
template <class Call>
auto with_tile_types(const problem::TokenProblem& problem, const Call& call) {
  return problem.in_double() ? call(kernels::DoubleTiles()) : call(kernels::FloatTiles());
}

/// Calls call(types) with the TileTypes of a pass whose gradients are this many terms of bfloat16, or of the
/// logits' type where that is 0.
template <class Call>
auto with_gradient_types(const problem::TokenProblem& problem, int gradient_terms, const Call& call) {
  return gradient_terms > 0 ? call(kernels::BFloat16Tiles()) : with_tile_types(problem, call);
}

/// vocabulary entries [first_entry, first_entry + entries) of the whole vocabulary, of the raw logits of some
/// rows, row-major.
template <class Logit>
struct LogitsTile {
  const Logit* data = nullptr;
  int64_t rows = 0;
  int64_t first_entry = 0;
  int64_t entries = 0;
  int64_t stride = 0;

  /// Returns the column of `entry`, or -1 where the tile does not hold it.
  int32_t column(int64_t entry) const {
    return entry >= first_entry && entry - first_entry < entries ? static_cast<int32_t>(entry - first_entry) : -1;
  }
};

/// Rows that gradients are written to, row-major; `low` is null or has the same stride.
template <class Gradient>
struct GradientRows {
  Gradient* data = nullptr;
  int64_t stride = 0;
  Gradient* low = nullptr;
};

template <class Types>
class TileKernels {
 public:
  using Sum = typename Types::Sum;
  using Logit = typename Types::Logit;
  using Gradient = typename Types::Gradient;
  using Table = kernels::TypedKernels<Sum, Logit, Gradient>;

  /// Tiles begin at multiples of `vocab_tile` from the problem's first vocabulary entry. `bias` has an entry
  /// for each of its vocabulary entries in the type of the logits, or is null. The problem must outlive this.
  TileKernels(const kernels::RowKernels& kernels, const problem::TokenProblem& problem, int64_t vocab_tile,
              const Logit* bias, double softcap)
      : kernels_(kernels.of_tiles<Types>()),
        problem_(problem),
        vocab_tile_(vocab_tile),
        weights_masses_(sum_weights(problem, vocab_tile)),
        bias_(bias),
        softcap_(static_cast<Logit>(softcap)) {}

  const Table& table() const { return kernels_; }

  /// A thread folds some rows with this.
  struct FoldScratch {
    Logit* row = nullptr;                  // [entries]
    Logit* inverse_temperature = nullptr;  // [rows]: set_temperatures()
    int32_t* target = nullptr;             // [rows]
  };
  /// Fills scratch.inverse_temperature. This comes before the first tile of these rows.
  void set_temperatures(std::span<const int64_t> rows, const FoldScratch& scratch) const {
    for (size_t r = 0; r < rows.size(); ++r) {
      scratch.inverse_temperature[r] = static_cast<Logit>(problem_.inverse_temperature(rows[r]));
    }
  }
  /// Folds a tile of `rows` into stats[0 .. rows.size()), which hold the columns before it.
  void fold(const LogitsTile<Logit>& tile, std::span<const int64_t> rows, const FoldScratch& scratch,
            kernels::RowStats* stats) const {
    for (size_t r = 0; r < rows.size(); ++r) scratch.target[r] = tile.column(problem_.target(rows[r]).value_or(-1));
    kernels::FoldArgs<Logit> args;
    args.shape = shape(tile);
    args.logits = tile.data;
    args.inverse_temperature = scratch.inverse_temperature;
    args.target = scratch.target;
    args.first_column = tile.first_entry;
    args.entropy = problem_.request.entropy;
    args.argmax = problem_.request.argmax;
    args.cross = problem_.request.cross;
    args.cross_weights = cross_weights(tile);
    args.uniform_cross = uniform_cross();
    if (!weights_masses_.empty())
      args.weights_mass = weights_masses_[static_cast<size_t>((tile.first_entry - problem_.first_entry) / vocab_tile_)];
    args.scratch = scratch.row;
    args.stats = stats;
    kernels_.fold(args);
  }

  /// Adds to counts[r] the vocabulary entries of the tile whose logits are larger than chosen[r], the
  /// target's as fold() found it.
  void count_above(const LogitsTile<Logit>& tile, const Logit* chosen, Logit* row_scratch, int64_t* counts) const {
    kernels_.count_above({shape(tile), tile.data, chosen, row_scratch, counts});
  }

  /// Which parts the rows' gradients have besides the softmax's.
  struct GradientParts {
    bool entropy = false;
    bool cross = false;
  };
  /// Makes the gradients of the tile's logits. gradients[k].target is a vocabulary entry on entry; its row's
  /// logits stand in row places[k] of the tile, and row k of `out` gets its gradient. kernels::GradientArgs
  /// says where `out` may stand, and what `row_scratch` and `out.low` are. The entries of `gradients` are
  /// changed.
  void gradient(const LogitsTile<Logit>& tile, std::span<const int32_t> places, GradientParts parts,
                kernels::RowGradient<Logit>* gradients, Logit* row_scratch, const GradientRows<Gradient>& out) const {
    for (size_t k = 0; k < places.size(); ++k) {
      gradients[k].target = tile.column(gradients[k].target);
      gradients[k].source_row = places[k];
    }
    kernels::GradientArgs<Logit, Gradient> args;
    args.shape = shape(tile);
    args.logits = tile.data;
    args.out = out.data;
    args.out_stride = out.stride;
    args.low = out.low;
    args.count = static_cast<int64_t>(places.size());
    args.gradients = gradients;
    args.entropy = parts.entropy;
    args.cross = parts.cross;
    args.cross_weights = cross_weights(tile);
    args.uniform_cross = uniform_cross();
    args.scratch = row_scratch;
    kernels_.gradient(args);
  }

 private:
  // Sums the cross weights tile by tile, in their order: a call folds each tile for many rows.
  static core::Array<double> sum_weights(const problem::TokenProblem& problem, int64_t vocab_tile) {
    const std::span<const float> weights = problem.cross.weights;
    core::Array<double> masses;
    if (!problem.request.cross || weights.empty()) return masses;
    masses.resize(static_cast<size_t>(core::div_up(problem.entries, vocab_tile)));
    for (int64_t v = 0; v < problem.entries; ++v) {
      masses[static_cast<size_t>(v / vocab_tile)] += weights[static_cast<size_t>(problem.first_entry + v)];
    }
    return masses;
  }

  kernels::TileShape<Logit> shape(const LogitsTile<Logit>& tile) const {
    return {tile.rows,   tile.entries,
            tile.stride, bias_ ? bias_ + (tile.first_entry - problem_.first_entry) : nullptr,
            softcap_,    problem_.options.round_logits_to};
  }
  const float* cross_weights(const LogitsTile<Logit>& tile) const {
    return problem_.cross.weights.empty() ? nullptr : problem_.cross.weights.data() + tile.first_entry;
  }
  double uniform_cross() const { return 1.0 / static_cast<double>(problem_.vocab_size); }

  const Table& kernels_;
  const problem::TokenProblem& problem_;
  int64_t vocab_tile_;
  core::Array<double> weights_masses_;  // [vocabulary tiles]: Σ q of each; empty without weights
  const Logit* bias_;
  Logit softcap_;
};

}  // namespace logitless::stats

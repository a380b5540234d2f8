// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// This is the one place that fills the arguments of the row kernels: it says what a tile of logits means for
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

/// This is words [first_word, first_word + words) of the whole vocabulary, of the raw logits of some rows,
/// row-major.
template <class Logit>
struct LogitsTile {
  const Logit* data = nullptr;
  int64_t rows = 0;
  int64_t first_word = 0;
  int64_t words = 0;
  int64_t stride = 0;

  /// Returns the column of `word`, or -1 where the tile does not hold it.
  int32_t column(int64_t word) const {
    return word >= first_word && word - first_word < words ? static_cast<int32_t>(word - first_word) : -1;
  }
};

/// These are rows that gradients are written to, row-major; `low` is null or has the same stride.
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

  /// Tiles begin at multiples of `vocab_tile` from the problem's first word. `bias` has an entry for each of
  /// its words in the type of the logits, or is null. The problem must outlive this.
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
    Logit* row = nullptr;                  // [words]
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
    args.first_column = tile.first_word;
    args.entropy = problem_.request.entropy;
    args.argmax = problem_.request.argmax;
    args.prior = problem_.request.prior;
    args.prior_weights = prior_weights(tile);
    args.uniform_prior = uniform_prior();
    if (!weights_masses_.empty())
      args.weights_mass = weights_masses_[static_cast<size_t>((tile.first_word - problem_.first_word) / vocab_tile_)];
    args.scratch = scratch.row;
    args.stats = stats;
    kernels_.fold(args);
  }

  /// Adds to counts[r] the words of the tile whose logits are larger than chosen[r], the target's as fold()
  /// found it.
  void count_above(const LogitsTile<Logit>& tile, const Logit* chosen, Logit* row_scratch, int64_t* counts) const {
    kernels_.count_above({shape(tile), tile.data, chosen, row_scratch, counts});
  }

  /// This says which terms the rows' gradients have besides the softmax's.
  struct Terms {
    bool entropy = false;
    bool prior = false;
  };
  /// Makes the gradients of the tile's logits. gradients[k].target is a word on entry; its row's logits stand
  /// in row places[k] of the tile, and row k of `out` gets its gradient. kernels::GradientArgs says where
  /// `out` may stand, and what `row_scratch` and `out.low` are. The entries of `gradients` are changed.
  void gradient(const LogitsTile<Logit>& tile, std::span<const int32_t> places, Terms terms,
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
    args.entropy = terms.entropy;
    args.prior = terms.prior;
    args.prior_weights = prior_weights(tile);
    args.uniform_prior = uniform_prior();
    args.scratch = row_scratch;
    kernels_.gradient(args);
  }

 private:
  // Sums the prior's weights tile by tile, in their order: a call folds each tile for many rows.
  static core::Array<double> sum_weights(const problem::TokenProblem& problem, int64_t vocab_tile) {
    const std::span<const float> weights = problem.prior.weights;
    core::Array<double> masses;
    if (!problem.request.prior || weights.empty()) return masses;
    masses.resize(static_cast<size_t>(core::div_up(problem.words, vocab_tile)));
    for (int64_t v = 0; v < problem.words; ++v) {
      masses[static_cast<size_t>(v / vocab_tile)] += weights[static_cast<size_t>(problem.first_word + v)];
    }
    return masses;
  }

  kernels::TileShape<Logit> shape(const LogitsTile<Logit>& tile) const {
    return {tile.rows,   tile.words,
            tile.stride, bias_ ? bias_ + (tile.first_word - problem_.first_word) : nullptr,
            softcap_,    problem_.options.round_logits_to};
  }
  const float* prior_weights(const LogitsTile<Logit>& tile) const {
    return problem_.prior.weights.empty() ? nullptr : problem_.prior.weights.data() + tile.first_word;
  }
  double uniform_prior() const { return 1.0 / static_cast<double>(problem_.vocab_size); }

  const Table& kernels_;
  const problem::TokenProblem& problem_;
  int64_t vocab_tile_;
  core::Array<double> weights_masses_;  // [vocabulary tiles]: Σ q of each; empty without weights
  const Logit* bias_;
  Logit softcap_;
};

}  // namespace logitless::stats

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Fills the arguments of the row kernels. This file alone translates between a tile of logits and the rows of
// a call.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>

#include "core/integers.h"
#include "core/store.h"
#include "kernels/divergence_kernels.h"
#include "kernels/draw_kernels.h"
#include "kernels/row_kernels.h"
#include "kernels/top_kernels.h"
#include "problem/token_problem.h"
#include "stats/divergence.h"
#include "stats/row_gradients.h"

namespace logitless::stats {

/// Returns call(types) with the TileTypes of a problem's tensors.
template <class Call>
auto with_tile_types(const problem::TokenProblem& problem, const Call& call) {
  return problem.in_double() ? call(kernels::DoubleTiles()) : call(kernels::FloatTiles());
}

/// Returns call(types) with the TileTypes of a pass whose gradients have `gradient_terms` terms of bfloat16,
/// or the logits' type if that is 0.
template <class Call>
auto with_gradient_types(const problem::TokenProblem& problem, int gradient_terms, const Call& call) {
  return gradient_terms > 0 ? call(kernels::BFloat16Tiles()) : with_tile_types(problem, call);
}

/// Raw logits of some rows for entries [first_entry, first_entry + entries) of the whole vocabulary,
/// row-major.
template <class Logit>
struct LogitsTile {
  const Logit* data = nullptr;
  int64_t rows = 0;
  int64_t first_entry = 0;
  int64_t head_entry = 0;  // first_entry, counted from the first entry of this rank's head
  int64_t entries = 0;
  int64_t stride = 0;
  const Logit* teacher_data = nullptr;  // the second head's logits, with the same rows and stride, or null
};

/// Rows that gradients are written to, row-major. `low` is null or has the same stride. The residuals of
/// rounding are summed in `residuals`, if its pointers are set.
template <class Gradient>
struct GradientRows {
  Gradient* data = nullptr;
  int64_t stride = 0;
  Gradient* low = nullptr;
  kernels::Residuals residuals = {};
};

/// How a product becomes a capped logit: a bias per entry of this rank's head, or null, and a softcap, or 0.
template <class Logit>
struct HeadShape {
  const Logit* bias = nullptr;
  double softcap = 0;
};

/// Where a fold writes the masses of segments; see kernels::FoldArgs.
struct MassRows {
  float* masses = nullptr;
  int64_t masses_stride = 0;
  double* largest = nullptr;
  int64_t largest_stride = 0;
};

template <class Types>
class TileKernels {
 public:
  using Sum = typename Types::Sum;
  using Logit = typename Types::Logit;
  using Gradient = typename Types::Gradient;
  using Table = kernels::TypedKernels<Sum, Logit, Gradient>;

  /// Tiles must start at multiples of `vocab_tile` from the problem's first vocabulary entry. The problem
  /// must outlive this.
  TileKernels(const kernels::RowKernels& kernels, const problem::TokenProblem& problem, int64_t vocab_tile,
              const HeadShape<Logit>& head, const HeadShape<Logit>& teacher = {})
      : row_kernels_(kernels),
        kernels_(kernels.of_tiles<Types>()),
        problem_(problem),
        vocab_tile_(vocab_tile),
        weights_masses_(sum_weights(problem, vocab_tile)),
        head_(head),
        teacher_(teacher) {
    if (!problem.divergence) return;
    rule_ = divergence_rule<Logit>(*problem.divergence);
    pair_mass_ = pair_mass<Logit>(*problem.divergence);
  }

  const kernels::RowKernels& row_kernels() const { return row_kernels_; }
  /// Returns whether logits have a softcap, whose derivative needs them.
  bool has_softcap() const { return head_.softcap > 0; }
  /// Returns the bias of an entry, counted from the first entry of this rank's head.
  double bias(int64_t head_entry) const { return head_.bias ? static_cast<double>(head_.bias[head_entry]) : 0; }

  /// Writes the inverse temperatures of these rows, [rows], for fold().
  void set_temperatures(std::span<const int64_t> rows, Logit* inverse_temperature) const {
    for (size_t r = 0; r < rows.size(); ++r) {
      inverse_temperature[r] = static_cast<Logit>(problem_.inverse_temperature(rows[r]));
    }
  }
  /// Folds a tile of `rows` into stats[0 .. rows.size()), which hold the fold of the columns before it, and
  /// stores the capped logits of picks in `picked`, which has one entry per pick of the call. `row_scratch`
  /// is [entries].
  void fold(const LogitsTile<Logit>& tile, std::span<const int64_t> rows, const Logit* inverse_temperature,
            Logit* row_scratch, double* picked, kernels::RowStats* stats, const MassRows& masses = {}) const {
    const problem::RowPicks& picks = problem_.picks;
    kernels::FoldArgs<Logit> args;
    args.shape = shape(tile);
    args.logits = tile.data;
    args.inverse_temperature = inverse_temperature;
    args.first_column = tile.first_entry;
    args.picks = {picks.ids.empty() ? nullptr : picks.ids.data(),
                  picks.offsets.empty() ? nullptr : picks.offsets.data()};
    args.over_picks = problem_.over_picks;
    args.call_rows = rows.data();
    args.picked = picked;
    args.entropy = problem_.request.entropy;
    args.argmax = problem_.request.argmax;
    args.cross = problem_.request.cross;
    args.cross_weights = cross_weights(tile);
    args.uniform_cross = uniform_cross();
    if (problem_.cross.rows) {
      args.row_weights = problem_.template own_weights<Logit>(0) + tile.first_entry;
      args.row_weights_stride = problem_.cross.rows_stride;
    }
    if (!weights_masses_.empty())
      args.weights_mass = weights_masses_[static_cast<size_t>(tile.head_entry / vocab_tile_)];
    args.masses = masses.masses;
    args.masses_stride = masses.masses_stride;
    args.largest = masses.largest;
    args.largest_stride = masses.largest_stride;
    args.scratch = row_scratch;
    args.stats = stats;
    kernels_.fold(args);
  }

  /// Folds the columns of a tile except the rows' picks: each row is folded as the ranges between its picks.
  void fold_outside(const LogitsTile<Logit>& tile, std::span<const int64_t> rows, Logit* row_scratch,
                    kernels::RowStats* stats) const {
    const core::Array<int64_t>& ids = problem_.picks.ids;
    for (size_t r = 0; r < rows.size(); ++r) {
      const auto inverse_temperature = static_cast<Logit>(problem_.inverse_temperature(rows[r]));
      LogitsTile<Logit> row = tile;
      row.data += static_cast<int64_t>(r) * tile.stride;
      row.rows = 1;
      kernels::FoldArgs<Logit> args;
      args.inverse_temperature = &inverse_temperature;
      args.scratch = row_scratch;
      args.stats = &stats[r];
      int64_t begin = 0;
      const auto fold_until = [&](int64_t end) {
        if (end <= begin) return;  // also if an id is picked twice
        args.shape = shape(row);
        args.shape.cols = end - begin;
        if (args.shape.bias) args.shape.bias += begin;
        args.logits = row.data + begin;
        kernels_.fold(args);
      };
      if (!ids.empty()) {
        kernels::for_each_pick(ids.data() + problem_.pick_begin(rows[r]), ids.data() + problem_.pick_end(rows[r]),
                               tile.first_entry, tile.entries, [&](int64_t, int64_t column) {
                                 fold_until(column);
                                 begin = column + 1;
                               });
      }
      fold_until(tile.entries);
    }
  }

  /// Folds one side of the tile into log-sum-exps, with the entropy and argmax if requested. `row_scratch` is
  /// [entries].
  void fold_side(const LogitsTile<Logit>& tile, bool teacher, bool entropy, bool argmax,
                 const Logit* inverse_temperature, Logit* row_scratch, kernels::RowStats* stats) const {
    kernels::FoldArgs<Logit> args;
    args.shape = teacher ? teacher_shape(tile) : shape(tile);
    args.logits = teacher ? tile.teacher_data : tile.data;
    args.inverse_temperature = inverse_temperature;
    args.first_column = tile.first_entry;
    args.entropy = entropy;
    args.argmax = argmax;
    args.scratch = row_scratch;
    args.stats = stats;
    kernels_.fold(args);
  }

  /// Adds the tile's columns to the sums of the divergence. `row_scratch` is [2 * entries].
  void fold_divergence(const LogitsTile<Logit>& tile, const kernels::RowPair<Logit>* rows, Logit* row_scratch,
                       kernels::DivergenceSums* sums, const MassRows& masses = {}) const {
    kernels_.divergence_fold({rule_, shape(tile), tile.data, teacher_shape(tile), tile.teacher_data, rows, row_scratch,
                              sums, pair_mass_, masses.masses, masses.masses_stride});
  }

  /// Adds to counts[r] the number of the tile's entries whose capped logit is larger than threshold[r].
  void count_above(const LogitsTile<Logit>& tile, const Logit* threshold, Logit* row_scratch, int64_t* counts) const {
    kernels_.count_above({shape(tile), tile.data, threshold, row_scratch, counts});
  }

  /// Returns the capped logits of row r of the tile: in place if capping changes nothing, else in
  /// `row_scratch` [entries].
  const Logit* capped_row(const LogitsTile<Logit>& tile, int64_t r, Logit* row_scratch) const {
    const Logit* logits = tile.data + r * tile.stride;
    const kernels::TileShape<Logit> of_tile = shape(tile);
    if (of_tile.plain()) return logits;
    kernels_.cap(of_tile, logits, row_scratch);
    return row_scratch;
  }
  /// Offers the capped logits of a row of the tile to the row's list.
  void top(const LogitsTile<Logit>& tile, const Logit* capped, const kernels::TopList& list) const {
    kernels_.top({capped, tile.entries, tile.first_entry, list});
  }

  /// Offers the capped logits of a row of the tile to the row's draws.
  void draw(const LogitsTile<Logit>& tile, const Logit* capped, const kernels::RowDraws& row) const {
    kernels_.draw({capped, tile.entries, tile.first_entry, row});
  }

  /// Computes gradients of the tile's logits: row k of `out` gets the gradients of tile row places[k], from
  /// gradients[k] and, with a teacher, divergences[k]. kernels::GradientArgs documents how `out` may alias
  /// the logits, and `row_scratch` and `out.low`.
  void gradient(const LogitsTile<Logit>& tile, std::span<const int32_t> places, GradientSummands summands,
                const kernels::RowGradient<Logit>* gradients, const kernels::RowDivergence<Logit>* divergences,
                Logit* row_scratch, const GradientRows<Gradient>& out) const {
    kernels::GradientArgs<Logit, Gradient> args;
    args.shape = shape(tile);
    args.logits = tile.data;
    args.out = out.data;
    args.out_stride = out.stride;
    args.low = out.low;
    args.residuals = out.residuals;
    args.count = static_cast<int64_t>(places.size());
    args.gradients = gradients;
    args.places = places.data();
    args.first_column = tile.first_entry;
    args.nonlinear = summands.nonlinear;
    args.cross = summands.cross;
    args.cross_weights = cross_weights(tile);
    args.row_weights = problem_.cross.rows != nullptr;
    args.uniform_cross = uniform_cross();
    args.scratch = row_scratch;
    if (!problem_.divergence) return kernels_.gradient(args);
    kernels_.divergence_gradient({args, rule_, summands.softmax, divergences, teacher_shape(tile), tile.teacher_data});
  }

 private:
  // Sums the cross weights of each tile once, because a call folds each tile for many rows.
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
    return shape(tile, head_, problem_.options.round_logits_to);
  }
  kernels::TileShape<Logit> teacher_shape(const LogitsTile<Logit>& tile) const {
    return shape(tile, teacher_, problem_.divergence->teacher_rounding);
  }
  static kernels::TileShape<Logit> shape(const LogitsTile<Logit>& tile, const HeadShape<Logit>& head,
                                         const std::optional<DType>& round_to) {
    const Logit* bias = head.bias ? head.bias + tile.head_entry : nullptr;
    return {tile.rows, tile.entries, tile.stride, bias, static_cast<Logit>(head.softcap), round_to};
  }
  const float* cross_weights(const LogitsTile<Logit>& tile) const {
    return problem_.cross.weights.empty() ? nullptr : problem_.cross.weights.data() + tile.first_entry;
  }
  double uniform_cross() const { return 1.0 / static_cast<double>(problem_.vocab_size); }

  const kernels::RowKernels& row_kernels_;
  const Table& kernels_;
  const problem::TokenProblem& problem_;
  int64_t vocab_tile_;
  core::Array<double> weights_masses_;  // [vocabulary tiles]: Σ q of each; empty without weights
  HeadShape<Logit> head_;
  HeadShape<Logit> teacher_;
  kernels::DivergenceRule<Logit> rule_;
  kernels::PairMass<Logit> pair_mass_;
};

}  // namespace logitless::stats

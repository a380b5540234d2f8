// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The expected row of row i is E_i = Σ_v p_iv s_iv w_v over all vocabulary entries except the row's picks,
// where s is the derivative of the softcap. It is summed while the tiles of logits are folded, as
//     E ← E exp(m − m′) + Σ_v exp(a_v − m′) s_v w_v      m′: the largest logit so far
//
// in vocabulary order, so the bits do not depend on the number of threads. A LoRA's rows b_v are summed in
// the same way, after the head's rows.
#pragma once

#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <span>

#include "core/arena.h"
#include "core/parallel.h"
#include "fold/folds.h"
#include "sink/hidden_sink.h"
#include "stats/columns.h"
#include "stream/pass.h"
#include "stream/tile_buffers.h"
#include "stream/tile_tasks.h"

namespace logitless::stream {

/// The buffers of the walk that sums expected rows: tiles become the terms of the sums in place.
template <class Types>
struct ExpectedBuffers : BackwardBuffers<Types> {
  double* row_scales = nullptr;  // [slots, row_tile]

  ExpectedBuffers(core::Arena& arena, const Pass<Types>& pass, fold::CallFolds<Types>& folds)
      : BackwardBuffers<Types>(arena, pass) {
    const planning::TileGrid& grid = pass.run.grid;
    row_scales = arena.take<double>(pass.run.plan.tiles_alive * grid.row_tile);
    // Each row block is a part whose tiles several threads may fold, one after the other.
    const auto parts = static_cast<int64_t>(pass.run.blocks.blocks.size());
    folds.take(arena, pass.run.plan.chunk_rows, 1, {parts, grid.row_tile, grid.vocab_tile});
  }
};

/// The tasks of the first pass.
template <class Types>
class ExpectedTasks : public TileTasks<Types, ExpectedTasks<Types>> {
 public:
  using Base = TileTasks<Types, ExpectedTasks<Types>>;
  using typename Base::Logit;
  using typename Base::Sum;
  static constexpr bool kInOrder = true;

  ExpectedTasks(const Pass<Types>& pass, ExpectedBuffers<Types>& buffers, sink::Sinks<Sum> sinks,
                const ActiveBlocks& all, const fold::CallFolds<Types>& folds, stats::Columns& columns)
      : Base(pass, buffers, sinks, all), row_scales_(buffers.row_scales), folds_(folds), columns_(columns) {
    // A term is the gradient of a row with the factor -1, except for picks, whose term is 0.
    kernels::PickGradient<Logit>* picks = buffers.picks;
    for (size_t i = 0; i < all.blocks.order.size(); ++i) {
      const int64_t row = all.blocks.order[i];
      kernels::RowGradient<Logit> terms;
      terms.inverse_temperature = static_cast<Logit>(pass.problem.inverse_temperature(row));
      terms.softmax_scale = -1;
      terms.picks = picks;
      for (int64_t pick = pass.problem.pick_begin(row); pick < pass.problem.pick_end(row); ++pick, ++picks) {
        *picks = {pass.problem.picks.ids[static_cast<size_t>(pick)], 0};
      }
      terms.pick_count = static_cast<int32_t>(picks - terms.picks);
      buffers.gradients[i] = terms;
    }
  }

  void make_tile(int64_t j, int64_t b, int64_t slot) const { this->make_logits(j, b, slot); }

  // Folds the tile into the statistics of its rows, and replaces it by terms relative to their maxima so far.
  void fold_tile(int64_t j, int64_t b, int64_t slot) const {
    const planning::RowBlock& rows = this->block(b);
    const source::RowBlocks& blocks = this->active_.blocks;
    Logit* const scratch = this->scratch().row;
    fold::FoldPart<Logit> part;
    part.rows = blocks.rows(rows);
    part.place = rows.begin;
    part.thread = b;
    part.scratch = scratch;
    part.columns = &columns_;
    const Logit* data = this->logits(j, b, slot);
    const auto tile = this->pass_.tile(data, rows.tile_rows, blocks.first_place(rows), rows.count, j);
    const kernels::RowStats* stats = folds_.partials().softmax.of(0, rows.begin);
    double* const scales = scales_of(slot);
    for (const fold::Fold<Types>* fold : folds_.of(fold::Walk::kFirst)) {
      if (j == 0) fold->begin(part);
    }
    for (int64_t r = 0; r < rows.count; ++r) scales[r] = stats[r].max;
    for (const fold::Fold<Types>* fold : folds_.of(fold::Walk::kFirst)) fold->add(part, tile);
    kernels::RowGradient<Logit>* terms = this->buffers_.gradients + rows.begin;
    for (int64_t r = 0; r < rows.count; ++r) {
      const double before = scales[r], now = stats[r].max;
      scales[r] = before == now ? 1 : std::exp((before - now) * static_cast<double>(terms[r].inverse_temperature));
      // If all logits so far are -inf, 0 is subtracted.
      terms[r].max = static_cast<Logit>(now == -std::numeric_limits<double>::infinity() ? 0 : now);
    }
    this->pass_.tiles->gradient(this->pass_.tile(data, rows.tile_rows, 0, rows.tile_rows, j), blocks.places(rows), {},
                                terms, nullptr, scratch, this->gradient(j, b, slot));
    this->weigh_entries(j, b, slot);
  }

  bool first(const sink::Sink<Sum>&, int64_t j, int64_t) const { return j == 0; }
  sink::GradientPart part_of(int64_t j, int64_t b, int64_t slot) const {
    sink::GradientPart out = this->part(j, b, slot);
    out.row_scales = scales_of(slot);
    return out;
  }

 private:
  double* scales_of(int64_t slot) const { return row_scales_ + slot * this->grid_.row_tile; }

  double* row_scales_;
  const fold::CallFolds<Types>& folds_;
  stats::Columns& columns_;
};

/// The sums of a call, which has a single chunk. They live from the walk until they become d_hidden.
template <class Types>
class ExpectedSums {
 public:
  using Sum = typename Types::Sum;

  /// With `in_hidden` the sums of the head's rows are in d_hidden if possible, else in the workspace. Without
  /// it, set_out() sets where all sums are.
  ExpectedSums(core::Arena& arena, const Pass<Types>& pass, bool in_hidden)
      : pass_(pass), max_(arena.take<double>(pass.run.plan.chunk_rows)) {
    const sink::Sizes sizes = sink_sizes(pass.run);
    for (const source::Product& product : pass.source.differentiated()) {
      const bool of_head = count_ == 0;
      const problem::Rows<Matrix> out =
          in_hidden && of_head
              ? problem::d_hidden_rows(pass.problem, pass.outputs)
              : problem::matrix_rows(Matrix(nullptr, DTypeOf<Sum>::value, pass.problem.tokens, product.states.cols()));
      sink::HiddenSink<Sum>& sink =
          product_sinks_.at(count_).emplace(*pass.context.kernels, product.head, out, WriteMode::kOverwrite,
                                            in_hidden && !of_head ? sink::with_sums_apart(sizes) : sizes);
      sink.take_lasting(arena);
      sink.take(arena);
      all_.at(count_++) = &sink;
    }
  }

  /// Stores the sums of a product in rows that begin at `to` and are `stride` apart.
  void set_out(size_t product, Sum* to, int64_t stride) {
    const int64_t cols = pass_.source.products()[product].states.cols();
    product_sinks_[product]->set_out(problem::matrix_rows(Matrix(to, pass_.problem.tokens, cols, stride)));
  }

  /// First pass over all tiles: folds each tile and adds it to the sums.
  void walk(ExpectedBuffers<Types>& buffers, const fold::CallFolds<Types>& folds, stats::Columns& columns) {
    if (pass_.run.blocks.blocks.empty()) return;
    ActiveBlocks all;
    all.blocks = pass_.run.blocks;
    const core::Array<int64_t>& order = all.blocks.order;
    const auto rows = static_cast<int64_t>(order.size());
    const int threads = pass_.run.plan.threads;
    folds.partials().begin(fold::Walk::kFirst, 0, rows);
    ExpectedTasks<Types>(pass_, buffers, std::span(all_).first(count_), all, folds, columns).run();
    for (size_t product = 0; product < count_; ++product) product_sinks_[product]->correct_rounding(order, threads);
    const kernels::RowStats* stats = folds.partials().softmax.of(0, 0);
    core::parallel_ranges(threads, rows, [&](int64_t begin, int64_t end) {
      for (int64_t place = begin; place < end; ++place) {
        max_[place] = stats[place].max;
        for (const fold::Partials* partials : folds.partials().of(fold::Walk::kFirst)) {
          partials->combine(order[static_cast<size_t>(place)], place);
        }
      }
    });
  }

  /// Returns the sums of a product for a row, which is at `place` among the rows of the walk.
  const Sum* of(size_t product, int64_t place, int64_t row) const { return product_sinks_[product]->sums(place, row); }

  /// Returns the factor that turns a row's sums into expected values.
  double scale_of(int64_t place, int64_t row, const TokenStats& stats) const {
    const auto i = static_cast<size_t>(row);
    const double max = max_[place];
    const double shift = max == stats.max_logit[i]                         ? 0
                         : max == -std::numeric_limits<double>::infinity() ? max
                                                                           : max - stats.max_logit[i];
    return std::exp(shift * pass_.problem.inverse_temperature(row) - stats.log_sum[i]);
  }

 private:
  const Pass<Types>& pass_;
  double* max_;  // [chunk_rows]: maxima of this call's capped logits, subtracted in the sums
  std::array<std::optional<sink::HiddenSink<Sum>>, 2> product_sinks_;  // Source::differentiated()
  std::array<sink::Sink<Sum>*, 2> all_ = {};                           // the first count_ of product_sinks_
  size_t count_ = 0;
};

}  // namespace logitless::stream

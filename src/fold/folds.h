// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Folds compute partials from tiles. A walk passes each tile to the folds of its list and does not depend on
// what they compute.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>

#include "core/arena.h"
#include "fold/call_partials.h"
#include "fold/segment_masses.h"
#include "stats/columns.h"
#include "stats/tile_kernels.h"

namespace logitless::fold {

/// The part of a call that one thread folds at a time: the tiles of some rows over one range of the
/// vocabulary.
template <class Logit>
struct FoldPart {
  std::span<const int64_t> rows;  // row numbers in the call
  int64_t place = 0;              // place of the first row among the partials in memory
  int64_t vocab_range = 0;
  int64_t thread = 0;
  Logit* scratch = nullptr;  // [sides, entries of a tile]: folds may overwrite it
  stats::Columns* columns = nullptr;
};

/// Inputs of the folds of a call. Pointers may be null: kernels are not needed to measure memory.
template <class Types>
struct FoldInputs {
  const problem::TokenProblem& problem;
  const stats::TileKernels<Types>* tiles = nullptr;
  const CallMasses* masses = nullptr;  // filled while folding, if sampled gradients follow; else null
};

/// Sizes for the folds' scratch.
struct FoldSizes {
  int64_t threads = 1;  // number of threads that fold at the same time
  int64_t rows = 1;     // largest number of rows in a part
  int64_t entries = 0;  // largest number of entries in a tile
};

/// One T per row of each part that is being folded.
template <class T>
class PartRows {
 public:
  void take(core::Arena& arena, const FoldSizes& sizes) {
    data_ = arena.take<T>(sizes.threads * sizes.rows);
    rows_ = sizes.rows;
  }
  template <class Part>
  T* of(const Part& part) const {
    return data_ + part.thread * rows_;
  }

 private:
  T* data_ = nullptr;  // [threads, rows]
  int64_t rows_ = 0;
};

/// Computes the partials of one statistic, or of several that are cheaper together. Threads fold different
/// parts at the same time.
template <class Types>
class Fold {
 public:
  using Part = FoldPart<typename Types::Logit>;
  using Tile = stats::LogitsTile<typename Types::Logit>;

  virtual ~Fold() = default;
  /// Takes memory for scratch.
  virtual void take(core::Arena& arena, const FoldSizes& sizes) = 0;
  /// Called before the first tile of a part. Initialises its partials.
  virtual void begin(const Part& part) const = 0;
  /// Folds the next tile of the part. The tile has exactly the part's rows.
  virtual void add(const Part& part, const Tile& tile) const = 0;
};

/// Log-sum-exp, picks, entropy, cross and argmax, which one row kernel computes together.
template <class Types>
class SoftmaxFold final : public Fold<Types> {
 public:
  using typename Fold<Types>::Part;
  using typename Fold<Types>::Tile;

  SoftmaxFold(const FoldInputs<Types>& inputs, const SoftmaxPartials& partials)
      : tiles_(inputs.tiles), partials_(partials), masses_(inputs.masses) {}

  void take(core::Arena& arena, const FoldSizes& sizes) override { inverse_temperature_.take(arena, sizes); }
  void begin(const Part& part) const override {
    tiles_->set_temperatures(part.rows, inverse_temperature_.of(part));
    std::fill_n(partials_.of(part.vocab_range, part.place), part.rows.size(), kernels::RowStats{});
  }
  void add(const Part& part, const Tile& tile) const override {
    tiles_->fold(tile, part.rows, inverse_temperature_.of(part), part.scratch, part.columns->picked.data(),
                 partials_.of(part.vocab_range, part.place),
                 masses_ ? masses_->softmax.of(part.place, tile.head_entry) : stats::MassRows());
  }

 private:
  const stats::TileKernels<Types>* tiles_;
  const SoftmaxPartials& partials_;
  const CallMasses* masses_;
  PartRows<typename Types::Logit> inverse_temperature_;
};

/// The largest logits of each row. All ranges of a row share one list.
template <class Types>
class TopFold final : public Fold<Types> {
 public:
  using typename Fold<Types>::Part;
  using typename Fold<Types>::Tile;

  TopFold(const FoldInputs<Types>& inputs, const TopPartials& partials) : tiles_(inputs.tiles), partials_(partials) {}

  void take(core::Arena&, const FoldSizes&) override {}
  void begin(const Part&) const override {}
  void add(const Part& part, const Tile& tile) const override {
    for (int64_t r = 0; r < tile.rows; ++r) {
      partials_.prefetch(part.place + r + 1);
      const typename Types::Logit* capped = tiles_->capped_row(tile, r, part.scratch);
      const auto lock = partials_.lock(part.place + r);
      tiles_->top(tile, capped, partials_.list(part.place + r));
    }
  }

 private:
  const stats::TileKernels<Types>* tiles_;
  const TopPartials& partials_;
};

/// Draws from all columns. All ranges of a row share its draws.
template <class Types>
class DrawFold final : public Fold<Types> {
 public:
  using typename Fold<Types>::Part;
  using typename Fold<Types>::Tile;

  DrawFold(const FoldInputs<Types>& inputs, const DrawPartials& partials)
      : tiles_(inputs.tiles), problem_(inputs.problem), partials_(partials) {}

  void take(core::Arena& arena, const FoldSizes& sizes) override {
    best_ = arena.take<kernels::DrawEntry>(sizes.threads * partials_.draws());
  }
  void begin(const Part&) const override {}
  // Other threads may offer ids to the row meanwhile: the lock is not held while the columns are read.
  void add(const Part& part, const Tile& tile) const override {
    kernels::DrawEntry* const mine = best_ + part.thread * partials_.draws();
    for (int64_t r = 0; r < tile.rows; ++r) {
      const int64_t row = part.rows[static_cast<size_t>(r)];
      const typename Types::Logit* capped = tiles_->capped_row(tile, r, part.scratch);
      partials_.load(part.place + r, mine);
      tiles_->draw(tile, capped, row_draws(problem_, row, mine));
      partials_.merge(part.place + r, mine);
    }
  }

 private:
  const stats::TileKernels<Types>* tiles_;
  const problem::TokenProblem& problem_;
  const DrawPartials& partials_;
  kernels::DrawEntry* best_ = nullptr;  // [threads, draws]
};

/// Log-sum-exp over all columns except the row's picks.
template <class Types>
class OutsideFold final : public Fold<Types> {
 public:
  using typename Fold<Types>::Part;
  using typename Fold<Types>::Tile;

  OutsideFold(const FoldInputs<Types>& inputs, const OutsidePartials& partials)
      : tiles_(inputs.tiles), partials_(partials) {}

  void take(core::Arena&, const FoldSizes&) override {}
  void begin(const Part& part) const override {
    std::fill_n(partials_.of(part.vocab_range, part.place), part.rows.size(), kernels::RowStats{});
  }
  void add(const Part& part, const Tile& tile) const override {
    tiles_->fold_outside(tile, part.rows, part.scratch, partials_.of(part.vocab_range, part.place));
  }

 private:
  const stats::TileKernels<Types>* tiles_;
  const OutsidePartials& partials_;
};

/// Counts the logits above the target's, which the first walk picked. The second walk computes each tile with
/// the same product, so the picked logit is bitwise equal to its column.
template <class Types>
class AboveFold final : public Fold<Types> {
 public:
  using typename Fold<Types>::Part;
  using typename Fold<Types>::Tile;
  using Logit = typename Types::Logit;

  AboveFold(const FoldInputs<Types>& inputs, const AbovePartials& partials)
      : tiles_(inputs.tiles), problem_(inputs.problem), partials_(partials) {}

  void take(core::Arena& arena, const FoldSizes& sizes) override { thresholds_.take(arena, sizes); }
  void begin(const Part& part) const override {
    for (size_t r = 0; r < part.rows.size(); ++r) {
      const int64_t row = part.rows[r];
      const bool counts = problem_.target(row) && !std::isnan(part.columns->stats.max_logit[static_cast<size_t>(row)]);
      thresholds_.of(part)[r] =
          static_cast<Logit>(counts ? part.columns->picked[static_cast<size_t>(problem_.pick_begin(row))]
                                    : std::numeric_limits<double>::quiet_NaN());
    }
    std::fill_n(partials_.of(part.vocab_range, part.place), part.rows.size(), int64_t{0});
  }
  void add(const Part& part, const Tile& tile) const override {
    tiles_->count_above(tile, thresholds_.of(part), part.scratch, partials_.of(part.vocab_range, part.place));
  }

 private:
  const stats::TileKernels<Types>* tiles_;
  const problem::TokenProblem& problem_;
  const AbovePartials& partials_;
  PartRows<Logit> thresholds_;
};

/// Log-sum-exp of a row of one side, at a temperature of its own.
template <class Types>
class LogSumFold final : public Fold<Types> {
 public:
  using typename Fold<Types>::Part;
  using typename Fold<Types>::Tile;
  using Logit = typename Types::Logit;

  LogSumFold(const FoldInputs<Types>& inputs, const LogSumPartials& partials)
      : tiles_(inputs.tiles), problem_(inputs.problem), partials_(partials) {}

  void take(core::Arena& arena, const FoldSizes& sizes) override { inverse_temperature_.take(arena, sizes); }
  void begin(const Part& part) const override {
    for (size_t r = 0; r < part.rows.size(); ++r) {
      inverse_temperature_.of(part)[r] = static_cast<Logit>(problem_.inverse_of(partials_.temperature(part.rows[r])));
    }
    std::fill_n(partials_.of(part.vocab_range, part.place), part.rows.size(), kernels::RowStats{});
  }
  void add(const Part& part, const Tile& tile) const override {
    tiles_->fold_side(tile, partials_.is_teacher(), partials_.wants_entropy(), partials_.wants_argmax(),
                      inverse_temperature_.of(part), part.scratch, partials_.of(part.vocab_range, part.place));
  }

 private:
  const stats::TileKernels<Types>* tiles_;
  const problem::TokenProblem& problem_;
  const LogSumPartials& partials_;
  PartRows<Logit> inverse_temperature_;
};

/// The sums of a divergence, from the log-sum-exps that the first walk computed.
template <class Types>
class DivergenceFold final : public Fold<Types> {
 public:
  using typename Fold<Types>::Part;
  using typename Fold<Types>::Tile;
  using Pair = kernels::RowPair<typename Types::Logit>;

  DivergenceFold(const FoldInputs<Types>& inputs, const DivergencePartials& partials)
      : tiles_(inputs.tiles), problem_(inputs.problem), partials_(partials), masses_(inputs.masses) {}

  void take(core::Arena& arena, const FoldSizes& sizes) override { pairs_.take(arena, sizes); }
  void begin(const Part& part) const override {
    for (size_t r = 0; r < part.rows.size(); ++r) {
      pairs_.of(part)[r] = stats::row_pair<typename Types::Logit>(problem_, part.columns->stats, part.rows[r]);
    }
    std::fill_n(partials_.of(part.vocab_range, part.place), part.rows.size(), kernels::DivergenceSums{});
  }
  void add(const Part& part, const Tile& tile) const override {
    tiles_->fold_divergence(tile, pairs_.of(part), part.scratch, partials_.of(part.vocab_range, part.place),
                            masses_ ? masses_->pairs()->of(part.place, tile.head_entry) : stats::MassRows());
  }

 private:
  const stats::TileKernels<Types>* tiles_;
  const problem::TokenProblem& problem_;
  const DivergencePartials& partials_;
  const CallMasses* masses_;
  PartRows<Pair> pairs_;
};

/// The partials and the folds of a call.
template <class Types>
class CallFolds {
 public:
  explicit CallFolds(const FoldInputs<Types>& inputs) : partials_(inputs.problem), softmax_(inputs, partials_.softmax) {
    by_walk_.add(Walk::kFirst, softmax_);
    if (partials_.top) by_walk_.add(Walk::kFirst, top_.emplace(inputs, *partials_.top));
    if (partials_.draws) by_walk_.add(Walk::kFirst, draws_.emplace(inputs, *partials_.draws));
    if (partials_.outside) by_walk_.add(Walk::kFirst, outside_.emplace(inputs, *partials_.outside));
    if (partials_.squares) by_walk_.add(Walk::kFirst, squares_.emplace(inputs, *partials_.squares));
    if (partials_.above) by_walk_.add(Walk::kSecond, above_.emplace(inputs, *partials_.above));
    if (partials_.student) by_walk_.add(Walk::kFirst, student_.emplace(inputs, *partials_.student));
    if (partials_.teacher) by_walk_.add(Walk::kFirst, teacher_.emplace(inputs, *partials_.teacher));
    if (partials_.divergence) by_walk_.add(Walk::kSecond, divergence_.emplace(inputs, *partials_.divergence));
  }
  CallFolds(const CallFolds&) = delete;
  CallFolds& operator=(const CallFolds&) = delete;

  /// Takes memory for the partials of `rows` rows with `vocab_ranges` ranges each, and for the folds'
  /// scratch.
  void take(core::Arena& arena, int64_t rows, int64_t vocab_ranges, const FoldSizes& sizes) {
    partials_.take(arena, rows, vocab_ranges);
    for (const Walk walk : {Walk::kFirst, Walk::kSecond}) {
      for (Fold<Types>* fold : of(walk)) fold->take(arena, sizes);
    }
  }

  const CallPartials& partials() const { return partials_; }
  std::span<Fold<Types>* const> of(Walk walk) const { return by_walk_.of(walk); }

 private:
  CallPartials partials_;
  SoftmaxFold<Types> softmax_;
  std::optional<TopFold<Types>> top_;
  std::optional<DrawFold<Types>> draws_;
  std::optional<OutsideFold<Types>> outside_;
  std::optional<AboveFold<Types>> above_;
  std::optional<LogSumFold<Types>> squares_, student_, teacher_;
  std::optional<DivergenceFold<Types>> divergence_;
  ByWalk<Fold<Types>> by_walk_;
};

}  // namespace logitless::fold

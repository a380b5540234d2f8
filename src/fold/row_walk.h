// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Computes statistics and gradients one row at a time: of a caller's logits, or of rows that are normalised
// over sets of token ids.
#pragma once

#include <cstdint>
#include <functional>
#include <type_traits>
#include <utility>

#include "core/arena.h"
#include "core/store.h"
#include "fold/folds.h"
#include "kernels/row_kernels.h"
#include "source/given_logits.h"
#include "stats/tile_kernels.h"

namespace logitless::fold {

/// Default number of columns that a row kernel gets at a time: 8 KiB of float32, which stay in L1 between the
/// kernel's two passes over them.
inline constexpr int64_t kRowColumns = 2048;

/// A row that is normalised over a set of token ids is a single tile, whose columns are the distinct ids in
/// increasing order. Its logits are gathered.
template <class Types>
class RowWalk {
 public:
  using Logit = typename Types::Logit;
  static_assert(std::is_same_v<Logit, typename Types::Gradient>, "a row's gradients are as wide as its logits");

  /// Writes the logits of a row's distinct ids to `to` and returns their number.
  using Gather = std::function<int64_t(int64_t row, Logit* to)>;
  /// The scratch of one thread.
  struct Scratch {
    Logit* row = nullptr;  // [vocab_tile], or [3 * vocab_tile] with a teacher: capped logits
    // [vocab_tile]: logits that were widened or gathered, then their gradients
    Logit* values = nullptr;
    Logit* teacher_data = nullptr;                  // [vocab_tile]: the teacher's logits, widened
    kernels::PickGradient<Logit>* picks = nullptr;  // for one row
  };
  /// `narrow`: logits or gradients have a 16-bit type; `narrow_teacher`: the teacher's logits have one. With
  /// sets, `vocab_tile` is the largest number of picks in a row.
  struct Sizes {
    int64_t threads = 1;
    int64_t vocab_tile = 0;
    bool narrow = false;
    bool narrow_teacher = false;
  };

  /// Everything that `inputs` refers to must outlive this. `teacher` holds the teacher's logits, if given.
  /// Rows over sets are gathered by `gather`, or from `logits` if that is empty.
  RowWalk(const FoldInputs<Types>& inputs, const source::GivenLogits& logits, const source::GivenLogits& teacher,
          core::Arena& arena, const Sizes& sizes, Gather gather = {})
      : problem_(inputs.problem),
        tiles_(inputs.tiles),
        logits_(logits),
        teacher_(teacher),
        gather_(std::move(gather)),
        vocab_tile_(sizes.vocab_tile),
        entries_(problem_.over_picks ? vocab_tile_ : problem_.entries),
        folds_(inputs),
        scratch_(static_cast<size_t>(sizes.threads)) {
    folds_.take(arena, sizes.threads, 1, {.threads = sizes.threads, .entries = vocab_tile_});
    const int64_t picks = problem_.over_picks ? vocab_tile_ : problem_.most_picks();
    for (Scratch& one : scratch_) {
      one.row = arena.take<Logit>((problem_.divergence ? 3 : 1) * vocab_tile_);
      if (sizes.narrow || problem_.over_picks) one.values = arena.take<Logit>(vocab_tile_);
      if (sizes.narrow_teacher) one.teacher_data = arena.take<Logit>(vocab_tile_);
      one.picks = arena.take<kernels::PickGradient<Logit>>(picks);
    }
  }

  /// Computes the statistics of a row. Threads of a team may call this for different rows.
  void statistics(int64_t row, stats::Columns& columns) const;

  /// Writes the gradients [V] of a row of given logits to `out`. `out` may begin at the row's own logits if
  /// its type is not wider than theirs; otherwise it must be separate memory.
  void gradient(int64_t row, const TokenStats& stats, const TokenGrads& grads, void* out, DType out_dtype) const;
  /// Writes the gradients of the logits of a row's distinct ids to `out`, for rows over sets.
  void set_gradient(int64_t row, const TokenStats& stats, const TokenGrads& grads, Logit* out) const;

 private:
  /// Returns columns [first, first + vocab_tile) of a row in the type of the sums.
  stats::LogitsTile<Logit> tile(int64_t row, int64_t first, const Scratch& scratch) const;
  stats::LogitsTile<Logit> set_tile(int64_t row, const Scratch& scratch) const;
  const Scratch& scratch() const;

  const problem::TokenProblem& problem_;
  const stats::TileKernels<Types>* tiles_;
  const source::GivenLogits logits_;
  const source::GivenLogits teacher_;
  const Gather gather_;
  const int64_t vocab_tile_;
  const int64_t entries_;         // columns of a row; with sets, of the longest row
  CallFolds<Types> folds_;        // the place of a row's partials is its thread's number
  core::Array<Scratch> scratch_;  // one per thread
};

}  // namespace logitless::fold

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Computes statistics and gradients of a caller's logits, one row at a time.
#pragma once

#include <cstdint>
#include <type_traits>

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

template <class Types>
class RowWalk {
 public:
  using Logit = typename Types::Logit;
  static_assert(std::is_same_v<Logit, typename Types::Gradient>, "a row's gradients are as wide as its logits");

  /// The scratch of one thread.
  struct Scratch {
    Logit* row = nullptr;  // [vocab_tile], or [3 * vocab_tile] with a teacher: capped logits
    // [vocab_tile]: logits of a 16-bit type, widened, then their gradients
    Logit* values = nullptr;
    Logit* beside = nullptr;                        // [vocab_tile]: the teacher's logits, widened
    kernels::PickGradient<Logit>* picks = nullptr;  // for one row
  };
  /// `narrow`: logits or gradients have a 16-bit type; `narrow_teacher`: the teacher's logits have one.
  struct Sizes {
    int64_t threads = 1;
    int64_t vocab_tile = 0;
    bool narrow = false;
    bool narrow_teacher = false;
  };

  /// The referents of `inputs` must outlive this. `teacher` holds the teacher's logits, if they are given.
  RowWalk(const FoldInputs<Types>& inputs, const source::GivenLogits& logits, const source::GivenLogits& teacher,
          core::Arena& arena, const Sizes& sizes)
      : problem_(inputs.problem),
        tiles_(inputs.tiles),
        logits_(logits),
        teacher_(teacher),
        vocab_tile_(sizes.vocab_tile),
        folds_(inputs),
        scratch_(static_cast<size_t>(sizes.threads)) {
    folds_.take(arena, sizes.threads, 1, {.threads = sizes.threads, .entries = vocab_tile_});
    const int64_t picks = problem_.most_picks();
    for (Scratch& one : scratch_) {
      one.row = arena.take<Logit>((problem_.divergence ? 3 : 1) * vocab_tile_);
      if (sizes.narrow) one.values = arena.take<Logit>(vocab_tile_);
      if (sizes.narrow_teacher) one.beside = arena.take<Logit>(vocab_tile_);
      one.picks = arena.take<kernels::PickGradient<Logit>>(picks);
    }
  }

  /// Computes the statistics of a row. Threads of a team may call this for different rows.
  void statistics(int64_t row, stats::Columns& columns) const;

  /// Writes the gradients [V] of a row's logits to `out`. That either starts at the row's logits, with a type
  /// no wider than theirs, or is separate memory.
  void gradient(int64_t row, const TokenStats& stats, const TokenGrads& grads, void* out, DType out_dtype) const;

 private:
  /// Returns columns [first, first + vocab_tile) of a row in the type of the sums.
  stats::LogitsTile<Logit> tile(int64_t row, int64_t first, const Scratch& scratch) const;
  const Scratch& scratch() const;

  const problem::TokenProblem& problem_;
  const stats::TileKernels<Types>* tiles_;
  const source::GivenLogits logits_;
  const source::GivenLogits teacher_;
  int64_t vocab_tile_;
  CallFolds<Types> folds_;        // the place of a row's partials is its thread's number
  core::Array<Scratch> scratch_;  // one per thread
};

}  // namespace logitless::fold

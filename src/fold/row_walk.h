// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// This makes the statistics and gradients of rows of logits that a caller holds, one row at a time.
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

/// A row kernel takes this many columns at once, unless the caller wants another number: 8 KiB of float32
/// stay in L1 between the kernel's two walks.
inline constexpr int64_t kRowColumns = 2048;

template <class Types>
class RowWalk {
 public:
  using Logit = typename Types::Logit;
  static_assert(std::is_same_v<Logit, typename Types::Gradient>, "a row's gradients are as wide as its logits");

  /// A thread works in this.
  struct Scratch {
    Logit* row = nullptr;  // [vocab_tile], or with a teacher [3 * vocab_tile]: capped logits
    // [vocab_tile]: logits of a 16-bit type, widened, then their gradients
    Logit* values = nullptr;
    Logit* beside = nullptr;                        // the same of a teacher's logits
    kernels::PickGradient<Logit>* picks = nullptr;  // of one row
  };
  /// `narrow` says that logits or gradients have a 16-bit type, `narrow_teacher` that a teacher's logits do.
  struct Sizes {
    int64_t threads = 1;
    int64_t vocab_tile = 0;
    bool narrow = false;
    bool narrow_teacher = false;
  };

  /// What `inputs` name must outlive this. `teacher` are the logits of a teacher, if there is one.
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

  /// Makes the statistics of a row. Threads of a team work on different rows.
  void statistics(int64_t row, stats::Columns& columns) const;

  /// Writes the gradients [V] of a row's logits to `out`, which begins with the logits and has no wider type,
  /// or is memory apart from them.
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
  CallFolds<Types> folds_;        // the partials of a row are at the place of its thread
  core::Array<Scratch> scratch_;  // one a thread
};

}  // namespace logitless::fold

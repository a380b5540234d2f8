// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// This makes the statistics and gradients of rows of logits that stand in memory, one row at a time: rows of
// the dense path's own buffer, and rows of a caller's logits.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/arena.h"
#include "kernels/row_kernels.h"
#include "stats/statistics.h"
#include "stats/tile_kernels.h"

namespace logitless::stats {

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
    Logit* row = nullptr;     // [vocab_tile]: capped logits
    Logit* values = nullptr;  // [vocab_tile]: logits of a 16-bit type, widened, then their gradients
  };

  /// Everything that is given must outlive this.
  RowWalk(const stats::TileKernels<Types>& tiles, const kernels::RowKernels& kernels, int64_t vocab_size,
          int64_t vocab_tile)
      : tiles_(tiles), kernels_(kernels), vocab_size_(vocab_size), vocab_tile_(vocab_tile) {}

  /// `narrow` says that logits or gradients have a 16-bit type.
  static Scratch take_scratch(core::Arena& arena, int64_t vocab_tile, bool narrow) {
    return {arena.take<Logit>(vocab_tile), narrow ? arena.take<Logit>(vocab_tile) : nullptr};
  }

  /// Hands the statistics of row `row` of `problem`, whose logits [V] stand at `logits`, to `finish`, and
  /// adds to the row's rank where that is asked for.
  void statistics(const problem::TokenProblem& problem, int64_t row, const void* logits, DType dtype,
                  const Scratch& scratch, const stats::Finisher& finish) const;

  /// Writes the gradients [V] of the logits to `out`, which begins with the logits and has no wider type, or
  /// is memory apart from them.
  void gradient(const kernels::RowGradient<Logit>& gradient, const void* logits, DType dtype, void* out,
                DType out_dtype, const Scratch& scratch) const;

 private:
  /// Returns columns [first, first + vocab_tile) of a row in the type of the sums.
  stats::LogitsTile<Logit> tile(const void* logits, DType dtype, int64_t first, const Scratch& scratch) const;

  const stats::TileKernels<Types>& tiles_;
  const kernels::RowKernels& kernels_;
  int64_t vocab_size_;
  int64_t vocab_tile_;
};

}  // namespace logitless::stats

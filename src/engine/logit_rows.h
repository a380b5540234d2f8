// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Statistics and gradients of rows of logits that stand in memory, one row at a time. The dense path walks its own
// buffer with it, the logits-level calls that of their caller.
#pragma once

#include <cstdint>

#include "core/workspace.h"
#include "engine/problem.h"
#include "rows/row_kernels.h"

namespace logitless::engine {

/// Columns that a row kernel takes at once, unless the caller wants another number: 8 KiB of float32 stay in L1 between
/// the kernel's two walks.
inline constexpr int64_t kRowColumns = 2048;

template <class T>
class LogitRows {
 public:
  /// What a thread works in.
  struct Scratch {
    T* row = nullptr;     // [vocab_tile]: capped logits
    T* values = nullptr;  // [vocab_tile]: logits of a 16-bit type, widened, then their gradients
  };

  /// `bias` [V] or null. The problem must outlive this.
  LogitRows(const rows::RowKernels& kernels, const TokenProblem& problem, const T* bias, T softcap, int64_t vocab_tile)
      : kernels_(kernels), problem_(problem), bias_(bias), softcap_(softcap), vocab_tile_(vocab_tile) {}

  /// `narrow`: logits or gradients have a 16-bit type.
  static Scratch take_scratch(core::Workspace& workspace, int64_t vocab_tile, bool narrow) {
    return {workspace.take<T>(vocab_tile), narrow ? workspace.take<T>(vocab_tile) : nullptr};
  }

  /// Fills the entries of `stats` for row `row`, whose logits [V] stand at `logits`.
  void statistics(int64_t row, const void* logits, DType dtype, const Scratch& scratch, TokenStats& stats) const;

  /// The gradients [V] of the logits into `out`: the logits themselves, with the same type, or memory apart from them.
  void gradient(const rows::RowGradient<T>& gradient, const void* logits, DType dtype, void* out, DType out_dtype,
                const Scratch& scratch) const;

 private:
  rows::RowStats fold(int64_t row, const void* logits, DType dtype, const Scratch& scratch) const;
  /// How many logits are larger than `chosen`, the target's as fold() found it.
  int64_t count_above(T chosen, const void* logits, DType dtype, const Scratch& scratch) const;
  rows::TileShape<T> shape(int64_t first, int64_t cols) const {
    return {1, cols, cols, bias_ ? bias_ + first : nullptr, softcap_, problem_.options.round_logits_to};
  }
  const float* prior(int64_t first) const {
    return problem_.options.prior.empty() ? nullptr : problem_.options.prior.data() + first;
  }
  /// Columns [first, first + cols) of a row in the type of the sums.
  const T* values(const void* logits, DType dtype, int64_t first, int64_t cols, const Scratch& scratch) const;
  /// The target's column in the tile that begins at word `first`, or -1.
  static int32_t column(int64_t target, int64_t first, int64_t cols) {
    return target >= first && target < first + cols ? static_cast<int32_t>(target - first) : -1;
  }

  const rows::RowKernels& kernels_;
  const TokenProblem& problem_;
  const T* bias_;
  T softcap_;
  int64_t vocab_tile_;
};

}  // namespace logitless::engine

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Sums over the slices of a vocabulary, here and on other ranks: of d_hidden, and of what else has no
// vocabulary entries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "core/arena.h"
#include "core/matrices.h"
#include "core/store.h"
#include "kernels/row_kernels.h"
#include "problem/hidden_rows.h"
#include "ranks/cut.h"

namespace logitless::ranks {

/// A slice's own part of an output is sums [rows, cols], in float32 or float64. This says where they stand,
/// and adds those of all slices up, in their order.
class SliceSums {
 public:
  /// `out` has no data where it is not wanted. Everything that is given must outlive this.
  SliceSums(const kernels::RowKernels& kernels, const Cut& cut, const problem::Rows<Matrix>& out, WriteMode mode,
            DType sums);

  bool wanted() const { return out_.matrix.data; }
  /// Returns whether the sums of a rank's only slice stand in the output.
  bool in_place() const { return in_place_; }
  /// Takes the sums of this rank's slice `slice`, and returns them.
  void* take(size_t slice);
  /// Sums over all slices and, unless ranks keep their own, over these, and writes `rows` of the output. The
  /// other rows have no sums.
  void finish(std::span<const int64_t> rows, int threads) const;

 private:
  template <class Sum>
  void finish_as(std::span<const int64_t> rows, int threads) const;
  template <class Sum>
  void sum_over_group(std::span<const int64_t> rows, int threads) const;
  template <class Sum>
  void load(int64_t row, int64_t slice, Sum* to) const;
  void* output(int64_t row) const { return out_.place(row).data; }

  const kernels::RowKernels& kernels_;
  const Cut& cut_;
  const problem::Rows<Matrix> out_;
  const WriteMode mode_;
  const DType type_;  // of the sums
  bool in_place_;
  struct Sums {
    std::shared_ptr<core::Arena> arena;
    void* data = nullptr;  // null where a slice has no vocabulary entries
  };
  core::Array<Sums> slices_;  // where the sums do not stand in the output
};

}  // namespace logitless::ranks

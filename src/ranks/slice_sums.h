// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Sums over the slices of a vocabulary, on this rank and others, of outputs that have no vocabulary entries:
// d_hidden, d_lora_a and d_lora_states.
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

/// Each slice has its own sums [rows, cols] of an output, in float32 or float64. This class holds the
/// sums of this rank's slices, and adds up all slices, in slice order.
class SliceSums {
 public:
  /// `out` has no data if it is not requested. All arguments must outlive this.
  SliceSums(const kernels::RowKernels& kernels, const Cut& cut, const problem::Rows<Matrix>& out, WriteMode mode,
            DType sums);

  bool wanted() const { return out_.matrix.data; }
  /// Returns whether this rank's only slice is summed in the output itself.
  bool in_place() const { return in_place_; }
  /// Takes memory for the sums of this rank's slice `slice`, and returns it.
  void* take(size_t slice);
  /// Sums over this rank's slices and, unless own_d_hidden is set, over all ranks, and writes `rows` of the
  /// output. Other rows have no sums: they become zeros if the output is overwritten.
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
    void* data = nullptr;  // null if the slice has no vocabulary entries
  };
  core::Array<Sums> slices_;  // unused if sums are in the output
};

}  // namespace logitless::ranks

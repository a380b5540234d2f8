// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Rows that products multiply, as operands: in place or gathered.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>

#include "core/parallel.h"
#include "core/views.h"
#include "gemm/gemm.h"
#include "problem/hidden_rows.h"
#include "source/row_blocks.h"

namespace logitless::source {

/// Returns the pieces in which consecutive rows are in memory at one stride.
template <class AnyMatrix>
RowBreaks breaks_of(const problem::Rows<AnyMatrix>& rows) {
  return {rows.is_matrix() ? 0 : rows.places.time};
}

/// The states of a product: hidden [N, H], or another matrix with N rows.
class States {
 public:
  explicit States(const problem::Rows<ConstMatrix>& rows) : rows_(rows) {}

  int64_t cols() const { return rows_.cols; }
  DType dtype() const { return rows_.dtype; }
  size_t row_bytes() const { return static_cast<size_t>(cols()) * size_of(dtype()); }
  RowBreaks breaks() const { return breaks_of(rows_); }
  /// Returns whether one product can read all rows in place.
  bool is_matrix() const { return rows_.is_matrix(); }

  /// Returns `rows` [rows, cols] as an operand: `gathered`, into which gather() copied them, or, if that is
  /// null, the rows in place, which must be consecutive and evenly spaced.
  gemm::Operand operand(std::span<const int64_t> rows, const std::byte* gathered) const {
    if (gathered) return {gathered, dtype(), cols(), false};
    if (rows.empty()) return {rows_.matrix.data, dtype(), rows_.places.row_stride, false};
    return in_place(rows.front());
  }
  /// Returns all rows of a block's tiles [tile_rows, cols] as an operand: in place if the block is
  /// contiguous, else `gathered`, into which gather_tile() copied them.
  gemm::Operand tile_operand(const RowBlocks& blocks, const RowBlock& block, const std::byte* gathered) const {
    if (!block.contiguous) return {gathered, dtype(), cols(), false};
    return in_place(blocks.order[static_cast<size_t>(block.begin)] - blocks.first_place(block));
  }

  /// Copies `rows` to `to`, consecutively, with at most `threads` threads.
  void gather(std::span<const int64_t> rows, int threads, std::byte* to) const {
    const size_t bytes = row_bytes();
    core::parallel_ranges(threads, static_cast<int64_t>(rows.size()), [&](int64_t begin, int64_t end) {
      for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
        std::memcpy(to + i * bytes, rows_.place(rows[i]).data, bytes);
      }
    });
  }
  /// Copies the rows of `block` to their places in `to` [tile_rows, cols]; the other places become zeros.
  void gather_tile(const RowBlocks& blocks, const RowBlock& block, std::byte* to) const {
    const size_t bytes = row_bytes();
    const auto rows = blocks.rows(block);
    size_t r = 0;
    for (int64_t place = 0; place < block.tile_rows; ++place, to += bytes) {
      if (r < rows.size() && blocks.places(block)[r] == place) {
        std::memcpy(to, rows_.place(rows[r++]).data, bytes);
      } else {
        std::memset(to, 0, bytes);
      }
    }
  }
  /// Moves the rows that gather_tile() copied to their places together, to where gather() would put them.
  void close_holes(const RowBlocks& blocks, const RowBlock& block, std::byte* gathered) const {
    const size_t bytes = row_bytes();
    std::byte* to = gathered;
    for (const int32_t place : blocks.places(block)) {
      std::memmove(to, gathered + static_cast<size_t>(place) * bytes, bytes);
      to += bytes;
    }
  }

 private:
  gemm::Operand in_place(int64_t row) const {
    const problem::RowPlace<const void*> place = rows_.place(row);
    return {place.data, dtype(), place.stride, false};
  }

  problem::Rows<ConstMatrix> rows_;
};

}  // namespace logitless::source

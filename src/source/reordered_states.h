// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The states of a pass's tiles in the order of the backend's products, for the whole vocabulary.
#pragma once

#include <omp.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/arena.h"
#include "core/parallel.h"
#include "core/store.h"
#include "source/source.h"

namespace logitless::source {

class ReorderedStates {
 public:
  /// Has no memory until it is assigned.
  ReorderedStates() = default;
  ReorderedStates(core::Arena& arena, size_t bytes)
      : data_(static_cast<std::byte*>(arena.take_bytes(bytes))), bytes_(bytes) {}

  /// Returns the bytes for reordering these blocks, or 0 if the backend does not reorder rows.
  static size_t bytes_of(const Source& source, const gemm::Backend& gemm, std::span<const RowBlock> blocks) {
    size_t bytes = 0;
    for (const RowBlock& block : blocks) bytes += source.reordered_bytes(gemm, block.tile_rows);
    return bytes;
  }

  /// Reorders the tile rows of `blocks`, which belong to `all`, with at most `threads` threads. Rows that are
  /// not contiguous are first gathered into gathered(thread). The memory was sized for the plan's blocks, but
  /// dropping rows can change the blocks: those that do not fit any more are not reordered.
  template <class Gathered>
  void reorder(const Source& source, const gemm::Backend& gemm, const kernels::RowKernels& kernels, int threads,
               const RowBlocks& all, std::span<const RowBlock> blocks, const Gathered& gathered) {
    if (bytes_ == 0) return;
    blocks_ = core::Array<std::byte*>(blocks.size(), nullptr);
    size_t used = 0;
    for (size_t b = 0; b < blocks.size(); ++b) {
      const size_t bytes = source.reordered_bytes(gemm, blocks[b].tile_rows);
      if (used + bytes > bytes_) break;
      blocks_[b] = data_ + used;
      used += bytes;
    }
    core::parallel_for(threads, static_cast<int64_t>(blocks.size()), [&](int64_t index) {
      const auto b = static_cast<size_t>(index);
      if (!blocks_[b]) return;
      const TileRows rows = {all, blocks[b], gathered(static_cast<size_t>(omp_get_thread_num()))};
      source.gather(gemm, rows);
      source.reorder(gemm, kernels, rows, blocks_[b]);
    });
  }

  /// Returns the rows of block b of the last reorder(), or null if they were not reordered.
  const std::byte* of(int64_t b) const { return blocks_.empty() ? nullptr : blocks_[static_cast<size_t>(b)]; }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  core::Array<std::byte*> blocks_;
};

}  // namespace logitless::source

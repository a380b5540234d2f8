// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The states of a pass's tiles in the backend's packed format, packed once for the whole vocabulary.
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

class PackedStates {
 public:
  /// Has no memory until it is assigned.
  PackedStates() = default;
  PackedStates(core::Arena& arena, size_t bytes)
      : data_(static_cast<std::byte*>(arena.take_bytes(bytes))), room_(bytes) {}

  /// Returns the bytes for packing these blocks, or 0 if the backend does not pack rows.
  static size_t bytes_of(const Source& source, const gemm::Backend& gemm, std::span<const RowBlock> blocks) {
    size_t bytes = 0;
    for (const RowBlock& block : blocks) bytes += source.packed_bytes(gemm, block.tile_rows);
    return bytes;
  }

  /// Packs the tile rows of `blocks`, which belong to `all`, with at most `threads` threads. Rows of blocks
  /// that are not contiguous are first gathered into gathered(thread). The memory was sized for the plan's
  /// blocks, but dropping rows can change the blocks: those for which no memory is left are multiplied
  /// unpacked.
  template <class Gathered>
  void pack(const Source& source, const gemm::Backend& gemm, const kernels::RowKernels& kernels, int threads,
            const RowBlocks& all, std::span<const RowBlock> blocks, const Gathered& gathered) {
    if (room_ == 0) return;
    places_ = core::Array<std::byte*>(blocks.size(), nullptr);
    size_t used = 0;
    for (size_t b = 0; b < blocks.size(); ++b) {
      const size_t bytes = source.packed_bytes(gemm, blocks[b].tile_rows);
      if (used + bytes > room_) break;
      places_[b] = data_ + used;
      used += bytes;
    }
    core::parallel_for(threads, static_cast<int64_t>(blocks.size()), [&](int64_t index) {
      const auto b = static_cast<size_t>(index);
      if (!places_[b]) return;
      const TileRows rows = {all, blocks[b], gathered(static_cast<size_t>(omp_get_thread_num()))};
      source.gather(gemm, rows);
      source.pack(gemm, kernels, rows, places_[b]);
    });
  }

  /// Returns the packed rows of block b of the last pack(), or null if it is not packed.
  const std::byte* of(int64_t b) const { return places_.empty() ? nullptr : places_[static_cast<size_t>(b)]; }

 private:
  std::byte* data_ = nullptr;
  size_t room_ = 0;
  core::Array<std::byte*> places_;
};

}  // namespace logitless::source

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The hidden states of a pass's tiles as the backend packs them: once for the whole vocabulary.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/arena.h"
#include "core/parallel.h"
#include "core/store.h"
#include "plan/hidden_blocks.h"
#include "plan/run_plan.h"

namespace logitless::plan {

class PackedHidden {
 public:
  /// Has no room until it is assigned.
  PackedHidden() = default;
  /// Takes the room that is planned.
  PackedHidden(core::Arena& arena, const RunPlan& run)
      : data_(static_cast<std::byte*>(arena.take_bytes(run.plan.packed_bytes))), room_(run.plan.packed_bytes) {}

  /// Returns the room for the blocks of any chunk, or 0 where the backend packs none.
  static size_t most_bytes(const HiddenProblem& problem, const RunPlan& run) {
    size_t most = 0;
    for (size_t c = 0; c + 1 < run.chunks.size(); ++c) {
      size_t bytes = 0;
      for (size_t b = run.chunks[c]; b < run.chunks[c + 1]; ++b) bytes += bytes_of(problem, run, run.blocks.blocks[b]);
      most = std::max(most, bytes);
    }
    return most;
  }

  /// Packs the tile rows of `blocks`, which are of `all`. Blocks of rows that do not follow one another are
  /// gathered into gathered(thread) [tile_rows, H] first. A block that finds no more room, because rows were
  /// dropped and stand in other blocks now than in those of the plan, is multiplied as it stands.
  template <class Gathered>
  void pack(const HiddenProblem& problem, const RunPlan& run, const RowBlocks& all, std::span<const RowBlock> blocks,
            const Gathered& gathered) {
    if (room_ == 0) return;
    places_ = core::Array<std::byte*>(blocks.size(), nullptr);
    size_t used = 0;
    for (size_t b = 0; b < blocks.size(); ++b) {
      const size_t bytes = bytes_of(problem, run, blocks[b]);
      if (used + bytes > room_) break;
      places_[b] = data_ + used;
      used += bytes;
    }
    core::parallel_for(run.plan.threads, static_cast<int64_t>(blocks.size()), [&](int64_t index) {
      const auto b = static_cast<size_t>(index);
      if (!places_[b]) return;
      std::byte* rows = gathered(static_cast<size_t>(omp_get_thread_num()));
      if (!blocks[b].contiguous) gather_tile(problem, all, blocks[b], rows);
      run.gemm->pack_rows(tile_operand(problem, all, blocks[b], rows), blocks[b].tile_rows, problem.hidden_size,
                          places_[b]);
    });
  }

  /// Returns what pack() has made of its block b; null where it has not.
  const void* of(int64_t b) const { return places_.empty() ? nullptr : places_[static_cast<size_t>(b)]; }

 private:
  static size_t bytes_of(const HiddenProblem& problem, const RunPlan& run, const RowBlock& block) {
    return run.gemm->packed_rows_bytes(block.tile_rows, problem.hidden_size, problem.hidden.dtype,
                                       problem.head.weight.dtype);
  }

  std::byte* data_ = nullptr;
  size_t room_ = 0;
  core::Array<std::byte*> places_;
};

}  // namespace logitless::plan

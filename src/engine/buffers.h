// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// What a pass takes from its workspace. Built twice: on a measuring workspace by the planner, on a real one by the run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/workspace.h"
#include "engine/plan.h"
#include "gemm/gemm.h"
#include "rows/row_kernels.h"

namespace logitless::engine {

/// True when an output has a narrower type than its sums, so that these need a place of their own until the one
/// rounding.
template <class T>
bool is_narrow(const void* data, DType dtype) {
  return data && dtype != DTypeOf<T>::value;
}

/// True when d_weight is summed in a tile of its own and handed on once all rows are in it.
template <class T>
bool needs_weight_tiles(const Gradients& outputs) {
  return outputs.weight_sink || is_narrow<T>(outputs.d_weight.data, outputs.d_weight.dtype);
}

/// Weight tiles that are summed at the same time: while one is finished, the next one fills.
inline constexpr int64_t kWeightTiles = 2;

template <class T>
struct ForwardBuffers {
  struct PerThread {
    T* tile = nullptr;              // [tile_rows, tile_stride]; null when the logits stay (one pass)
    std::byte* gathered = nullptr;  // [tile_rows, H] of hidden's type
    void* gemm = nullptr;
    T* row = nullptr;                  // [vocab_tile]
    int32_t* target = nullptr;         // [row_tile]
    T* inverse_temperature = nullptr;  // [row_tile]
    T* chosen = nullptr;               // [row_tile], where ranks are wanted
    int64_t* above = nullptr;          // [row_tile], the same
  };
  std::vector<PerThread> threads;
  rows::RowStats* partials = nullptr;  // [chunk_rows, segments]

  ForwardBuffers(core::Workspace& workspace, const gemm::Backend& gemm, const Problem& problem, const RunPlan& run);
};

template <class T>
struct BackwardBuffers {
  struct PerThread {
    void* gemm = nullptr;
    T* row = nullptr;                           // [vocab_tile]
    T* scatter = nullptr;                       // [row_tile, hidden_block]
    rows::RowGradient<T>* gradients = nullptr;  // [row_tile]: those of one tile
  };
  struct Slot {
    T* tile = nullptr;              // [tile_rows, tile_stride]
    std::byte* gathered = nullptr;  // [tile_rows, H] of hidden's type
  };
  std::vector<PerThread> threads;
  std::vector<Slot> slots;                    // two pass: tiles that are alive
  std::byte* gathered = nullptr;              // one pass: [chunk_rows, H]
  rows::RowGradient<T>* gradients = nullptr;  // [chunk_rows], target = word
  T* d_hidden = nullptr;                      // [chunk_rows, H] sums of a d_hidden that are apart
  T* d_weight[kWeightTiles] = {};             // [vocab_tile, H] or [H, vocab_tile] each

  BackwardBuffers(core::Workspace& workspace, const gemm::Backend& gemm, const Problem& problem, const RunPlan& run,
                  const Gradients& outputs);
};

/// The bias in the type of the sums; null without one.
template <class T>
const T* widened_bias(core::Workspace& workspace, const rows::RowKernels* kernels, const Problem& problem);

/// [V] sums of a narrow d_bias, which live until the last chunk is done; null when d_bias is wide or not wanted.
template <class T>
T* take_bias_sums(core::Workspace& workspace, const Problem& problem, const Gradients& outputs);

/// The logits of one chunk (one pass): [chunk_tile_rows, V], tile by tile.
template <class T>
T* take_chunk(core::Workspace& workspace, const RunPlan& run);

/// Bytes of a whole run, with its passes sharing what they can.
size_t measure_run(const gemm::Backend& gemm, const Problem& problem, const Work& work, const RunPlan& run,
                   const Gradients& outputs);

}  // namespace logitless::engine

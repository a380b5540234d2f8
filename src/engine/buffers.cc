// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "engine/buffers.h"

#include <algorithm>

#include "engine/rows_of_hidden.h"

namespace logitless::engine {
namespace {

int64_t tile_elements(const RunPlan& run) { return run.grid.tile_rows * run.grid.tile_stride; }

std::byte* take_hidden_rows(core::Workspace& workspace, const Problem& problem, int64_t rows) {
  return workspace.take<std::byte>(rows * problem.hidden_size * static_cast<int64_t>(size_of(problem.hidden.dtype)));
}

}  // namespace

template <class T>
ForwardBuffers<T>::ForwardBuffers(core::Workspace& workspace, const gemm::Backend& gemm, const Problem& problem,
                                  const RunPlan& run) {
  const TileGrid& grid = run.grid;
  const bool logits_stay = run.plan.kind == PlanKind::kOnePass;
  const size_t gemm_bytes = gemm.scratch_bytes(grid.tile_rows, grid.vocab_tile, grid.hidden_size, problem.hidden.dtype,
                                               problem.head.weight.dtype);
  threads.resize(static_cast<size_t>(run.plan.threads));
  for (PerThread& thread : threads) {
    if (!logits_stay) thread.tile = workspace.take<T>(tile_elements(run));
    if (run.gather) thread.gathered = take_hidden_rows(workspace, problem, grid.tile_rows);
    thread.gemm = workspace.take_bytes(gemm_bytes);
    thread.row = workspace.take<T>(grid.vocab_tile);
    thread.target = workspace.take<int32_t>(grid.row_tile);
    thread.inverse_temperature = workspace.take<T>(grid.row_tile);
    if (problem.request.rank) {
      thread.chosen = workspace.take<T>(grid.row_tile);
      thread.above = workspace.take<int64_t>(grid.row_tile);
    }
  }
  partials = workspace.take<rows::RowStats>(run.plan.chunk_rows * grid.segments);
}

template <class T>
BackwardBuffers<T>::BackwardBuffers(core::Workspace& workspace, const gemm::Backend& gemm, const Problem& problem,
                                    const RunPlan& run, const Gradients& outputs) {
  const TileGrid& grid = run.grid;
  const bool logits_stay = run.plan.kind == PlanKind::kOnePass;
  const DType sums = DTypeOf<T>::value;
  const DType hidden = problem.hidden.dtype;
  const DType weight = problem.head.weight.dtype;
  const bool hidden_vocab = problem.head.layout == HeadLayout::kHiddenVocab;
  size_t gemm_bytes = gemm.scratch_bytes(grid.row_tile, grid.hidden_block, grid.vocab_tile, sums, weight);
  gemm_bytes = std::max(
      gemm_bytes, hidden_vocab ? gemm.scratch_bytes(grid.weight_block, grid.vocab_tile, grid.row_tile, hidden, sums)
                               : gemm.scratch_bytes(grid.vocab_tile, grid.weight_block, grid.row_tile, sums, hidden));
  if (!logits_stay) {
    gemm_bytes =
        std::max(gemm_bytes, gemm.scratch_bytes(grid.tile_rows, grid.vocab_tile, grid.hidden_size, hidden, weight));
  }
  threads.resize(static_cast<size_t>(run.plan.threads));
  for (PerThread& thread : threads) {
    thread.gemm = workspace.take_bytes(gemm_bytes);
    thread.row = workspace.take<T>(grid.vocab_tile);
    thread.gradients = workspace.take<rows::RowGradient<T>>(grid.row_tile);
    if (run.scatter && outputs.wants_d_hidden() && !run.hidden_apart) {
      thread.scatter = workspace.take<T>(grid.row_tile * grid.hidden_block);
    }
  }
  if (!logits_stay) {
    slots.resize(static_cast<size_t>(run.plan.tiles_alive));
    for (Slot& slot : slots) {
      slot.tile = workspace.take<T>(tile_elements(run));
      if (run.gather) slot.gathered = take_hidden_rows(workspace, problem, grid.tile_rows);
    }
  } else if (run.gather) {
    gathered = take_hidden_rows(workspace, problem, run.plan.chunk_rows);
  }
  gradients = workspace.take<rows::RowGradient<T>>(run.plan.chunk_rows);
  if (run.hidden_apart) d_hidden = workspace.take<T>(run.plan.chunk_rows * grid.hidden_size);
  if (needs_weight_tiles<T>(outputs)) {
    for (T*& tile : d_weight) tile = workspace.take<T>(grid.vocab_tile * grid.hidden_size);
  }
}

template <class T>
const T* widened_bias(core::Workspace& workspace, const rows::RowKernels* kernels, const Problem& problem) {
  const ConstVector& bias = problem.head.bias;
  if (!bias.data || bias.dtype == DTypeOf<T>::value) return static_cast<const T*>(bias.data);
  T* out = workspace.take<T>(bias.size);
  if constexpr (sizeof(T) == 4) {
    if (out) kernels->widen(bias.data, bias.dtype, bias.size, out);
  }
  return out;
}

template <class T>
T* take_bias_sums(core::Workspace& workspace, const Problem& problem, const Gradients& outputs) {
  if (!is_narrow<T>(outputs.d_bias.data, outputs.d_bias.dtype)) return nullptr;
  return workspace.take<T>(problem.vocab_size);
}

template <class T>
T* take_chunk(core::Workspace& workspace, const RunPlan& run) {
  return workspace.take<T>(run.chunk_tile_rows * run.grid.vocab_tiles() * run.grid.tile_stride);
}

namespace {

template <class T>
size_t measure(const gemm::Backend& gemm, const Problem& problem, const Work& work, const RunPlan& run,
               const Gradients& outputs) {
  core::Workspace workspace;
  widened_bias<T>(workspace, nullptr, problem);
  if (work.backward) take_bias_sums<T>(workspace, problem, outputs);
  if (run.plan.kind == PlanKind::kOnePass) take_chunk<T>(workspace, run);
  const size_t mark = workspace.mark();
  if (work.forward) ForwardBuffers<T>(workspace, gemm, problem, run);
  workspace.rewind(mark);
  if (work.backward) BackwardBuffers<T>(workspace, gemm, problem, run, outputs);
  return workspace.peak();
}

}  // namespace

size_t measure_run(const gemm::Backend& gemm, const Problem& problem, const Work& work, const RunPlan& run,
                   const Gradients& outputs) {
  return problem.in_double() ? measure<double>(gemm, problem, work, run, outputs)
                             : measure<float>(gemm, problem, work, run, outputs);
}

template struct ForwardBuffers<float>;
template struct ForwardBuffers<double>;
template struct BackwardBuffers<float>;
template struct BackwardBuffers<double>;
template const float* widened_bias(core::Workspace&, const rows::RowKernels*, const Problem&);
template const double* widened_bias(core::Workspace&, const rows::RowKernels*, const Problem&);
template float* take_bias_sums(core::Workspace&, const Problem&, const Gradients&);
template double* take_bias_sums(core::Workspace&, const Problem&, const Gradients&);
template float* take_chunk(core::Workspace&, const RunPlan&);
template double* take_chunk(core::Workspace&, const RunPlan&);

}  // namespace logitless::engine

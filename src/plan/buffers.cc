// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "plan/buffers.h"

#include <algorithm>
#include <type_traits>

#include "core/store.h"
#include "plan/hidden_blocks.h"

namespace logitless::plan {
namespace {

int64_t tile_elements(const RunPlan& run) { return run.grid.tile_rows * run.grid.tile_stride; }

// Returns the most picks of the rows of a chunk.
int64_t most_picks(const HiddenProblem& problem, const RunPlan& run) {
  int64_t most = 0;
  for (int64_t chunk = 0; chunk < run.chunk_count(); ++chunk) {
    int64_t picks = 0;
    for (const int64_t row : run.rows_of(chunk)) picks += problem.pick_end(row) - problem.pick_begin(row);
    most = std::max(most, picks);
  }
  return most;
}

std::byte* take_hidden_rows(core::Arena& arena, const HiddenProblem& problem, int64_t rows) {
  return arena.take<std::byte>(rows * problem.hidden_size * static_cast<int64_t>(size_of(problem.hidden.dtype)));
}

}  // namespace

template <class Types>
ForwardBuffers<Types>::ForwardBuffers(core::Arena& arena, const HiddenProblem& problem, const RunPlan& run,
                                      stats::CallFolds<Types>& folds) {
  const TileGrid& grid = run.grid;
  const size_t gemm_bytes = run.gemm->scratch_bytes(grid.tile_rows, grid.vocab_tile, grid.hidden_size,
                                                    problem.hidden.dtype, problem.head.weight.dtype);
  threads.resize(static_cast<size_t>(run.plan.threads));
  for (PerThread& thread : threads) {
    if (!run.logits_stay) thread.tile = arena.take<Logit>(tile_elements(run));
    if (run.gather) thread.gathered = take_hidden_rows(arena, problem, grid.tile_rows);
    thread.gemm = arena.take_bytes(gemm_bytes);
    thread.row = arena.take<Logit>(grid.vocab_tile);
  }
  folds.take(arena, {run.plan.chunk_rows, grid.segments, run.plan.threads, grid.row_tile});
  packed = PackedHidden(arena, run);
}

template <class Types>
BackwardBuffers<Types>::BackwardBuffers(core::Arena& arena, const HiddenProblem& problem, const RunPlan& run,
                                        const Gradients& outputs) {
  const gemm::Backend& gemm = *run.gemm;
  const TileGrid& grid = run.grid;
  const DType gradient = DTypeOf<Gradient>::value;
  const DType hidden = problem.hidden.dtype;
  const DType weight = problem.head.weight.dtype;
  const bool hidden_vocab = problem.head.layout == HeadLayout::kHiddenVocab;
  size_t gemm_bytes = gemm.scratch_bytes(grid.row_tile, grid.hidden_block, grid.vocab_tile, gradient, weight);
  gemm_bytes =
      std::max(gemm_bytes,
               hidden_vocab ? gemm.scratch_bytes(grid.weight_block, grid.vocab_tile, grid.row_tile, hidden, gradient)
                            : gemm.scratch_bytes(grid.vocab_tile, grid.weight_block, grid.row_tile, gradient, hidden));
  if (!run.logits_stay) {
    gemm_bytes =
        std::max(gemm_bytes, gemm.scratch_bytes(grid.tile_rows, grid.vocab_tile, grid.hidden_size, hidden, weight));
  }
  threads.resize(static_cast<size_t>(run.plan.threads));
  for (PerThread& thread : threads) {
    thread.gemm = arena.take_bytes(gemm_bytes);
    thread.row = arena.take<Logit>((std::is_same_v<Logit, Gradient> ? 1 : 2) * grid.vocab_tile);
    if (run.scatter && outputs.wants_d_hidden() && !run.hidden_apart) {
      thread.scatter = arena.take<Sum>(grid.row_tile * grid.hidden_block);
    }
  }
  if (!run.logits_stay) {
    slots.resize(static_cast<size_t>(run.plan.tiles_alive));
    for (Slot& slot : slots) {
      slot.tile = arena.take<Logit>(tile_elements(run));
      if (run.gather) slot.gathered = take_hidden_rows(arena, problem, grid.tile_rows);
    }
    packed = PackedHidden(arena, run);
  } else if (run.gather) {
    gathered = take_hidden_rows(arena, problem, run.plan.chunk_rows);
  }
  gradients = arena.take<kernels::RowGradient<Logit>>(run.plan.chunk_rows);
  picks = arena.take<kernels::PickGradient<Logit>>(most_picks(problem, run));
  if (run.hidden_apart) d_hidden = arena.take<Sum>(run.plan.chunk_rows * grid.hidden_size);
  if (needs_weight_tiles<Sum>(outputs)) {
    for (Sum*& tile : d_weight) tile = arena.take<Sum>(grid.vocab_tile * grid.hidden_size);
  }
}

template <class Logit>
const Logit* widened_bias(core::Arena& arena, const kernels::RowKernels* kernels, const HiddenProblem& problem) {
  const ConstVector& bias = problem.head.bias;
  if (!bias.data || bias.dtype == DTypeOf<Logit>::value) return static_cast<const Logit*>(bias.data);
  Logit* out = arena.take<Logit>(bias.size);
  if constexpr (sizeof(Logit) == 4) {
    if (kernels) kernels->widen(bias.data, bias.dtype, bias.size, out);
  }
  return out;
}

template <class Sum>
Sum* take_bias_sums(core::Arena& arena, const HiddenProblem& problem, const Gradients& outputs) {
  if (!is_rounded<Sum>(outputs.d_bias)) return nullptr;
  return arena.take<Sum>(problem.entries);
}

template <class Logit>
Logit* take_chunk(core::Arena& arena, const RunPlan& run) {
  return arena.take<Logit>(run.chunk_tile_rows * run.grid.vocab_tiles() * run.grid.tile_stride);
}

template <class Types>
DenseBuffers<Types>::DenseBuffers(core::Arena& arena, const gemm::Backend& gemm, const HiddenProblem& problem,
                                  DType gradient, int threads, const Gradients& outputs) {
  using Sum = typename Types::Sum;
  const DType x = problem.hidden.dtype, w = problem.head.weight.dtype;
  const int64_t n = problem.tokens, h = problem.hidden_size, v = problem.vocab_size;
  logits = arena.take<typename Types::Logit>(n * v);
  const auto product = [&](int64_t rows, int64_t columns, int64_t depth, DType a, DType b) {
    return gemm.parallel_scratch_bytes(rows, columns, depth, a, b, threads);
  };
  this->gemm = arena.take_bytes(std::max({product(n, v, h, x, w), product(n, h, v, gradient, w),
                                          product(v, h, n, gradient, x), product(h, v, n, x, gradient)}));
  int64_t elements = 0;
  const auto sum_apart = [&](bool apart, int64_t count) { elements = apart ? std::max(elements, count) : elements; };
  sum_apart(outputs.wants_d_hidden() && (is_rounded<Sum>(outputs.d_hidden) || !d_hidden_is_matrix(problem, outputs)),
            n * h);
  sum_apart(needs_weight_tiles<Sum>(outputs), std::min(v, kDenseWeightTile) * h);
  sum_apart(is_rounded<Sum>(outputs.d_bias), v);
  sums = arena.take<Sum>(elements);
  if (!hidden_is_matrix(problem)) gathered = take_hidden_rows(arena, problem, n);
}

template <class Types>
typename stats::RowWalk<Types>::Room dense_room(DType gradient, int threads) {
  return {threads, stats::kRowColumns, core::is_narrow<typename Types::Logit>(gradient)};
}

template <class Types>
typename stats::RowWalk<Types>::Room sweep_room(const LogitsProblem& problem, const SweepPlan& run) {
  return {run.plan.threads, run.plan.vocab_tile, core::is_narrow<typename Types::Logit>(problem.dtype)};
}

namespace {

// Calls `measure(arena)` with an arena that only measures, and returns its peak.
template <class Measure>
size_t measured(const Measure& measure) {
  core::Arena arena;
  measure(arena);
  return arena.peak();
}

}  // namespace

size_t measure_run(const HiddenProblem& problem, const Work& work, const RunPlan& run, const Gradients& outputs) {
  return measured([&](core::Arena& arena) {
    stats::with_gradient_types(problem, run.gradient_terms, [&](auto types) {
      using Types = decltype(types);
      widened_bias<typename Types::Logit>(arena, nullptr, problem);
      if (work.backward) take_bias_sums<typename Types::Sum>(arena, problem, outputs);
      if (run.logits_stay) take_chunk<typename Types::Logit>(arena, run);
      const size_t mark = arena.mark();
      if (work.forward) {
        stats::CallFolds<Types> folds(problem, nullptr);
        ForwardBuffers<Types>(arena, problem, run, folds);
      }
      arena.rewind(mark);
      if (work.backward) BackwardBuffers<Types>(arena, problem, run, outputs);
    });
  });
}

size_t measure_dense(const gemm::Backend& gemm, const HiddenProblem& problem, DType gradient, int threads,
                     const Gradients& outputs) {
  return measured([&](core::Arena& arena) {
    stats::with_tile_types(problem, [&](auto types) {
      using Types = decltype(types);
      DenseBuffers<Types>(arena, gemm, problem, gradient, threads, outputs);
      stats::RowWalk<Types>(problem, nullptr, nullptr, arena, dense_room<Types>(gradient, threads));
      widened_bias<typename Types::Logit>(arena, nullptr, problem);
    });
  });
}

size_t measure_sweep(const LogitsProblem& problem, const SweepPlan& run) {
  return measured([&](core::Arena& arena) {
    stats::with_tile_types(problem, [&](auto types) {
      using Types = decltype(types);
      stats::RowWalk<Types>(problem, nullptr, nullptr, arena, sweep_room<Types>(problem, run));
    });
  });
}

#define LOGITLESS_INSTANTIATE(Types)                                                                         \
  template struct ForwardBuffers<Types>;                                                                     \
  template struct BackwardBuffers<Types>;                                                                    \
  template struct DenseBuffers<Types>;                                                                       \
  template const Types::Logit* widened_bias(core::Arena&, const kernels::RowKernels*, const HiddenProblem&); \
  template Types::Sum* take_bias_sums(core::Arena&, const HiddenProblem&, const Gradients&);                 \
  template Types::Logit* take_chunk(core::Arena&, const RunPlan&);                                           \
  template stats::RowWalk<Types>::Room dense_room<Types>(DType, int);                                        \
  template stats::RowWalk<Types>::Room sweep_room<Types>(const LogitsProblem&, const SweepPlan&);
LOGITLESS_INSTANTIATE(kernels::FloatTiles)
LOGITLESS_INSTANTIATE(kernels::DoubleTiles)
#undef LOGITLESS_INSTANTIATE
template struct ForwardBuffers<kernels::BFloat16Tiles>;
template struct BackwardBuffers<kernels::BFloat16Tiles>;

}  // namespace logitless::plan

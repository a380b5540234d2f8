// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "plan/buffers.h"

#include <algorithm>
#include <type_traits>

#include "core/store.h"

namespace logitless::plan {
namespace {

int64_t tile_elements(const RunPlan& run) { return run.grid.tile_rows * run.grid.tile_stride; }

// Returns what tells the scratch of a product on one thread.
auto scratch_of(const gemm::Backend& gemm) {
  return [&gemm](const source::ProductShape& p) { return gemm.scratch_bytes(p.m, p.n, p.k, p.a, p.b); };
}

}  // namespace

source::PartSizes part_sizes(const TileGrid& grid) {
  return {grid.row_tile, grid.vocab_tile, grid.hidden_block, grid.weight_block};
}

template <class Types>
ForwardBuffers<Types>::ForwardBuffers(core::Arena& arena, const HiddenProblem& problem, const Source& source,
                                      const RunPlan& run) {
  const TileGrid& grid = run.grid;
  const size_t gemm_bytes = source.most_of_logits(grid.tile_rows, grid.vocab_tile, scratch_of(*run.gemm));
  threads.resize(static_cast<size_t>(run.plan.threads));
  for (PerThread& thread : threads) {
    if (!run.logits_stay) thread.tile = arena.take<Logit>(tile_elements(run));
    if (run.gather) thread.gathered = source.take_room(arena, grid.tile_rows);
    thread.products = source.take_scratch(arena, gemm_bytes, grid.vocab_tile);
    thread.fold.row = arena.take<Logit>(grid.vocab_tile);
    thread.fold.target = arena.take<int32_t>(grid.row_tile);
    thread.fold.inverse_temperature = arena.take<Logit>(grid.row_tile);
    if (problem.request.rank) {
      thread.chosen = arena.take<Logit>(grid.row_tile);
      thread.above = arena.take<int64_t>(grid.row_tile);
    }
  }
  partials = arena.take<kernels::RowStats>(run.plan.chunk_rows * grid.segments);
  packed = source::PackedStates(arena, run.plan.packed_bytes);
}

template <class Types>
BackwardBuffers<Types>::BackwardBuffers(core::Arena& arena, const Source& source, const RunPlan& run,
                                        const Gradients& outputs) {
  const TileGrid& grid = run.grid;
  size_t gemm_bytes = source.most_of_gradients(part_sizes(grid), DTypeOf<Gradient>::value, scratch_of(*run.gemm));
  if (!run.logits_stay) {
    gemm_bytes = std::max(gemm_bytes, source.most_of_logits(grid.tile_rows, grid.vocab_tile, scratch_of(*run.gemm)));
  }
  threads.resize(static_cast<size_t>(run.plan.threads));
  for (PerThread& thread : threads) {
    thread.products = source.take_scratch(arena, gemm_bytes, grid.vocab_tile);
    thread.row = arena.take<Logit>((std::is_same_v<Logit, Gradient> ? 1 : 2) * grid.vocab_tile);
    thread.gradients = arena.take<kernels::RowGradient<Logit>>(grid.row_tile);
    if (run.scatter && outputs.wants_d_hidden() && !run.hidden_apart) {
      thread.scatter = arena.take<Sum>(grid.row_tile * grid.hidden_block);
    }
  }
  if (!run.logits_stay) {
    slots.resize(static_cast<size_t>(run.plan.tiles_alive));
    for (Slot& slot : slots) {
      slot.tile = arena.take<Logit>(tile_elements(run));
      if (run.gather) slot.gathered = source.take_room(arena, grid.tile_rows);
    }
    packed = source::PackedStates(arena, run.plan.packed_bytes);
  } else if (run.gather) {
    gathered = source.take_room(arena, run.plan.chunk_rows);
  }
  gradients = arena.take<kernels::RowGradient<Logit>>(run.plan.chunk_rows);
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
                                  const Source& source, DType gradient, int threads, const Gradients& outputs) {
  using Sum = typename Types::Sum;
  const int64_t n = problem.tokens, h = problem.hidden_size, v = problem.vocab_size;
  logits = arena.take<typename Types::Logit>(n * v);
  const auto bytes = [&](const source::ProductShape& p) {
    return gemm.parallel_scratch_bytes(p.m, p.n, p.k, p.a, p.b, threads);
  };
  const size_t gemm_bytes =
      std::max(source.most_of_logits(n, v, bytes), source.most_of_gradients({n, v, h, h}, gradient, bytes));
  products = source.take_scratch(arena, gemm_bytes, v);
  scratch.resize(static_cast<size_t>(threads));
  const bool narrow = core::is_narrow<typename Types::Logit>(gradient);
  for (auto& one : scratch) one = stats::RowWalk<Types>::take_scratch(arena, stats::kRowColumns, narrow);
  int64_t elements = 0;
  const auto sum_apart = [&](bool apart, int64_t count) { elements = apart ? std::max(elements, count) : elements; };
  sum_apart(outputs.wants_d_hidden() && (is_rounded<Sum>(outputs.d_hidden) || !d_hidden_is_matrix(problem, outputs)),
            n * h);
  sum_apart(needs_weight_tiles<Sum>(outputs), std::min(v, kDenseWeightTile) * h);
  sum_apart(is_rounded<Sum>(outputs.d_bias), v);
  sums = arena.take<Sum>(elements);
  if (!source.is_matrix()) gathered = source.take_room(arena, n);
}

template <class Types>
core::Array<typename stats::RowWalk<Types>::Scratch> take_sweep(core::Arena& arena, const LogitsProblem& problem,
                                                                const SweepPlan& run) {
  core::Array<typename stats::RowWalk<Types>::Scratch> scratch(static_cast<size_t>(run.plan.threads));
  const bool narrow = core::is_narrow<typename Types::Logit>(problem.dtype);
  for (auto& one : scratch) one = stats::RowWalk<Types>::take_scratch(arena, run.plan.vocab_tile, narrow);
  return scratch;
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

size_t measure_run(const HiddenProblem& problem, const Source& source, const Work& work, const RunPlan& run,
                   const Gradients& outputs) {
  return measured([&](core::Arena& arena) {
    stats::with_gradient_types(problem, run.gradient_terms, [&](auto types) {
      using Types = decltype(types);
      widened_bias<typename Types::Logit>(arena, nullptr, problem);
      if (work.backward) take_bias_sums<typename Types::Sum>(arena, problem, outputs);
      if (run.logits_stay) take_chunk<typename Types::Logit>(arena, run);
      const size_t mark = arena.mark();
      if (work.forward) ForwardBuffers<Types>(arena, problem, source, run);
      arena.rewind(mark);
      if (work.backward) BackwardBuffers<Types>(arena, source, run, outputs);
    });
  });
}

size_t measure_dense(const gemm::Backend& gemm, const HiddenProblem& problem, const Source& source, DType gradient,
                     int threads, const Gradients& outputs) {
  return measured([&](core::Arena& arena) {
    stats::with_tile_types(problem, [&](auto types) {
      using Types = decltype(types);
      DenseBuffers<Types>(arena, gemm, problem, source, gradient, threads, outputs);
      widened_bias<typename Types::Logit>(arena, nullptr, problem);
    });
  });
}

size_t measure_sweep(const LogitsProblem& problem, const SweepPlan& run) {
  return measured([&](core::Arena& arena) {
    stats::with_tile_types(problem, [&](auto types) { take_sweep<decltype(types)>(arena, problem, run); });
  });
}

#define LOGITLESS_INSTANTIATE(Types)                                                                         \
  template struct ForwardBuffers<Types>;                                                                     \
  template struct BackwardBuffers<Types>;                                                                    \
  template struct DenseBuffers<Types>;                                                                       \
  template const Types::Logit* widened_bias(core::Arena&, const kernels::RowKernels*, const HiddenProblem&); \
  template Types::Sum* take_bias_sums(core::Arena&, const HiddenProblem&, const Gradients&);                 \
  template Types::Logit* take_chunk(core::Arena&, const RunPlan&);                                           \
  template core::Array<stats::RowWalk<Types>::Scratch> take_sweep<Types>(core::Arena&, const LogitsProblem&, \
                                                                         const SweepPlan&);
LOGITLESS_INSTANTIATE(kernels::FloatTiles)
LOGITLESS_INSTANTIATE(kernels::DoubleTiles)
#undef LOGITLESS_INSTANTIATE
template struct ForwardBuffers<kernels::BFloat16Tiles>;
template struct BackwardBuffers<kernels::BFloat16Tiles>;

}  // namespace logitless::plan

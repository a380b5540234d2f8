// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "planning/buffers.h"

#include <algorithm>
#include <optional>
#include <type_traits>

#include "core/integers.h"
#include "core/store.h"
#include "core/views.h"
#include "sink/call_sinks.h"
#include "sink/weight_sink.h"

namespace logitless::planning {
namespace {

// Returns the elements of a tile, over all sides.
int64_t tile_elements(const Source& source, const RunPlan& run) {
  return source.sides() * run.grid.tile_rows * run.grid.tile_stride;
}

// Returns the largest number of picks in a chunk.
int64_t most_picks(const problem::TokenProblem& problem, const RunPlan& run) {
  if (problem.picks.offsets.empty()) return problem.picks.ids.empty() ? 0 : run.plan.chunk_rows;
  int64_t most = 0;
  for (int64_t chunk = 0; chunk < run.chunk_count(); ++chunk) {
    int64_t picks = 0;
    for (const int64_t row : run.rows_of(chunk)) picks += problem.pick_end(row) - problem.pick_begin(row);
    most = std::max(most, picks);
  }
  return most;
}

// Returns the columns of the widest states: the hidden states, or a LoRA's states if its rank is larger.
int64_t widest_states(const Source& source) {
  int64_t most = 0;
  for (const source::Product& product : source.differentiated()) most = std::max(most, product.states.cols());
  return most;
}

// Returns a function for the scratch bytes of a product on one thread.
auto scratch_of(const gemm::Backend& gemm) {
  return [&gemm](const source::ProductShape& p) { return gemm.scratch_bytes(p.m, p.n, p.k, p.a, p.b); };
}

}  // namespace

source::PartSizes part_sizes(const TileGrid& grid) {
  return {grid.row_tile, grid.vocab_tile, grid.hidden_block, grid.weight_block};
}

sink::Sizes sink_sizes(const RunPlan& run) {
  sink::Sizes sizes;
  sizes.part = part_sizes(run.grid);
  sizes.rows = run.plan.chunk_rows;
  sizes.entries = run.grid.vocab_size;
  sizes.threads = run.plan.threads;
  sizes.weight_tiles = kWeightTiles;
  sizes.weight_apart = run.weight_apart;
  sizes.keeps_residuals = run.keeps_residuals();
  sizes.hidden_apart = run.hidden_apart;
  sizes.scatter = run.scatter;
  sizes.states_elsewhere = run.expected_rows != ExpectedRowsIn::kNone;
  return sizes;
}

template <class Types>
ForwardBuffers<Types>::ForwardBuffers(core::Arena& arena, const Source& source, const RunPlan& run,
                                      fold::CallFolds<Types>& folds) {
  const TileGrid& grid = run.grid;
  const size_t gemm_bytes = source.most_of_logits(grid.tile_rows, grid.vocab_tile, scratch_of(*run.gemm));
  threads.resize(static_cast<size_t>(run.plan.threads));
  for (PerThread& thread : threads) {
    if (!run.logits_stay) thread.tile = arena.take<Logit>(tile_elements(source, run));
    if (run.gather) thread.gathered = source.take_room(arena, grid.tile_rows);
    thread.products = source.take_scratch(arena, gemm_bytes, grid.vocab_tile);
    thread.row = arena.take<Logit>(source.sides() * grid.vocab_tile);
  }
  folds.take(arena, run.plan.chunk_rows, grid.stretches, {run.plan.threads, grid.row_tile, grid.vocab_tile});
  reordered = source::ReorderedStates(arena, run.plan.packed_bytes);
}

template <class Types>
BackwardBuffers<Types>::BackwardBuffers(core::Arena& arena, const problem::TokenProblem& problem, const Source& source,
                                        const RunPlan& run) {
  const TileGrid& grid = run.grid;
  size_t gemm_bytes = source.most_of_gradients(part_sizes(grid), DTypeOf<Gradient>::value, scratch_of(*run.gemm));
  if (!run.logits_stay) {
    gemm_bytes = std::max(gemm_bytes, source.most_of_logits(grid.tile_rows, grid.vocab_tile, scratch_of(*run.gemm)));
  }
  threads.resize(static_cast<size_t>(run.plan.threads));
  for (PerThread& thread : threads) {
    thread.products = source.take_scratch(arena, gemm_bytes, grid.vocab_tile);
    const int64_t tiles = problem.divergence ? 3 : std::is_same_v<Logit, Gradient> ? 1 : 2;
    thread.row = arena.take<Logit>(tiles * grid.vocab_tile);
  }
  if (!run.logits_stay) {
    slots.resize(static_cast<size_t>(run.plan.tiles_alive));
    for (Slot& slot : slots) {
      slot.tile = arena.take<Logit>(tile_elements(source, run));
      if (run.gather) slot.gathered = source.take_room(arena, grid.tile_rows);
    }
    reordered = source::ReorderedStates(arena, run.plan.packed_bytes);
  } else if (run.gather) {
    gathered = source.take_room(arena, run.plan.chunk_rows);
  }
  if (run.keeps_residuals()) {
    int64_t tiles = static_cast<int64_t>(slots.size());
    for (int64_t chunk = 0; run.logits_stay && chunk < run.chunk_count(); ++chunk) {
      tiles = std::max(tiles, static_cast<int64_t>(run.blocks_of(chunk).size()) * grid.vocab_tiles());
    }
    row_residuals = arena.take<float>(tiles * grid.row_tile);
    column_residuals = arena.take<float>(tiles * grid.vocab_tile);
    entry_weights = arena.take<bfloat16>(tiles * grid.vocab_tile);
    for (PerThread& thread : threads) thread.sizes = arena.take<float>(grid.vocab_tile);
  }
  gradients = arena.take<kernels::RowGradient<Logit>>(run.plan.chunk_rows);
  picks = arena.take<kernels::PickGradient<Logit>>(most_picks(problem, run));
  if (problem.divergence) divergences = arena.take<kernels::RowDivergence<Logit>>(run.plan.chunk_rows);
}

template <class Types>
ExpectedSums<Types>::ExpectedSums(core::Arena& arena, const kernels::RowKernels& kernels, const HiddenProblem& problem,
                                  const Source& source, const RunPlan& run, const GradientMatrices& outputs)
    : max(arena.take<double>(run.plan.chunk_rows)) {
  const bool in_hidden = run.expected_rows == ExpectedRowsIn::kHidden;
  const sink::Sizes sizes = sink_sizes(run);
  for (const source::Product& product : source.differentiated()) {
    const bool of_head = count == 0;
    const problem::Rows<Matrix> out =
        in_hidden && of_head
            ? problem::d_hidden_rows(problem, outputs)
            : problem::matrix_rows(Matrix(nullptr, DTypeOf<Sum>::value, problem.tokens, product.states.cols()));
    sink::HiddenSink<Sum>& sink =
        of_product.at(count).emplace(kernels, product.head, out, WriteMode::kOverwrite,
                                     in_hidden && !of_head ? sink::with_sums_apart(sizes) : sizes);
    sink.take_lasting(arena);
    sink.take(arena);
    all.at(count++) = &sink;
  }
}

template <class Types>
ExpectedBuffers<Types>::ExpectedBuffers(core::Arena& arena, const problem::TokenProblem& problem, const Source& source,
                                        const RunPlan& run, fold::CallFolds<Types>& folds)
    : BackwardBuffers<Types>(arena, problem, source, run) {
  row_scales = arena.take<double>(run.plan.tiles_alive * run.grid.row_tile);
  // Each row block is a part whose tiles several threads may fold, one after the other.
  const auto parts = static_cast<int64_t>(run.blocks.blocks.size());
  folds.take(arena, run.plan.chunk_rows, 1, {parts, run.grid.row_tile, run.grid.vocab_tile});
}

template <class Sum>
SettleBuffers<Sum>::SettleBuffers(core::Arena& arena, const sink::SinkInputs& inputs, const GradientMatrices& outputs,
                                  const RunPlan& run)
    : threads(static_cast<size_t>(run.plan.threads)) {
  const HiddenProblem& problem = inputs.problem;
  const int64_t most = widest_states(inputs.source), width = inputs.source.width();
  for (PerThread& thread : threads) {
    thread.total = arena.take<double>(width);
    thread.sums = arena.take<Sum>(width);
    thread.entry = arena.take<Sum>(width);
    if (problem.head.softcap > 0) thread.states = arena.take<Sum>(most);
    thread.stored = static_cast<std::byte*>(arena.take_bytes(static_cast<size_t>(most) * sizeof(double)));
    thread.picks = arena.take<kernels::PickGradient<double>>(problem.most_picks());
  }
  if (problem.request.cross) mean = arena.take<double>((1 + kMeanParts) * width);
  if (!outputs.d_lora_a.data) return;
  lora_states = arena.take<Sum>(run.plan.chunk_rows * problem.head.lora.rank());
  behind.emplace(inputs.kernels, inputs.gemm, problem, outputs, run.plan.threads);
  behind->take_lasting(arena);
  behind->take(arena);
}

int64_t pilot_pairs(int64_t rows, int64_t segments) {
  constexpr int64_t kShare = 100, kLeast = 4096;
  return std::max(rows * segments / kShare, kLeast);
}

sink::Sizes segment_sink_sizes(const RunPlan& run) {
  sink::Sizes sizes = sink_sizes(run);
  sizes.part = {kPartRows, kernels::kSegment, kHiddenColumns, run.grid.hidden_size};
  sizes.weight_tiles = kWaveSegments;
  sizes.keeps_residuals = false;
  sizes.scatter = false;
  return sizes;
}

template <class Types>
SegmentBuffers<Types>::SegmentBuffers(core::Arena& arena, const problem::TokenProblem& problem, const Source& source,
                                      const RunPlan& run, bool by_noise) {
  const int64_t rows = run.plan.chunk_rows, h = source.hidden_size();
  const int64_t segments = core::div_up(run.grid.vocab_size, kernels::kSegment);
  // The products of a pass, and those of d_hidden with more rows, because few rows may use a backend of their
  // own.
  const int64_t some = std::max<int64_t>(rows, 1), part = std::min(kPartRows, some);
  source::PartSizes sizes = segment_sink_sizes(run).part;
  sizes.rows = std::min(std::max(kPartRows, kHiddenRows), some);
  const DType gradient = DTypeOf<typename Types::Gradient>::value;
  size_t gemm_bytes = std::max(source.most_of_logits(part, kernels::kSegment, scratch_of(*run.gemm)),
                               source.most_of_gradients(sizes, gradient, scratch_of(*run.gemm)));
  if (by_noise) {
    // A pilot's part of d_weight has one row per vocabulary entry in every layout.
    gemm_bytes =
        std::max(gemm_bytes, scratch_of(*run.gemm)({kernels::kSegment, h, part, gradient, source.states_type()}));
  }
  const int64_t states = widest_states(source);
  threads.resize(static_cast<size_t>(run.plan.threads));
  for (PerThread& thread : threads) {
    thread.gathered = source.take_room(arena, kPartRows);
    thread.products = source.take_scratch(arena, gemm_bytes, kernels::kSegment);
    thread.logits = arena.take<Logit>(source.sides() * kPartRows * kernels::kSegment);
    thread.row = arena.take<Logit>(3 * kernels::kSegment);
    thread.gradients = arena.take<kernels::RowGradient<Logit>>(kPartRows);
    if (problem.divergence) thread.divergences = arena.take<kernels::RowDivergence<Logit>>(kPartRows);
    thread.rows = arena.take<int64_t>(kPartRows);
    thread.sums = arena.take<Sum>(kHiddenRows * std::min(kHiddenColumns, states));
    if (!by_noise) continue;
    thread.weights = arena.take<Sum>(kernels::kSegment * h);
    thread.states = arena.take<Sum>(h);
  }
  gradients = arena.take<kernels::RowGradient<Logit>>(rows);
  if (problem.divergence) divergences = arena.take<kernels::RowDivergence<Logit>>(rows);
  picks = arena.take<kernels::PickGradient<Logit>>(most_picks(problem, run));
  wave_rows = std::max(rows, std::min(kWaveRows, kWaveSegments * rows));
  tiles = arena.take<Gradient>(std::max(run.gradient_terms, 1) * wave_rows * kernels::kSegment);
  items = arena.take<int32_t>(wave_rows);
  weights = arena.take<float>(wave_rows);
  if (!by_noise) return;
  pilot_weights = arena.take<float>(std::max(kPilotRows * segments, rows * kPilotSegments));
  pilot_sums = arena.take<Sum>((1 + kPilotLevels) * kPilotRows * h);
  tile_squares = arena.take<double>(wave_rows);
  state_squares = arena.take<double>(wave_rows);
  hidden_squares = arena.take<double>(core::div_up(h, kHiddenColumns) * wave_rows);
}

template <class Logit>
stats::HeadShape<Logit> head_shape(core::Arena& arena, const kernels::RowKernels* kernels, const HeadMatrices& head) {
  const ConstVector& bias = head.bias;
  if (!bias.data || bias.dtype == DTypeOf<Logit>::value) return {static_cast<const Logit*>(bias.data), head.softcap};
  Logit* out = arena.take<Logit>(bias.size);
  if constexpr (sizeof(Logit) == 4) {
    if (kernels) kernels->widen(bias.data, bias.dtype, bias.size, out);
  }
  return {out, head.softcap};
}

template <class Logit>
Logit* take_chunk(core::Arena& arena, const Source& source, const RunPlan& run) {
  return arena.take<Logit>(source.sides() * run.chunk_tile_rows * run.grid.vocab_tiles() * run.grid.tile_stride);
}

template <class Types>
typename fold::RowWalk<Types>::Sizes sweep_sizes(const LogitsProblem& problem, const SweepPlan& run) {
  const auto is_narrow = [](DType dtype) { return core::is_narrow<typename Types::Logit>(dtype); };
  return {run.plan.threads, run.plan.vocab_tile, is_narrow(problem.dtype),
          problem.teacher_logits && is_narrow(problem.teacher_logits->dtype)};
}

namespace {

// Calls `measure(arena)` with a measuring arena, and returns its peak.
template <class Measure>
size_t measured(const Measure& measure) {
  core::Arena arena;
  measure(arena);
  return arena.peak();
}

}  // namespace

size_t measure_run(const detail::ContextState& context, const HiddenProblem& problem, const Source& source,
                   const Work& work, const RunPlan& run, const GradientMatrices& outputs) {
  return measured([&](core::Arena& arena) {
    stats::with_gradient_types(problem, run.gradient_terms, [&](auto types) {
      using Types = decltype(types);
      using Sum = typename Types::Sum;
      std::optional<sink::CallSinks<Sum>> of_call;
      if (work.backward) {
        of_call.emplace(sink::SinkInputs{*context.kernels, *run.gemm, problem, source}, outputs, sink_sizes(run));
      }
      const sink::Sinks<Sum> sinks = of_call ? of_call->all() : sink::Sinks<Sum>();
      source::LoraStates(arena, problem, {*context.kernels, *run.gemm, run.plan.threads});
      head_shape<typename Types::Logit>(arena, nullptr, problem.head);
      teacher_shape<typename Types::Logit>(arena, nullptr, problem);
      for (sink::Sink<Sum>* sink : sinks) sink->take_lasting(arena);
      if (run.logits_stay) take_chunk<typename Types::Logit>(arena, source, run);
      if (run.chooses_segments) {
        fold::CallMasses().take(arena, problem, run.plan.chunk_rows, run.grid.vocab_size, run.grid.vocab_tile);
      }
      if (run.sums_expected_rows()) ExpectedSums<Types>(arena, *context.kernels, problem, source, run, outputs);
      const size_t mark = arena.mark();
      if (work.forward || run.chooses_segments) {
        fold::CallFolds<Types> folds({problem, nullptr, &source, run.gemm});
        const bool sums = run.sums_expected_rows();
        if (sums) ExpectedBuffers<Types>(arena, problem, source, run, folds);
        arena.rewind(mark);
        if (!sums || !folds.of(fold::Walk::kSecond).empty()) ForwardBuffers<Types>(arena, source, run, folds);
      }
      arena.rewind(mark);
      if (work.backward && run.expected_rows != ExpectedRowsIn::kNone) {
        SettleBuffers<Sum>(arena, {*context.kernels, *run.gemm, problem, source}, outputs, run);
        arena.rewind(mark);
        if (sinks.empty()) return;
      }
      if (work.backward && run.chooses_segments) {
        const bool by_noise = is_by_noise(outputs.backward);
        SegmentBuffers<Types>(arena, problem, source, run, by_noise);
        const sink::CallSinks<Sum> of_segments({*context.kernels, *run.gemm, problem, source}, outputs,
                                               segment_sink_sizes(run));
        for (sink::Sink<Sum>* sink : of_segments.all()) {
          sink->take_lasting(arena);
          sink->take(arena);
        }
        arena.rewind(mark);
      }
      if (work.backward) BackwardBuffers<Types>(arena, problem, source, run);
      for (sink::Sink<Sum>* sink : sinks) sink->take(arena);
    });
  });
}

size_t measure_sweep(const LogitsProblem& problem, const SweepPlan& run) {
  return measured([&](core::Arena& arena) {
    stats::with_tile_types(problem, [&](auto types) {
      using Types = decltype(types);
      const fold::RowWalk<Types> walk({problem}, source::GivenLogits(), {}, arena, sweep_sizes<Types>(problem, run));
    });
  });
}

#define LOGITLESS_INSTANTIATE(Types)                                                                                 \
  template struct ForwardBuffers<Types>;                                                                             \
  template struct BackwardBuffers<Types>;                                                                            \
  template stats::HeadShape<Types::Logit> head_shape(core::Arena&, const kernels::RowKernels*, const HeadMatrices&); \
  template Types::Logit* take_chunk(core::Arena&, const Source&, const RunPlan&);                                    \
  template fold::RowWalk<Types>::Sizes sweep_sizes<Types>(const LogitsProblem&, const SweepPlan&);
LOGITLESS_INSTANTIATE(kernels::FloatTiles)
LOGITLESS_INSTANTIATE(kernels::DoubleTiles)
#undef LOGITLESS_INSTANTIATE
template struct ForwardBuffers<kernels::BFloat16Tiles>;
template struct BackwardBuffers<kernels::BFloat16Tiles>;
#define LOGITLESS_INSTANTIATE(Types)   \
  template struct ExpectedSums<Types>; \
  template struct ExpectedBuffers<Types>;
LOGITLESS_INSTANTIATE(kernels::FloatTiles)
LOGITLESS_INSTANTIATE(kernels::DoubleTiles)
LOGITLESS_INSTANTIATE(kernels::BFloat16Tiles)
#undef LOGITLESS_INSTANTIATE
template struct SegmentBuffers<kernels::FloatTiles>;
template struct SegmentBuffers<kernels::DoubleTiles>;
template struct SegmentBuffers<kernels::BFloat16Tiles>;
template struct SettleBuffers<float>;
template struct SettleBuffers<double>;

}  // namespace logitless::planning

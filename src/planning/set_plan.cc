// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "planning/set_plan.h"

#include <algorithm>

#include "core/checks.h"
#include "core/views.h"
#include "sink/lora_sink.h"
#include "stats/tile_kernels.h"

namespace logitless::planning {
namespace {

size_t measure(const detail::ContextState& context, const problem::HiddenProblem& problem, const Work& work,
               const GradientMatrices& outputs, int team) {
  return stats::with_tile_types(problem, [&](auto types) {
    using T = typename decltype(types)::Sum;
    core::Arena arena;
    const fold::SetRows<T> rows(*context.kernels, problem, problem.head.bias, problem.head.softcap);
    source::LoraStates(arena, problem, {*context.kernels, *context.gemm, team});
    SetBuffers<T>(arena, problem, source::Source(problem), work, outputs, rows, team);
    if (sink::needs_lora_states(problem, outputs)) {
      sink::BehindLora<T> behind(*context.kernels, *context.gemm, problem, outputs, team);
      behind.take_lasting(arena);
      behind.take(arena);
    }
    return arena.peak();
  });
}

size_t measure(const detail::ContextState& context, const problem::LogitsProblem& problem, int team) {
  return stats::with_tile_types(problem, [&](auto types) {
    using T = typename decltype(types)::Sum;
    core::Arena arena;
    SetLogitsBuffers<T>(arena, problem, fold::SetRows<T>(*context.kernels, problem, {}, 0), team);
    return arena.peak();
  });
}

// Plans with as many threads as the budget allows; measure(team) returns the workspace of `team` threads.
template <class Measure>
Plan make_plan(const detail::ContextState& context, int threads, const problem::TokenProblem& problem, const Work& work,
               const Measure& measure) {
  if (context.options.plan == PlanKind::kExpectedRow && work.forward && work.backward) {
    core::fail("plan = expected_row cannot run: probabilities that sum to 1 over a set walk no vocabulary");
  }
  Plan plan;
  plan.kind = !work.backward ? PlanKind::kForwardOnly : PlanKind::kTwoPass;
  plan.tokens = problem.tokens;
  plan.active_rows = plan.chunk_rows = static_cast<int64_t>(problem.active().size());
  plan.vocab_size = problem.vocab_size;
  plan.gradient_dtype = problem.sum_type();
  plan.tiles_alive = 0;
  const size_t budget = context.options.workspace_bytes;
  for (plan.threads = threads;; --plan.threads) {
    plan.workspace_bytes = measure(plan.threads);
    if (plan.workspace_bytes <= budget) return plan;
    if (plan.threads == 1) break;
  }
  core::fail("workspace_bytes = ", budget, " is too small: probabilities over sets of token ids need at least ",
             plan.workspace_bytes, " bytes");
}

}  // namespace

template <class T>
SetBuffers<T>::SetBuffers(core::Arena& arena, const problem::HiddenProblem& problem, const source::Source& source,
                          const Work& work, const GradientMatrices& outputs, const fold::SetRows<T>& rows, int team)
    : threads(static_cast<size_t>(team)) {
  const int64_t most = problem.most_picks();
  int64_t widest = 0;
  size_t row_bytes = 0;
  bool narrow = false;
  for (const source::Product& p : source.products()) {
    const int64_t cols = p.states.cols();
    widest = std::max(widest, cols);
    row_bytes =
        std::max(row_bytes, static_cast<size_t>(cols) * std::max(size_of(p.states.dtype()), size_of(p.head.dtype())));
    narrow |= core::is_narrow<T>(p.states.dtype());
  }
  if (work.backward) {
    gradients = arena.take<T>(problem.pick_entries());
    if (outputs.d_weight.data || outputs.weight_sink || outputs.d_bias.data || outputs.d_lora_b.data) {
      offsets = arena.take<int64_t>(problem.vocab_size + 1);
      entries = arena.take<SetEntry>(problem.pick_entries());
    }
    if (outputs.d_bias.data) bias = arena.take<T>(problem.vocab_size);
    if (sink::needs_lora_states(problem, outputs)) {
      d_states = arena.take<T>(static_cast<int64_t>(problem.active().size()) * problem.head.lora.rank());
    }
  }
  for (PerThread& one : threads) {
    one.of_row = rows.take(arena, most);
    one.gathered = static_cast<std::byte*>(arena.take_bytes(static_cast<size_t>(kSetPart) * row_bytes));
    if (narrow) one.states = arena.take<T>(widest);
    one.products = arena.take<T>(most);
    if (!work.backward) continue;
    one.sums = arena.take<T>(widest);
    one.factors = arena.take<T>(kSetPart);
    if (outputs.d_weight.data || outputs.weight_sink || outputs.d_lora_b.data) {
      one.tile = arena.take<T>(kSetEntries * widest);
    }
  }
}

template <class T>
SetLogitsBuffers<T>::SetLogitsBuffers(core::Arena& arena, const problem::LogitsProblem& problem,
                                      const fold::SetRows<T>& rows, int team)
    : threads(static_cast<size_t>(team)) {
  const int64_t most = problem.most_picks();
  for (PerThread& one : threads) {
    one.of_row = rows.take(arena, most);
    one.values = arena.take<T>(most);
  }
}

template struct SetBuffers<float>;
template struct SetBuffers<double>;
template struct SetLogitsBuffers<float>;
template struct SetLogitsBuffers<double>;

Plan set_plan(const detail::ContextState& context, int threads, const problem::HiddenProblem& problem, const Work& work,
              const GradientMatrices& outputs) {
  Plan plan = make_plan(context, threads, problem, work,
                        [&](int team) { return measure(context, problem, work, outputs, team); });
  plan.hidden_size = plan.hidden_block = problem.hidden_size;
  plan.row_tile = 1;
  plan.vocab_tile = kSetPart;
  plan.gemm_library = "logitless";
  return plan;
}

Plan set_plan(const detail::ContextState& context, int threads, const problem::LogitsProblem& problem,
              const Work& work) {
  Plan plan = make_plan(context, threads, problem, work, [&](int team) { return measure(context, problem, team); });
  plan.row_block = 1;
  plan.vocab_tile = problem.most_picks();
  return plan;
}

size_t least_set_workspace(const detail::ContextState& context, const problem::HiddenProblem& problem, const Work& work,
                           const GradientMatrices& outputs) {
  return measure(context, problem, work, outputs, 1);
}
size_t least_set_workspace(const detail::ContextState& context, const problem::LogitsProblem& problem) {
  return measure(context, problem, 1);
}

}  // namespace logitless::planning

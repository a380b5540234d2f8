// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The plans of calls that compute one row at a time: finished logits, and rows over sets of token ids.
#include <algorithm>
#include <string_view>

#include "core/checks.h"
#include "fold/row_walk.h"
#include "planning/buffers.h"
#include "planning/planner.h"

namespace logitless::planning {
namespace {

// This many rows of finished logits are folded and turned into gradients in turn. They are few, because they
// are read again for their gradients and should still be in the core's cache then.
constexpr int64_t kRowsAtOnce = 4;

// Gives a plan the largest team whose workspace, measure(team), is within the budget. `needs` says in
// the error message what does not fit.
template <class Measure, class... Needs>
void set_team(const detail::ContextState& context, int threads, Plan& plan, const Measure& measure,
              const Needs&... needs) {
  const size_t budget = context.options.workspace_bytes;
  // The number of columns that a kernel gets at once affects bits, so only the team is reduced.
  for (plan.threads = threads;; --plan.threads) {
    plan.workspace_bytes = measure(plan.threads);
    if (plan.workspace_bytes <= budget) return;
    if (plan.threads == 1) break;
  }
  core::fail("workspace_bytes = ", budget, " is too small: ", needs..., " at least ", plan.workspace_bytes, " bytes");
}
constexpr std::string_view kSetsNeed = "probabilities over sets of token ids need";

// Makes a plan over sets, except for the team and the sizes of tiles.
Plan cut_sets(const detail::ContextState& context, const problem::TokenProblem& problem,
              const Computation& computation) {
  if (context.options.plan == PlanKind::kExpectedRow && computation.forward && computation.backward) {
    core::fail("plan = expected_row cannot run: probabilities over sets of token ids need no pass over the vocabulary");
  }
  Plan plan;
  plan.kind = !computation.backward ? PlanKind::kForwardOnly : PlanKind::kTwoPass;
  plan.tokens = problem.tokens;
  plan.active_rows = plan.chunk_rows = static_cast<int64_t>(problem.active().size());
  plan.vocab_size = problem.vocab_size;
  plan.gradient_dtype = problem.sum_type();
  plan.tiles_alive = 0;
  return plan;
}

// Makes a plan, except for the team.
LogitsPlan cut_logits(const detail::ContextState& context, const LogitsProblem& problem,
                      const Computation& computation) {
  LogitsPlan run;
  Plan& plan = run.plan;
  if (problem.over_picks) {
    plan = cut_sets(context, problem, computation);
    plan.row_block = 1;
    plan.vocab_tile = problem.most_picks();
    run.all_rows_at_once = true;
    return run;
  }
  const ContextOptions& options = context.options;
  const bool coupled = !computation.groups.empty();
  check_one_pass(options, computation);
  if (options.plan == PlanKind::kExpectedRow && computation.forward && computation.backward) {
    core::fail("plan = expected_row cannot run: finished logits have no head");
  }
  if (options.plan == PlanKind::kOnePass && coupled && computation.backward) {
    core::fail("plan = one_pass cannot run: the loss couples rows, so all rows are read before the first gradient");
  }
  run.all_rows_at_once = !computation.forward || coupled || options.plan == PlanKind::kTwoPass;
  plan.kind = !computation.backward  ? PlanKind::kForwardOnly
              : run.all_rows_at_once ? PlanKind::kTwoPass
                                     : PlanKind::kOnePass;
  plan.tokens = problem.tokens;
  plan.active_rows = static_cast<int64_t>(problem.active().size());
  plan.vocab_size = problem.vocab_size;
  plan.row_block = options.row_block > 0 ? options.row_block : kRowsAtOnce;
  plan.vocab_tile = std::min(options.vocab_tile > 0 ? options.vocab_tile : fold::kRowColumns, problem.vocab_size);
  plan.chunk_rows = run.all_rows_at_once ? plan.active_rows : plan.row_block;
  return run;
}

size_t measure_team(const LogitsProblem& problem, LogitsPlan& run, int team) {
  run.plan.threads = team;
  return measure_row_walk(problem, run);
}

}  // namespace

LogitsPlan choose_plan(const detail::ContextState& context, int threads, const LogitsProblem& problem,
                       const Computation& computation) {
  LogitsPlan run = cut_logits(context, problem, computation);
  const auto measure = [&](int team) { return measure_team(problem, run, team); };
  if (problem.over_picks) {
    set_team(context, threads, run.plan, measure, kSetsNeed);
  } else {
    set_team(context, threads, run.plan, measure, "plan ", name_of(run.plan.kind), " of finished logits, ",
             run.plan.vocab_tile, " vocabulary entries of a row at a time, needs");
  }
  return run;
}

Plan set_plan(const detail::ContextState& context, int threads, const HiddenProblem& problem,
              const Computation& computation, const std::function<size_t(int)>& measure) {
  Plan plan = cut_sets(context, problem, computation);
  plan.hidden_size = plan.hidden_block = problem.hidden_size;
  plan.row_tile = 1;
  plan.gemm_library = "logitless";
  set_team(context, threads, plan, measure, kSetsNeed);
  return plan;
}

size_t least_workspace(const detail::ContextState& context, const LogitsProblem& problem,
                       const Computation& computation) {
  LogitsPlan run = cut_logits(context, problem, computation);
  return measure_team(problem, run, 1);
}

}  // namespace logitless::planning

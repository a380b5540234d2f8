// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The plan of the walk over finished logits, which has no products to cut.
#include <algorithm>

#include "core/checks.h"
#include "fold/row_walk.h"
#include "planning/buffers.h"
#include "planning/planner.h"

namespace logitless::planning {
namespace {

// This many rows of finished logits are folded and turned into gradients in turn. They are few, because they
// are read again for their gradients and should still be in the core's cache then.
constexpr int64_t kSweepRows = 4;

// Decides everything of a plan but how many threads work.
SweepPlan cut_sweep(const detail::ContextState& context, const LogitsProblem& problem, const Work& work) {
  const ContextOptions& options = context.options;
  const bool coupled = !work.groups.empty();
  check_one_pass(options, work);
  if (options.plan == PlanKind::kExpectedRow && work.forward && work.backward) {
    core::fail("plan = expected_row cannot run: finished logits have no head");
  }
  if (options.plan == PlanKind::kOnePass && coupled && work.backward) {
    core::fail("plan = one_pass cannot run: the loss couples rows, so all are read before a gradient is made");
  }
  SweepPlan run;
  run.all_rows_at_once = !work.forward || coupled || options.plan == PlanKind::kTwoPass;
  Plan& plan = run.plan;
  plan.kind = !work.backward ? PlanKind::kForwardOnly : run.all_rows_at_once ? PlanKind::kTwoPass : PlanKind::kOnePass;
  plan.tokens = problem.tokens;
  plan.active_rows = static_cast<int64_t>(problem.active().size());
  plan.vocab_size = problem.vocab_size;
  plan.row_block = options.row_block > 0 ? options.row_block : kSweepRows;
  plan.vocab_tile = std::min(options.vocab_tile > 0 ? options.vocab_tile : fold::kRowColumns, problem.vocab_size);
  plan.chunk_rows = run.all_rows_at_once ? plan.active_rows : plan.row_block;
  return run;
}

void set_team(int threads, const LogitsProblem& problem, SweepPlan& run) {
  run.plan.threads = threads;
  run.plan.workspace_bytes = measure_sweep(problem, run);
}

}  // namespace

SweepPlan choose_plan(const detail::ContextState& context, int threads, const LogitsProblem& problem,
                      const Work& work) {
  const size_t budget = context.options.workspace_bytes;
  SweepPlan run = cut_sweep(context, problem, work);
  // How many vocabulary entries a kernel takes at once decides about bits, so that stays, and threads are
  // left out.
  for (int team = threads; team > 0; --team) {
    set_team(team, problem, run);
    if (run.plan.workspace_bytes <= budget) return run;
  }
  core::fail("workspace_bytes = ", budget, " is too small: plan ", name_of(run.plan.kind), " of finished logits, ",
             run.plan.vocab_tile, " vocabulary entries of a row at a time, needs at least ", run.plan.workspace_bytes,
             " bytes");
}

size_t least_workspace(const detail::ContextState& context, const LogitsProblem& problem, const Work& work) {
  SweepPlan run = cut_sweep(context, problem, work);
  set_team(1, problem, run);
  return run.plan.workspace_bytes;
}

}  // namespace logitless::planning

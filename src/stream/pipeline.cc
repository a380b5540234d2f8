// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "stream/pipeline.h"

#include <algorithm>
#include <utility>

#include "core/in_order.h"
#include "core/parallel.h"
#include "core/store.h"
#include "planning/planner.h"
#include "ranks/batch_sums.h"
#include "ranks/sliced_plan.h"
#include "stats/row_gradients.h"
#include "stats/statistics.h"
#include "stream/gradient_way.h"
#include "stream/schedule.h"

namespace logitless::stream {
namespace {

using ranks::Shared;

// Computes the statistics, token gradients and outputs of one call, chunk by chunk. The columns already have
// their final sizes.
void run_chunks(Schedule& schedule, TokenLoss* loss, bool wants_gradients, stats::Columns& columns) {
  const auto fold = [&](int64_t chunk) { schedule.fold(chunk, columns); };
  // The loss gets the rows of a chunk in increasing order, whatever their order in tiles.
  const auto evaluate = [&](int64_t chunk) {
    const std::span<const int64_t> rows = schedule.rows(chunk);
    if (!loss || (rows.empty() && schedule.chunks() > 1)) return;
    if (std::is_sorted(rows.begin(), rows.end())) return loss->evaluate(rows, columns.stats, columns.grads);
    core::Array<int64_t> sorted(rows.begin(), rows.end());
    std::sort(sorted.begin(), sorted.end());
    loss->evaluate(sorted, columns.stats, columns.grads);
  };
  const auto make_gradients = [&](int64_t chunk) {
    if (wants_gradients) schedule.gradients(chunk, columns.stats, columns.grads);
  };
  if (schedule.chunk_team() > 0) {
    // The loss gets the chunks in order, and each chunk's gradients are computed by the thread that has just
    // read it.
    core::InOrder order(schedule.chunks());
    core::parallel_team(schedule.chunk_team(),
                        [&](core::FirstError& error) { order.run(error, fold, evaluate, make_gradients); });
    return;
  }
  for (int64_t chunk = 0; chunk < schedule.chunks(); ++chunk) {
    fold(chunk);
    evaluate(chunk);
    make_gradients(chunk);
  }
}

bool is_wanted(const GradientMatrices& outputs) { return outputs.any(); }
bool is_wanted(const LogitsGradient& dlogits) { return dlogits.data != nullptr; }

// A checked call.
template <class Problem, class Outputs>
struct CallOn {
  const Context& context;
  const Problem& problem;
  const Outputs& outputs;
  const Shared& shared;

  bool wants_gradients() const { return shared.wants_gradients(is_wanted(outputs)); }
};
using HiddenCall = CallOn<HiddenProblem, GradientMatrices>;
using LogitsCall = CallOn<LogitsProblem, LogitsGradient>;

// Asks each gradient way whether it can compute this call's gradients, whose token gradients are zero except
// in the columns `filled`.
void ask_ways(const HiddenCall& call, const TokenLoss::GradsFilled& filled, bool keeps_expected_rows,
              planning::Computation& computation) {
  computation.workspace_of = &workspace_of_run;
  const CallOnHidden asked = {call.context.options(), call.problem, call.outputs, call.shared, filled,
                              keeps_expected_rows};
  for (const WayKind* kind : kGradientWays) {
    if (kind->ask) kind->ask(asked, computation);
  }
}
// The gradient of finished logits is always computed in the same way.
void ask_ways(const LogitsCall&, const TokenLoss::GradsFilled&, bool, planning::Computation&) {}

// Returns what run() has to do.
template <class Call>
planning::Computation computation_of(const Call& call, const TokenLoss* loss, stats::Returned returned) {
  planning::Computation computation;
  if (loss) {
    computation.backward = call.wants_gradients();
    computation.may_drop_rows = computation.backward && loss->may_drop_rows();
    computation.groups = loss->groups();
    if (!computation.groups.empty())
      problem::check_entries("the loss's groups()", computation.groups.size(), call.problem);
  }
  if (computation.backward && call.shared.cut && !call.shared.cut->gathered.empty()) {
    // Statistics are merged from other calls, not computed, so gradients need a separate pass.
    computation.forward = false;
    computation.kept_rows = static_cast<int64_t>(call.problem.active().size());
  }
  ask_ways(call, loss ? loss->gradients() : TokenLoss::GradsFilled(), computation.forward && returned.expected,
           computation);
  return computation;
}

// Returns what run_gradients() has to do.
template <class Call>
planning::Computation computation_of(const Call& call, const TokenStats& stats, const TokenGrads& grads) {
  const core::Array<int64_t>& active = call.problem.active();
  planning::Computation computation;
  computation.forward = false;
  computation.backward = true;
  computation.kept_rows = std::count_if(active.begin(), active.end(),
                                        [&](int64_t row) { return stats::has_gradient(call.problem, grads, row); });
  computation.may_drop_rows = computation.kept_rows < static_cast<int64_t>(active.size());
  const auto any = [](const std::vector<double>& column) {
    return std::any_of(column.begin(), column.end(), [](double g) { return g != 0; });
  };
  ask_ways(call,
           {any(grads.lse), any(grads.entropy), any(grads.cross), any(grads.outside), any(grads.divergence),
            any(grads.square_sum)},
           !stats.expected.empty(), computation);
  return computation;
}

// The plan of a call and, if the call runs, its schedule.
struct Planned {
  Plan plan;
  std::shared_ptr<Schedule> schedule = {};
};

// Plans a call. If it `runs`, also creates its schedule, else computes its least workspace.
Planned plan_work(const HiddenCall& call, const planning::Computation& computation, bool runs) {
  const auto& [context, problem, outputs, shared] = call;
  const detail::ContextState& state = detail::state_of(context);
  const int threads = context.threads();
  if (problem.over_picks) {
    Plan plan = set_plan(state, threads, problem, outputs, computation);
    if (runs) return {plan, set_schedule(state, problem, outputs, computation, plan)};
    plan.least_workspace_bytes = least_set_workspace(state, problem, outputs, computation);
    return {plan};
  }
  if (shared.cut) {
    const planning::RunPlan run = ranks::choose_sliced_plan(state, threads, *shared.cut, problem, computation, outputs);
    Plan plan = ranks::plan_of_rank(*shared.cut, problem, run);
    if (runs) return {plan, sliced_schedule(state, problem, outputs, *shared.cut, run)};
    plan.least_workspace_bytes =
        ranks::least_sliced_workspace(state, threads, *shared.cut, problem, computation, outputs);
    return {plan};
  }
  planning::RunPlan run = planning::choose_plan(state, threads, problem, computation, outputs);
  Plan plan = run.plan;
  if (runs) return {plan, tile_schedule(state, problem, outputs, std::move(run))};
  plan.least_workspace_bytes = planning::least_workspace(state, threads, problem, computation, outputs);
  return {plan};
}

Planned plan_work(const LogitsCall& call, const planning::Computation& computation, bool runs) {
  const auto& [context, problem, outputs, shared] = call;
  const detail::ContextState& state = detail::state_of(context);
  const planning::LogitsPlan run = planning::choose_plan(state, context.threads(), problem, computation);
  Plan plan = run.plan;
  if (runs) return {plan, logits_schedule(state, problem, outputs, run)};
  plan.least_workspace_bytes = planning::least_workspace(state, problem, computation);
  return {plan};
}

// Calls make(), which runs all chunks, and sums the gradients of the head over the ranks of a batch.
template <class Call, class Make>
void complete_gradients(const Call& call, Schedule& schedule, const Make& make) {
  ranks::BatchSums sums(call.context, call.problem, call.outputs, call.shared,
                        schedule.finishes_rows_early() ? schedule.chunks() : 0);
  if (sums.overlaps_backward()) schedule.report_final_rows_to(sums);
  make();
  schedule.finish_gradients();
  sums.finish();
}

// The statistics and token gradients come from a caller, so their sizes are checked.
void check_statistics(const TokenProblem& problem, size_t expected_elements, const TokenStats& stats,
                      const TokenGrads& grads) {
  const auto check = [&](const char* name, const std::vector<double>& values) {
    problem::check_entries(name, values.size(), problem);
  };
  problem::check_pick_entries("stats.logp", stats.logp.size(), problem);
  check("stats.lse", stats.lse);
  check("stats.max_logit", stats.max_logit);
  check("stats.log_sum", stats.log_sum);
  if (!grads.entropy.empty()) check("stats.entropy", stats.entropy);
  if (!grads.square_sum.empty()) check("stats.square_sum", stats.square_sum);
  if (!grads.outside.empty()) {
    check("stats.outside", stats.outside);
    check("stats.outside_max", stats.outside_max);
  }
  if (problem.divergence) {
    for (const auto* column :
         {&stats.divergence.value, &stats.divergence.overlap, &stats.divergence.mean, &stats.divergence.log_sum,
          &stats.divergence.teacher_max_logit, &stats.divergence.teacher_log_sum}) {
      check("stats.divergence", *column);
    }
  } else if (!grads.divergence.empty()) {
    core::fail("grads.divergence is given but the call has no teacher");
  }
  for (const auto& [name, column, of_picks] : stats::kGradColumns) {
    const size_t entries = (grads.*column).size();
    if (entries == 0) continue;
    of_picks ? problem::check_pick_entries(name, entries, problem) : problem::check_entries(name, entries, problem);
  }
  if (stats.expected.empty()) return;
  const size_t given = problem.in_double() ? stats.expected.f64.size() : stats.expected.f32.size();
  if (given != expected_elements) {
    core::fail("stats.expected has ", given, " elements in the type of the call's sums: it must have ",
               expected_elements);
  }
}

size_t expected_elements(const HiddenProblem& problem) {
  return static_cast<size_t>(problem.tokens * (problem.hidden_size + problem.head.lora.rank()));
}
size_t expected_elements(const LogitsProblem&) { return 0; }

}  // namespace

template <class Problem, class Outputs>
Outcome run(const Context& context, const Problem& problem, const Outputs& outputs, const Shared& shared,
            TokenLoss* loss, stats::Returned returned) {
  const CallOn<Problem, Outputs> call = {context, problem, outputs, shared};
  Outcome outcome(returned);
  const planning::Computation computation = computation_of(call, loss, returned);
  const Planned planned = plan_work(call, computation, true);
  outcome.plan = planned.plan;
  stats::make_stats(problem, outcome);
  if (loss) stats::make_grads(problem, *loss, outcome);
  const auto make = [&] { run_chunks(*planned.schedule, loss, computation.backward, outcome); };
  computation.backward ? complete_gradients(call, *planned.schedule, make) : make();
  planned.schedule->report(outcome.plan);
  return outcome;
}

template <class Problem, class Outputs>
Plan run_gradients(const Context& context, const Problem& problem, const Outputs& outputs, const Shared& shared,
                   const TokenStats& stats, const TokenGrads& grads) {
  const CallOn<Problem, Outputs> call = {context, problem, outputs, shared};
  check_statistics(problem, expected_elements(problem), stats, grads);
  if (!call.wants_gradients()) {
    // The statistics are given and no gradient is requested, so there is nothing to compute.
    Plan plan;
    plan.tokens = problem.tokens;
    plan.active_rows = static_cast<int64_t>(problem.active().size());
    plan.vocab_size = problem.vocab_size;
    if constexpr (requires { problem.hidden_size; }) plan.hidden_size = problem.hidden_size;
    return plan;
  }
  Planned planned = plan_work(call, computation_of(call, stats, grads), true);
  Schedule& schedule = *planned.schedule;
  complete_gradients(call, schedule, [&] {
    for (int64_t chunk = 0; chunk < schedule.chunks(); ++chunk) schedule.gradients(chunk, stats, grads);
  });
  schedule.report(planned.plan);
  return planned.plan;
}

template <class Problem, class Outputs>
Plan plan_run(const Context& context, const Problem& problem, const Outputs& outputs, const Shared& shared,
              const TokenLoss* loss, stats::Returned returned) {
  const CallOn<Problem, Outputs> call = {context, problem, outputs, shared};
  return plan_work(call, computation_of(call, loss, returned), false).plan;
}

#define LOGITLESS_INSTANTIATE(Problem, Outputs)                                                                     \
  template Outcome run(const Context&, const Problem&, const Outputs&, const Shared&, TokenLoss*, stats::Returned); \
  template Plan run_gradients(const Context&, const Problem&, const Outputs&, const Shared&, const TokenStats&,     \
                              const TokenGrads&);                                                                   \
  template Plan plan_run(const Context&, const Problem&, const Outputs&, const Shared&, const TokenLoss*,           \
                         stats::Returned);
LOGITLESS_INSTANTIATE(HiddenProblem, GradientMatrices)
LOGITLESS_INSTANTIATE(LogitsProblem, LogitsGradient)
#undef LOGITLESS_INSTANTIATE

}  // namespace logitless::stream

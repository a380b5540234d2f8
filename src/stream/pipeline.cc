// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "stream/pipeline.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "core/in_order.h"
#include "core/parallel.h"
#include "core/store.h"
#include "planning/planner.h"
#include "ranks/batch_sums.h"
#include "ranks/sliced_plan.h"
#include "stats/row_gradients.h"
#include "stats/statistics.h"
#include "stream/expected_rows.h"
#include "stream/schedule.h"
#include "stream/segment_gradients.h"

namespace logitless::stream {
namespace {

using ranks::Shared;

// This makes the statistics, token gradients and outputs of one call, chunk by chunk.
class Pipeline {
 public:
  // The columns are made already.
  Pipeline(Schedule& schedule, TokenLoss* loss, bool wants_gradients, stats::Columns& columns)
      : schedule_(schedule), loss_(loss), wants_gradients_(wants_gradients), columns_(columns) {}

  void run() {
    if (schedule_.chunk_team() > 0) {
      run_chunks_side_by_side();
    } else {
      for (int64_t chunk = 0; chunk < schedule_.chunks(); ++chunk) {
        fold(chunk);
        evaluate(chunk);
        make_gradients(chunk);
      }
    }
    if (wants_gradients_) schedule_.finish_gradients();
  }

 private:
  void fold(int64_t chunk) { schedule_.fold(chunk, columns_); }

  // The loss gets the rows of a chunk in order, whatever their order in tiles.
  void evaluate(int64_t chunk) {
    const std::span<const int64_t> rows = schedule_.rows(chunk);
    if (!loss_ || (rows.empty() && schedule_.chunks() > 1)) return;
    if (std::is_sorted(rows.begin(), rows.end())) return loss_->evaluate(rows, columns_.stats, columns_.grads);
    core::Array<int64_t> sorted(rows.begin(), rows.end());
    std::sort(sorted.begin(), sorted.end());
    loss_->evaluate(sorted, columns_.stats, columns_.grads);
  }

  void make_gradients(int64_t chunk) {
    if (wants_gradients_) schedule_.gradients(chunk, columns_.stats, columns_.grads);
  }

  // The loss sees the chunks in order, and each chunk's gradients are made by the thread that has just read
  // it.
  void run_chunks_side_by_side() {
    core::InOrder order(schedule_.chunks());
    core::parallel_team(schedule_.chunk_team(), [&](core::FirstError& error) {
      order.run(
          error, [this](int64_t chunk) { fold(chunk); }, [this](int64_t chunk) { evaluate(chunk); },
          [this](int64_t chunk) { make_gradients(chunk); });
    });
  }

  Schedule& schedule_;
  TokenLoss* loss_;
  bool wants_gradients_;
  stats::Columns& columns_;
};

// Returns what run() has to do.
planning::Work work_of(const TokenProblem& problem, const TokenLoss* loss, bool wants_gradients) {
  planning::Work work;
  work.backward = wants_gradients;
  if (!loss) return work;
  work.may_drop_rows = wants_gradients && loss->may_drop_rows();
  work.groups = loss->groups();
  if (!work.groups.empty()) problem::check_entries("the loss's groups()", work.groups.size(), problem);
  return work;
}

// Returns what run_gradients() has to do.
planning::Work work_of(const TokenProblem& problem, const TokenGrads& grads) {
  planning::Work work;
  work.forward = false;
  work.backward = true;
  work.kept_rows = std::count_if(problem.active().begin(), problem.active().end(),
                                 [&](int64_t row) { return stats::has_gradient(problem, grads, row); });
  work.may_drop_rows = work.kept_rows < static_cast<int64_t>(problem.active().size());
  return work;
}

// Says whether expected rows can become d_hidden, of which only products have any.
void judge_expected_rows(const HiddenProblem& problem, const GradientMatrices& outputs,
                         const TokenLoss::GradsFilled& filled, planning::Work& work) {
  work.no_expected_rows =
      work.backward && !outputs.wants_d_hidden() ? "d_hidden is not wanted" : no_expected_rows(problem, filled);
}
void judge_expected_rows(const LogitsProblem&, const LogitsGradient&, const TokenLoss::GradsFilled&, planning::Work&) {}

// Says whether gradients are to be made of chosen segments. Throws InvalidInput where they cannot.
void judge_segments(const Context& context, const HiddenProblem& problem, const GradientMatrices& outputs,
                    const Shared& shared, const TokenLoss::GradsFilled& filled, planning::Work& work) {
  const BackwardOptions& options = outputs.backward;
  if (!work.backward || options.mode == BackwardMode::kExact) return;
  const auto refuse = [&](const auto&... why) {
    core::fail("backward.mode = ", name_of(options.mode), " cannot run: ", why...);
  };
  if (const std::string_view why = no_choice_of_segments(problem, filled); !why.empty()) refuse(why);
  const PlanKind plan = context.options().plan;
  if (plan != PlanKind::kAuto && plan != PlanKind::kTwoPass) {
    refuse("it takes two pass, and plan = ", name_of(plan), " is asked for");
  }
  if (planning::is_by_noise(options)) {
    // d_bias by itself costs next to nothing, and has no noise that is held.
    const bool held = outputs.wants_d_hidden() || outputs.d_weight.data || outputs.weight_sink;
    if (options.noise == 0 || !held) return;
    if (problem.head.lora.given())
      refuse("the head has a LoRA, and the noise of its gradients is not estimated: give backward.theta");
    if (shared.cut) refuse("the vocabulary is cut, and no slice knows the noise of all: give backward.theta");
  }
  work.chooses_segments = true;
}
void judge_segments(const Context&, const LogitsProblem&, const LogitsGradient&, const Shared&,
                    const TokenLoss::GradsFilled&, planning::Work&) {}

// Says whether the halves of a call that are run apart hand expected rows on.
bool leaves_expected_rows(const Context& context, const TokenProblem& problem, const Shared& shared,
                          const planning::Work& work) {
  return context.options().plan == PlanKind::kExpectedRow && !work.backward && work.no_expected_rows.empty() &&
         !shared.cut && !problem.over_picks;
}

TokenLoss::GradsFilled filled_of(const TokenGrads& grads) {
  const auto any = [](const std::vector<double>& column) {
    return std::any_of(column.begin(), column.end(), [](double g) { return g != 0; });
  };
  return {any(grads.lse), any(grads.entropy), any(grads.cross), any(grads.outside), any(grads.divergence)};
}

// Returns how many elements the expected rows of a call have.
size_t expected_elements(const HiddenProblem& problem) {
  return static_cast<size_t>(problem.tokens * (problem.hidden_size + problem.head.lora.rank()));
}
size_t expected_elements(const LogitsProblem&) { return 0; }

bool is_wanted(const GradientMatrices& outputs) { return outputs.any(); }
bool is_wanted(const LogitsGradient& dlogits) { return dlogits.data != nullptr; }

Plan plan_work(const Context& context, const HiddenProblem& problem, const GradientMatrices& outputs,
               const Shared& shared, const planning::Work& work) {
  const detail::ContextState& state = detail::state_of(context);
  if (problem.over_picks) {
    Plan plan = set_plan(state, context.threads(), problem, outputs, work);
    plan.least_workspace_bytes = least_set_workspace(state, problem, outputs, work);
    return plan;
  }
  if (shared.cut) {
    const planning::RunPlan run =
        ranks::choose_sliced_plan(state, context.threads(), *shared.cut, problem, work, outputs);
    Plan plan = ranks::plan_of_rank(*shared.cut, problem, run);
    plan.least_workspace_bytes =
        ranks::least_sliced_workspace(state, context.threads(), *shared.cut, problem, work, outputs);
    return plan;
  }
  Plan plan = planning::choose_plan(state, context.threads(), problem, work, outputs).plan;
  plan.least_workspace_bytes = planning::least_workspace(state, context.threads(), problem, work, outputs);
  return plan;
}

Plan plan_work(const Context& context, const LogitsProblem& problem, const LogitsGradient&, const Shared&,
               const planning::Work& work) {
  const detail::ContextState& state = detail::state_of(context);
  Plan plan = planning::choose_plan(state, context.threads(), problem, work).plan;
  plan.least_workspace_bytes = planning::least_workspace(state, problem, work);
  return plan;
}

std::shared_ptr<Schedule> make_schedule(const Context& context, const HiddenProblem& problem,
                                        const GradientMatrices& outputs, const Shared& shared,
                                        const planning::Work& work, Plan& plan) {
  const detail::ContextState& state = detail::state_of(context);
  if (problem.over_picks) {
    plan = set_plan(state, context.threads(), problem, outputs, work);
    return set_schedule(state, problem, outputs, work, plan);
  }
  if (shared.cut) {
    const planning::RunPlan run =
        ranks::choose_sliced_plan(state, context.threads(), *shared.cut, problem, work, outputs);
    plan = ranks::plan_of_rank(*shared.cut, problem, run);
    return sliced_schedule(state, problem, outputs, *shared.cut, run);
  }
  planning::RunPlan run = planning::choose_plan(state, context.threads(), problem, work, outputs);
  plan = run.plan;
  return tile_schedule(state, problem, outputs, std::move(run));
}

std::shared_ptr<Schedule> make_schedule(const Context& context, const LogitsProblem& problem,
                                        const LogitsGradient& outputs, const Shared&, const planning::Work& work,
                                        Plan& plan) {
  const detail::ContextState& state = detail::state_of(context);
  const planning::SweepPlan run = planning::choose_plan(state, context.threads(), problem, work);
  plan = run.plan;
  return logits_schedule(state, problem, outputs, run);
}

// Statistics that other calls have made are merged and not computed: gradients are then a pass of their own.
void leave_out_forward(const TokenProblem& problem, const Shared& shared, planning::Work& work) {
  if (!work.backward || !shared.cut || shared.cut->gathered.empty()) return;
  work.forward = false;
  work.kept_rows = static_cast<int64_t>(problem.active().size());
}

// Makes what sums the gradients of the head over the ranks of a batch, and has the schedule tell it of them.
template <class Problem, class Outputs>
void sum_over_batch(const Context& context, const Problem& problem, const Outputs& outputs, const Shared& shared,
                    Schedule& schedule, std::optional<ranks::BatchSums>& sums) {
  sums.emplace(context, problem, outputs, shared, schedule.finishes_rows_early() ? schedule.chunks() : 0);
  if (sums->travels_early()) schedule.follow(*sums);
}

template <class Problem, class Outputs>
Ran run_any(const Context& context, const Problem& problem, const Outputs& outputs, const Shared& shared,
            TokenLoss* loss, stats::Returned returned) {
  const bool wants_gradients = loss && shared.wants_gradients(is_wanted(outputs));
  Ran ran(returned);
  planning::Work work = work_of(problem, loss, wants_gradients);
  leave_out_forward(problem, shared, work);
  const TokenLoss::GradsFilled filled = loss ? loss->gradients() : TokenLoss::GradsFilled();
  judge_segments(context, problem, outputs, shared, filled, work);
  judge_expected_rows(problem, outputs, filled, work);
  work.leaves_expected_rows = returned.expected && leaves_expected_rows(context, problem, shared, work);
  const auto schedule = make_schedule(context, problem, outputs, shared, work, ran.plan);
  stats::make_stats(problem, ran);
  if (work.leaves_expected_rows && ran.plan.kind == PlanKind::kExpectedRow)
    stats::make_expected_rows(problem, expected_elements(problem), ran);
  if (loss) stats::make_grads(problem, *loss, ran);
  std::optional<ranks::BatchSums> sums;
  if (wants_gradients) sum_over_batch(context, problem, outputs, shared, *schedule, sums);
  Pipeline(*schedule, loss, wants_gradients, ran).run();
  schedule->report(ran.plan);
  if (sums) sums->finish();
  return ran;
}

// The statistics and token gradients come from a caller, so their sizes are checked.
void check_statistics(const TokenProblem& problem, const TokenStats& stats, const TokenGrads& grads) {
  const auto check = [&](const char* name, const std::vector<double>& values) {
    problem::check_entries(name, values.size(), problem);
  };
  problem::check_pick_entries("stats.logp", stats.logp.size(), problem);
  check("stats.lse", stats.lse);
  check("stats.max_logit", stats.max_logit);
  check("stats.log_sum", stats.log_sum);
  if (!grads.entropy.empty()) check("stats.entropy", stats.entropy);
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
}

template <class Problem>
void check_expected_rows(const Problem& problem, const TokenStats& stats) {
  if (stats.expected.empty()) return;
  const size_t given = problem.in_double() ? stats.expected.f64.size() : stats.expected.f32.size();
  if (given != expected_elements(problem)) {
    core::fail("stats.expected has ", given, " elements in the type of the call's sums, which are ",
               expected_elements(problem));
  }
}

template <class Problem, class Outputs>
Plan run_any_gradients(const Context& context, const Problem& problem, const Outputs& outputs, const Shared& shared,
                       const TokenStats& stats, const TokenGrads& grads) {
  check_statistics(problem, stats, grads);
  check_expected_rows(problem, stats);
  Plan plan;
  if (!shared.wants_gradients(is_wanted(outputs))) {
    // There is nothing to write, and the statistics are known: nothing runs.
    plan.tokens = problem.tokens;
    plan.active_rows = static_cast<int64_t>(problem.active().size());
    plan.vocab_size = problem.vocab_size;
    if constexpr (requires { problem.hidden_size; }) plan.hidden_size = problem.hidden_size;
    return plan;
  }
  planning::Work work = work_of(problem, grads);
  const TokenLoss::GradsFilled filled = filled_of(grads);
  judge_segments(context, problem, outputs, shared, filled, work);
  judge_expected_rows(problem, outputs, filled, work);
  work.has_expected_rows = !stats.expected.empty() && !shared.cut;
  const auto schedule = make_schedule(context, problem, outputs, shared, work, plan);
  std::optional<ranks::BatchSums> sums;
  sum_over_batch(context, problem, outputs, shared, *schedule, sums);
  for (int64_t chunk = 0; chunk < schedule->chunks(); ++chunk) schedule->gradients(chunk, stats, grads);
  schedule->finish_gradients();
  schedule->report(plan);
  sums->finish();
  return plan;
}

template <class Problem, class Outputs>
Plan plan_any(const Context& context, const Problem& problem, const Outputs& outputs, const Shared& shared,
              const TokenLoss* loss, stats::Returned returned) {
  planning::Work work = work_of(problem, loss, loss && shared.wants_gradients(is_wanted(outputs)));
  leave_out_forward(problem, shared, work);
  const TokenLoss::GradsFilled filled = loss ? loss->gradients() : TokenLoss::GradsFilled();
  judge_segments(context, problem, outputs, shared, filled, work);
  judge_expected_rows(problem, outputs, filled, work);
  work.leaves_expected_rows = returned.expected && leaves_expected_rows(context, problem, shared, work);
  return plan_work(context, problem, outputs, shared, work);
}

}  // namespace

Ran run(const Context& context, const HiddenProblem& problem, const GradientMatrices& outputs, const Shared& shared,
        TokenLoss* loss, stats::Returned returned) {
  return run_any(context, problem, outputs, shared, loss, returned);
}
Ran run(const Context& context, const LogitsProblem& problem, const LogitsGradient& outputs, const Shared& shared,
        TokenLoss* loss, stats::Returned returned) {
  return run_any(context, problem, outputs, shared, loss, returned);
}

Plan run_gradients(const Context& context, const HiddenProblem& problem, const GradientMatrices& outputs,
                   const Shared& shared, const TokenStats& stats, const TokenGrads& grads) {
  return run_any_gradients(context, problem, outputs, shared, stats, grads);
}
Plan run_gradients(const Context& context, const LogitsProblem& problem, const LogitsGradient& outputs,
                   const Shared& shared, const TokenStats& stats, const TokenGrads& grads) {
  return run_any_gradients(context, problem, outputs, shared, stats, grads);
}

Plan plan_run(const Context& context, const HiddenProblem& problem, const GradientMatrices& outputs,
              const Shared& shared, const TokenLoss* loss, stats::Returned returned) {
  return plan_any(context, problem, outputs, shared, loss, returned);
}
Plan plan_run(const Context& context, const LogitsProblem& problem, const LogitsGradient& outputs, const Shared& shared,
              const TokenLoss* loss, stats::Returned returned) {
  return plan_any(context, problem, outputs, shared, loss, returned);
}

}  // namespace logitless::stream

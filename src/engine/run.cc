// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "engine/run.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "core/checks.h"
#include "core/workspace.h"
#include "dense/dense.h"
#include "engine/backward.h"
#include "engine/buffers.h"
#include "engine/forward.h"
#include "engine/plan.h"
#include "engine/row_gradients.h"

namespace logitless {

TokenLoss::~TokenLoss() = default;

namespace engine {
namespace {

// Which rows have been written, over all chunks of a run.
struct Written {
  std::vector<bool> rows;
  bool any = false;

  explicit Written(int64_t tokens) : rows(static_cast<size_t>(tokens)) {}
  void add(const ActiveBlocks& active) {
    any |= !active.empty();
    for (const int64_t row : active.blocks.order) rows[static_cast<size_t>(row)] = true;
  }
};

template <class T>
TokenStats forward_only(const Pass<T>& pass, core::Workspace& workspace) {
  TokenStats stats = empty_stats(pass.problem);
  ForwardBuffers<T> buffers(workspace, *pass.context.gemm, pass.problem, pass.run);
  run_forward(pass, buffers, 0, pass.run.blocks.blocks.size(), stats);
  return stats;
}

template <class T>
void backward_only(const Pass<T>& pass, core::Workspace& workspace, const TokenStats& stats, const TokenGrads& grads,
                   const Gradients& outputs) {
  BackwardBuffers<T> buffers(workspace, *pass.context.gemm, pass.problem, pass.run, outputs);
  Written written(pass.problem.tokens);
  const ActiveBlocks active = active_blocks(pass.run, 0, pass.run.blocks.blocks.size(), grads);
  run_backward(pass, buffers, active, true, stats, grads, outputs);
  written.add(active);
  finish_backward(pass, buffers, written.rows, written.any, outputs);
}

// The loss of one chunk, whose blocks may stand in another order than its rows.
void evaluate_rows(std::span<const int64_t> rows, const TokenStats& stats, TokenLoss& loss, TokenGrads& grads) {
  if (std::is_sorted(rows.begin(), rows.end())) return loss.evaluate(rows, stats, grads);
  std::vector<int64_t> sorted(rows.begin(), rows.end());
  std::sort(sorted.begin(), sorted.end());
  loss.evaluate(sorted, stats, grads);
}

template <class T>
TokenStats one_pass(const Pass<T>& pass, core::Workspace& workspace, TokenLoss& loss, const Gradients& outputs) {
  TokenStats stats = empty_stats(pass.problem);
  TokenGrads grads = empty_grads(pass.problem, loss);
  Written written(pass.problem.tokens);
  const std::vector<size_t>& chunks = pass.run.chunks;
  const size_t mark = workspace.mark();
  // The buffers of the two passes share their bytes: one pass's are dead while the other runs.
  std::optional<BackwardBuffers<T>> backward;
  for (size_t c = 0; c + 1 < chunks.size(); ++c) {
    workspace.rewind(mark);
    ForwardBuffers<T> forward(workspace, *pass.context.gemm, pass.problem, pass.run);
    run_forward(pass, forward, chunks[c], chunks[c + 1], stats);
    const RowBlock& first = pass.run.blocks.blocks[chunks[c]];
    const RowBlock& last = pass.run.blocks.blocks[chunks[c + 1] - 1];
    evaluate_rows(
        std::span(pass.run.blocks.order)
            .subspan(static_cast<size_t>(first.begin), static_cast<size_t>(last.begin + last.count - first.begin)),
        stats, loss, grads);
    workspace.rewind(mark);
    backward.emplace(workspace, *pass.context.gemm, pass.problem, pass.run, outputs);
    const ActiveBlocks active = active_blocks(pass.run, chunks[c], chunks[c + 1], grads);
    run_backward(pass, *backward, active, !written.any, stats, grads, outputs);
    written.add(active);
  }
  finish_backward(pass, *backward, written.rows, written.any, outputs);
  return stats;
}

template <class T>
TokenStats two_pass(const Pass<T>& pass, core::Workspace& workspace, TokenLoss& loss, const Gradients& outputs) {
  const size_t mark = workspace.mark();
  TokenStats stats = forward_only(pass, workspace);
  TokenGrads grads = empty_grads(pass.problem, loss);
  loss.evaluate(pass.problem.active, stats, grads);
  workspace.rewind(mark);
  backward_only(pass, workspace, stats, grads, outputs);
  return stats;
}

void check_count(std::string_view name, size_t entries, const TokenProblem& problem) {
  if (static_cast<int64_t>(entries) == problem.tokens) return;
  core::fail(name, " has ", entries, " entries but ", problem.rows_name, " has ", problem.tokens, " rows");
}

Work work_of(const Problem& problem, const TokenLoss& loss, const Gradients& outputs) {
  const std::span<const int64_t> groups = loss.groups();
  if (!groups.empty()) check_count("the loss's groups()", groups.size(), problem);
  return {.forward = true,
          .backward = outputs.any(),
          .may_drop_rows = outputs.any() && loss.may_drop_rows(),
          .groups = groups};
}

bool is_dense(const Context& context) { return context.options().plan == PlanKind::kDense; }

// Allocates the plan's workspace and calls `body` with a Pass of the type that the problem is summed in.
template <class Body>
auto with_pass(const Context& context, const Problem& problem, const RunPlan& run, const Gradients& outputs,
               const Body& body) {
  core::Workspace workspace(run.plan.workspace_bytes);
  const detail::ContextState& state = context.state();
  const bool logits_stay = run.plan.kind == PlanKind::kOnePass;
  const auto call = [&](auto zero) {
    using T = decltype(zero);
    Pass<T> pass{state, problem, run, widened_bias<T>(workspace, state.kernels, problem), nullptr, nullptr};
    pass.bias_sums = take_bias_sums<T>(workspace, problem, outputs);
    if (logits_stay) pass.chunk = take_chunk<T>(workspace, run);
    return body(pass, workspace);
  };
  return problem.in_double() ? call(0.0) : call(0.0f);
}

}  // namespace

void check_entries(std::string_view name, std::span<const double> values, const TokenProblem& problem) {
  check_count(name, values.size(), problem);
}

void check_finite_entries(std::string_view name, std::span<const double> values, const TokenProblem& problem) {
  for (const int64_t row : problem.active) {
    const double value = values[static_cast<size_t>(row)];
    if (!std::isfinite(value)) core::fail(name, "[", row, "] = ", value, " must be finite");
  }
}

TokenGrads empty_grads(const TokenProblem& problem, const TokenLoss& loss) {
  const auto n = static_cast<size_t>(problem.tokens);
  const TokenLoss::GradientTerms terms = loss.gradients();
  TokenGrads grads;
  grads.logp.assign(n, 0);
  if (terms.lse) grads.lse.assign(n, 0);
  if (terms.entropy) grads.entropy.assign(n, 0);
  if (terms.prior) grads.prior.assign(n, 0);
  return grads;
}

TokenStats run_stats(const Context& context, const Problem& problem, Plan* plan) {
  if (is_dense(context)) return dense::run_stats(context, problem, plan);
  const RunPlan run = choose_plan(context.state(), context.threads(), problem, Work{}, {}, problem.active);
  if (plan) *plan = run.plan;
  return with_pass(context, problem, run, {},
                   [](const auto& pass, core::Workspace& w) { return forward_only(pass, w); });
}

TokenStats run_loss(const Context& context, const Problem& problem, TokenLoss& loss, const Gradients& outputs,
                    Plan* plan) {
  if (is_dense(context)) return dense::run_loss(context, problem, loss, outputs, plan);
  const Work work = work_of(problem, loss, outputs);
  const RunPlan run = choose_plan(context.state(), context.threads(), problem, work, outputs, problem.active);
  if (plan) *plan = run.plan;
  return with_pass(context, problem, run, outputs, [&](const auto& pass, core::Workspace& workspace) {
    if (run.plan.kind == PlanKind::kOnePass && !problem.active.empty()) return one_pass(pass, workspace, loss, outputs);
    if (outputs.any()) return two_pass(pass, workspace, loss, outputs);
    TokenStats stats = forward_only(pass, workspace);
    TokenGrads grads = empty_grads(problem, loss);
    loss.evaluate(problem.active, stats, grads);
    return stats;
  });
}

void run_gradients(const Context& context, const Problem& problem, const TokenStats& stats, const TokenGrads& grads,
                   const Gradients& outputs, Plan* plan) {
  check_entries("stats.logp", stats.logp, problem);
  check_entries("stats.lse", stats.lse, problem);
  check_entries("stats.max_logit", stats.max_logit, problem);
  check_entries("stats.log_sum", stats.log_sum, problem);
  if (!grads.entropy.empty()) check_entries("stats.entropy", stats.entropy, problem);
  for (const auto& [name, values] :
       {std::pair{"grads.logp", &grads.logp}, std::pair{"grads.lse", &grads.lse},
        std::pair{"grads.entropy", &grads.entropy}, std::pair{"grads.prior", &grads.prior}}) {
    if (!values->empty()) check_entries(name, *values, problem);
  }
  if (is_dense(context)) return dense::run_gradients(context, problem, stats, grads, outputs, plan);
  const auto kept = std::count_if(problem.active.begin(), problem.active.end(),
                                  [&](int64_t row) { return has_gradient(grads, row); });
  Work work;
  work.forward = false;
  work.backward = true;
  work.may_drop_rows = kept < static_cast<int64_t>(problem.active.size());
  // All rows that the forward pass had are cut as it cut them, so that those that are left find their places.
  const std::span<const int64_t> rows =
      kept > 0 ? std::span<const int64_t>(problem.active) : std::span<const int64_t>();
  RunPlan run = choose_plan(context.state(), context.threads(), problem, work, outputs, rows);
  run.plan.active_rows = kept;
  if (plan) *plan = run.plan;
  with_pass(context, problem, run, outputs, [&](const auto& pass, core::Workspace& workspace) {
    backward_only(pass, workspace, stats, grads, outputs);
  });
}

Plan plan_loss(const Context& context, const Problem& problem, const TokenLoss& loss, const Gradients& outputs) {
  if (is_dense(context)) return dense::plan(context, problem, outputs);
  const detail::ContextState& state = context.state();
  const Work work = work_of(problem, loss, outputs);
  Plan plan = choose_plan(state, context.threads(), problem, work, outputs, problem.active).plan;
  plan.least_workspace_bytes = least_workspace(state, context.threads(), problem, work, outputs, problem.active);
  return plan;
}

}  // namespace engine

TokenStats compute_token_stats(const Context& context, const HiddenStates& hidden, const LmHead& head,
                               const Targets& targets, const TokenOptions& options, StatsRequest request, Plan* plan) {
  return engine::run_stats(context, engine::make_problem(hidden, head, targets, options, request), plan);
}

void backpropagate_token_grads(const Context& context, const HiddenStates& hidden, const LmHead& head,
                               const Targets& targets, const TokenOptions& options, const TokenStats& stats,
                               const TokenGrads& grads, const Gradients& outputs, Plan* plan) {
  const engine::Problem problem = engine::make_problem(hidden, head, targets, options, {});
  engine::check_gradients(problem, targets, outputs);
  engine::run_gradients(context, problem, stats, grads, outputs, plan);
}

namespace {

engine::Problem checked_problem(const HiddenStates& hidden, const LmHead& head, const Targets& targets,
                                const TokenOptions& options, const TokenLoss& loss, const Gradients& outputs) {
  StatsRequest request = loss.needs();
  request.entropy |= loss.gradients().entropy;  // the entropy's gradient is a function of the entropy
  engine::Problem problem = engine::make_problem(hidden, head, targets, options, request);
  engine::check_gradients(problem, targets, outputs);
  return problem;
}

}  // namespace

TokenStats run_token_loss(const Context& context, const HiddenStates& hidden, const LmHead& head,
                          const Targets& targets, const TokenOptions& options, TokenLoss& loss,
                          const Gradients& outputs, Plan* plan) {
  const engine::Problem problem = checked_problem(hidden, head, targets, options, loss, outputs);
  return engine::run_loss(context, problem, loss, outputs, plan);
}

Plan plan_token_loss(const Context& context, const HiddenStates& hidden, const LmHead& head, const Targets& targets,
                     const TokenOptions& options, const TokenLoss& loss, const Gradients& outputs) {
  return engine::plan_loss(context, checked_problem(hidden, head, targets, options, loss, outputs), loss, outputs);
}

}  // namespace logitless

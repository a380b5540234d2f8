// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "logitless/token_stats.h"

#include <utility>

#include "api/slices.h"
#include "api/verbs.h"
#include "stats/columns.h"

namespace logitless {
namespace {

struct Statistics : api::NoLoss {
  // Moves the statistics out, because the result has all that backward() needs.
  TokenStatisticsResult result(TokenStats& stats, const Plan& plan) const { return {std::move(stats), plan}; }
  TokenStatisticsResult result(TokenStats&& stats, const Plan& plan) const { return {std::move(stats), plan}; }
};

// A caller's loss. Its result and its Forward both contain the statistics.
struct Callers {
  TokenLoss& loss;

  TokenLoss* token_loss() const { return &loss; }
  TokenStatisticsResult result(const TokenStats& stats, const Plan& plan) const { return {stats, plan}; }
  TokenStatisticsResult result(TokenStats&& stats, const Plan& plan) const { return {std::move(stats), plan}; }
};

// Adds the caller's gradients to the digests. Columns of the wrong size are refused later.
void digest_grads(ranks::Digests& digests, const problem::TokenProblem& problem, const TokenGrads& grads) {
  for (const auto& [name, column, of_picks] : stats::kGradColumns) {
    const std::vector<double>& values = grads.*column;
    if (static_cast<int64_t>(values.size()) != problem.tokens) continue;
    api::digest_vector(digests, name, problem, values);
  }
}

}  // namespace

namespace api {

template <>
struct Steps<TokenStatistics> {
  static constexpr stats::Returned kRun = {.stats = true, .expected = true};
  static constexpr stats::Returned kForward = kRun;

  const TokenStatistics& task;

  Statistics make_loss(Call& call) const {
    call.set_task(
        {.options = task.token, .request = task.request, .picks = picks(call), .cross = {task.request.cross_weights}},
        {core::range_of("targets", task.targets)});
    return {};
  }
  void prepare(const Call&, const Statistics&) const {}
  Plan backward(Call& call, const Statistics&, const Forward<TokenStatistics>& forward,
                const Upstream& upstream) const {
    const TokenGrads* grads = upstream.grads();
    if (!grads) core::fail("upstream is a number, but token_stats needs TokenGrads");
    call.digest_tokens([&](ranks::Digests& digests) { digest_grads(digests, call.problem(), *grads); });
    return call.run_gradients(forward.result.stats, *grads);
  }

 private:
  problem::RowPicks picks(const Call& call) const {
    if (task.targets.count() != 0 || call.shape().tokens == 0) {
      return problem::target_picks(call.target_ids(task.targets, task.token));
    }
    problem::check_no_targets(task.token, "without targets every row is active");
    if (task.request.rank) core::fail("rank is requested, but there are no targets: it is the rank of the target");
    if (task.request.outside)
      core::fail("outside is requested, but there are no targets: it covers all entries except the target");
    return problem::all_rows(call.shape().tokens);
  }
};

template <>
struct Steps<CustomLoss> {
  static constexpr stats::Returned kRun = {.stats = true};
  static constexpr stats::Returned kForward = {.stats = true, .grads = true};

  const CustomLoss& task;

  Callers make_loss(Call& call) const {
    if (!task.loss) core::fail("loss is null");
    const TokenLoss& loss = *task.loss;
    if (loss.gradients().divergence) {
      core::fail("the loss has a gradient of the divergence, but the call has no teacher");
    }
    StatsRequest request = loss.needs();
    // These gradients are functions of the statistics themselves.
    request.entropy |= loss.gradients().entropy;
    request.square_sum |= loss.gradients().square_sum;
    request.outside |= loss.gradients().outside;
    call.set_task({.options = task.token,
                   .request = request,
                   .picks = problem::target_picks(call.target_ids(task.targets, task.token)),
                   .cross = {request.cross_weights}},
                  {core::range_of("targets", task.targets)});
    return {*task.loss};
  }
  void prepare(const Call&, const Callers&) const {}
  Plan backward(Call& call, const Callers&, const Forward<CustomLoss>& forward, const Upstream& upstream) const {
    return scaled_gradients(call, forward, upstream);
  }
};

}  // namespace api

LOGITLESS_VERBS(TokenStatistics);
LOGITLESS_VERBS(CustomLoss);
LOGITLESS_SLICES(TokenStatistics, task.request);

}  // namespace logitless

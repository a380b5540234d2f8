// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "loss/policy.h"

#include <algorithm>
#include <utility>

#include "api/loss_call.h"
#include "logitless/logits.h"
#include "problem/id_sets.h"

namespace logitless {
namespace {

using api::Call;

struct Completions {
  static constexpr const char* kName = "policy_loss";
  using Loss = loss::PolicyLoss;
  using Forward = PolicyForward;
  static constexpr stats::Returned kKept = {.stats = true, .grads = true};

  const PolicyBatch& batch;
  const PolicyOptions& options;

  Loss make_loss(Call& call) const {
    const problem::Shape& shape = call.shape();
    Loss loss(batch, options, call.sequence_offsets(), shape.vocab_size, shape.rows_name, call.totals());
    const bool over_kept = loss::has_kept(batch);
    problem::RowPicks picks = over_kept ? kept_picks(call, loss) : problem::target_picks(loss.targets());
    call.set_task(
        {.options = options.token, .request = loss.needs(), .picks = std::move(picks), .over_picks = over_kept},
        loss::batch_ranges(batch));
    const problem::TokenProblem& problem = call.problem();
    call.state_tokens([&](ranks::Statement& statement) {
      api::state_vector(statement, "advantages", problem, loss.advantages());
      api::state_vector(statement, "old_logps", problem, batch.old_logps);
      api::state_vector(statement, "ref_logps", problem, batch.ref_logps);
      api::state_vector(statement, "sampling_logps", problem, batch.sampling_logps);
      api::state_vector(statement, "teacher_logps", problem, batch.teacher_logps);
      statement.say_array("scores", std::span(loss.good_sequences()));
    });
    return loss;
  }
  void prepare(const Call&, Loss&) const {}

 private:
  // Returns the kept ids of each row, and tells the loss which of them was chosen.
  problem::RowPicks kept_picks(const Call& call, Loss& loss) const {
    if (call.context().options().ranks.cuts_vocab()) {
      core::fail("kept cannot run: ranks.vocab, ranks.slices or ranks.slice cuts the vocabulary");
    }
    const problem::Shape& shape = call.shape();
    core::Array<uint8_t> counts(static_cast<size_t>(shape.tokens));
    for (size_t i = 0; i < counts.size(); ++i) counts[i] = loss.targets()[i] != problem::kNoTarget;
    problem::RowPicks picks = problem::set_picks(batch.kept, shape, counts, "kept").picks;
    core::Array<int64_t> chosen(counts.size(), -1);
    for (int64_t row = 0; row < shape.tokens; ++row) {
      const auto i = static_cast<size_t>(row);
      if (!counts[i]) continue;
      const auto begin = picks.ids.begin() + picks.offsets[i], end = picks.ids.begin() + picks.offsets[i + 1];
      const auto found = std::lower_bound(begin, end, loss.targets()[i]);
      if (found == end || *found != loss.targets()[i]) {
        core::fail("kept of row ", row, " does not have chosen_ids[", row, "] = ", loss.targets()[i]);
      }
      chosen[i] = found - picks.ids.begin();
    }
    loss.set_chosen_picks(std::move(chosen));
    return picks;
  }
};

}  // namespace

PolicyResult policy_loss(const Context& context, const HiddenStates& hidden, const LmHead& head,
                         const PolicyBatch& batch, const PolicyOptions& options, const Gradients& gradients) {
  return api::run(Call(context, hidden, head, gradients), Completions{batch, options});
}
PolicyResult policy_loss(const Context& context, const Logits& logits, const PolicyBatch& batch,
                         const PolicyOptions& options, const LogitsGradient& dlogits) {
  return api::run(Call(context, logits, dlogits), Completions{batch, options});
}

PolicyForward policy_loss_forward(const Context& context, const HiddenStates& hidden, const LmHead& head,
                                  const PolicyBatch& batch, const PolicyOptions& options) {
  return api::run_forward(Call(context, hidden, head), Completions{batch, options});
}
PolicyForward policy_loss_forward(const Context& context, const Logits& logits, const PolicyBatch& batch,
                                  const PolicyOptions& options) {
  return api::run_forward(Call(context, logits), Completions{batch, options});
}

Plan policy_loss_backward(const Context& context, const HiddenStates& hidden, const LmHead& head,
                          const PolicyBatch& batch, const PolicyOptions& options, const PolicyForward& forward,
                          double upstream, const Gradients& gradients) {
  return api::run_backward(Call(context, hidden, head, gradients), Completions{batch, options}, forward, upstream);
}
Plan policy_loss_backward(const Context& context, const Logits& logits, const PolicyBatch& batch,
                          const PolicyOptions& options, const PolicyForward& forward, double upstream,
                          const LogitsGradient& dlogits) {
  return api::run_backward(Call(context, logits, dlogits), Completions{batch, options}, forward, upstream);
}

Plan plan_policy_loss(const Context& context, const HiddenStates& hidden, const LmHead& head, const PolicyBatch& batch,
                      const PolicyOptions& options, const Gradients& gradients) {
  return api::plan(Call(context, hidden, head, gradients), Completions{batch, options});
}
Plan plan_policy_loss(const Context& context, const Logits& logits, const PolicyBatch& batch,
                      const PolicyOptions& options, const LogitsGradient& dlogits) {
  return api::plan(Call(context, logits, dlogits), Completions{batch, options});
}

}  // namespace logitless

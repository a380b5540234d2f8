// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "loss/policy.h"

#include <algorithm>
#include <utility>

#include "api/verbs.h"
#include "problem/id_sets.h"

namespace logitless {

template <>
struct api::Steps<PolicyLoss> {
  static constexpr stats::Returned kRun = {};
  static constexpr stats::Returned kForward = {.stats = true, .grads = true};

  const PolicyLoss& task;

  loss::CompletionLoss make_loss(Call& call) const {
    const problem::Shape& shape = call.shape();
    loss::CompletionLoss loss(task, call.sequence_offsets(), shape.vocab_size, shape.rows_name, call.totals());
    const bool over_kept = problem::is_given(task.kept);
    problem::RowPicks picks = over_kept ? kept_picks(call, loss) : problem::target_picks(loss.batch().tokens.targets);
    call.set_task({.options = task.token, .request = loss.needs(), .picks = std::move(picks), .over_picks = over_kept},
                  loss::batch_ranges(task));
    const problem::TokenProblem& problem = call.problem();
    call.digest_tokens([&](ranks::Digests& digests) {
      digest_vector(digests, "advantages", problem, loss.batch().advantages);
      digest_tensor(digests, "old_logps", problem, task.old_logps);
      digest_tensor(digests, "ref_logps", problem, task.ref_logps);
      digest_tensor(digests, "sampling_logps", problem, task.sampling_logps);
      digest_tensor(digests, "teacher_logps", problem, task.teacher_logps);
      digests.add_array("scores", std::span(loss.batch().good));
    });
    return loss;
  }
  void prepare(const Call&, const loss::CompletionLoss&) const {}
  Plan backward(Call& call, const loss::CompletionLoss&, const Forward<PolicyLoss>& forward,
                const Upstream& upstream) const {
    return scaled_gradients(call, forward, upstream);
  }

 private:
  // Returns the kept ids of each row, and tells the loss which of them was chosen.
  problem::RowPicks kept_picks(const Call& call, loss::CompletionLoss& loss) const {
    if (call.context().options().ranks.cuts_vocab()) {
      core::fail("kept cannot run: ranks.vocab, ranks.slices or ranks.slice cuts the vocabulary");
    }
    const problem::Shape& shape = call.shape();
    core::Array<uint8_t> counts(static_cast<size_t>(shape.tokens));
    for (size_t i = 0; i < counts.size(); ++i) counts[i] = loss.batch().tokens.targets[i] != problem::kNoTarget;
    problem::RowPicks picks = problem::set_picks(task.kept, shape, counts, "kept").picks;
    core::Array<int64_t> chosen(counts.size(), -1);
    for (int64_t row = 0; row < shape.tokens; ++row) {
      const auto i = static_cast<size_t>(row);
      if (!counts[i]) continue;
      const auto begin = picks.ids.begin() + picks.offsets[i], end = picks.ids.begin() + picks.offsets[i + 1];
      const auto found = std::lower_bound(begin, end, loss.batch().tokens.targets[i]);
      if (found == end || *found != loss.batch().tokens.targets[i]) {
        core::fail("kept of row ", row, " does not have chosen_ids[", row, "] = ", loss.batch().tokens.targets[i]);
      }
      chosen[i] = found - picks.ids.begin();
    }
    loss.set_chosen_picks(std::move(chosen));
    return picks;
  }
};

LOGITLESS_VERBS(PolicyLoss);

}  // namespace logitless

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "problem/id_sets.h"

#include <utility>

#include "api/verbs.h"
#include "core/check_fields.h"

namespace logitless {
namespace {

// The log-probabilities of sets, whose picks are ordered differently from their entries.
struct SetLogps : api::NoLoss {
  core::Array<int64_t> entries;  // of the picks
  int64_t count = 0;             // of all entries

  IdLogpsResult result(const TokenStats& stats, const Plan& plan) const {
    IdLogpsResult out;
    out.logps.assign(static_cast<size_t>(count), 0);
    for (size_t pick = 0; pick < entries.size(); ++pick) {
      out.logps[static_cast<size_t>(entries[pick])] = stats.logp[pick];
    }
    out.plan = plan;
    return out;
  }
};

}  // namespace

template <>
struct api::Steps<IdLogps> {
  static constexpr stats::Returned kRun = {.stats = true};
  static constexpr stats::Returned kForward = {.stats = true};

  const IdLogps& task;

  SetLogps make_loss(Call& call) const {
    core::check_fields(task);
    problem::check_no_targets(task.token, "the sets select the rows, and belong to the positions that predict them");
    const bool over_set = task.normalise_over == NormaliseOver::kSet;
    if (over_set && call.context().options().ranks.cuts_vocab()) {
      core::fail("normalise_over = set cannot run: ranks.vocab, ranks.slices or ranks.slice cuts the vocabulary");
    }
    problem::SetPicks picks = problem::set_picks(task.sets, call.shape());
    call.set_task({.options = task.token, .request = {}, .picks = std::move(picks.picks), .over_picks = over_set},
                  problem::ranges_of(task.sets));
    return {{}, std::move(picks.entries), task.sets.entries()};
  }
  void prepare(const Call&, const SetLogps&) const {}
  Plan backward(Call& call, const SetLogps& sets, const Forward<IdLogps>& forward, const Upstream& upstream) const {
    if (!upstream.is_each()) core::fail("upstream must have one number for each of the ", sets.count, " entries");
    const std::span<const double> values = upstream.each();
    core::check_aligned("upstream", values);
    if (static_cast<int64_t>(values.size()) != sets.count) {
      core::fail("upstream has ", values.size(), " entries but the sets have ", sets.count);
    }
    problem::check_pick_entries("forward.stats.logp", forward.stats.logp.size(), call.problem());
    stats::Columns columns;
    columns.grads.logp = columns.take_grads(sets.entries.size());
    for (size_t pick = 0; pick < sets.entries.size(); ++pick) {
      columns.grads.logp[pick] = values[static_cast<size_t>(sets.entries[pick])];
    }
    call.digest_tokens(
        [&](ranks::Digests& digests) { digests.add_array("upstream", std::span(std::as_const(columns.grads.logp))); });
    return call.run_gradients(forward.stats, columns.grads);
  }
};

LOGITLESS_VERBS(IdLogps);

}  // namespace logitless

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "logitless/id_sets.h"

#include <utility>

#include "api/call.h"
#include "api/upstream.h"
#include "core/check_fields.h"
#include "logitless/logits.h"
#include "problem/id_sets.h"
#include "stats/columns.h"

namespace logitless {
namespace {

using api::Call;

// Gives the call its task, and returns the entries of its picks.
core::Array<int64_t> set_task(Call& call, const IdSets& sets, const IdLogpsOptions& options) {
  core::check_fields(options);
  problem::check_no_targets(options.token, "sets say which rows take part, where they are predicted");
  const bool over_set = options.normalise_over == NormaliseOver::kSet;
  if (over_set && call.context().options().ranks.cuts_vocab()) {
    core::fail("normalise_over = set cannot run: ranks.vocab, ranks.slices or ranks.slice cuts the vocabulary");
  }
  problem::SetPicks picks = problem::set_picks(sets, call.shape());
  call.set_task({.options = options.token, .request = {}, .picks = std::move(picks.picks), .over_picks = over_set},
                problem::ranges_of(sets));
  return std::move(picks.entries);
}

IdLogps forward(Call whole, const IdSets& sets, const IdLogpsOptions& options) {
  return whole.complete([&](Call& call) {
    call.state("id_logps", options);
    const core::Array<int64_t> entries = set_task(call, sets, options);
    stream::Ran ran = call.run(nullptr, api::kStatistics);
    IdLogps out;
    out.logps.assign(static_cast<size_t>(sets.entries()), 0);
    for (size_t pick = 0; pick < entries.size(); ++pick) {
      out.logps[static_cast<size_t>(entries[pick])] = ran.stats.logp[pick];
    }
    out.stats = std::move(ran.stats);
    out.plan = ran.plan;
    return out;
  });
}

Plan backward(Call whole, const IdSets& sets, const IdLogpsOptions& options, const IdLogps& forward,
              std::span<const double> upstream) {
  return whole.complete([&](Call& call) {
    call.state("id_logps", options);
    api::read_upstream(call, upstream);
    const core::Array<int64_t> entries = set_task(call, sets, options);
    core::check_aligned("upstream", upstream);
    if (static_cast<int64_t>(upstream.size()) != sets.entries()) {
      core::fail("upstream has ", upstream.size(), " entries but the sets have ", sets.entries());
    }
    problem::check_pick_entries("forward.stats.logp", forward.stats.logp.size(), call.problem());
    stats::Columns columns;
    columns.grads.logp = columns.take_grads(entries.size());
    for (size_t pick = 0; pick < entries.size(); ++pick) {
      columns.grads.logp[pick] = upstream[static_cast<size_t>(entries[pick])];
    }
    call.state_tokens([&](ranks::Statement& statement) {
      statement.say_array("upstream", std::span(std::as_const(columns.grads.logp)));
    });
    return call.run_gradients(forward.stats, columns.grads);
  });
}

Plan planned(Call whole, const IdSets& sets, const IdLogpsOptions& options) {
  return whole.complete([&](Call& call) {
    call.state("id_logps", options);
    set_task(call, sets, options);
    return call.plan(nullptr, api::kStatistics);
  });
}

}  // namespace

IdLogps id_logps(const Context& context, const HiddenStates& hidden, const LmHead& head, const IdSets& sets,
                 const IdLogpsOptions& options) {
  return forward(Call(context, hidden, head), sets, options);
}
IdLogps id_logps(const Context& context, const Logits& logits, const IdSets& sets, const IdLogpsOptions& options) {
  return forward(Call(context, logits), sets, options);
}

Plan id_logps_backward(const Context& context, const HiddenStates& hidden, const LmHead& head, const IdSets& sets,
                       const IdLogpsOptions& options, const IdLogps& forward, std::span<const double> upstream,
                       const Gradients& gradients) {
  return backward(Call(context, hidden, head, gradients), sets, options, forward, upstream);
}
Plan id_logps_backward(const Context& context, const Logits& logits, const IdSets& sets, const IdLogpsOptions& options,
                       const IdLogps& forward, std::span<const double> upstream, const LogitsGradient& dlogits) {
  return backward(Call(context, logits, dlogits), sets, options, forward, upstream);
}

Plan plan_id_logps(const Context& context, const HiddenStates& hidden, const LmHead& head, const IdSets& sets,
                   const IdLogpsOptions& options) {
  return planned(Call(context, hidden, head), sets, options);
}
Plan plan_id_logps(const Context& context, const Logits& logits, const IdSets& sets, const IdLogpsOptions& options) {
  return planned(Call(context, logits), sets, options);
}

}  // namespace logitless

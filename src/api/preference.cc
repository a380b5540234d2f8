// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "loss/preference.h"

#include <algorithm>
#include <utility>

#include "api/loss_call.h"
#include "api/reference.h"
#include "core/views.h"
#include "logitless/logits.h"
#include "loss/kto.h"

namespace logitless {
namespace {

using api::Call;

loss::SequenceTokens read_sequences(const Call& call, const Targets& targets, const TokenOptions& token) {
  return loss::read_sequences(call.sequence_offsets(), call.target_ids(targets, token));
}

// Gives the call the task of a loss on sequences, which reads `reads` and the reference.
template <class Loss>
void set_task(Call& call, const Loss& loss, const TokenOptions& token, const Reference& reference,
              core::Array<core::ByteRange> reads) {
  const core::Array<core::ByteRange> of_reference = api::ranges_of(reference);
  reads.insert(reads.end(), of_reference.begin(), of_reference.end());
  call.set_task({.options = token, .request = loss.needs(), .picks = problem::target_picks(loss.tokens().targets)},
                std::move(reads));
}

struct Pairs {
  static constexpr const char* kName = "preference_loss";
  using Loss = loss::PairLoss;
  using Forward = PreferenceForward;
  static constexpr stats::Returned kKept = {.stats = true, .grads = true};

  const Targets& targets;
  const Reference& reference;
  const PreferenceOptions& options;

  bool needs_reference() const {
    return std::any_of(options.losses.begin(), options.losses.end(), logitless::needs_reference);
  }

  Loss make_loss(Call& call) const {
    loss::check_preference_options(options);
    const size_t sequences = call.sequence_offsets().size() - 1;
    if (sequences % 2 != 0) {
      core::fail(call.shape().rows_name, " holds ", sequences,
                 " sequences: pairs need an even number, the chosen ones first");
    }
    loss::SequenceTokens tokens = read_sequences(call, targets, options.token);
    api::check_reference(reference, options.ref_logps_are, tokens, call.shape());
    const bool needed = needs_reference(), given = api::is_given(reference);
    if (given && !needed) core::fail("reference is given but no loss uses it");
    if (needed && !given && tokens.tokens() > 0) {
      const auto first = std::find_if(options.losses.begin(), options.losses.end(), logitless::needs_reference);
      core::fail("reference is not given but ", name_of(*first),
                 " compares with it: log-probabilities of 0 make it reference-free");
    }
    // Where each sequence is one token, its sum is the token's, and no token is beyond the shorter one.
    if (options.ld_alpha && needed && reference.logps.size != tokens.tokens() && api::is_sums(reference, tokens)) {
      core::fail("reference.logps has one entry a sequence, and ld_alpha = ", *options.ld_alpha,
                 " weighs tokens: it must have one a token");
    }
    Loss loss(options, std::move(tokens), call.totals());
    set_task(call, loss, options.token, reference, {core::range_of("targets", targets)});
    return loss;
  }
  void prepare(Call& call, Loss& loss) const {
    if (!needs_reference()) return;
    loss.set_reference(api::reference_sums(call, reference, options.ref_logps_are, loss.tokens(), options.token,
                                           loss.token_weights()));
  }
  void plan_parts(Call& call, const Loss& loss) const {
    if (needs_reference()) api::plan_reference(call, reference, loss.tokens(), options.token);
  }
};

struct Singles {
  static constexpr const char* kName = "kto_loss";
  using Loss = loss::KtoLoss;
  using Forward = KtoForward;
  static constexpr stats::Returned kKept = {.stats = true, .grads = true};

  const KtoBatch& batch;
  const KtoOptions& options;

  Loss make_loss(Call& call) const {
    loss::check_kto_options(options);
    loss::SequenceTokens tokens = read_sequences(call, batch.targets, options.token);
    api::check_reference(batch.reference, options.ref_logps_are, tokens, call.shape());
    if (!api::is_given(batch.reference) && tokens.tokens() > 0) {
      core::fail("reference is not given but ", name_of(options.loss),
                 " compares with it: log-probabilities of 0 make it reference-free");
    }
    Loss loss(options, batch, std::move(tokens), call.shape().rows_name, call.totals());
    set_task(call, loss, options.token, batch.reference,
             {core::range_of("targets", batch.targets),
              core::range_of("labels", batch.labels.data(), batch.labels.size_bytes()),
              core::range_of("kl_logps", batch.kl_logps), core::range_of("kl_ref_logps", batch.kl_ref_logps),
              core::range_of("sequence_weights", batch.sequence_weights),
              core::range_of("reward_targets", batch.reward_targets)});
    call.state_tokens([&](ranks::Statement& statement) { state_batch(statement, loss.tokens()); });
    return loss;
  }
  void prepare(Call& call, Loss& loss) const {
    loss.set_reference(api::reference_sums(call, batch.reference, options.ref_logps_are, loss.tokens(), options.token));
  }
  void plan_parts(Call& call, const Loss& loss) const {
    api::plan_reference(call, batch.reference, loss.tokens(), options.token);
  }
  void state_batch(ranks::Statement& statement, const loss::SequenceTokens& tokens) const {
    statement.say_values("labels", static_cast<int64_t>(batch.labels.size()),
                         [&](int64_t s) { return int64_t{batch.labels[static_cast<size_t>(s)] != 0}; });
    const auto say = [&](const char* name, const ConstVector& values, const auto& counts) {
      statement.say_values(name, values.size, [&](int64_t i) { return counts(i) ? core::read(values, i) : 0; });
    };
    const auto all = [](int64_t) { return true; };
    const auto takes_part = [&](int64_t s) { return tokens.count(s) > 0; };
    say("kl_logps", batch.kl_logps, all);
    say("kl_ref_logps", batch.kl_ref_logps, all);
    say("sequence_weights", batch.sequence_weights, takes_part);
    say("reward_targets", batch.reward_targets, takes_part);
  }
};

}  // namespace

PreferenceResult preference_loss(const Context& context, const HiddenStates& hidden, const LmHead& head,
                                 const Targets& targets, const Reference& reference, const PreferenceOptions& options,
                                 const Gradients& gradients) {
  return api::run(Call(context, hidden, head, gradients), Pairs{targets, reference, options});
}
PreferenceResult preference_loss(const Context& context, const Logits& logits, const Targets& targets,
                                 const Reference& reference, const PreferenceOptions& options,
                                 const LogitsGradient& dlogits) {
  return api::run(Call(context, logits, dlogits), Pairs{targets, reference, options});
}

PreferenceForward preference_loss_forward(const Context& context, const HiddenStates& hidden, const LmHead& head,
                                          const Targets& targets, const Reference& reference,
                                          const PreferenceOptions& options) {
  return api::run_forward(Call(context, hidden, head), Pairs{targets, reference, options});
}
PreferenceForward preference_loss_forward(const Context& context, const Logits& logits, const Targets& targets,
                                          const Reference& reference, const PreferenceOptions& options) {
  return api::run_forward(Call(context, logits), Pairs{targets, reference, options});
}

Plan preference_loss_backward(const Context& context, const HiddenStates& hidden, const LmHead& head,
                              const Targets& targets, const Reference& reference, const PreferenceOptions& options,
                              const PreferenceForward& forward, double upstream, const Gradients& gradients) {
  return api::run_backward(Call(context, hidden, head, gradients), Pairs{targets, reference, options}, forward,
                           upstream);
}
Plan preference_loss_backward(const Context& context, const Logits& logits, const Targets& targets,
                              const Reference& reference, const PreferenceOptions& options,
                              const PreferenceForward& forward, double upstream, const LogitsGradient& dlogits) {
  return api::run_backward(Call(context, logits, dlogits), Pairs{targets, reference, options}, forward, upstream);
}

Plan plan_preference_loss(const Context& context, const HiddenStates& hidden, const LmHead& head,
                          const Targets& targets, const Reference& reference, const PreferenceOptions& options,
                          const Gradients& gradients) {
  return api::plan(Call(context, hidden, head, gradients), Pairs{targets, reference, options});
}
Plan plan_preference_loss(const Context& context, const Logits& logits, const Targets& targets,
                          const Reference& reference, const PreferenceOptions& options, const LogitsGradient& dlogits) {
  return api::plan(Call(context, logits, dlogits), Pairs{targets, reference, options});
}

KtoResult kto_loss(const Context& context, const HiddenStates& hidden, const LmHead& head, const KtoBatch& batch,
                   const KtoOptions& options, const Gradients& gradients) {
  return api::run(Call(context, hidden, head, gradients), Singles{batch, options});
}
KtoResult kto_loss(const Context& context, const Logits& logits, const KtoBatch& batch, const KtoOptions& options,
                   const LogitsGradient& dlogits) {
  return api::run(Call(context, logits, dlogits), Singles{batch, options});
}

KtoForward kto_loss_forward(const Context& context, const HiddenStates& hidden, const LmHead& head,
                            const KtoBatch& batch, const KtoOptions& options) {
  return api::run_forward(Call(context, hidden, head), Singles{batch, options});
}
KtoForward kto_loss_forward(const Context& context, const Logits& logits, const KtoBatch& batch,
                            const KtoOptions& options) {
  return api::run_forward(Call(context, logits), Singles{batch, options});
}

Plan kto_loss_backward(const Context& context, const HiddenStates& hidden, const LmHead& head, const KtoBatch& batch,
                       const KtoOptions& options, const KtoForward& forward, double upstream,
                       const Gradients& gradients) {
  return api::run_backward(Call(context, hidden, head, gradients), Singles{batch, options}, forward, upstream);
}
Plan kto_loss_backward(const Context& context, const Logits& logits, const KtoBatch& batch, const KtoOptions& options,
                       const KtoForward& forward, double upstream, const LogitsGradient& dlogits) {
  return api::run_backward(Call(context, logits, dlogits), Singles{batch, options}, forward, upstream);
}

Plan plan_kto_loss(const Context& context, const HiddenStates& hidden, const LmHead& head, const KtoBatch& batch,
                   const KtoOptions& options, const Gradients& gradients) {
  return api::plan(Call(context, hidden, head, gradients), Singles{batch, options});
}
Plan plan_kto_loss(const Context& context, const Logits& logits, const KtoBatch& batch, const KtoOptions& options,
                   const LogitsGradient& dlogits) {
  return api::plan(Call(context, logits, dlogits), Singles{batch, options});
}

}  // namespace logitless

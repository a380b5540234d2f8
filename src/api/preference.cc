// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "loss/preference.h"
#include "core/store.h"

#include <algorithm>
#include <utility>

#include "api/call.h"
#include "api/reference.h"
#include "logitless/logits.h"
#include "loss/kto.h"

namespace logitless {
namespace {

using api::Call;

loss::SequenceTokens read_sequences(const Call& call, const Targets& targets, const TokenOptions& token) {
  return loss::read_sequences(call.sequence_offsets(), call.words(targets, token));
}

// Gives the call the task of a loss on sequences, whose inputs are `reads`.
template <class Loss>
void set_task(Call& call, const Loss& loss, const TokenOptions& token, const core::Array<core::ByteRange>& reads) {
  call.set_task({.options = token,
                 .request = loss.needs(),
                 .targets = problem::row_targets(loss.tokens().targets),
                 .reads = reads});
}

// Pairs and Singles hold the inputs of the two tasks beside the tensors, and what differs between them.
struct Pairs {
  using Loss = loss::PairLoss;
  using Forward = PreferenceForward;

  const Targets& targets;
  const Reference& reference;
  const PreferenceOptions& options;

  bool needs_reference() const {
    return std::any_of(options.terms.begin(), options.terms.end(),
                       [](const PreferenceTerm& term) { return logitless::needs_reference(term.loss); });
  }

  Loss make_loss(Call& call) const {
    loss::check_preference_options(options);
    const size_t sequences = call.sequence_offsets().size() - 1;
    if (sequences % 2 != 0) {
      core::fail(call.problem().rows_name, " holds ", sequences,
                 " sequences: pairs need an even number, the chosen ones first");
    }
    loss::SequenceTokens tokens = read_sequences(call, targets, options.token);
    api::check_reference(reference, tokens, call.problem().vocab_size);
    const bool needed = needs_reference(), given = api::is_given(reference);
    if (given && !needed) core::fail("reference is given but no term uses it");
    if (needed && !given && tokens.tokens() > 0) core::fail("reference is not given but a term compares with it");
    return Loss(options, std::move(tokens));
  }
  core::Array<core::ByteRange> reads() const { return {core::range_of("targets", targets)}; }
};

struct Singles {
  using Loss = loss::KtoLoss;
  using Forward = KtoForward;

  const KtoBatch& batch;
  const KtoOptions& options;
  const Reference& reference = batch.reference;

  bool needs_reference() const { return true; }

  Loss make_loss(Call& call) const {
    loss::check_kto_options(options);
    loss::SequenceTokens tokens = read_sequences(call, batch.targets, options.token);
    api::check_reference(reference, tokens, call.problem().vocab_size);
    if (!api::is_given(reference) && tokens.tokens() > 0) core::fail("reference is not given: kto compares with it");
    return Loss(options, batch, std::move(tokens));
  }
  core::Array<core::ByteRange> reads() const {
    return {core::range_of("targets", batch.targets),
            core::range_of("labels", batch.labels.data(), batch.labels.size_bytes()),
            core::range_of("kl_logps", batch.kl_logps), core::range_of("kl_ref_logps", batch.kl_ref_logps)};
  }
};

// Gives the call its task.
template <class Batch>
typename Batch::Loss make_loss(Call& call, const Batch& batch) {
  typename Batch::Loss loss = batch.make_loss(call);
  core::Array<core::ByteRange> reads = batch.reads();
  const core::Array<core::ByteRange> of_reference = api::ranges_of(batch.reference);
  reads.insert(reads.end(), of_reference.begin(), of_reference.end());
  set_task(call, loss, batch.options.token, reads);
  return loss;
}

template <class Loss, class Batch>
stream::Ran run_loss(const Call& call, const Batch& batch, Loss& loss) {
  if (batch.needs_reference()) {
    loss.set_reference(api::reference_sums(call.context(), batch.reference, loss.tokens(), batch.options.token));
  }
  return call.run(&loss);
}

template <class Batch>
auto run(Call call, const Batch& batch) {
  auto loss = make_loss(call, batch);
  const stream::Ran ran = run_loss(call, batch, loss);
  return loss.result(ran.stats, ran.plan);
}

template <class Batch>
typename Batch::Forward run_forward(Call call, const Batch& batch) {
  auto loss = make_loss(call, batch);
  stream::Ran ran = run_loss(call, batch, loss);
  return {loss.result(ran.stats, ran.plan), std::move(ran.stats), std::move(ran.grads)};
}

template <class Batch>
Plan run_backward(Call call, const Batch& batch, const typename Batch::Forward& forward, double upstream) {
  make_loss(call, batch);
  return call.run_gradients(forward.stats, forward.grads, upstream);
}

template <class Batch>
Plan plan(Call call, const Batch& batch) {
  const typename Batch::Loss loss = make_loss(call, batch);
  return call.plan(&loss);
}

}  // namespace

PreferenceResult preference_loss(const Context& context, const HiddenStates& hidden, const LmHead& head,
                                 const Targets& targets, const Reference& reference, const PreferenceOptions& options,
                                 const Gradients& gradients) {
  return run(Call(context, hidden, head, gradients), Pairs{targets, reference, options});
}
PreferenceResult preference_loss(const Context& context, const Logits& logits, const Targets& targets,
                                 const Reference& reference, const PreferenceOptions& options,
                                 const LogitsGradient& dlogits) {
  return run(Call(context, logits, dlogits), Pairs{targets, reference, options});
}

PreferenceForward preference_loss_forward(const Context& context, const HiddenStates& hidden, const LmHead& head,
                                          const Targets& targets, const Reference& reference,
                                          const PreferenceOptions& options) {
  return run_forward(Call(context, hidden, head), Pairs{targets, reference, options});
}
PreferenceForward preference_loss_forward(const Context& context, const Logits& logits, const Targets& targets,
                                          const Reference& reference, const PreferenceOptions& options) {
  return run_forward(Call(context, logits), Pairs{targets, reference, options});
}

Plan preference_loss_backward(const Context& context, const HiddenStates& hidden, const LmHead& head,
                              const Targets& targets, const Reference& reference, const PreferenceOptions& options,
                              const PreferenceForward& forward, double upstream, const Gradients& gradients) {
  return run_backward(Call(context, hidden, head, gradients), Pairs{targets, reference, options}, forward, upstream);
}
Plan preference_loss_backward(const Context& context, const Logits& logits, const Targets& targets,
                              const Reference& reference, const PreferenceOptions& options,
                              const PreferenceForward& forward, double upstream, const LogitsGradient& dlogits) {
  return run_backward(Call(context, logits, dlogits), Pairs{targets, reference, options}, forward, upstream);
}

Plan plan_preference_loss(const Context& context, const HiddenStates& hidden, const LmHead& head,
                          const Targets& targets, const Reference& reference, const PreferenceOptions& options,
                          const Gradients& gradients) {
  return plan(Call(context, hidden, head, gradients), Pairs{targets, reference, options});
}
Plan plan_preference_loss(const Context& context, const Logits& logits, const Targets& targets,
                          const Reference& reference, const PreferenceOptions& options, const LogitsGradient& dlogits) {
  return plan(Call(context, logits, dlogits), Pairs{targets, reference, options});
}

KtoResult kto_loss(const Context& context, const HiddenStates& hidden, const LmHead& head, const KtoBatch& batch,
                   const KtoOptions& options, const Gradients& gradients) {
  return run(Call(context, hidden, head, gradients), Singles{batch, options});
}
KtoResult kto_loss(const Context& context, const Logits& logits, const KtoBatch& batch, const KtoOptions& options,
                   const LogitsGradient& dlogits) {
  return run(Call(context, logits, dlogits), Singles{batch, options});
}

KtoForward kto_loss_forward(const Context& context, const HiddenStates& hidden, const LmHead& head,
                            const KtoBatch& batch, const KtoOptions& options) {
  return run_forward(Call(context, hidden, head), Singles{batch, options});
}
KtoForward kto_loss_forward(const Context& context, const Logits& logits, const KtoBatch& batch,
                            const KtoOptions& options) {
  return run_forward(Call(context, logits), Singles{batch, options});
}

Plan kto_loss_backward(const Context& context, const HiddenStates& hidden, const LmHead& head, const KtoBatch& batch,
                       const KtoOptions& options, const KtoForward& forward, double upstream,
                       const Gradients& gradients) {
  return run_backward(Call(context, hidden, head, gradients), Singles{batch, options}, forward, upstream);
}
Plan kto_loss_backward(const Context& context, const Logits& logits, const KtoBatch& batch, const KtoOptions& options,
                       const KtoForward& forward, double upstream, const LogitsGradient& dlogits) {
  return run_backward(Call(context, logits, dlogits), Singles{batch, options}, forward, upstream);
}

Plan plan_kto_loss(const Context& context, const HiddenStates& hidden, const LmHead& head, const KtoBatch& batch,
                   const KtoOptions& options, const Gradients& gradients) {
  return plan(Call(context, hidden, head, gradients), Singles{batch, options});
}
Plan plan_kto_loss(const Context& context, const Logits& logits, const KtoBatch& batch, const KtoOptions& options,
                   const LogitsGradient& dlogits) {
  return plan(Call(context, logits, dlogits), Singles{batch, options});
}

}  // namespace logitless

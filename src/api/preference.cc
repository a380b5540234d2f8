// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "loss/preference.h"

#include <algorithm>
#include <utility>

#include "api/call.h"
#include "api/reference.h"
#include "loss/kto.h"

namespace logitless {
namespace {

using api::Call;

loss::SequenceTokens read_sequences(const Call& call, const Targets& targets, const PreferenceTokenOptions& token) {
  TokenOptions options;
  options.ignore_index = token.ignore_index;
  options.shift = token.shift;
  return loss::read_sequences(call.sequence_offsets(), call.words(targets, options));
}

// Gives the call its task, whose inputs are `reads`.
template <class Loss>
void set_task(Call& call, const Loss& loss, const PreferenceTokenOptions& token,
              const std::vector<core::ByteRange>& reads) {
  call.set_task({.options = loss.tokens().options(token),
                 .request = loss.needs(),
                 .targets = problem::row_targets(loss.tokens().targets),
                 .reads = reads});
}

// Gives the call its task; `reference` says whether the loss needs one.
loss::PairLoss make_loss(Call& call, const Targets& targets, const Reference& reference,
                         const PreferenceOptions& options) {
  loss::check_preference_options(options);
  const size_t sequences = call.sequence_offsets().size() - 1;
  if (sequences % 2 != 0) {
    core::fail("hidden holds ", sequences, " sequences: pairs need an even number, the chosen ones first");
  }
  loss::SequenceTokens tokens = read_sequences(call, targets, options.token);
  api::check_reference(reference, tokens, call.problem().vocab_size);
  const bool needed = std::any_of(options.terms.begin(), options.terms.end(),
                                  [](const PreferenceTerm& term) { return needs_reference(term.loss); });
  const bool given = api::is_given(reference);
  if (given && !needed) core::fail("reference is given but no term uses it");
  if (needed && !given && tokens.tokens() > 0) core::fail("reference is not given but a term compares with it");
  loss::PairLoss loss(options, std::move(tokens));
  std::vector<core::ByteRange> reads = api::ranges_of(reference);
  reads.push_back(core::range_of("targets", targets));
  set_task(call, loss, options.token, std::move(reads));
  if (needed) loss.set_reference(api::reference_sums(call.context(), reference, loss.tokens(), options.token));
  return loss;
}

loss::KtoLoss make_loss(Call& call, const KtoBatch& batch, const KtoOptions& options) {
  loss::check_kto_options(options);
  loss::SequenceTokens tokens = read_sequences(call, batch.targets, options.token);
  api::check_reference(batch.reference, tokens, call.problem().vocab_size);
  if (!api::is_given(batch.reference) && tokens.tokens() > 0) {
    core::fail("reference is not given: kto compares with it");
  }
  loss::KtoLoss loss(options, batch, std::move(tokens));
  std::vector<core::ByteRange> reads = api::ranges_of(batch.reference);
  reads.insert(reads.end(),
               {core::range_of("targets", batch.targets),
                core::range_of("labels", batch.labels.data(), batch.labels.size_bytes()),
                core::range_of("kl_logps", batch.kl_logps), core::range_of("kl_ref_logps", batch.kl_ref_logps)});
  set_task(call, loss, options.token, std::move(reads));
  loss.set_reference(api::reference_sums(call.context(), batch.reference, loss.tokens(), options.token));
  return loss;
}

}  // namespace

PreferenceResult preference_loss(const Context& context, const HiddenStates& hidden, const LmHead& head,
                                 const Targets& targets, const Reference& reference, const PreferenceOptions& options,
                                 const Gradients& gradients) {
  Call call(context, hidden, head, gradients);
  loss::PairLoss loss = make_loss(call, targets, reference, options);
  Plan plan;
  const TokenStats stats = call.run(&loss, &plan);
  return loss.result(stats, plan);
}

KtoResult kto_loss(const Context& context, const HiddenStates& hidden, const LmHead& head, const KtoBatch& batch,
                   const KtoOptions& options, const Gradients& gradients) {
  Call call(context, hidden, head, gradients);
  loss::KtoLoss loss = make_loss(call, batch, options);
  Plan plan;
  const TokenStats stats = call.run(&loss, &plan);
  return loss.result(stats, plan);
}

}  // namespace logitless

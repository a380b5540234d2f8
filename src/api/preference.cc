// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "loss/preference.h"

#include <algorithm>
#include <utility>

#include "api/reference.h"
#include "api/verbs.h"
#include "core/views.h"
#include "loss/kto.h"

namespace logitless {
namespace api {
namespace {

loss::SequenceTokens read_sequences(const Call& call, const ConstTensor& targets, const TokenOptions& token) {
  return loss::read_sequences(call.sequence_offsets(), call.target_ids(targets, token));
}

// Sets the task of a loss on sequences, which reads `reads` and the reference.
template <class Loss>
void set_task(Call& call, const Loss& loss, const TokenOptions& token, const Reference& reference,
              core::Array<core::ByteRange> reads) {
  const core::Array<core::ByteRange> of_reference = api::ranges_of(reference);
  reads.insert(reads.end(), of_reference.begin(), of_reference.end());
  call.set_task({.options = token, .request = loss.needs(), .picks = problem::target_picks(loss.tokens().targets)},
                std::move(reads));
}

}  // namespace

template <>
struct Steps<PreferenceLoss> {
  static constexpr stats::Returned kRun = {};
  static constexpr stats::Returned kForward = {.stats = true, .grads = true};

  const PreferenceLoss& task;

  bool needs_reference() const {
    return std::any_of(task.loss_type.begin(), task.loss_type.end(), logitless::needs_reference);
  }

  // If every sequence has at most one token, sums equal per-token values, and ld_alpha weighs no token.
  static bool has_longer_sequence(std::span<const int64_t> offsets) {
    for (size_t s = 1; s < offsets.size(); ++s) {
      if (offsets[s] - offsets[s - 1] > 1) return true;
    }
    return false;
  }

  loss::PairLoss make_loss(Call& call) const {
    loss::check_preference_options(task);
    const size_t sequences = call.sequence_offsets().size() - 1;
    if (sequences % 2 != 0) {
      core::fail(call.shape().rows_name, " holds ", sequences,
                 " sequences: pairs need an even number, the chosen ones first");
    }
    loss::SequenceTokens tokens = read_sequences(call, task.targets, task.token);
    const api::Reference reference = api::reference_of(task);
    api::check_reference(reference, tokens, call.shape());
    const bool needed = needs_reference(), given = api::is_given(reference);
    if (given && !needed) core::fail("reference is given but no loss uses it");
    if (needed && !given && tokens.tokens() > 0) {
      const auto first = std::find_if(task.loss_type.begin(), task.loss_type.end(), logitless::needs_reference);
      core::fail("reference is not given but ", name_of(*first),
                 " needs it: ref_logps of 0 make the loss reference-free");
    }
    if (task.ld_alpha && needed && has_longer_sequence(call.sequence_offsets()) && api::is_sums(reference, tokens)) {
      core::fail("ref_logps has one entry per sequence, and ld_alpha = ", *task.ld_alpha,
                 " weighs tokens: it must have one per token");
    }
    loss::PairLoss loss(task, std::move(tokens), call.totals());
    set_task(call, loss, task.token, reference, {core::range_of("targets", task.targets)});
    return loss;
  }
  void prepare(Call& call, loss::PairLoss& loss) const {
    if (!needs_reference()) return;
    loss.set_reference(
        api::reference_sums(call, api::reference_of(task), loss.tokens(), task.token, loss.token_weights()));
  }
  void plan_parts(Call& call, const loss::PairLoss& loss) const {
    if (needs_reference()) api::plan_reference(call, api::reference_of(task), loss.tokens(), task.token);
  }
  Plan backward(Call& call, const loss::PairLoss&, const Forward<PreferenceLoss>& forward,
                const Upstream& upstream) const {
    return scaled_gradients(call, forward, upstream);
  }
};

template <>
struct Steps<KtoLoss> {
  static constexpr stats::Returned kRun = {};
  static constexpr stats::Returned kForward = {.stats = true, .grads = true};

  const KtoLoss& task;

  loss::SequenceLoss make_loss(Call& call) const {
    loss::check_kto_options(task);
    loss::SequenceTokens tokens = read_sequences(call, task.targets, task.token);
    const api::Reference reference = api::reference_of(task);
    api::check_reference(reference, tokens, call.shape());
    if (!api::is_given(reference) && tokens.tokens() > 0) {
      core::fail("reference is not given but ", name_of(task.loss_type),
                 " needs it: ref_logps of 0 make the loss reference-free");
    }
    loss::SequenceLoss loss(task, std::move(tokens), call.shape().rows_name, call.totals());
    set_task(call, loss, task.token, reference,
             {core::range_of("targets", task.targets),
              core::range_of("labels", task.labels.data(), task.labels.size_bytes()),
              core::range_of("kl_logps", task.kl_logps), core::range_of("kl_ref_logps", task.kl_ref_logps),
              core::range_of("sequence_weights", task.sequence_weights),
              core::range_of("reward_targets", task.reward_targets)});
    call.digest_tokens([&](ranks::Digests& digests) { digest_batch(digests, loss.tokens()); });
    return loss;
  }
  void prepare(Call& call, loss::SequenceLoss& loss) const {
    loss.set_reference(api::reference_sums(call, api::reference_of(task), loss.tokens(), task.token));
  }
  void plan_parts(Call& call, const loss::SequenceLoss& loss) const {
    api::plan_reference(call, api::reference_of(task), loss.tokens(), task.token);
  }
  void digest_batch(ranks::Digests& digests, const loss::SequenceTokens& tokens) const {
    digests.add_values("labels", static_cast<int64_t>(task.labels.size()),
                       [&](int64_t s) { return int64_t{task.labels[static_cast<size_t>(s)] != 0}; });
    const auto say = [&](const char* name, const ConstTensor& given, const auto& counts) {
      const ConstVector values = core::vector_of(name, given);
      digests.add_values(name, values.size, [&](int64_t i) { return counts(i) ? core::read(values, i) : 0; });
    };
    const auto all = [](int64_t) { return true; };
    const auto is_active = [&](int64_t s) { return tokens.count(s) > 0; };
    say("kl_logps", task.kl_logps, all);
    say("kl_ref_logps", task.kl_ref_logps, all);
    say("sequence_weights", task.sequence_weights, is_active);
    say("reward_targets", task.reward_targets, is_active);
  }
  Plan backward(Call& call, const loss::SequenceLoss&, const Forward<KtoLoss>& forward,
                const Upstream& upstream) const {
    return scaled_gradients(call, forward, upstream);
  }
};

}  // namespace api

LOGITLESS_VERBS(PreferenceLoss);
LOGITLESS_VERBS(KtoLoss);

}  // namespace logitless

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "support/preference_cases.h"

#include <functional>
#include <limits>
#include <random>
#include <utility>

#include "support/option_cases.h"

namespace logitless::testing {
namespace {

using L = PreferenceLossType;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

std::vector<PreferenceCase> make_cases() {
  std::vector<PreferenceCase> cases;
  const OptionBatch batch;
  const auto add = [&](const std::string& name, const PreferenceLoss& options) {
    if (batch.accepts(options)) cases.push_back({name, options});
  };
  const std::vector<OptionCase<PreferenceLoss>> changes = option_cases<PreferenceLoss>();
  for (const L loss : every_preference_loss()) {
    const PreferenceLoss plain = options_of(loss);
    add(name_of(loss), plain);
    for (const OptionCase<PreferenceLoss>& change : changes) {
      PreferenceLoss options = plain;
      if (set_options(change, options)) {
        add(name_of(loss) + (", " + change.field + " = " + change.value), options);
        options.average_log_prob = true, options.loss_scale = -3.5;
        add(name_of(loss) + (", average_log_prob, " + change.field + " = " + change.value), options);
      }
    }
  }
  const auto add_sum = [&](const std::vector<std::pair<L, double>>& losses, double smoothing,
                           const std::function<void(PreferenceLoss&)>& change) {
    PreferenceCase sum;
    sum.options.loss_type.clear();
    for (const auto& [loss, weight] : losses) {
      sum.name += std::to_string(weight) + " " + name_of(loss) + " + ";
      sum.options.loss_type.push_back(loss);
      sum.options.loss_weights.push_back(weight);
    }
    sum.options.label_smoothing = smoothing;
    change(sum.options);
    cases.push_back(sum);
  };
  add_sum({{L::kSigmoid, 1.5}, {L::kIpo, -0.5}, {L::kAot, 2.0}}, 0.2, [](auto& o) { o.loss_scale = 0.5; });
  add_sum({{L::kOrpo, 1.0}, {L::kRobust, 0.3}, {L::kAotUnpaired, 0.7}}, 0.25, [](auto&) {});
  add_sum({{L::kHinge, 1.0}, {L::kSimpo, 0.5}, {L::kCpo, 0.25}}, 0.1, [](auto& o) { o.beta = 1.25; });
  add_sum({{L::kSft, 0.5}, {L::kSft, 0.25}, {L::kNcaPair, 1.0}}, 0, [](auto& o) { o.nll_weight = 0.125; });
  add_sum({{L::kSigmoid, 0.5}, {L::kIpo, 1.0}, {L::kSigmoidNorm, 2.0}, {L::kSft, 0.5}}, 0, [](auto& o) {
    o.f_divergence = FDivergence::kJs;
    o.ld_alpha = 0.25;
  });
  return cases;
}

}  // namespace

const std::vector<PreferenceLossType>& every_preference_loss() {
  static const std::vector<L> all = {L::kSigmoid, L::kHinge,       L::kIpo,        L::kExoPair, L::kNcaPair,
                                     L::kRobust,  L::kBcoPair,     L::kSppoHard,   L::kApoZero, L::kApoDown,
                                     L::kAot,     L::kAotUnpaired, L::kDiscopop,   L::kSft,     L::kOrpo,
                                     L::kSimpo,   L::kCpo,         L::kSigmoidNorm};
  return all;
}

PreferenceLoss options_of(PreferenceLossType loss) {
  PreferenceLoss options;
  options.loss_type = {loss};
  if (loss == L::kExoPair) options.label_smoothing = 0.05;  // required
  return options;
}

const std::vector<PreferenceCase>& preference_cases() {
  static const std::vector<PreferenceCase> cases = make_cases();
  return cases;
}

oracle::SequenceBatch random_batch(const std::vector<int64_t>& lengths, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::exponential_distribution<double> surprise(1.0);
  std::normal_distribution<double> normal(0, 0.4);
  std::mt19937_64 others(seed + 1000);
  oracle::SequenceBatch batch;
  batch.offsets = {0};
  for (const int64_t length : lengths) {
    double reference = 0;
    for (int64_t t = 0; t < length; ++t) {
      batch.logp.push_back(-0.05 - surprise(random));
      batch.entropy.push_back(surprise(random));
      // The first token of a sequence is never ignored.
      batch.is_active.push_back(t == 0 || random() % 4 != 0);
      batch.square_sums.push_back(std::exp(-surprise(others)));
      batch.reference_tokens.push_back(kNaN);
      if (batch.is_active.back()) batch.reference_tokens.back() = batch.logp.back() + normal(random);
      if (batch.is_active.back()) reference += batch.reference_tokens.back();
    }
    batch.reference.push_back(reference);
    batch.offsets.push_back(batch.tokens());
  }
  return batch;
}

oracle::SequenceBatch one_token_batch(const std::vector<double>& logp, const std::vector<double>& reference) {
  oracle::SequenceBatch batch;
  batch.logp = logp;
  batch.entropy.assign(logp.size(), 0.5);
  batch.is_active.assign(logp.size(), true);
  for (size_t s = 0; s <= logp.size(); ++s) batch.offsets.push_back(static_cast<int64_t>(s));
  batch.reference = reference;
  batch.reference_tokens = reference;
  batch.square_sums.assign(logp.size(), 0.25);
  return batch;
}

const std::vector<KtoCase>& kto_cases() {
  static const std::vector<KtoCase> cases = [] {
    std::vector<KtoCase> all;
    const OptionBatch batch;
    for (const KtoLossType loss : all_of<KtoLossType>()) {
      for (const OptionCase<KtoLoss>& change : option_cases<KtoLoss>()) {
        KtoCase one;
        one.options.loss_type = loss;
        if (!set_options(change, one.options) || !batch.accepts(one.options)) continue;
        one.name = name_of(loss) + (", " + change.field + " = " + change.value);
        one.labels = {1, 0, 0, 1, 1};
        all.push_back(one);
        one.weighs = true;
        one.options.average_log_prob = true;
        // Means above 0, below it, and of both signs; only one kind of label.
        if (loss == KtoLossType::kKto) one.kl_logps = {-3.5, -8.25, -1}, one.kl_ref_logps = {-4.5, -9, -3.25};
        all.push_back(one);
        if (loss == KtoLossType::kKto) one.kl_logps = {-1, -8.25, -2, -7}, one.kl_ref_logps = {-2.5, -8, -2, -7};
        one.labels = {static_cast<uint8_t>(all.size() % 4 == 0)};
        all.push_back(one);
      }
    }
    return all;
  }();
  return cases;
}

oracle::KtoInput kto_input(const oracle::SequenceBatch& batch, const KtoCase& kto_case) {
  oracle::KtoInput input;
  input.batch = batch;
  input.kl_logps = kto_case.kl_logps;
  input.kl_ref_logps = kto_case.kl_ref_logps;
  for (int64_t s = 0; s < batch.sequences(); ++s) {
    input.labels.push_back(kto_case.labels[s % kto_case.labels.size()]);
    // Values of sequences without tokens are not read.
    const bool read = batch.count(s) > 0;
    if (kto_case.weighs) input.sequence_weights.push_back(read ? 0.5 * static_cast<double>(s % 4) : kNaN);
    if (kto_case.options.loss_type == KtoLossType::kA2po) {
      input.reward_targets.push_back(read ? 0.4 - 0.3 * static_cast<double>(s % 3) : kNaN);
    }
  }
  return input;
}

}  // namespace logitless::testing

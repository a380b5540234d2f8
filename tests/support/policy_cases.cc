// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "support/policy_cases.h"
#include "support/calls.h"
#include "support/option_cases.h"

#include <cmath>
#include <limits>
#include <random>

namespace logitless::testing {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Returns whether the library takes the options; it refuses those without an effect.
bool accepts(const PolicyLoss& options) {
  static const OptionBatch batch;
  return batch.accepts(options);
}

bool needs_sampler(const PolicyLoss& options) {
  return options.sampler_correction != SamplerCorrection::kNone ||
         options.teacher_against == TeacherAgainst::kSampling || options.m2_threshold || options.sampler_penalty != 0;
}

template <class T>
ConstVector view(const std::vector<T>& values) {
  return {values.data(), static_cast<int64_t>(values.size())};
}

}  // namespace

PolicyCase plain_case(PolicyLossType variant) {
  PolicyCase result;
  result.name = name_of(variant);
  result.options.loss_type = variant;
  if (variant == PolicyLossType::kDrGrpo) result.options.max_completion_length = 9;
  return result;
}

std::vector<PolicyCase> policy_cases(int mixtures) {
  static const std::vector<OptionCase<PolicyLoss>> options = option_cases<PolicyLoss>();
  std::vector<PolicyCase> cases;
  std::mt19937_64 random(5);
  // Adds an option unless the variant or the other options refuse it.
  const auto add = [](const OptionCase<PolicyLoss>& option, PolicyCase& to) {
    PolicyLoss changed = to.options;
    if (!set_options(option, changed) || !accepts(changed)) return false;
    to.options = changed;
    to.name += ", " + option.field + " = " + option.value;
    return true;
  };
  for (const PolicyLossType variant : all_of<PolicyLossType>()) {
    const PolicyCase plain = plain_case(variant);
    cases.push_back(plain);
    for (const OptionCase<PolicyLoss>& option : options) {
      PolicyCase one = plain;
      if (add(option, one)) cases.push_back(one);
    }
    for (int m = 0; m < mixtures; ++m) {
      PolicyCase mixture = plain;
      for (const OptionCase<PolicyLoss>& option : options) {
        if (random() % 6 == 0) add(option, mixture);
      }
      mixture.advantages_per_token = random() % 2 == 0;
      mixture.on_policy = random() % 4 == 0;
      mixture.teacher_alone = mixture.options.teacher_weight != 0 && random() % 4 == 0;
      mixture.with_sampling = mixture.options.off_policy_mask_threshold && random() % 2 == 0;
      cases.push_back(mixture);
    }
  }
  return cases;
}

PolicyBatch PolicyData::batch(const PolicyCase& policy_case) const {
  PolicyBatch batch;
  batch.chosen_ids = Targets(std::span<const int64_t>(ids));
  if (!policy_case.teacher_alone) {
    batch.advantages = view(policy_case.advantages_per_token ? token_advantages : sequence_advantages);
    batch.advantages_per = policy_case.advantages_per_token ? EntriesPer::kToken : EntriesPer::kSequence;
  }
  if (policy_case.options.teacher_weight != 0) batch.teacher_logps = view(teacher_logps);
  if (!policy_case.on_policy) batch.old_logps = view(old_logps);
  if (policy_case.options.beta != 0) batch.ref_logps = view(ref_logps);
  if (policy_case.with_sampling || needs_sampler(policy_case.options)) batch.sampling_logps = view(sampling_logps);
  const bool scored =
      policy_case.options.loss_type == PolicyLossType::kTopr || policy_case.options.positive_nll_weight != 0;
  if (scored) batch.scores = view(scores);
  batch.mask = mask;
  return batch;
}

oracle::PolicyTokens PolicyData::oracle_tokens(const PolicyCase& policy_case) const {
  return oracle::read_policy_batch(with(policy_case.options, batch(policy_case)), offsets);
}

PolicyData mixed_data(uint64_t seed) {
  PolicyData data;
  data.offsets = {0, 5, 5, 6, 10, 14};
  data.mask = {1, 0, 1, 1, 1, /**/ 1, /**/ 1, 1, 1, 1, /**/ 0, 0, 0, 0};
  if (seed % 2 == 0) data.mask = {1, 1, 1, 1, 1, /**/ 0, /**/ 0, 1, 0, 1, /**/ 1, 0, 1, 1};
  data.sequence_advantages = {0.73, kNaN, -1.31, -0.57, 1.9};
  data.scores = {0.25, kNaN, 1, 0, 0.5};
  data.sequence_advantages[seed % 2 == 0 ? 2 : 4] = kNaN;  // of the fully masked sequence
  data.scores[seed % 2 == 0 ? 2 : 4] = kNaN;
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal(0, 1);
  for (int64_t i = 0; i < data.tokens(); ++i) {
    const double logp = -std::abs(normal(random)) - 0.01;
    data.at.logp.push_back(logp);
    data.at.entropy.push_back(0.1 + std::abs(normal(random)));
    data.old_logps.push_back(logp - 0.3 * normal(random));
    data.ref_logps.push_back(logp + 0.5 * normal(random));
    data.sampling_logps.push_back(data.old_logps.back() + 0.2 * normal(random));
    data.token_advantages.push_back(normal(random));
    data.teacher_logps.push_back(logp + 0.4 * std::sin(static_cast<double>(3 * i + 1)));
    data.ids.push_back(static_cast<int64_t>(random() % 3));
    if (data.mask[i]) continue;
    data.ids.back() = i % 2 == 0 ? int64_t{-7} : int64_t{1} << 50;
    data.old_logps.back() = kNaN;
    data.ref_logps.back() = kInfinity;
    data.sampling_logps.back() = -kInfinity;
    data.teacher_logps.back() = kInfinity;
    data.token_advantages.back() = i % 2 == 0 ? kNaN : kInfinity;
  }
  data.token_advantages[3] = 0;
  data.sampling_logps[9] = kNaN;
  return data;
}

PolicyData data_of(const std::vector<std::vector<double>>& log_ratios, const std::vector<double>& advantages) {
  PolicyData data;
  data.offsets = {0};
  data.sequence_advantages = advantages;
  for (const double advantage : advantages) data.scores.push_back(advantage);
  for (size_t s = 0; s < log_ratios.size(); ++s) {
    for (const double log_ratio : log_ratios[s]) {
      data.at.logp.push_back(-2);
      data.at.entropy.push_back(0.5);
      data.old_logps.push_back(-2 - log_ratio);
      data.ref_logps.push_back(-2.25);
      data.sampling_logps.push_back(data.old_logps.back());
      data.token_advantages.push_back(advantages[s]);
      data.teacher_logps.push_back(-1.5);
      data.ids.push_back(0);
      data.mask.push_back(1);
    }
    data.offsets.push_back(static_cast<int64_t>(data.at.logp.size()));
  }
  return data;
}

}  // namespace logitless::testing

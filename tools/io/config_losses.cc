// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The blocks policy:, preference: and kto:, every option of those losses under its own name.
#include "io/config_rules.h"

namespace logitless::io {
namespace {

using Levels = std::initializer_list<ImportanceLevel>;
using Estimators = std::initializer_list<KlEstimator>;
using Corrections = std::initializer_list<SamplerCorrection>;

const Interval kLogRatio{.low = 0, .high = 300, .open_low = true, .text = "a number above 0 and up to 300, or none"};

KeyRule policy_rule(const std::string& name, auto member, auto read) {
  return rule("policy." + name, path(&Config::policy, &PolicyConfig::options, member), read);
}
KeyRule preference_rule(const std::string& name, auto member, auto read) {
  return rule("preference." + name, path(&Config::preference, member), read);
}
KeyRule kto_rule(const std::string& name, auto member, auto read) {
  return rule("kto." + name, path(&Config::kto, &KtoConfig::options, member), read);
}

template <class T, class Read>
std::vector<T> read_list(const ConfigValue& value, const Read& read, const std::string& text) {
  if (!value.node.IsSequence()) return {read(value)};
  std::vector<T> list;
  for (const auto& node : value.node) list.push_back(read({value.key, value.place, node}));
  if (list.empty()) value.reject(text);
  return list;
}

}  // namespace

void add_policy_rules(std::vector<KeyRule>& rules) {
  using P = PolicyOptions;
  using enum SamplerCorrection;
  rules.push_back(policy_rule("variant", &P::variant, named<PolicyVariant>(all_policy_variants())));
  rules.push_back(policy_rule("importance_sampling_level", &P::importance_sampling_level,
                              named<ImportanceLevel>(Levels{ImportanceLevel::kToken, ImportanceLevel::kSequence})));
  rules.push_back(policy_rule("epsilon_low", &P::epsilon_low, number(kShare)));
  rules.push_back(policy_rule("epsilon_high", &P::epsilon_high, number(kNotNegative)));
  rules.push_back(policy_rule("delta", &P::delta, none_or(number(kPositive))));
  rules.push_back(policy_rule("log_ratio_clamp", &P::log_ratio_clamp, none_or(number(kLogRatio))));
  rules.push_back(policy_rule("beta", &P::beta, number(kNotNegative)));
  rules.push_back(policy_rule("kl_estimator", &P::kl_estimator,
                              named<KlEstimator>(Estimators{KlEstimator::kK1, KlEstimator::kK2, KlEstimator::kK3})));
  rules.push_back(policy_rule("use_bias_correction_kl", &P::use_bias_correction_kl, read_bool));
  rules.push_back(policy_rule("entropy_bonus", &P::entropy_bonus, number(kFinite)));
  rules.push_back(policy_rule("top_entropy_quantile", &P::top_entropy_quantile, number(kPositiveShare)));
  rules.push_back(policy_rule("off_policy_mask_threshold", &P::off_policy_mask_threshold, none_or(number(kFinite))));
  rules.push_back(policy_rule(
      "sampler_correction", &P::sampler_correction,
      named<SamplerCorrection>(Corrections{kNone, kTokenTruncate, kTokenMask, kSequenceTruncate, kSequenceMask})));
  rules.push_back(policy_rule("sampler_clip_min", &P::sampler_clip_min, none_or(number(kNotNegative))));
  rules.push_back(policy_rule("sampler_clip_max", &P::sampler_clip_max, none_or(number(kPositive))));
  rules.push_back(policy_rule("num_items_in_batch", &P::num_items_in_batch, none_or(number(kPositive))));
  rules.push_back(policy_rule("max_completion_length", &P::max_completion_length, none_or(integer(1, kMaxSize))));
  rules.push_back(policy_rule("sapo_temperature_pos", &P::sapo_temperature_pos, number(kPositive)));
  rules.push_back(policy_rule("sapo_temperature_neg", &P::sapo_temperature_neg, number(kPositive)));
  rules.push_back(policy_rule("vespo_k_pos", &P::vespo_k_pos, number(kFinite)));
  rules.push_back(policy_rule("vespo_lambda_pos", &P::vespo_lambda_pos, number(kFinite)));
  rules.push_back(policy_rule("vespo_k_neg", &P::vespo_k_neg, number(kFinite)));
  rules.push_back(policy_rule("vespo_lambda_neg", &P::vespo_lambda_neg, number(kFinite)));
  rules.push_back(rule("policy.advantages", path(&Config::policy, &PolicyConfig::advantage_per_token),
                       choice<bool>({{"sequence", false}, {"token", true}})));
  rules.push_back(rule("policy.on_policy", path(&Config::policy, &PolicyConfig::on_policy), read_bool));
  rules.push_back(rule("policy.log_ratio_deviation", path(&Config::policy, &PolicyConfig::log_ratio_deviation),
                       number(kNotNegative)));
}

void add_preference_rules(std::vector<KeyRule>& rules) {
  using P = PreferenceOptions;
  rules.push_back(rule("preference.losses", path(&Config::preference, &PreferenceOptions::terms),
                       [read = named<PreferenceLoss>(all_preference_losses())](const ConfigValue& value) {
                         std::vector<PreferenceTerm> terms;
                         for (const PreferenceLoss loss :
                              read_list<PreferenceLoss>(value, read, "the name of a loss, or a list of them"))
                           terms.push_back({loss, 1.0});
                         return terms;
                       }));
  rules.push_back(
      rule("preference.loss_weights", &Config::preference_weights, [read = number(kFinite)](const ConfigValue& value) {
        return read_list<double>(value, read, "a finite number, or a list of them");
      }));
  rules.push_back(preference_rule("beta", &P::beta, number(kPositive)));
  rules.push_back(preference_rule("label_smoothing", &P::label_smoothing, number(kShare)));
  rules.push_back(preference_rule("average_log_prob", &P::average_log_prob, read_bool));
  rules.push_back(preference_rule("discopop_tau", &P::discopop_tau, number(kPositive)));
  rules.push_back(preference_rule("simpo_gamma", &P::simpo_gamma, number(kFinite)));
  rules.push_back(preference_rule("nll_weight", &P::nll_weight, number(kNotNegative)));
  using K = KtoOptions;
  rules.push_back(kto_rule("beta", &K::beta, number(kPositive)));
  rules.push_back(kto_rule("desirable_weight", &K::desirable_weight, number(kNotNegative)));
  rules.push_back(kto_rule("undesirable_weight", &K::undesirable_weight, number(kNotNegative)));
  rules.push_back(kto_rule("average_log_prob", &K::average_log_prob, read_bool));
  rules.push_back(rule("kto.kl_baseline", path(&Config::kto, &KtoConfig::kl_baseline), read_bool));
}

}  // namespace logitless::io

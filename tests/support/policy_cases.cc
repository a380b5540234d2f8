// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "support/policy_cases.h"
#include "support/calls.h"

#include <cmath>
#include <limits>
#include <random>

namespace logitless::testing {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

bool takes_sequence_ratio(PolicyLossType v) {
  return v != PolicyLossType::kRloo && v != PolicyLossType::kVespo && v != PolicyLossType::kGmpo;
}
bool takes_sequence_correction(PolicyLossType v) { return v != PolicyLossType::kVespo; }
// The other losses refuse delta.
bool clips_on_both_sides(PolicyLossType v) {
  using enum PolicyLossType;
  return v == kGrpo || v == kBnpo || v == kDrGrpo || v == kDapo || v == kLuspo || v == kRloo || v == kPpo ||
         v == kClipCov;
}
bool truncates(PolicyLossType v) { return v == PolicyLossType::kCispo || v == PolicyLossType::kDppo; }
bool is_gmpo(PolicyLossType v) { return v == PolicyLossType::kGmpo; }
bool takes_narrow_clip(PolicyLossType v) { return clips_on_both_sides(v) || is_gmpo(v); }
bool has_upper_bound(PolicyLossType v) { return clips_on_both_sides(v) || truncates(v); }

// Sets an aggregation, and unsets the options of other aggregations.
void aggregate(PolicyCase& c, PolicyAggregation aggregation) {
  c.options.aggregation = aggregation;
  c.options.num_items_in_batch = std::nullopt;
  c.options.num_sequences = std::nullopt;
  c.options.count_empty_sequences = true;
  c.options.max_completion_length = std::nullopt;
  if (aggregation_of(c.options) == PolicyAggregation::kSeqMeanTokenSumNorm) c.options.max_completion_length = 11;
}
bool is_of_sequences(const PolicyCase& c) {
  const PolicyAggregation aggregation = aggregation_of(c.options);
  return aggregation != PolicyAggregation::kTokenMean && aggregation != PolicyAggregation::kTokenSum;
}

std::vector<PolicyTwist> make_twists() {
  std::vector<PolicyTwist> twists = {
      {"advantages per token", [](auto& c) { c.advantages_per_token = true; }},
      {"on-policy", [](auto& c) { c.on_policy = true; }},
      {"sequence level", [](auto& c) { c.options.importance_sampling_level = ImportanceLevel::kSequence; },
       takes_sequence_ratio},
      {"narrow clip", [](auto& c) { c.options.epsilon_low = 0.05, c.options.epsilon_high = 0.1; }, takes_narrow_clip},
      {"two-sided weight", [](auto& c) { c.options.epsilon_low = 0.15, c.options.epsilon_high = 1.05; }, truncates},
      {"tight cispo bound", [](auto& c) { c.options.epsilon_high = 1.1; }, has_upper_bound},
      {"delta", [](auto& c) { c.options.delta = 1.45; }, clips_on_both_sides},
      {"delta inside of the clip range", [](auto& c) { c.options.delta = 1.1; }, clips_on_both_sides},
      {"delta below the clip range", [](auto& c) { c.options.delta = 0.7; }, clips_on_both_sides},
      {"tight log-ratio clamp", [](auto& c) { c.options.log_ratio_clamp = 0.23; }},
      {"no log-ratio clamp", [](auto& c) { c.options.log_ratio_clamp = std::nullopt; }},
      {"entropy bonus", [](auto& c) { c.options.entropy_bonus = 0.3; }},
      {"top entropy quantile", [](auto& c) { c.options.top_entropy_quantile = 0.35; },
       [](PolicyLossType v) { return !is_gmpo(v); }},
      {"off-policy mask", [](auto& c) { c.options.off_policy_mask_threshold = 0.05; }},
      {"off-policy mask by the sampler",
       [](auto& c) { c.options.off_policy_mask_threshold = 0.05, c.with_sampling = true; }},
      {"second moments", [](auto& c) { c.options.m2_threshold = 0.02, c.with_sampling = true; }},
      {"sampler penalty", [](auto& c) { c.options.sampler_penalty = 0.3, c.with_sampling = true; }},
      {"likelihood of good answers", [](auto& c) { c.options.positive_nll_weight = 0.2; }},
      {"dro tau", [](auto& c) { c.options.dro_tau = 1.7; }},
      {"topr weights", [](auto& c) { c.options.topr_weight_pos = 0.4, c.options.topr_weight_neg = 2.5; }},
      {"covariances",
       [](auto& c) {
         c.options.cov_share = 0.4, c.options.cov_seed = 7, c.options.cov_kl_weight = 0.8;
         c.options.cov_low = -1, c.options.cov_high = 0.75;
       }},
      {"sapo temperatures",
       [](auto& c) { c.options.sapo_temperature_pos = 0.7, c.options.sapo_temperature_neg = 2.5; }},
      {"vespo weights",
       [](auto& c) {
         c.options.vespo_k_pos = 0.5, c.options.vespo_lambda_pos = 0.25;
         c.options.vespo_k_neg = 1.5, c.options.vespo_lambda_neg = 1e-9;
       }},
      {"loss scale", [](auto& c) { c.options.loss_scale = -2.5; }},
      {"entropy metric", [](auto& c) { c.options.want_entropy = true; }},
  };
  for (const TeacherAgainst against : all_of<TeacherAgainst>()) {
    for (const double discount : {0.0, 0.75, 1.0}) {
      twists.push_back(
          {std::string("teacher against ") + name_of(against) + ", discount " + std::to_string(discount), [=](auto& c) {
             c.options.teacher_weight = 0.6;
             c.options.teacher_against = against;
             c.options.teacher_discount = discount;
             c.with_sampling |= against == TeacherAgainst::kSampling;
           }});
    }
  }
  twists.push_back({"teacher alone", [](auto& c) { c.options.teacher_weight = -0.8, c.teacher_alone = true; }});
  for (const TrustRegion region : all_of<TrustRegion>()) {
    twists.push_back({std::string("trust region ") + name_of(region), [=](auto& c) {
                        c.options.trust_region = region;
                        if (region == TrustRegion::kNone || region == TrustRegion::kDefault) return;
                        c.options.trust_region_low = region == TrustRegion::kKl ? 0.0073 : 0.03;
                        c.options.trust_region_high = region == TrustRegion::kKl ? 0.0047 : 0.02;
                      }});
  }
  for (const PolicyAggregation aggregation : all_of<PolicyAggregation>()) {
    twists.push_back({std::string("aggregation ") + name_of(aggregation), [=](auto& c) { aggregate(c, aggregation); }});
  }
  twists.push_back({"number of items", [](auto& c) {
                      if (aggregation_of(c.options) == PolicyAggregation::kTokenMean)
                        c.options.num_items_in_batch = 37.5;
                    }});
  twists.push_back({"number of sequences", [](auto& c) {
                      if (is_of_sequences(c)) c.options.num_sequences = 6.5;
                    }});
  twists.push_back({"no empty sequences", [](auto& c) {
                      if (is_of_sequences(c) && !c.options.num_sequences) c.options.count_empty_sequences = false;
                    }});
  for (const KlEstimator estimator : all_of<KlEstimator>()) {
    for (const bool corrected : {false, true}) {
      twists.push_back(
          {std::string("beta with ") + name_of(estimator) + (corrected ? ", bias correction" : ""), [=](auto& c) {
             c.options.beta = 0.15;
             c.options.kl_estimator = estimator;
             c.options.use_bias_correction_kl = corrected;
           }});
    }
  }
  for (const auto mode :
       {SamplerCorrection::kTokenTruncate, SamplerCorrection::kTokenMask, SamplerCorrection::kSequenceTruncate,
        SamplerCorrection::kSequenceMask, SamplerCorrection::kGeometricMask}) {
    const bool of_token = mode == SamplerCorrection::kTokenTruncate || mode == SamplerCorrection::kTokenMask;
    for (const bool low : {false, true}) {
      for (const bool high : {false, true}) {
        PolicyTwist twist;
        twist.name = std::string(name_of(mode)) + (low ? " clip_min" : "") + (high ? " clip_max" : "");
        twist.apply = [=](auto& c) {
          c.with_sampling = true;
          c.options.sampler_correction = mode;
          c.options.sampler_clip_min = low ? std::optional(0.8) : std::nullopt;
          c.options.sampler_clip_max = high ? std::optional(1.15) : std::nullopt;
        };
        if (!of_token) twist.allowed = takes_sequence_correction;
        twists.push_back(twist);
      }
    }
  }
  return twists;
}

template <class T>
ConstVector view(const std::vector<T>& values) {
  return {values.data(), static_cast<int64_t>(values.size())};
}

}  // namespace

bool couples_batch(const PolicyCase& policy_case) {
  const PolicyLoss& options = policy_case.options;
  return options.top_entropy_quantile < 1 || options.loss_type == PolicyLossType::kClipCov ||
         options.loss_type == PolicyLossType::kKlCov || (options.m2_threshold && policy_case.on_policy);
}

PolicyCase plain_case(PolicyLossType variant) {
  PolicyCase result;
  result.name = name_of(variant);
  result.options.loss_type = variant;
  if (variant == PolicyLossType::kDrGrpo) result.options.max_completion_length = 9;
  return result;
}

const std::vector<PolicyTwist>& policy_twists() {
  static const std::vector<PolicyTwist> twists = make_twists();
  return twists;
}

std::vector<PolicyCase> policy_cases(int mixtures) {
  std::vector<PolicyCase> cases;
  std::mt19937_64 random(5);
  const auto twisted = [](PolicyCase policy_case, const PolicyTwist& twist) {
    twist.apply(policy_case);
    policy_case.name += ", " + twist.name;
    return policy_case;
  };
  for (const PolicyLossType variant : all_of<PolicyLossType>()) {
    cases.push_back(plain_case(variant));
    for (const PolicyTwist& twist : policy_twists()) {
      if (twist.allowed(variant)) cases.push_back(twisted(plain_case(variant), twist));
    }
    for (int m = 0; m < mixtures; ++m) {
      PolicyCase mixture = plain_case(variant);
      for (const PolicyTwist& twist : policy_twists()) {
        if (random() % 5 == 0 && twist.allowed(variant)) mixture = twisted(mixture, twist);
      }
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
  if (policy_case.with_sampling) batch.sampling_logps = view(sampling_logps);
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

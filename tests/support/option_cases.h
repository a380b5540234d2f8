// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Every option of every loss, one at a time with a value other than its default, for tests of an API: the
// option must reach the call, and change the result.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <optional>
#include <ostream>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "core/field_text.h"
#include "support/calls.h"
#include "support/every_task.h"
#include "support/views.h"

namespace logitless::testing {

/// Options with one changed field.
template <class Options>
struct OptionCase {
  std::string field, value;
  Options base;     ///< defaults, plus settings without which the field would have no effect
  Options changed;  ///< the same with a different value of the field
};

/// Returns other valid values of a field; for an enumeration, all others.
inline std::array<bool, 1> other_values(bool value) { return {!value}; }
inline std::vector<double> other_values(double value) { return {value == 0 ? 0.25 : value / 2}; }
inline std::vector<int64_t> other_values(int64_t value) { return {value == 37 ? 74 : 37}; }
inline std::vector<std::optional<double>> other_values(const std::optional<double>& value) {
  return {value ? *value / 2 : 0.5};
}
inline std::vector<std::optional<int64_t>> other_values(const std::optional<int64_t>& value) {
  return {value == 7 ? 9 : 7};
}
inline std::vector<std::optional<DType>> other_values(const std::optional<DType>&) {
  return {DType::kBFloat16, DType::kFloat16};
}
template <Named Enum>
std::vector<Enum> other_values(Enum value) {
  std::vector<Enum> others;
  for (const Enum other : all_of<Enum>()) {
    if (other != value) others.push_back(other);
  }
  return others;
}
/// Returns those that change a loss with loss_type grpo, or dppo in the second overload.
inline std::vector<PolicyAggregation> other_values(PolicyAggregation) {
  using enum PolicyAggregation;
  return {kTokenMean, kTokenSum, kSeqMeanTokenSum, kSeqMeanTokenSumNorm};
}
inline std::vector<TrustRegion> other_values(TrustRegion) { return {TrustRegion::kTvBoth, TrustRegion::kKl}; }
inline std::vector<std::vector<PreferenceLossType>> other_values(const std::vector<PreferenceLossType>& value) {
  std::vector<std::vector<PreferenceLossType>> others = {{value.at(0), PreferenceLossType::kHinge}};
  for (const PreferenceLossType loss : other_values(value.at(0))) others.push_back({loss});
  return others;
}
inline std::vector<std::vector<double>> other_values(const std::vector<double>&) { return {{0.25}}; }
inline std::vector<std::span<const float>> other_values(const std::span<const float>&) {
  static const std::vector<float> values = [] {
    std::vector<float> weights = normal(kVocab, 71);
    for (float& weight : weights) weight = std::abs(weight);
    return weights;
  }();
  return {values};
}
inline std::vector<std::span<const double>> other_values(const std::span<const double>&) {
  static const std::vector<double> values = [] {
    std::vector<double> temperatures;
    for (int i = 0; i < kTokens; ++i) temperatures.push_back(0.5 + 0.05 * i);
    return temperatures;
  }();
  return {values};
}

/// Sets the other options that the field needs to have an effect.
inline void prepare(const std::string& field, TokenOptions& token) {
  if (field == "temperature_meaning") token.temperature = 0.5;
}
void prepare(const std::string& field, auto& options) { prepare(field, options.token); }
inline void prepare(const std::string& field, TokenStatistics& options) {
  prepare(field, options.token);
  if (field.starts_with("draw_")) options.request.draws = 5;
  if (field == "draw_top_p") options.request.draw_top_k = 20;
}
inline void prepare(const std::string& field, PolicyLoss& options) {
  prepare(field, options.token);
  if (field == "kl_estimator" || field == "use_bias_correction_kl") options.beta = 0.5;
  if (field.starts_with("sampler_clip")) options.sampler_correction = SamplerCorrection::kTokenTruncate;
  if (field.starts_with("teacher_") && field != "teacher_weight") options.teacher_weight = 0.5;
  if (field == "num_items_in_batch") options.loss_type = PolicyLossType::kDapo;
  if (field.starts_with("dro")) options.loss_type = PolicyLossType::kDro;
  if (field.starts_with("topr")) options.loss_type = PolicyLossType::kTopr;
  if (field.starts_with("trust_region")) {
    options.loss_type = PolicyLossType::kDppo;
    options.trust_region_low = 0.02;
    options.trust_region_high = 5e-5;
  }
  if (field.starts_with("cov_")) {
    const bool penalises = field == "cov_kl_weight";
    options.loss_type = penalises ? PolicyLossType::kKlCov : PolicyLossType::kClipCov;
    if (!penalises) options.epsilon_low = 1, options.epsilon_high = 1e30;  // nothing is clipped
    options.cov_low = -2;
    options.cov_high = 2;
    options.cov_share = field == "cov_seed" ? 0.2 : 1;
  }
  if (field.starts_with("sapo")) options.loss_type = PolicyLossType::kSapo;
  if (field.starts_with("vespo")) options.loss_type = PolicyLossType::kVespo;
  if (field == "max_completion_length") {
    options.loss_type = PolicyLossType::kDrGrpo;
    options.max_completion_length = 9;
  }
}
inline void prepare(const std::string& field, PreferenceLoss& options) {
  prepare(field, options.token);
  if (field == "loss_type" || field == "label_smoothing") options.loss_type = {PreferenceLossType::kCpo};
  if (field == "discopop_tau") options.loss_type = {PreferenceLossType::kDiscopop};
  if (field == "simpo_gamma" || field == "reward_alpha") options.loss_type = {PreferenceLossType::kSimpo};
  if (field == "f_alpha") options.f_divergence = FDivergence::kAlpha;
}
inline void prepare(const std::string& field, KtoLoss& options) {
  prepare(field, options.token);
  if (field == "bco_delta") options.loss_type = KtoLossType::kBco;
}

inline void prepare(const std::string& field, CrossEntropy& options) {
  prepare(field, options.token);
  if (field == "mean_over") options.token.ignore_index = 0;
}
inline void prepare(const std::string& field, Distillation& options) {
  prepare(field, options.token);
  // The id of the first token is ignored, so that sequences differ in length.
  if (field == "mean_over") options.token.ignore_index = 0;
  if (field == "beta") options.loss_type = Divergence::kJsd;
  if (field == "skew") options.loss_type = Divergence::kSkewKl;
  if (field == "forward_weight") options.loss_type = Divergence::kMixedKl;
  if (field == "acceptance_decay") options.loss_type = Divergence::kLkHybrid;
  if (field == "temperature_squared") options.token.temperature = 0.5;
  if (field == "hard_temperature") options.hard_weight = 0.5;
}

inline void prepare(const std::string& field, SetDistillation& options) {
  prepare(field, options.token);
  if (field == "mean_over") options.token.ignore_index = 0;
  if (field == "beta") options.loss_type = Divergence::kJsd;
  if (field == "skew") options.loss_type = Divergence::kSkewKl;
  if (field == "forward_weight") options.loss_type = Divergence::kMixedKl;
  if (field == "temperature_squared") options.token.temperature = 0.5;
}

/// Returns a case for each value of each field, including the fields of `token`.
template <class Options>
std::vector<OptionCase<Options>> option_cases() {
  std::vector<OptionCase<Options>> cases;
  const auto add = [&](const Field& field, const auto& by_default) {
    using T = std::remove_cvref_t<decltype(by_default)>;
    OptionCase<Options> one{field.name, "", {}, {}};
    prepare(one.field, one.base);
    T before{};
    const auto look = [&](const Field& at, const auto& member) {
      if constexpr (std::is_same_v<std::remove_cvref_t<decltype(member)>, T>) {
        if (one.field == at.name) before = member;
      }
    };
    visit_flat(FieldsOf<Options>(), look, one.base);
    for (T value : other_values(before)) {
      // Samplers are close to the policy, so the bounds must be close to 1.
      if constexpr (std::is_same_v<T, std::optional<double>>) {
        if (one.field == "sampler_clip_min") value = 0.98;
        if (one.field == "sampler_clip_max") value = 1.02;
      }
      one.changed = one.base;
      one.value = text_of(value);
      const auto set = [&](const Field& at, auto& member) {
        if constexpr (std::is_same_v<std::remove_cvref_t<decltype(member)>, T>) {
          if (one.field == at.name) member = value;
        }
      };
      visit_flat(FieldsOf<Options>(), set, one.changed);
      cases.push_back(one);
    }
  };
  visit_flat(FieldsOf<Options>(), add, Options());
  return cases;
}

/// Sets the options in which a case differs from the defaults, except its loss type, the options in `token`,
/// and the clip range that only covariances need. Returns whether there are any.
template <class Options>
bool set_options(const OptionCase<Options>& one, Options& to) {
  bool any = false;
  const auto set = [&]<class T>(const Field& field, T& member, const T& value, const T& by_default) {
    if constexpr (!std::is_same_v<T, TokenOptions>) {
      const std::string name = field.name;
      if (name == "loss_type" || (name.starts_with("epsilon") && name != one.field)) return;
      if (text_of(value) == text_of(by_default)) return;
      member = value;
      any = true;
    }
  };
  visit_fields(FieldsOf<Options>(), set, to, one.changed, Options());
  return any;
}

/// Returns all options as text, one per line.
template <class Options>
std::string all_text(const Options& options) {
  std::string text;
  say_fields(options, [&](const char* name, const std::string& value) { text += name + (" = " + value) + "\n"; });
  return text;
}

/// The tensors of the calls. Ratios are on both sides of their bounds.
struct OptionBatch : Batch {
  std::vector<float> sampling_logps, teacher_logps;
  std::vector<float> scores = {1, 0, 0, -1}, sequence_weights = {1, 0.5, 2, 0.25};
  std::vector<double> kl = {-30, -31, -32}, kl_ref = {-30.5, -31.5, -33};
  FromHidden other;  ///< a teacher with other hidden states

  OptionBatch() : Batch(true) {
    const std::vector<double> own = compute_token_stats(Context(), model.states(), model.head(), targets()).logp;
    for (size_t i = 0; i < own.size(); ++i) {
      old_logps[i] = static_cast<float>(own[i] + 0.3 * (static_cast<int>(i % 7) - 3));
      ref_logps[i] = static_cast<float>(own[i] + 0.2 * (static_cast<int>(i % 5) - 2));
      teacher_logps.push_back(static_cast<float>(own[i] + 0.4 * (static_cast<int>(i % 3) - 1)));
      sampling_logps.push_back(old_logps[i] + 0.8F * static_cast<float>(static_cast<int>(i % 5) - 2));
    }
    old_logps[6] -= 27;                                  // with a negative advantage: beyond any clamp
    for (size_t i = 15; i < 20; ++i) old_logps[i] += 2;  // a sequence that has drifted
    other.hidden = normal(kTokens * kHidden, 11);
    mask[3] = mask[4] = 0;  // sequences of different lengths, one of them empty
    for (size_t i = 10; i < 15; ++i) mask[i] = 0;
  }

  /// Returns the task with its tensors and these options.
  template <class Task>
  Task task_of(const Task& options) const {
    return with(options, targets());
  }
  SoftCrossEntropy task_of(const SoftCrossEntropy& options) const { return with(options, sparse()); }
  IdLogps task_of(const IdLogps& options) const { return with(options, sparse().sets); }
  PolicyLoss task_of(const PolicyLoss& options) const {
    PolicyBatch batch = options.beta != 0 ? policy_with_reference() : policy();
    const bool sampled = options.sampler_correction != SamplerCorrection::kNone ||
                         options.teacher_against == TeacherAgainst::kSampling || options.m2_threshold ||
                         options.sampler_penalty != 0;
    if (sampled) batch.sampling_logps = {sampling_logps.data(), kTokens};
    const bool scored = options.loss_type == PolicyLossType::kTopr || options.positive_nll_weight != 0;
    if (scored) batch.scores = {scores.data(), kBatch};
    if (options.teacher_weight != 0) batch.teacher_logps = {teacher_logps.data(), kTokens};
    return with(options, batch);
  }
  PreferenceLoss task_of(const PreferenceLoss& options) const {
    if (!std::ranges::any_of(options.loss_type, needs_reference)) return with(options, targets());
    Reference of_case = reference();
    if (options.ld_alpha) of_case.logps = {ref_logps.data(), kTokens};
    return with(options, targets(), of_case);
  }
  KtoLoss task_of(const KtoLoss& options) const {
    KtoBatch batch = kto(reference());
    if (options.loss_type == KtoLossType::kKto) {
      batch.kl_logps = {kl.data(), 3};
      batch.kl_ref_logps = {kl_ref.data(), 3};
    }
    if (options.loss_type == KtoLossType::kA2po) batch.reward_targets = {scores.data(), kBatch};
    if (options.loss_type == KtoLossType::kBco) batch.sequence_weights = {sequence_weights.data(), kBatch};
    return with(options, batch);
  }
  Distillation task_of(const Distillation& options) const {
    return with(options, Teacher{other.states(), other.head(), {}}, targets());
  }
  SetDistillation task_of(const SetDistillation& options) const { return with(options, set_teacher(), targets()); }

  /// Runs the task with these options and all gradients. Returns its refusal, or an empty string.
  std::string refusal(const auto& options) const {
    FromHidden::Outputs outputs;
    try {
      model.call(Verbs<std::remove_cvref_t<decltype(options)>>(), Context(), task_of(options), outputs.views());
    } catch (const InvalidInput& error) {
      return error.what();
    }
    return "";
  }
  /// Returns whether the library plans a call with these options.
  bool accepts(const auto& options) const {
    try {
      plan(Context(), logits_of(model.states(), model.head()), task_of(options));
      return true;
    } catch (const InvalidInput&) {
      return false;
    }
  }
};

/// Returns the cases ("field = value") that are refused, because the field has no use with the other options.
inline std::set<std::string> refused(const auto&) { return {}; }
inline std::set<std::string> refused(const SoftCrossEntropy&) { return {"ignore_index = 37", "shift = 37"}; }
inline std::set<std::string> refused(const IdLogps&) { return {"ignore_index = 37", "shift = 37"}; }
inline std::set<std::string> refused(const PolicyLoss&) {
  return {"ignore_index = 37", "shift = 37", "loss_type = dr_grpo", "aggregation = seq_mean_token_sum_norm"};
}
inline std::set<std::string> refused(const PreferenceLoss&) { return {"loss_type = [exo_pair]"}; }
inline std::set<std::string> refused(const SetDistillation&) {
  return {"loss_type = acceptance", "loss_type = lk_hybrid", "temperature_meaning = scale_logp"};
}
inline std::set<std::string> refused(const Distillation&) { return {"temperature_meaning = scale_logp"}; }

}  // namespace logitless::testing

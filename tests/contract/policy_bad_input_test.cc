// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Everything that policy_loss refuses: the message names argument, value and rule, and nothing has been
// written.
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "support/calls.h"
#include "support/policy_cases.h"
#include "support/refusal.h"
#include "support/testers.h"
#include "support/views.h"

namespace logitless::testing {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A good call, for a case to spoil: 6 tokens in two sequences, 5 vocabulary entries, H = 4. Token 3 is
// masked.
struct Call {
  static InputSpec spec() {
    InputSpec spec;
    spec.tokens = 6;
    spec.sequences = 2;
    spec.vocab = 5;
    spec.hidden = 4;
    return spec;
  }
  Call() : inputs(spec()), outputs(inputs, {}), before(outputs.bytes()) {
    hidden = inputs.hidden_view();
    head = inputs.head_view();
    gradients = outputs.gradients();
    refresh();
  }
  // The batch has views of the vectors below.
  void refresh() {
    batch.chosen_ids = Targets(std::span<const int64_t>(ids));
    batch.advantages = view(advantages);
    batch.old_logps = view(old_logps);
    batch.ref_logps = view(ref_logps);
    batch.sampling_logps = view(sampling_logps);
    batch.teacher_logps = view(teacher_logps);
    batch.scores = view(scores);
    batch.mask = mask;
  }
  static ConstVector view(const std::vector<double>& values) {
    return {values.data(), static_cast<int64_t>(values.size())};
  }

  Inputs inputs;
  GradientOutputs outputs;
  std::vector<std::byte> before;
  HiddenStates hidden;
  LmHead head;
  Gradients gradients;
  PolicyBatch batch;
  PolicyLoss options;
  std::vector<int64_t> ids = {0, 1, 2, -5, 3, 4};
  std::vector<uint8_t> mask = {1, 1, 1, 0, 1, 1};
  std::vector<double> advantages = {1, -1}, old_logps = {-1, -1, -1, kNaN, -1, -1}, ref_logps, sampling_logps,
                      teacher_logps, scores;
  std::vector<double> temperatures;
  std::vector<int64_t> offsets;
};

using BadCase = testing::BadCase<Call>;

// `function` refuses the call with all parts in one line, and leaves the outputs as they were.
void expect_refused(const Call& call, const std::vector<std::string>& parts, const std::function<void()>& function) {
  expect_invalid_input(parts, function);
  EXPECT_TRUE(call.outputs.bytes() == call.before) << "an output was written";
}

void expect_all_refused(const std::vector<BadCase>& cases) {
  for (const BadCase& bad : cases) {
    SCOPED_TRACE(bad.name);
    Call call;
    bad.spoil(call);
    expect_refused(call, bad.parts,
                   [&] { policy_loss(Context(), call.hidden, call.head, call.batch, call.options, call.gradients); });
    expect_refused(call, bad.parts, [&] {
      policy_loss.plan(Context(), call.hidden, call.head, call.batch, call.options, call.gradients);
    });
  }
}

using Member = std::vector<double> Call::*;

// The vector holds these numbers.
std::function<void(Call&)> with(Member member, std::vector<double> values,
                                const std::function<void(Call&)>& more = {}) {
  return [=](Call& c) {
    c.*member = values;
    if (more) more(c);
    c.refresh();
  };
}

std::function<void(Call&)> option(const std::function<void(PolicyLoss&)>& set) {
  return [=](Call& c) { set(c.options); };
}

const std::vector<double> kSixLogps(6, -1.0);

void use_ref(Call& c) {
  c.ref_logps = kSixLogps;
  c.options.beta = 0.1;
}
void use_sampling(Call& c) {
  c.sampling_logps = kSixLogps;
  c.options.sampler_correction = SamplerCorrection::kTokenTruncate;
}
void set_variant(Call& c, PolicyLossType variant) {
  c.options.loss_type = variant;
  if (variant == PolicyLossType::kDrGrpo) c.options.max_completion_length = 3;
}

TEST(PolicyBadInput, TheCallThatTheCasesSpoilIsGood) {
  Call call;
  use_ref(call);
  use_sampling(call);
  call.refresh();
  EXPECT_NO_THROW(policy_loss(Context(), call.hidden, call.head, call.batch, call.options, call.gradients));
  EXPECT_FALSE(call.outputs.bytes() == call.before);
}

TEST(PolicyBadInput, Sizes) {
  expect_all_refused({
      {"chosen_ids", [](Call& c) { c.ids.pop_back(), c.refresh(); }, {"chosen_ids", "5", "6"}},
      {"chosen_ids null",
       [](Call& c) { c.batch.chosen_ids = Targets(static_cast<const int64_t*>(nullptr), 6); },
       {"chosen_ids", "null"}},
      {"no advantages", with(&Call::advantages, {}), {"advantages", "0", "2", "6"}},
      {"three advantages", with(&Call::advantages, {1, 2, 3}), {"advantages", "3", "2", "6"}},
      {"advantages of tokens that are of sequences",
       [](Call& c) { c.batch.advantages_per = EntriesPer::kToken; },
       {"advantages has 2 entries", "one a token (6)", "advantages_per"}},
      {"advantages of as many packed sequences as tokens",
       [](Call& c) {
         c.offsets = {0, 0, 3, 3, 4, 4, 6};
         c.hidden.offsets = c.offsets;
         c.advantages.assign(6, 1.0);
         c.refresh();
       },
       {"advantages has 6 entries", "as many sequences as tokens", "advantages_per"}},
      {"advantages null", [](Call& c) { c.batch.advantages.data = nullptr; }, {"advantages", "null"}},
      {"old_logps", with(&Call::old_logps, {-1, -1}), {"old_logps", "2", "6"}},
      {"old_logps null", [](Call& c) { c.batch.old_logps.data = nullptr; }, {"old_logps", "null"}},
      {"ref_logps", with(&Call::ref_logps, {-1, -1}, option([](auto& o) { o.beta = 1; })), {"ref_logps", "2", "6"}},
      {"sampling_logps",
       [](Call& c) { use_sampling(c), c.sampling_logps.resize(7), c.refresh(); },
       {"sampling_logps", "7", "6"}},
      {"mask", [](Call& c) { c.mask.resize(5), c.refresh(); }, {"mask", "5", "6"}},
      {"temperatures",
       [](Call& c) {
         c.options.token.temperatures = c.temperatures = {1, 1};
       },
       {"temperatures", "2", "6"}},
      {"round_logits_to",
       [](Call& c) { c.options.token.round_logits_to = DType::kFloat32; },
       {"round_logits_to", "float32"}},
      {"offsets",
       [](Call& c) {
         c.hidden.offsets = c.offsets = {0, 4, 7};
       },
       {"offsets[2] = 7", "6"}},
      {"batch", [](Call& c) { c.hidden.sequences = 4; }, {"chosen_ids has 6 entries but hidden has 4 rows"}},
      {"d_hidden", [](Call& c) { c.gradients.d_hidden.rows = 5; }, {"d_hidden is [4, 4]", "[6, 4]"}},
      {"weight", [](Call& c) { c.head.weight.rows = 3; }, {"weight is [5, 3]", "4 columns"}},
  });
}

TEST(PolicyBadInput, ChosenIds) {
  const auto id = [](size_t at, int64_t entry) { return [=](Call& c) { c.ids[at] = entry, c.refresh(); }; };
  expect_all_refused({
      {"V", id(2, 5), {"chosen_ids[2] = 5", "[0, 5)"}},
      {"negative", id(4, -100), {"chosen_ids[4] = -100", "[0, 5)"}},
      {"beyond 32 bits", id(0, int64_t{1} << 40), {"chosen_ids[0] = 1099511627776", "[0, 5)"}},
      {"without a mask", [](Call& c) { c.mask.clear(), c.old_logps[3] = -1, c.refresh(); }, {"chosen_ids[3] = -5"}},
      {"least", id(1, std::numeric_limits<int64_t>::min()), {"chosen_ids[1] = -9223372036854775808"}},
  });
}

TEST(PolicyBadInput, ValuesThatAreNotFinite) {
  std::vector<BadCase> cases;
  for (const double bad : {kNaN, kInfinity, -kInfinity}) {
    cases.push_back({"advantage", with(&Call::advantages, {1, bad}), {"advantages[1]", "finite"}});
    cases.push_back({"token advantage", with(&Call::advantages, {1, 1, bad, kNaN, 1, 1}), {"advantages[2]", "finite"}});
    cases.push_back({"old", with(&Call::old_logps, {-1, -1, -1, kNaN, bad, -1}), {"old_logps[4]", "finite"}});
    cases.push_back(
        {"ref", [=](Call& c) { use_ref(c), c.ref_logps[5] = bad, c.refresh(); }, {"ref_logps[5]", "finite"}});
    if (!(bad == bad)) continue;  // unknown
    cases.push_back({"sampling",
                     [=](Call& c) { use_sampling(c), c.sampling_logps[0] = bad, c.refresh(); },
                     {"sampling_logps[0]", "finite"}});
  }
  expect_all_refused(cases);
}

TEST(PolicyBadInput, ValuesUnderAFalseMaskAreNotRead) {
  Call call;
  use_ref(call);
  use_sampling(call);
  call.ref_logps[3] = kInfinity;
  call.sampling_logps[3] = -kInfinity;
  call.sampling_logps[2] = kNaN;
  call.mask = {1, 1, 1, 0, 0, 0};
  call.ids = {0, 1, 2, 99, -1, 5};
  call.advantages = {1, kNaN};  // of a sequence without tokens
  call.refresh();
  EXPECT_NO_THROW(policy_loss(Context(), call.hidden, call.head, call.batch, call.options, call.gradients));
}

TEST(PolicyBadInput, OptionsOutOfTheirRange) {
  std::vector<BadCase> cases;
  const auto add = [&](const std::string& name, const std::vector<double>& values, auto set) {
    for (const double value : values) {
      cases.push_back({name + " " + std::to_string(value), [=](Call& c) { set(c, value); }, {name + " = "}});
    }
  };
  const std::vector<double> not_positive = {0, -1, kNaN, kInfinity}, negative = {-0.5, kNaN, kInfinity},
                            not_finite = {kNaN, kInfinity, -kInfinity};
  add("temperature", not_positive, [](Call& c, double x) { c.options.token.temperature = x; });
  add("temperatures[4]", not_positive,
      [](Call& c, double x) { c.options.token.temperatures = c.temperatures = {1, 1, 1, kNaN, x, 1}; });
  add("epsilon_low", {-0.1, 1.1, kNaN}, [](Call& c, double x) { c.options.epsilon_low = x; });
  add("epsilon_high", negative, [](Call& c, double x) { c.options.epsilon_high = x; });
  add("delta", not_positive, [](Call& c, double x) { c.options.delta = x; });
  add("log_ratio_clamp", {0, -1, kNaN, 300.5, kInfinity}, [](Call& c, double x) { c.options.log_ratio_clamp = x; });
  add("beta", negative, [](Call& c, double x) { use_ref(c), c.options.beta = x, c.refresh(); });
  add("entropy_bonus", not_finite, [](Call& c, double x) { c.options.entropy_bonus = x; });
  add("top_entropy_quantile", {0, -1, 1.1, kNaN}, [](Call& c, double x) { c.options.top_entropy_quantile = x; });
  add("off_policy_mask_threshold", {kNaN, kInfinity},
      [](Call& c, double x) { c.options.off_policy_mask_threshold = x; });
  add("sampler_clip_min", negative,
      [](Call& c, double x) { use_sampling(c), c.options.sampler_clip_min = x, c.refresh(); });
  add("sampler_clip_max", not_positive,
      [](Call& c, double x) { use_sampling(c), c.options.sampler_clip_max = x, c.refresh(); });
  add("num_items_in_batch", not_positive, [](Call& c, double x) {
    set_variant(c, PolicyLossType::kDapo);
    c.options.num_items_in_batch = x;
  });
  add("max_completion_length", {0, -3}, [](Call& c, double x) {
    set_variant(c, PolicyLossType::kDrGrpo);
    c.options.max_completion_length = static_cast<int64_t>(x);
  });
  add("num_sequences", not_positive, [](Call& c, double x) { c.options.num_sequences = x; });
  add("trust_region_low", negative, [](Call& c, double x) {
    c.options.trust_region = TrustRegion::kTv;
    c.options.trust_region_low = x;
  });
  add("trust_region_high", negative, [](Call& c, double x) {
    c.options.trust_region = TrustRegion::kKl;
    c.options.trust_region_high = x;
  });
  add("m2_threshold", not_positive,
      [](Call& c, double x) { c.sampling_logps = kSixLogps, c.options.m2_threshold = x, c.refresh(); });
  add("sampler_penalty", negative,
      [](Call& c, double x) { c.sampling_logps = kSixLogps, c.options.sampler_penalty = x, c.refresh(); });
  add("positive_nll_weight", negative, [](Call& c, double x) {
    c.scores = {1, 0}, c.options.positive_nll_weight = x, c.refresh();
  });
  add("dro_tau", negative, [](Call& c, double x) { c.options.dro_tau = x; });
  add("topr_weight_pos", negative, [](Call& c, double x) { c.options.topr_weight_pos = x; });
  add("topr_weight_neg", negative, [](Call& c, double x) { c.options.topr_weight_neg = x; });
  add("cov_share", {0, -1, 1.1, kNaN}, [](Call& c, double x) { c.options.cov_share = x; });
  add("cov_low", not_finite, [](Call& c, double x) { c.options.cov_low = x; });
  add("cov_high", not_finite, [](Call& c, double x) { c.options.cov_high = x; });
  add("cov_kl_weight", negative, [](Call& c, double x) { c.options.cov_kl_weight = x; });
  add("sapo_temperature_pos", not_positive, [](Call& c, double x) { c.options.sapo_temperature_pos = x; });
  add("sapo_temperature_neg", not_positive, [](Call& c, double x) { c.options.sapo_temperature_neg = x; });
  add("vespo_k_pos", not_finite, [](Call& c, double x) { c.options.vespo_k_pos = x; });
  add("vespo_lambda_pos", not_finite, [](Call& c, double x) { c.options.vespo_lambda_pos = x; });
  add("vespo_k_neg", not_finite, [](Call& c, double x) { c.options.vespo_k_neg = x; });
  add("vespo_lambda_neg", not_finite, [](Call& c, double x) { c.options.vespo_lambda_neg = x; });
  add("loss_scale", not_finite, [](Call& c, double x) { c.options.loss_scale = x; });
  expect_all_refused(cases);
  expect_all_refused({
      {"the value", option([](auto& o) { o.epsilon_low = 1.25; }), {"epsilon_low = 1.25", "from 0 to 1"}},
      {"both counts",
       option([](auto& o) { o.num_sequences = 8, o.count_empty_sequences = false; }),
       {"count_empty_sequences = false", "num_sequences = 8"}},
      {"covariance bounds", option([](auto& o) { o.cov_low = 5; }), {"cov_low = 5", "must be below", "cov_high = 5"}},
      {"weight bounds",
       option([](auto& o) { o.loss_type = PolicyLossType::kCispo, o.epsilon_low = 0.25, o.epsilon_high = 0.5; }),
       {"epsilon_high = 0.5", "1 - epsilon_low = 0.75"}},
      {"clip bounds",
       [](Call& c) { use_sampling(c), c.options.sampler_clip_min = 4, c.refresh(); },
       {"sampler_clip_min = 4", "sampler_clip_max = 3"}},
  });
}

TEST(PolicyBadInput, ValuesThatGoTogether) {
  expect_all_refused({
      {"beta alone", option([](auto& o) { o.beta = 0.25; }), {"beta = 0.25", "ref_logps"}},
      {"ref_logps alone", with(&Call::ref_logps, kSixLogps), {"ref_logps", "beta = 0"}},
      {"bias correction alone",
       option([](auto& o) { o.use_bias_correction_kl = true; }),
       {"use_bias_correction_kl", "beta"}},
      {"correction alone",
       option([](auto& o) { o.sampler_correction = SamplerCorrection::kTokenMask; }),
       {"sampler_correction = token_mask", "sampling_logps"}},
      {"sampling_logps alone",
       with(&Call::sampling_logps, kSixLogps),
       {"sampling_logps", "sampler_correction", "off_policy_mask_threshold"}},
      {"teacher_logps alone", with(&Call::teacher_logps, kSixLogps), {"teacher_logps", "teacher_weight = 0"}},
      {"teacher_weight alone",
       option([](auto& o) { o.teacher_weight = 0.5; }),
       {"teacher_weight = 0.5", "teacher_logps"}},
      {"teacher_against alone",
       option([](auto& o) { o.teacher_against = TeacherAgainst::kOld; }),
       {"teacher_against = old", "teacher_weight = 0"}},
      {"teacher_discount alone",
       option([](auto& o) { o.teacher_discount = 0.5; }),
       {"teacher_discount = 0.5", "teacher_weight = 0"}},
      {"a teacher against no sampler",
       with(&Call::teacher_logps, kSixLogps,
            [](Call& c) { c.options.teacher_weight = 1, c.options.teacher_against = TeacherAgainst::kSampling; }),
       {"teacher_against = sampling", "sampling_logps"}},
      {"a teacher of another size",
       with(&Call::teacher_logps, {-1, -1}, [](Call& c) { c.options.teacher_weight = 1; }),
       {"teacher_logps", "2", "6"}},
      {"a teacher that is not finite",
       with(&Call::teacher_logps, {-1, -1, kNaN, -1, -1, -1}, [](Call& c) { c.options.teacher_weight = 1; }),
       {"teacher_logps[2]", "finite"}},
      {"no advantages and no teacher", with(&Call::advantages, {}), {"advantages", "0"}},
      {"topr without scores",
       option([](auto& o) { o.loss_type = PolicyLossType::kTopr; }),
       {"scores has 0 entries", "one a sequence (2)"}},
      {"positive_nll_weight alone", option([](auto& o) { o.positive_nll_weight = 0.1; }), {"scores has 0 entries"}},
      {"scores a token",
       with(&Call::scores, kSixLogps, [](Call& c) { c.options.positive_nll_weight = 1; }),
       {"scores has 6 entries", "one a sequence (2)"}},
      {"scores that are not finite",
       with(&Call::scores, {1, kNaN}, [](Call& c) { c.options.positive_nll_weight = 1; }),
       {"scores[1]", "finite"}},
      {"scores alone", with(&Call::scores, {1, 1}), {"scores", "loss_type grpo", "positive_nll_weight = 0"}},
      {"m2_threshold alone", option([](auto& o) { o.m2_threshold = 0.1; }), {"m2_threshold", "sampling_logps"}},
      {"sampler_penalty alone",
       option([](auto& o) { o.sampler_penalty = 0.1; }),
       {"sampler_penalty", "sampling_logps"}},
      {"trust_region_low alone",
       option([](auto& o) { o.trust_region_low = 0.1; }),
       {"trust_region_low", "no trust_region"}},
      {"trust_region_high beside none",
       option([](auto& o) {
         o.loss_type = PolicyLossType::kDppo, o.trust_region = TrustRegion::kNone, o.trust_region_high = 0.1;
       }),
       {"trust_region_high", "no trust_region"}},
      {"kl_estimator alone",
       option([](auto& o) { o.kl_estimator = KlEstimator::kK1; }),
       {"kl_estimator = k1", "beta = 0"}},
      {"clip_min alone",
       option([](auto& o) { o.sampler_clip_min = 0.5; }),
       {"sampler_clip_min", "sampler_correction = none"}},
      {"clip_max alone",
       option([](auto& o) { o.sampler_clip_max = 2; }),
       {"sampler_clip_max", "sampler_correction = none"}},
      {"no clip_max alone",
       option([](auto& o) { o.sampler_clip_max = std::nullopt; }),
       {"sampler_clip_max", "sampler_correction = none"}},
      // Neither is the sampler's use in the off-policy mask a use of its clip bounds.
      {"clip_min of the off-policy mask",
       with(&Call::sampling_logps, kSixLogps,
            [](Call& c) { c.options.off_policy_mask_threshold = c.options.sampler_clip_min = 0.5; }),
       {"sampler_clip_min", "sampler_correction = none"}},
      {"dr_grpo alone",
       option([](auto& o) { o.loss_type = PolicyLossType::kDrGrpo; }),
       {"max_completion_length", "dr_grpo"}},
  });
}

TEST(PolicyBadInput, OptionsWithoutAMeaningForTheVariant) {
  std::vector<BadCase> cases;
  const auto add = [&](PolicyLossType variant, const std::string& name, const std::function<void(Call&)>& set) {
    const auto spoil = [=](Call& c) { set_variant(c, variant), set(c), c.refresh(); };
    cases.push_back({name_of(variant) + (", " + name), spoil, {name, name_of(variant)}});
  };
  for (const PolicyLossType variant : all_of<PolicyLossType>()) {
    using enum PolicyAggregation;
    const PolicyAggregation aggregation = aggregation_of({.loss_type = variant});
    if (aggregation != kTokenMean) {
      add(variant, "num_items_in_batch", [](Call& c) { c.options.num_items_in_batch = 7; });
    }
    if (variant != PolicyLossType::kDrGrpo) {
      add(variant, "max_completion_length", [](Call& c) { c.options.max_completion_length = 7; });
    }
    if (aggregation != kTokenMean && aggregation != kTokenSum) continue;
    add(variant, "num_sequences", [](Call& c) { c.options.num_sequences = 7; });
    add(variant, "count_empty_sequences", [](Call& c) { c.options.count_empty_sequences = false; });
  }
  using enum PolicyLossType;
  for (const PolicyLossType variant :
       {kCispo, kSapo, kVespo, kReinforce, kImportanceSampling, kDppo, kGmpo, kDro, kTopr, kKlCov}) {
    add(variant, "delta", [](Call& c) { c.options.delta = 2; });
    if (variant == kCispo || variant == kDppo || variant == kGmpo) continue;
    add(variant, "epsilon_low", [](Call& c) { c.options.epsilon_low = 0.2; });
    add(variant, "epsilon_high", [](Call& c) { c.options.epsilon_high = 0.3; });
  }
  add(kGmpo, "top_entropy_quantile", [](Call& c) { c.options.top_entropy_quantile = 0.5; });
  for (const PolicyLossType variant : {kRloo, kVespo, kGmpo}) {
    add(variant, "importance_sampling_level",
        [](Call& c) { c.options.importance_sampling_level = ImportanceLevel::kSequence; });
  }
  for (const auto mode :
       {SamplerCorrection::kSequenceTruncate, SamplerCorrection::kSequenceMask, SamplerCorrection::kGeometricMask}) {
    add(PolicyLossType::kVespo, name_of(mode), [=](Call& c) { use_sampling(c), c.options.sampler_correction = mode; });
  }
  expect_all_refused(cases);
}

TEST(PolicyBadInput, Overlaps) {
  std::vector<double> shared(24, -1.0);
  const auto over = [&](auto set) {
    return [&shared, set](Call& c) {
      c.gradients.d_hidden.data = shared.data();
      set(c, ConstVector(shared.data(), 6));
    };
  };
  expect_all_refused({
      {"old_logps", over([](Call& c, ConstVector v) { c.batch.old_logps = v; }), {"d_hidden", "overlaps", "old_logps"}},
      {"advantages",
       over([](Call& c, ConstVector v) { c.batch.advantages = v; }),
       {"d_hidden", "overlaps", "advantages"}},
      {"ref_logps",
       over([](Call& c, ConstVector v) { c.batch.ref_logps = v, c.options.beta = 1; }),
       {"d_hidden", "overlaps", "ref_logps"}},
      {"sampling_logps",
       over([](Call& c, ConstVector v) {
         c.batch.sampling_logps = v;
         c.options.off_policy_mask_threshold = 1;
       }),
       {"d_hidden", "overlaps", "sampling_logps"}},
      {"scores",
       over([](Call& c, ConstVector v) {
         c.batch.scores = {v.data, v.dtype, 2};
         c.options.positive_nll_weight = 1;
       }),
       {"d_hidden", "overlaps", "scores"}},
      {"chosen_ids", [](Call& c) { c.gradients.d_bias.data = c.ids.data(); }, {"d_bias", "overlaps", "chosen_ids"}},
      {"temperatures",
       [](Call& c) {
         c.options.token.temperatures = c.temperatures = std::vector<double>(6, 1.0);
         c.gradients.d_bias.data = c.temperatures.data();
       },
       {"d_bias", "overlaps", "temperatures"}},
      {"mask", [](Call& c) { c.gradients.d_bias.data = c.mask.data(); }, {"d_bias", "overlaps", "mask"}},
  });
}

}  // namespace
}  // namespace logitless::testing

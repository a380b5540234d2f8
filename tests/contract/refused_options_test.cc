// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Requirements between options, and between options and tensors. Ranges of single options are in
// refusals_test.cc.
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "logitless/policy.h"
#include "logitless/preference.h"
#include "support/key_call.h"

namespace logitless::testing {
namespace refused_options_test {

TEST(RefusedOptions, OfACrossEntropy) {
  expect_changes({
      {"cross_entropy", "", ""},
      {"cross_entropy", "temperature = -1.5", "temperature = -1.5 must be a finite number above 0"},
      {"cross_entropy", "softcap = 1e-40", "softcap = 1e-40 must be in [*] for float32 sums"},
      {"cross_entropy", "temperature = 1e-40", "temperature = 1e-40 must be in [*] for float32 sums"},
      {"cross_entropy", "num_items_in_batch = 3; reduction = sum", "num_items_in_batch = 3 needs reduction mean"},
      {"cross_entropy", "mean_over = sequences; reduction = none", "mean_over = sequences needs reduction mean"},
      {"soft_cross_entropy", "mean_over = sequence_means; reduction = sum", "sequence_means needs reduction mean"},
      {"soft_cross_entropy", "shift = 1", "shift = 1"},
      {"soft_cross_entropy", "ignore_index = 3", "ignore_index = 3"},
      {"id_logps", "shift = 1", "shift = 1"},
      {"id_logps", "ignore_index = 0", "ignore_index = 0"},
      {"token_stats", "targets = ; entropy = 1", ""},
      {"token_stats", "targets = ; rank = 1", "rank*no targets"},
      {"token_stats", "targets = ; outside = 1", "outside*no targets"},
      {"token_stats", "targets = ; shift = 1", "shift = 1"},
      {"token_stats", "d_logp = @2", "logp has 2 entries*6"},
      {"token_stats", "d_cross = @7", "cross has 7 entries*6"},
      {"token_stats", "d_entropy = @6", "entropy is not given"},
      {"token_stats", "d_outside = @6", "outside is not given"},
      {"token_stats", "targets = ; ignore_index = 3", "ignore_index = 3"},
  });
}

TEST(RefusedOptions, OfTokenWeights) {
  const std::string weights = "token_weights = @6; ", half = "token_weights[2] = 0.5; ";
  std::string zeros = weights;
  for (int i = 0; i < 6; ++i) zeros += "token_weights[" + std::to_string(i) + "] = 0; ";
  for (const char* const task : {"cross_entropy", "soft_cross_entropy", "distillation_loss", "set_distillation_loss"}) {
    expect_changes({
        {task, "mean_over = token_weights", "mean_over = token_weights needs token_weights"},
        {task, zeros + half + "mean_over = token_weights", ""},
        {task, zeros + "mean_over = token_weights", ""},
        {task, zeros + "token_weights[3] = -1e-9", "token_weights[3] = -1e-09 must be a finite number of at least 0"},
        {task, zeros + "token_weights[0] = inf", "token_weights[0] = inf must be a finite number of at least 0"},
        {task, "token_weights = @5", "token_weights has 5 entries but hidden has 6 rows"},
        {task, "token_weights = @3x2", "token_weights is [3, 2] but hidden is [2, 3, 4]"},
        {task, zeros + "token_weights[0] = 1e308; token_weights[1] = 1e308; mean_over = token_weights",
         "the weights of all tokens add up to inf*it must be in"},
        {task, zeros + "token_weights[0] = 1e308; token_weights[1] = 1e308", ""},
    });
  }
  expect_changes({
      {"cross_entropy", zeros + "targets[1] = -100; token_weights[1] = nan", ""},
      {"cross_entropy", zeros + "targets[1] = -100; token_weights[4] = nan", "token_weights[4] = nan"},
      {"cross_entropy of logits", "token_weights = @3x2", "token_weights is [3, 2] but logits are [2, 3, 5]"},
  });
}

TEST(RefusedOptions, OfAContext) {
  expect_changes({
      {"cross_entropy", "context.threads = -2", "threads = -2"},
      {"cross_entropy", "context.vocab_tile = -7", "vocab_tile = -7"},
      {"cross_entropy", "context.gemm_backend = abacus", "gemm_backend*abacus"},
      {"cross_entropy", "context.simd_target = MMX", "simd_target*MMX*plain"},
      {"cross_entropy", "context.plan = forward_only", "plan*forward_only"},
      {"cross_entropy", "context.workspace_bytes = 1000", "workspace_bytes = 1000 is too small: plan * needs at least"},
      {"cross_entropy of logits", "context.workspace_bytes = 16", "workspace_bytes = 16 is too small"},
      {"id_logps", "context.slices = 2,3; normalise_over = set", "normalise_over = set cannot run: *ranks.slices"},
      {"cross_entropy of logits", "context.slices = 2,3", "ranks.slices is set: *finished logits cannot be cut"},
      {"cross_entropy of logits", "backward_mode = sampled", "backward.mode = sampled: finished logits have no head"},
      {"cross_entropy", "backward_mode = sampled; theta = 0.1; context.plan = one_pass",
       "backward.mode = sampled cannot run: it needs plan two_pass, but plan = one_pass is set"},
      {"cross_entropy", "backward_mode = sampled; noise = 0.1; context.slices = 2,3",
       "backward.mode = sampled cannot run: the vocabulary is cut*backward.theta"},
      {"policy_loss", "backward_mode = sampled; theta = 0.1; entropy_bonus = 0.1",
       "backward.mode = sampled cannot run: the loss has a gradient of the entropy"},
      {"cross_entropy", "backward_mode = sampled; lora_a = @2x4 float32; lora_b = @5x2 float32",
       "backward.mode = sampled cannot run: the head has a LoRA, and the noise of its gradients is not estimated: "
       "give backward.theta"},
  });
}

TEST(RefusedOptions, OfAPolicyLossBesideItsTensors) {
  const char* six = "@6";
  const auto with = [&](const char* key) { return std::string(key) + " = " + six; };
  const auto one = [](std::string changes, std::string words) {
    return RefusedChange{"policy_loss", std::move(changes), std::move(words)};
  };
  expect_changes({
      one("", ""),
      one(with("ref_logps") + "; beta = 0.1; sampling_logps = @6; sampler_correction = token_truncate", ""),
      one("beta = 0.25", "beta = 0.25 needs ref_logps"),
      one(with("ref_logps"), "ref_logps is given but beta = 0"),
      one("use_bias_correction_kl = 1", "use_bias_correction_kl is set but beta = 0"),
      one("kl_estimator = k1", "kl_estimator = k1 is set but beta = 0"),
      one("shift = 1", "token.shift = 1"),
      one("ignore_index = 3", "token.ignore_index = 3 has no meaning for a policy loss"),
      one("sampler_correction = token_mask", "sampler_correction = token_mask needs sampling_logps"),
      one(with("sampling_logps"), "sampling_logps is given but no sampler_correction, off_policy_mask_threshold"),
      one("sampler_clip_min = 0.5", "sampler_clip_min is set but sampler_correction = none"),
      one("sampler_clip_max = 2", "sampler_clip_max is set but sampler_correction = none"),
      // Using the sampler in the off-policy mask does not use its clip bounds.
      one(with("sampling_logps") + "; off_policy_mask_threshold = 0.5; sampler_clip_min = 0.5",
          "sampler_clip_min is set but sampler_correction = none"),
      one(with("sampling_logps") + "; sampler_correction = token_mask; sampler_clip_min = 4",
          "sampler_clip_min = 4 is above sampler_clip_max = 3"),
      one("m2_threshold = 0.1", "m2_threshold = 0.1 needs sampling_logps"),
      one("sampler_penalty = 0.1", "sampler_penalty = 0.1 needs sampling_logps"),
      one(with("teacher_logps"), "teacher_logps is given but teacher_weight = 0"),
      one("teacher_weight = 0.5", "teacher_weight = 0.5 needs teacher_logps"),
      one("teacher_against = old", "teacher_against = old is set but teacher_weight = 0"),
      one("teacher_discount = 0.5", "teacher_discount = 0.5 is set but teacher_weight = 0"),
      one(with("teacher_logps") + "; teacher_weight = 1; teacher_against = sampling",
          "teacher_against = sampling needs sampling_logps"),
      one("advantages = ", "advantages is not given but must have one per sequence (2) or one per token (6)"),
      one("advantages = ; teacher_weight = 1; teacher_logps = @6", ""),
      one("loss_type = topr", "scores is not given but topr needs one per sequence (2)"),
      one("positive_nll_weight = 0.1", "scores is not given but positive_nll_weight needs one per sequence (2)"),
      one("positive_nll_weight = 1; scores = @6", "scores has 6 entries but * needs one per sequence (2)"),
      one("scores = @2", "scores is given but loss_type grpo does not read it and positive_nll_weight = 0"),
      one("trust_region_low = 0.1", "trust_region_low = 0.1 is set but there is no trust_region"),
      one("loss_type = dppo; trust_region = none; trust_region_high = 0.1",
          "trust_region_high = 0.1 is set but there is no trust_region"),
      one("loss_type = dr_grpo", "max_completion_length is not set: aggregation * (loss_type dr_grpo) divides by it"),
      one("num_sequences = 8; count_empty_sequences = 0", "count_empty_sequences = false*num_sequences = 8"),
      one("cov_low = 5", "cov_low = 5 must be below cov_high = 5"),
      one("loss_type = cispo; epsilon_low = 0.25; epsilon_high = 0.5",
          "epsilon_high = 0.5 is below 1 - epsilon_low = 0.75"),
  });
}

// The losses to which an option applies. The others refuse it, and name the option and themselves.
struct Meaning {
  const char* option;
  std::set<std::string> losses;
};
const std::set<std::string> kOfTokens = {"bnpo", "dapo", "cispo", "vespo", "ppo", "dppo", "dro", "clip_cov", "kl_cov"};
const std::set<std::string> kClipped = {"grpo", "bnpo", "dr_grpo", "dapo", "luspo", "rloo", "ppo", "clip_cov"};

std::set<std::string> without(std::set<std::string> names, const std::vector<const char*>& less) {
  for (const char* name : less) names.erase(name);
  return names;
}
std::set<std::string> joined(std::set<std::string> names, const std::set<std::string>& more) {
  names.insert(more.begin(), more.end());
  return names;
}
template <Named Enum>
std::set<std::string> all_names() {
  return {std::begin(kNamesOf<Enum>), std::end(kNamesOf<Enum>)};
}

TEST(RefusedOptions, WithoutAMeaningForAVariantOfThePolicyLoss) {
  const std::set<std::string> all = all_names<PolicyLossType>();
  const std::set<std::string> of_sequences = {"grpo", "dr_grpo", "sapo", "luspo", "reinforce", "rloo", "gmpo", "topr"};
  const std::set<std::string> bounded = joined(kClipped, {"cispo", "dppo", "gmpo"});
  const Meaning meanings[] = {
      {"num_items_in_batch = 7", kOfTokens},
      {"max_completion_length = 7", {"dr_grpo"}},
      {"num_sequences = 7", of_sequences},
      {"count_empty_sequences = false", of_sequences},
      {"delta = 2", kClipped},
      {"epsilon_low = 0.2", bounded},
      {"epsilon_high = 7", bounded},
      {"top_entropy_quantile = 0.5", without(all, {"gmpo"})},
      {"importance_sampling_level = sequence", without(all, {"rloo", "vespo", "gmpo"})},
      {"sampling_logps = @6; sampler_correction = token_mask", all},
      {"sampling_logps = @6; sampler_correction = sequence_truncate", without(all, {"vespo"})},
      {"sampling_logps = @6; sampler_correction = sequence_mask", without(all, {"vespo"})},
      {"sampling_logps = @6; sampler_correction = geometric_mask", without(all, {"vespo"})},
  };
  for (const auto& [option, losses] : meanings) {
    for (const std::string& loss : all) {
      std::string changes = "scores = @2; loss_type = " + loss;
      if (loss != "topr") changes += "; positive_nll_weight = 0.1";
      if (loss == "dr_grpo") changes += "; max_completion_length = 3";
      const std::string text = option, last = text.substr(text.rfind(';') + 1);
      const size_t name = last.find_first_not_of(' ');
      const std::string words = last.substr(name, last.find(" = ") - name) + "*has no meaning for*" + loss;
      expect_change({"policy_loss", changes + "; " + text, losses.contains(loss) ? "" : words});
    }
  }
}

TEST(RefusedOptions, WithoutAMeaningForAPreferenceLoss) {
  const std::set<std::string> all = all_names<PreferenceLossType>();
  const std::set<std::string> no_reference = {"sft", "orpo", "simpo", "cpo"};
  const std::set<std::string> smooth = {"exo_pair", "robust", "aot", "aot_unpaired", "simpo", "cpo"};
  const Meaning meanings[] = {
      {"f_divergence = js_divergence", {"sigmoid", "hinge", "ipo", "exo_pair", "robust", "discopop", "sigmoid_norm"}},
      {"use_weighting = 1", without(all, {"aot", "aot_unpaired", "sft"})},
      {"reward_alpha = 0.5", {"simpo", "cpo"}},
      {"label_smoothing = 0.1", smooth},
      {"label_smoothing = 0", without(all, {"exo_pair"})},
      {"label_smoothing = 0.5", without(smooth, {"robust"})},
      {"label_smoothing = 1", {}},
  };
  for (const std::string& loss : all) {
    const std::string without_reference = "; ref_logps = ; ref_logps_per = by_size";
    const std::string base = "loss_type = " + loss + (loss == "exo_pair" ? "; label_smoothing = 0.1" : "");
    const bool needs = !no_reference.contains(loss);
    const std::string good = base + (needs ? "" : without_reference);
    for (const auto& [option, losses] : meanings) {
      const std::string name = std::string(option).substr(0, std::string(option).find(" = "));
      const std::string words = name + "*" + (losses.empty() ? " = " : loss);
      expect_change({"preference_loss", good + "; " + option, losses.contains(loss) ? "" : words});
    }
    // A reference that is missing, or that no loss uses.
    expect_change(
        {"preference_loss", base + (needs ? without_reference : ""),
         needs ? "reference is not given but " + loss + " needs it" : "reference is given but no loss uses it"});
    if (needs) continue;
    expect_change({"preference_loss of models", base, "reference is given but no loss uses it"});
  }
}

TEST(RefusedOptions, OfAPreferenceLoss) {
  const auto one = [](std::string changes, std::string words) {
    return RefusedChange{"preference_loss", std::move(changes), std::move(words)};
  };
  expect_changes({
      one("", ""),
      one("loss_type = []", "loss_type is empty"),
      one("loss_weights = 1,2", "loss_weights has 2 entries but loss_type has 1"),
      one("f_alpha = 2", "f_alpha = 2 is set but f_divergence = reverse_kl"),
      one("loss_type = sft; ref_logps = ; ref_logps_per = by_size; ld_alpha = 0.5",
          "ld_alpha = 0.5 has no meaning for sft alone"),
      // The range of every loss must hold, even if others allow more.
      one("loss_type = aot,sigmoid,robust; label_smoothing = 0.75",
          "label_smoothing = 0.75 must be below 0.5 for robust"),
      one("loss_type = sigmoid,exo_pair", "label_smoothing = 0 must be above 0 for exo_pair"),
      one("loss_type = sigmoid,exo_pair; loss_weights = 1,0", "label_smoothing = 0 must be above 0 for exo_pair"),
      one("loss_type = sft,sigmoid; loss_weights = 1,0; ref_logps = ; ref_logps_per = by_size",
          "reference is not given but sigmoid needs it: ref_logps of 0 make the loss reference-free"),
      one("loss_type = sigmoid,aot; use_weighting = 1", "use_weighting has no meaning for aot"),
  });
}

TEST(RefusedOptions, OfAKtoLoss) {
  expect_changes({
      {"kto_loss", "", ""},
      {"kto_loss of models", "", ""},
      {"kto_loss", "bco_delta = 0.5", "bco_delta = 0.5 has no meaning for kto"},
      {"kto_loss", "reward_targets = @2", "reward_targets is given but has no meaning for kto"},
      {"kto_loss", "loss_type = bco; kl_logps = @3; kl_ref_logps = @3", "kl_logps is given but has no meaning for bco"},
      {"kto_loss", "loss_type = a2po", "reward_targets is not given but a2po needs one per sequence (2)"},
      {"kto_loss", "loss_type = a2po; reward_targets = @2; labels = ; desirable_weight = 2",
       "desirable_weight = 2 is set but labels is empty"},
      {"kto_loss", "loss_type = a2po; reward_targets = @2; labels = ; undesirable_weight = 2",
       "undesirable_weight = 2 is set but labels is empty"},
      {"kto_loss", "loss_type = a2po; reward_targets = @2; labels = ", ""},
      {"kto_loss", "labels = ", "labels is not given but hidden holds 2 sequences"},
      {"kto_loss", "kl_ref_logps = @2", "kl_logps is not given but kl_ref_logps has 2"},
      {"kto_loss", "kl_logps = @3; kl_ref_logps = @4", "kl_logps has 3 entries but kl_ref_logps has 4"},
  });
}

TEST(RefusedOptions, OfADistillation) {
  const std::vector<std::pair<std::string, std::string>> of_both = {
      {"", ""},
      {"beta = 0.25", "beta = 0.25 has no meaning for divergence forward_kl"},
      {"skew = 0.25", "skew = 0.25 has no meaning for divergence forward_kl"},
      {"forward_weight = 0.25", "forward_weight = 0.25 has no meaning for divergence forward_kl"},
      {"targets = ; hard_weight = 1", "hard_weight = 1 needs targets"},
      {"targets = ; shift = 1", "shift = 1 has no meaning here: there are no targets"},
      {"targets = ; ignore_index = 5", "ignore_index = 5 has no meaning here: there are no targets"},
      {"shift = -1", "shift = -1"},
      {"temperature_meaning = scale_logp", "token.temperature_meaning = scale_logp"},
      {"reduction = sum; num_items_in_batch = 2", "num_items_in_batch = 2 needs reduction mean"},
      {"reduction = sum; mean_over = sequences", "mean_over = sequences needs reduction mean"},
  };
  for (const auto& [changes, words] : of_both) {
    expect_change({"distillation_loss of models", changes, words});
    expect_change({"distillation_loss of logits", changes, words});
    expect_change({"set_distillation_loss", changes, words});
  }
  expect_changes({
      {"distillation_loss", "acceptance_decay = 1", "acceptance_decay = 1 has no meaning for divergence forward_kl"},
      {"distillation_loss", "hard_temperature = 2", "hard_temperature = 2 is set but hard_weight = 0"},
      {"set_distillation_loss", "loss_type = acceptance", "loss_type = acceptance is not a sum over token ids"},
      {"set_distillation_loss", "loss_type = lk_hybrid", "loss_type = lk_hybrid is not a sum over token ids"},
      {"set_distillation_loss", "tail_floor = 0.001; outside = truncated",
       "tail_floor = 0.001 has no meaning for outside = truncated"},
      {"set_distillation_loss", "hard_weight = 0.5; temperature = 2", "hard_weight = 0.5 needs a temperature of 1"},
      {"set_distillation_loss", "hard_weight = 0.5; temperatures = @6", "hard_weight = 0.5 needs a temperature of 1"},
      {"set_distillation_loss", "hard_weight = 0.5; outside = renormalised",
       "hard_weight = 0.5 and outside = renormalised are both set"},
      {"set_distillation_loss", "context.slices = 2,3; outside = renormalised",
       "outside = renormalised cannot run: *cuts the vocabulary"},
      {"set_distillation_loss", "teacher.outside_logps = @6; outside = truncated",
       "teacher.outside_logps is given, but outside = truncated does not read it"},
  });
}

}  // namespace refused_options_test
}  // namespace logitless::testing

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Calls of single losses that are drawn too rarely, and rules that the oracle cannot check.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "generator/expect_call.h"
#include "logitless/logitless.h"
#include "support/calls.h"
#include "support/views.h"

namespace logitless::testing {
namespace loss_calls_test {

using Options = std::vector<std::pair<std::string, std::string>>;

// A call of four sequences and 65 entries.
DrawnCall call_of(const std::string& task, const Options& options = {}) {
  DrawnCall call;
  call.task = task, call.options = options;
  call.sequences = 4, call.vocab = 65;
  return call;
}

// With temperatures, the divergence and the cross-entropy have different softmaxes. A rank without tokens
// does not have temperatures.
TEST(NamedLossCalls, OfARankWithoutTokens) {
  DrawnCall call;
  call.task = "distillation_loss";
  call.options = {{"hard_weight", "0.25"}, {"want_entropy", "true"}};
  call.packed = call.temperatures = true;
  call.data_ranks = 2;
  expect_right(call);
}

TEST(NamedLossCalls, OfRareSettings) {
  for (const char* const task : {"cross_entropy", "soft_cross_entropy", "distillation_loss", "set_distillation_loss"}) {
    for (const char* const mean_over : {"tokens", "sequences", "sequence_means", "token_weights"}) {
      DrawnCall call = call_of(task, {{"mean_over", mean_over}});
      call.data_ranks = 2, call.packed = call.mask = call.per_token = true;
      call.time = 3;
      if (call.task == "cross_entropy") {
        call.weights_of_entries = true;
        call.options.emplace_back("z_loss", "0.5");
      }
      expect_right(call);
      call.data_ranks = 1, call.vocab_ranks = 2, call.halves = true;
      expect_right(call);
    }
  }
  const Options scale_logp = {{"temperature", "0.5"}, {"temperature_meaning", "scale_logp"}};
  for (const char* const task : {"token_stats", "soft_cross_entropy", "id_logps"}) {
    DrawnCall call = call_of(task, scale_logp);
    if (call.task == "token_stats") call.options.emplace_back("top_k", "37");
    call.dense_targets = true;
    expect_right(call);
  }
  // Two of the three ids of a row are equal.
  for (const PlanKind plan : {PlanKind::kTwoPass, PlanKind::kExpectedRow}) {
    for (const char* const task : {"id_logps", "soft_cross_entropy"}) {
      DrawnCall call = call_of(task);
      if (call.task == "soft_cross_entropy") call.options = {{"subtract_entropy", "true"}};
      call.vocab = 3, call.time = 8, call.seed = 5;
      call.plan = plan, call.d_weight = false;
      expect_right(call);
    }
  }
}

// The reward of a pair is so large that the margin of the other pair is lost in a difference of means.
TEST(NamedLossCalls, MarginsOfLargeRewards) {
  DrawnCall call = call_of("preference_loss", {{"loss_type", "[simpo]"}, {"reward_alpha", "0.25"}});
  call.vocab = 5, call.seed = 638;
  call.values = Values::kLarge;
  expect_right(call);
}

// The differences of such a row's p and Σ p² are so small that rounded ones have no digits.
TEST(NamedLossCalls, SumsOfSquaresOfNearlyCertainRows) {
  DrawnCall call;
  call.task = "token_stats", call.options = {{"square_sum", "true"}};
  call.values = Values::kCertain;
  call.finished = true, call.seed = 711, call.time = 33;
  expect_right(call);
  call.finished = call.targets = false, call.seed = DrawnCall().seed, call.time = 16;
  expect_right(call);
}

// The targets of a masked entry, or of a whole sequence, have classes of weight 0.
TEST(NamedLossCalls, SmoothedClassesWithoutWeight) {
  DrawnCall call;
  call.options = {{"label_smoothing", "0.25"}, {"mean_over", "sequence_means"}};
  call.values = Values::kMasked;
  call.sequences = 4, call.seed = 685;
  call.bias = call.weights_of_entries = true;
  expect_right(call);
}

TEST(NamedLossCalls, ExpectedRows) {
  DrawnCall base = call_of("cross_entropy");
  base.plan = PlanKind::kExpectedRow, base.d_weight = base.d_bias = false;
  base.time = 8, base.vocab = 129, base.row_tile = 7, base.vocab_tile = 16, base.bias = true;
  for (const DType states : {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64}) {
    base.states = base.head = base.lora = states;
    const auto holds = [&](const auto& change) {
      DrawnCall call = base;
      change(call);
      expect_right(call);
      call.narrow_outputs = call.accumulate = true;
      expect_right(call);
    };
    holds([](DrawnCall&) {});
    holds([](DrawnCall& call) { call.softcap = 3; });
    holds([](DrawnCall& call) { call.options = {{"label_smoothing", "0.2"}, {"z_loss", "0.01"}}; });
    holds([](DrawnCall& call) { call.halves = true, call.head_transposed = true; });
    holds([](DrawnCall& call) { call.lora_rank = 4; });
    holds([](DrawnCall& call) { call.temperatures = true, call.budget = Budget::kLeast; });
    holds([](DrawnCall& call) { call.task = "kto_loss", call.model_as_reference = true; });
  }
}

TEST(NamedLossCalls, ExpectedRowsTellWhyTheyCannotRun) {
  const auto expect_refused = [](const std::string& words, const std::string& task, const auto& change) {
    DrawnCall call = call_of(task);
    call.plan = PlanKind::kExpectedRow, call.d_weight = call.d_bias = false;
    change(call);
    const std::string refusal = check(call).refusal;
    EXPECT_NE(refusal.find("plan = expected_row cannot run: " + words), std::string::npos) << refusal;
  };
  const auto nothing = [](DrawnCall&) {};
  expect_refused("d_hidden is not requested", "cross_entropy",
                 [](DrawnCall& call) { call.d_hidden = false, call.d_weight = true; });
  expect_refused("the loss has a gradient of the entropy", "policy_loss", [](DrawnCall& call) {
    call.options = {{"entropy_bonus", "0.1"}};
  });
  expect_refused("the call has a teacher", "distillation_loss", nothing);
  expect_refused("the loss has per-row weights", "soft_cross_entropy",
                 [](DrawnCall& call) { call.dense_targets = true; });
  expect_refused("the loss has vocabulary weights and the head has a softcap", "cross_entropy", [](DrawnCall& call) {
    call.options = {{"label_smoothing", "0.1"}}, call.softcap = 3;
  });
  expect_refused("finished logits have no head", "cross_entropy", [](DrawnCall& call) { call.finished = true; });
}

// Each loss and type, with most of the vocabulary left out.
TEST(NamedLossCalls, CertifiedGradientsOfALargeVocabulary) {
  DrawnCall call;
  call.vocab = 2049, call.hidden = 17, call.row_tile = 1;
  call.values = Values::kCertain;
  call.backward = BackwardMode::kCertified;
  for (const DType states : {DType::kFloat32, DType::kBFloat16, DType::kFloat64}) {
    call.states = call.head = states;
    expect_right(call);
  }
  call.head_transposed = call.halves = true;
  for (const char* const task : {"policy_loss", "kto_loss", "soft_cross_entropy", "distillation_loss"}) {
    call.task = task;
    expect_right(call);
  }
  // Ranks of a vocabulary choose the same segments as one process.
  call.vocab_ranks = 2;
  for (const BackwardMode mode : {BackwardMode::kSampled, BackwardMode::kCertified}) {
    call.backward = mode;
    for (call.slices = 1; call.slices <= 2; ++call.slices) expect_right(call);
  }
}

TEST(NamedLossCalls, CoupledRowsOfFinishedLogitsTakeTwoSweeps) {
  for (const char* const task : {"preference_loss", "kto_loss"}) {
    DrawnCall call = call_of(task);
    call.finished = true;
    expect_right(call);
    call.plan = PlanKind::kOnePass;
    expect_refusal(call, "plan = one_pass cannot run");
  }
  DrawnCall likelihood = call_of("preference_loss", {{"loss_type", "[sft]"}});
  likelihood.finished = true, likelihood.plan = PlanKind::kOnePass;
  expect_right(likelihood);
}

// There are as many sequences as tokens, but one sequence has two tokens, and their sum does not determine
// each.
TEST(NamedLossCalls, SumsOfSequencesDoNotWeighTokens) {
  DrawnCall call;
  call.task = "preference_loss";
  call.options = {{"ld_alpha", "0.5"}};
  call.time = 1;
  expect_right(call);
  call.packed = true;
  expect_refusal(call, "ref_logps has one entry per sequence, and ld_alpha");
  call.per_token = true;
  expect_right(call);
}

TEST(NamedLossCalls, KeptSetsKnowNoEntropyAndNoSlices) {
  DrawnCall call = call_of("policy_loss", {{"entropy_bonus", "0.1"}});
  call.kept = true;
  expect_refusal(call, "kept is given, which does not support entropies");
  call.options.clear();
  expect_right(call);
  call.slices = 2;
  expect_refusal(call, "kept cannot run: ranks.vocab");
}

// One row of logits per target.
struct Rows {
  static constexpr int64_t kRows = 12, kVocab = 41;
  std::vector<float> values;

  Rows() {
    for (int64_t i = 0; i < kRows * kVocab; ++i) values.push_back(static_cast<float>(i * 31 % 97) / 16);
  }
  FinishedLogits logits() const { return {values.data(), 1, kRows, kVocab}; }
};

// The KL of a distribution with itself: 0 up to rounding, never negative, without a gradient.
TEST(SoftTargets, KlWithItselfIsNotBelowZero) {
  const Rows rows;
  std::vector<float> dense(rows.values.size()), d_logits(rows.values.size(), 99);
  std::vector<double> masses(Rows::kRows);
  for (size_t i = 0; i < masses.size(); ++i) {
    double sum = 0;
    for (size_t v = 0; v < Rows::kVocab; ++v) sum += std::exp(static_cast<double>(rows.values[i * Rows::kVocab + v]));
    for (size_t v = 0; v < Rows::kVocab; ++v) {
      float& q = dense[i * Rows::kVocab + v];
      q = static_cast<float>(std::exp(static_cast<double>(rows.values[i * Rows::kVocab + v])) / sum);
      masses[i] += static_cast<double>(q);
    }
  }
  const SoftCrossEntropy options = {.reduction = Reduction::kNone, .subtract_entropy = true};
  const SoftCrossEntropyResult result =
      soft_cross_entropy(Context(), rows.logits(), SoftTargets(ConstMatrix(dense.data(), Rows::kRows, Rows::kVocab)),
                         options, LogitsGradient(d_logits.data(), 1, Rows::kRows, Rows::kVocab));
  for (size_t i = 0; i < masses.size(); ++i) {
    EXPECT_GE(result.per_token_loss[i], std::min(0.0, masses[i] * std::log(masses[i])));
    EXPECT_NEAR(result.per_token_loss[i], 0, 2e-6);
  }
  for (const float d : d_logits) EXPECT_NEAR(d, 0, 1e-6);
}

TEST(IdSets, ASetOfOneIdIsCertain) {
  const Rows rows;
  const std::vector<int64_t> ids(Rows::kRows, 5);
  const IdSets sets(Targets(ids.data(), Rows::kRows, 1));
  const IdLogps options = {.normalise_over = NormaliseOver::kSet};
  const Forward<IdLogps> forward = id_logps.forward(Context(), rows.logits(), sets, options);
  EXPECT_EQ(forward.result.logps, std::vector<double>(Rows::kRows, 0));
  std::vector<float> d_logits(rows.values.size(), 99);
  id_logps.backward(Context(), rows.logits(), sets, options, forward, std::vector<double>(Rows::kRows, 1),
                    LogitsGradient(d_logits.data(), 1, Rows::kRows, Rows::kVocab));
  EXPECT_EQ(d_logits, std::vector<float>(d_logits.size(), 0.0F));
}

}  // namespace loss_calls_test
}  // namespace logitless::testing

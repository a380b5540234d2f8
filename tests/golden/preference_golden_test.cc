// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Preference losses and KTO against golden values of TRL and Liger-Kernel (tests/golden/README.md).
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "api/call.h"
#include "api/reference.h"
#include "golden.h"
#include "loss/kto.h"
#include "loss/preference.h"
#include "support/calls.h"
#include "support/views.h"

namespace logitless::testing {
namespace preference_golden_test {

const Golden& preference_golden() {
  static const Golden golden("preference.json");
  return golden;
}

// Shared by pairs and KTO.
template <class Options>
class SequencesGoldenTest : public ::testing::TestWithParam<std::string> {
 protected:
  SequencesGoldenTest()
      : options_(read_options<Options>(case_.at("options"))),
        entries_(flat<int64_t>(inputs_.at("targets"))),
        tokens_(inputs_.at("logits"), entries_, options_.token.temperature,
                [&](int64_t row) { return takes_part(row); }) {
    const std::string kind = case_.at("reference");
    if (kind != "none") ref_ = flat(inputs_.at(kind == "token" ? "ref_logps" : "ref_sequence_logps"));
    reference_.logps = ConstVector(ref_.data(), static_cast<int64_t>(ref_.size()));
  }

  // Returns whether the target is a vocabulary entry and the sequence has a result.
  bool takes_part(int64_t row) const {
    const auto s = static_cast<size_t>(row) / inputs_.at("targets")[0].size();
    return entries_[static_cast<size_t>(row)] >= 0 && !expected_.at("sequence_logps")[s].is_null();
  }
  Targets targets() const { return Targets(std::span<const int64_t>(entries_)); }

  template <class Loss>
  void expect_token_grads(Loss& loss) {
    if (!ref_.empty()) {
      const Context context;
      const float logit = 0;
      const logitless::Gradients none;
      const Logits nothing;  // never computed, because the values are given
      api::Call any(context, Logits::given(view(&logit, {1, 1, 1})), nullptr, none);
      loss.set_reference(api::reference_sums(any,
                                             {reference_.logps, reference_.logps_per, options_.ref_logps_are, nothing},
                                             loss.tokens(), options_.token));
    }
    TokenGrads grads = tokens_.zero_grads();
    loss.evaluate(tokens_.rows, tokens_.stats, grads);
    const auto result = loss.result(tokens_.stats, {});
    expect_result(result, expected_, tokens_, false);
    expect_all_near("sequence_logps", result.sequence_logps, flat(expected_.at("sequence_logps")), kDigits);
    expect_all_near("d_logps", grads.logp, flat(expected_.at("d_logps")), kDigits);
  }
  loss::SequenceTokens sequence_tokens() const {
    const std::vector<int64_t> offsets = tokens_.offsets();
    return loss::read_sequences(offsets,
                                problem::resolve_targets(targets(), options_.token, offsets, tokens_.vocab, "hidden"));
  }
  template <class Result>
  void expect_public_result(const Result& result) const {
    expect_result(result, expected_, tokens_, true);
    expect_all_near("sequence_logps", result.sequence_logps, flat(expected_.at("sequence_logps")), kRelative);
    if constexpr (requires { result.sequence_losses; }) {
      expect_all_near("sequence_losses", result.sequence_losses, flat(expected_.at("sequence_losses")), kRelative);
    }
  }

  const json& inputs_ = preference_golden().inputs;
  const json& case_ = preference_golden().cases.at(GetParam());
  const json& expected_ = case_.at("expected");
  Options options_;
  const std::vector<int64_t> entries_;
  Tokens tokens_;
  std::vector<double> ref_;
  Reference reference_;
};

class PreferenceGoldenTest : public SequencesGoldenTest<PreferenceLoss> {
 protected:
  PreferenceGoldenTest() {
    options_.loss_type.clear();
    for (const json& one : case_.at("terms")) {
      options_.loss_type.push_back(parse<PreferenceLossType>(one.at("loss")));
      options_.loss_weights.push_back(one.value("weight", 1.0));
    }
  }
};

TEST_P(PreferenceGoldenTest, Statistics) {
  loss::PairLoss loss(options_, sequence_tokens());
  expect_token_grads(loss);
}

TEST_P(PreferenceGoldenTest, Fused) {
  const HiddenStates hidden = tokens_.hidden_states();
  const LmHead head = tokens_.head();
  for_each_plan([&](const Context& context) {
    expect_public_result(preference_loss(context, hidden, head, targets(), reference_, options_, tokens_.gradients()));
  });
  const Forward<PreferenceLoss> forward =
      preference_loss.forward(Context(), hidden, head, targets(), reference_, options_);
  preference_loss.backward(Context(), hidden, head, targets(), reference_, options_, forward, 1.0, tokens_.gradients());
  expect_public_result(forward.result);
}

TEST_P(PreferenceGoldenTest, FromLogits) {
  const Context context = odd_tiles();
  const FinishedLogits logits = tokens_.finished_logits();
  expect_public_result(preference_loss(context, logits, targets(), reference_, options_, tokens_.logits_gradient()));
  const Forward<PreferenceLoss> forward = preference_loss.forward(context, logits, targets(), reference_, options_);
  preference_loss.backward(context, logits, targets(), reference_, options_, forward, 1.0, tokens_.logits_gradient());
  expect_public_result(forward.result);
}

class KtoGoldenTest : public SequencesGoldenTest<KtoLoss> {
 protected:
  KtoGoldenTest() : labels_(flat<uint8_t>(case_.at("labels"))) {
    const std::string kind = case_.at("kl");
    if (kind != "none") {
      kl_ = flat(inputs_.at(kind == "positive" ? "kl_logps" : "kl_ref_logps"));
      kl_ref_ = flat(inputs_.at(kind == "positive" ? "kl_ref_logps" : "kl_logps"));
    }
    batch_.targets = targets();
    batch_.labels = labels_;
    batch_.reference = reference_;
    batch_.kl_logps = ConstVector(kl_.data(), static_cast<int64_t>(kl_.size()));
    batch_.kl_ref_logps = ConstVector(kl_ref_.data(), static_cast<int64_t>(kl_ref_.size()));
  }

  const std::vector<uint8_t> labels_;
  std::vector<double> kl_, kl_ref_;
  KtoBatch batch_;
};

TEST_P(KtoGoldenTest, Statistics) {
  const KtoLoss task = with(options_, batch_);
  loss::SequenceLoss loss(task, sequence_tokens(), "hidden");
  expect_token_grads(loss);
}

TEST_P(KtoGoldenTest, Fused) {
  const HiddenStates hidden = tokens_.hidden_states();
  const LmHead head = tokens_.head();
  for_each_plan([&](const Context& context) {
    expect_public_result(kto_loss(context, hidden, head, batch_, options_, tokens_.gradients()));
  });
  const Forward<KtoLoss> forward = kto_loss.forward(Context(), hidden, head, batch_, options_);
  kto_loss.backward(Context(), hidden, head, batch_, options_, forward, 1.0, tokens_.gradients());
  expect_public_result(forward.result);
}

TEST_P(KtoGoldenTest, FromLogits) {
  const Context context = odd_tiles();
  const FinishedLogits logits = tokens_.finished_logits();
  expect_public_result(kto_loss(context, logits, batch_, options_, tokens_.logits_gradient()));
  const Forward<KtoLoss> forward = kto_loss.forward(context, logits, batch_, options_);
  kto_loss.backward(context, logits, batch_, options_, forward, 1.0, tokens_.logits_gradient());
  expect_public_result(forward.result);
}

bool is_kto(const json& c) { return c.at("kind") == "kto"; }

INSTANTIATE_TEST_SUITE_P(Golden, PreferenceGoldenTest,
                         ::testing::ValuesIn(preference_golden().names(std::not_fn(is_kto))), case_name);
INSTANTIATE_TEST_SUITE_P(Golden, KtoGoldenTest, ::testing::ValuesIn(preference_golden().names(is_kto)), case_name);

TEST(GoldenFilesTest, HoldEveryPreferenceLossAlone) {
  std::set<std::string> held;
  for (const auto& [name, c] : preference_golden().cases) {
    if (!is_kto(c) && c.at("terms").size() == 1) held.insert(c.at("terms")[0].at("loss").get<std::string>());
  }
  for (const auto& [name, c] : Golden("preference_projects.json").cases) {
    if (c.at("kind") != "preference") continue;
    const json losses = c.at("options").at("loss_type");
    if (losses.size() == 1) held.insert(losses[0].get<std::string>());
  }
  for (const PreferenceLossType loss : all_of<PreferenceLossType>()) EXPECT_TRUE(held.contains(name_of(loss)));
  EXPECT_EQ(held.size(), all_of<PreferenceLossType>().size());
}

TEST(GoldenFilesTest, HoldKto) { EXPECT_FALSE(preference_golden().names(is_kto).empty()); }

}  // namespace preference_golden_test
}  // namespace logitless::testing

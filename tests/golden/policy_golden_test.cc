// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Policy losses against golden values of TRL and Liger-Kernel (tests/golden/README.md).
#include <set>
#include <string>
#include <vector>

#include "golden.h"
#include "loss/policy.h"
#include "support/calls.h"
#include "support/views.h"

namespace logitless::testing {
namespace policy_golden_test {

const Golden& policy_golden() {
  static const Golden golden("policy.json");
  return golden;
}

class PolicyGoldenTest : public ::testing::TestWithParam<std::string> {
 protected:
  PolicyGoldenTest()
      : options_(read_options<PolicyLoss>(case_.at("options"))),
        ids_(flat<int64_t>(inputs_.at("chosen_ids"))),
        mask_(flat<uint8_t>(inputs_.at("mask"))),
        advantages_(flat(inputs_.at(case_.at("advantages").get<std::string>()))),
        old_(optional("old_logps")),
        ref_(optional("ref_logps")),
        sampling_(optional("sampling_logps")),
        tokens_(inputs_.at("logits"), ids_, options_.token.temperature,
                [&](int64_t row) { return mask_[static_cast<size_t>(row)] != 0; }) {
    batch_.chosen_ids = Targets(std::span<const int64_t>(ids_));
    batch_.mask = mask_;
    batch_.advantages = view(advantages_);
    batch_.old_logps = view(old_);
    batch_.ref_logps = view(ref_);
    batch_.sampling_logps = view(sampling_);
  }

  static ConstVector view(const std::vector<double>& values) {
    return values.empty() ? ConstVector() : ConstVector(values.data(), static_cast<int64_t>(values.size()));
  }
  void expect_public_result(const PolicyResult& result) const {
    expect_result(result, expected_, tokens_, true);
    expect_all_near("per_token_loss", result.per_token_loss, flat(expected_.at("per_token_loss")), kRelative);
  }
  std::vector<double> optional(const std::string& name) const {
    return case_.at(name).get<bool>() ? flat(inputs_.at(name)) : std::vector<double>();
  }

  const json& inputs_ = policy_golden().inputs;
  const json& case_ = policy_golden().cases.at(GetParam());
  const json& expected_ = case_.at("expected");
  const PolicyLoss options_;
  const std::vector<int64_t> ids_;
  const std::vector<uint8_t> mask_;
  const std::vector<double> advantages_, old_, ref_, sampling_;
  Tokens tokens_;
  PolicyBatch batch_;
};

TEST_P(PolicyGoldenTest, Statistics) {
  const PolicyLoss task = with(options_, batch_);
  loss::CompletionLoss loss(task, tokens_.offsets(), tokens_.vocab);
  TokenGrads grads = tokens_.zero_grads();
  loss.evaluate(tokens_.rows, tokens_.stats, grads);
  const PolicyResult result = loss.result(tokens_.stats, {});
  expect_result(result, expected_, tokens_, false);
  expect_all_near("per_token_loss", result.per_token_loss, flat(expected_.at("per_token_loss")), kDigits);
  expect_all_near("d_logps", grads.logp, flat(expected_.at("d_logps")), kDigits);
  EXPECT_EQ(loss.gradients().entropy, expected_.contains("d_entropies"));
  if (expected_.contains("d_entropies")) {
    expect_all_near("d_entropies", grads.entropy, flat(expected_.at("d_entropies")), kDigits);
  }
}

TEST_P(PolicyGoldenTest, Fused) {
  const HiddenStates hidden = tokens_.hidden_states();
  const LmHead head = tokens_.head();
  for_each_plan([&](const Context& context) {
    expect_public_result(policy_loss(context, hidden, head, batch_, options_, tokens_.gradients()));
  });
  const Forward<PolicyLoss> forward = policy_loss.forward(Context(), hidden, head, batch_, options_);
  policy_loss.backward(Context(), hidden, head, batch_, options_, forward, 1.0, tokens_.gradients());
  expect_public_result(forward.result);
}

TEST_P(PolicyGoldenTest, FromLogits) {
  const Context context = odd_tiles();
  const FinishedLogits logits = tokens_.finished_logits();
  expect_public_result(policy_loss(context, logits, batch_, options_, tokens_.logits_gradient()));
  const Forward<PolicyLoss> forward = policy_loss.forward(context, logits, batch_, options_);
  policy_loss.backward(context, logits, batch_, options_, forward, 1.0, tokens_.logits_gradient());
  expect_public_result(forward.result);
}

INSTANTIATE_TEST_SUITE_P(Golden, PolicyGoldenTest,
                         ::testing::ValuesIn(policy_golden().names([](const json&) { return true; })), case_name);

TEST(GoldenFilesTest, HoldEveryPolicyVariant) {
  std::set<std::string> held;
  const Golden projects("policy_projects.json");
  for (const Golden* golden : {&policy_golden(), &projects}) {
    for (const auto& [name, c] : golden->cases) held.insert(c.at("options").value("loss_type", "grpo"));
  }
  for (const PolicyLossType variant : all_of<PolicyLossType>()) EXPECT_TRUE(held.contains(name_of(variant)));
  EXPECT_EQ(held.size(), all_of<PolicyLossType>().size());
}

}  // namespace policy_golden_test
}  // namespace logitless::testing

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Distillation losses against golden values of TRL and Liger-Kernel (tests/golden/README.md). The logits of a
// file are used as hidden states, with identity heads for student and teacher.
#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "golden.h"
#include "logitless/distillation.h"
#include "support/calls.h"
#include "support/views.h"

namespace logitless::testing {
namespace distillation_golden_test {

const Golden& distillation_golden() {
  static const Golden golden("distillation.json");
  return golden;
}

class DistillationGoldenTest : public ::testing::TestWithParam<std::string> {
 protected:
  const json& inputs_ = distillation_golden().inputs;
  const json& case_ = distillation_golden().cases.at(GetParam());
  const json& expected_ = case_.at("expected");
  const std::vector<int64_t> ids_ = flat<int64_t>(inputs_.at("targets"));
  const Distillation options_ = read_options<Distillation>(case_.at("options"));
  Tokens student_{inputs_.at("logits"), targets_of_all(), 1, [this](int64_t row) { return takes_part(row); }};
  Tokens teacher_{inputs_.at("teacher_logits"), targets_of_all(), 1, [this](int64_t row) { return takes_part(row); }};

  bool takes_part(int64_t row) const { return ids_[static_cast<size_t>(row)] >= 0; }
  std::vector<int64_t> targets_of_all() const {
    std::vector<int64_t> out = ids_;
    for (int64_t& id : out) id = std::max<int64_t>(id, 0);
    return out;
  }
  Teacher teacher() const { return {teacher_.hidden_states(), teacher_.head()}; }
  Targets targets() const { return {ids_.data(), student_.batch, student_.length}; }

  // Where student and teacher are close, jsd and the skew KL vanish with their gradients, but probabilities
  // have a relative error of 2^-24. If Δ is a difference of logarithms, a gradient has an error of s 2^-24
  // and a value an error of Δ 2^-24. Here |Δ| is below 2^-8 wherever values are that small.
  void expect(const DistillationResult& got) const {
    constexpr double kUnit = 0x1p-24, kSmall = 0x1p-8 * kUnit;
    const double loss = expected_.at("loss").get<double>(), rows = static_cast<double>(student_.rows.size());
    const double count = options_.reduction == Reduction::kSum ? 1 : rows;
    expect_near("loss", got.loss, loss, kRelative * std::abs(loss) + kSmall);
    expect_all_near("per_token_loss", got.per_token_loss, flat(expected_.at("per_token_loss")), kRelative, kSmall);
    expect_all_near("per_token_divergence", got.per_token_divergence, flat(expected_.at("divergences")), kRelative,
                    kSmall);
    expect_all_near("per_token_acceptance", got.per_token_acceptance, flat(expected_.at("overlaps")), kRelative);
    expect_d_hidden(student_, expected_.at("d_logits"), kUnit * std::sqrt(rows) / count);
  }
};

TEST_P(DistillationGoldenTest, Fused) {
  const HiddenStates hidden = student_.hidden_states();
  for_each_plan([&](const Context& context) {
    expect(distillation_loss(context, hidden, student_.head(), teacher(), targets(), options_, student_.gradients()));
  });
  const Forward<Distillation> forward =
      distillation_loss.forward(Context(), hidden, student_.head(), teacher(), targets(), options_);
  distillation_loss.backward(Context(), hidden, student_.head(), teacher(), targets(), options_, forward, 1.0,
                             student_.gradients());
  expect(forward.result);
}

INSTANTIATE_TEST_SUITE_P(Golden, DistillationGoldenTest,
                         ::testing::ValuesIn(distillation_golden().names([](const json&) { return true; })), case_name);

TEST(GoldenFilesTest, HoldEveryDivergence) {
  std::set<std::string> held;
  for (const auto& [name, c] : distillation_golden().cases) held.insert(c.at("options").at("loss_type"));
  for (const Divergence divergence : all_of<Divergence>()) EXPECT_TRUE(held.contains(name_of(divergence)));
  EXPECT_EQ(held.size(), all_of<Divergence>().size());
}

}  // namespace distillation_golden_test
}  // namespace logitless::testing

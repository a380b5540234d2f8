// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Every task by the dense head, beside the library's own call, which other tests hold to the oracle.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <type_traits>
#include <vector>

#include "dense/dense.h"
#include "support/adapted_head.h"
#include "support/calls.h"
#include "support/every_task.h"

namespace logitless::testing {
namespace {

constexpr int64_t kRank = 3;

// Holds loss and gradients of every task of this source to the library's.
void expect_as_the_library(const FromHead& source, bool lora, double tolerance) {
  const Batch batch;
  const bool frozen = source.given.packed.given();
  visit_every_task(source, batch, [&](const auto& task) {
    using Task = std::remove_cvref_t<decltype(task.options)>;
    if constexpr (requires { Task::kName; }) {
      SCOPED_TRACE(task.name);
      AdaptedOutputs<float> want(kTokens, kVocab, kHidden, kRank, 99.0F), got = want;
      const auto outputs = [&](AdaptedOutputs<float>& to) {
        Gradients views = to.views(lora);
        if (frozen) views.d_weight = {};
        return gradients_of(views, source.states(), source.given);
      };
      const Logits logits = logits_of(source.states(), source.given);
      const auto by_library = logitless::run(Context(), logits, task.options, outputs(want));
      const auto by_dense = dense::run(Context(), logits, task.options, outputs(got));
      EXPECT_NEAR(by_dense.loss, by_library.loss, 1e-5 * std::abs(by_library.loss));
      EXPECT_GE(by_dense.plan.workspace_bytes, sizeof(float) * kTokens * kVocab);
      expect_near(got.d_hidden, want.d_hidden, tolerance, "d_hidden");
      if (!frozen) expect_near(got.d_weight, want.d_weight, tolerance, "d_weight");
      if (!lora) return;
      expect_near(got.d_a, want.d_a, tolerance, "d_lora_a");
      expect_near(got.d_b, want.d_b, tolerance, "d_lora_b");
    }
  });
}

TEST(DenseHeads, OfEveryTask) {
  const FromHidden plain;
  FromHead source;
  source.given = plain.head();
  const AdaptedHead<float> adapted(kVocab, kHidden, kRank, 1.75);
  for (const double softcap : {0.0, 3.0}) {
    source.given.softcap = softcap;
    expect_as_the_library(source, false, adapted.tolerance(states_of(source)));
  }
  const Batch batch;
  const Logits logits = logits_of(source.states(), source.given);
  const TokenStatistics statistics = {.targets = batch.targets(),
                                      .request = {.entropy = true, .rank = true}};
  const TokenStats want = logitless::run(Context(), logits, statistics).stats;
  const TokenStats got = dense::run(Context(), logits, statistics).stats;
  EXPECT_EQ(got.rank, want.rank);
  for (size_t i = 0; i < want.logp.size(); ++i) {
    EXPECT_NEAR(got.logp[i], want.logp[i], 1e-5);
    EXPECT_NEAR(got.entropy[i], want.entropy[i], 1e-5);
  }
}

TEST(DenseHeads, WithALora) {
  const AdaptedHead<float> adapted(kVocab, kHidden, kRank, 1.75);
  FromHead source;
  for (const double softcap : {0.0, 3.0}) {
    source.given = adapted.head();
    source.given.bias = {source.bias.data(), kVocab};
    source.given.softcap = softcap;
    expect_as_the_library(source, true, adapted.tolerance(states_of(source)));
  }
}

TEST(DenseHeads, OfChosenEntries) {
  const AdaptedHead<float> adapted(2 * kVocab, kHidden, kRank, 1.75);
  std::vector<int64_t> ids;
  for (int64_t v = 0; v < kVocab; ++v) ids.push_back(2 * (kVocab - v) - 1);
  FromHead source;
  source.given = adapted.head();
  source.given.ids = ids;
  expect_as_the_library(source, true, adapted.tolerance(states_of(source)));
}

TEST(DenseHeads, OfAPackedWeight) {
  const AdaptedHead<float> adapted(kVocab, kHidden, kRank, 1.75);
  std::vector<int8_t> weight;
  for (int64_t i = 0; i < kVocab * kHidden; ++i) weight.push_back(static_cast<int8_t>(i * 89 % 251 - 125));
  const std::vector<float> scales(kVocab, 0.01F);
  PackedMatrix packed;
  packed.data = weight.data();
  packed.rows = kVocab;
  packed.cols = kHidden;
  packed.scales = scales.data();
  FromHead source;
  source.given = LmHead(packed);
  expect_as_the_library(source, false, adapted.tolerance(states_of(source)));
}

TEST(DenseHeads, RefuseWhatTheyDoNotHave) {
  const FromHidden source;
  const Batch batch;
  const Logits logits = logits_of(source.states(), source.head());
  FromHidden::Outputs outputs;
  const auto refused = [&](auto change) -> std::string {
    Gradients views = outputs.views();
    change(views);
    try {
      dense::run(Context(), logits, CrossEntropy{.targets = batch.targets()},
                 gradients_of(views, source.states(), source.head()));
    } catch (const InvalidInput& error) {
      return error.what();
    }
    return "";
  };
  const std::vector<float> before = outputs.values();
  EXPECT_NE(refused([](Gradients& g) { g.d_weight_mode = WriteMode::kAccumulate; }).find("dense overwrites"),
            std::string::npos);
  EXPECT_NE(refused([](Gradients& g) { g.d_bias.size = 1; }).find("d_bias has 1 entries"), std::string::npos);
  EXPECT_EQ(outputs.values(), before);
}

}  // namespace
}  // namespace logitless::testing

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// A LoRA that fits nothing is refused in one line, and nothing is written.
#include <gtest/gtest.h>

#include <Eigen/Core>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "logitless/logitless.h"
#include "support/adapted_head.h"
#include "support/calls.h"
#include "support/every_task.h"
#include "support/refusal.h"
#include "support/views.h"

namespace logitless::testing {
namespace {

TEST(LoraBadInput, IsALine) {
  constexpr int64_t kRank = 3;
  const AdaptedHead<float> adapted(kVocab, kHidden, kRank, 1);
  const FromHidden source;
  const Batch batch;
  const auto refused = [&](const std::string& why, const auto& set) {
    AdaptedOutputs<float> outputs(kTokens, kVocab, kHidden, kRank, 99.0F);
    LmHead head = adapted.head();
    Gradients views = outputs.views(true);
    set(head, views);
    expect_invalid_input({why}, [&] { cross_entropy(Context(), source.states(), head, batch.targets(), {}, views); });
    EXPECT_EQ(outputs.d_hidden, (MatrixOf<float>::Constant(kTokens, kHidden, 99.0F)));
  };
  refused("lora.a has 6 columns but hidden has 7", [](LmHead& h, Gradients&) { h.lora.a.cols = 6; });
  refused("lora.b has 100 rows but the vocabulary has 101", [](LmHead& h, Gradients&) { h.lora.b.rows = 100; });
  refused("lora.b has 2 columns but lora.a has 3 rows", [](LmHead& h, Gradients&) { h.lora.b.cols = 2; });
  refused("lora.a.data is null", [](LmHead& h, Gradients&) { h.lora.a.data = nullptr; });
  refused("lora.scale = inf", [](LmHead& h, Gradients&) { h.lora.scale = std::numeric_limits<double>::infinity(); });
  refused("lora.scale = 4e+38 is no number of float32", [](LmHead& h, Gradients&) { h.lora.scale = 4e38; });
  refused("d_lora_a is [2, 7] but lora.a is [3, 7]", [](LmHead&, Gradients& g) { g.d_lora_a.rows = 2; });
  refused("d_lora_b is [101, 2] but lora.b is [101, 3]", [](LmHead&, Gradients& g) { g.d_lora_b.cols = 2; });
  refused("d_lora_a is set but the head has no lora.a", [](LmHead& h, Gradients&) { h.lora = {}; });
  const std::vector<float> states(kTokens * kRank);
  const auto with_states = [&](LmHead& h, Gradients& g) {
    h.lora.a = {};
    h.lora.states = {states.data(), kTokens, kRank};
    g.d_lora_a = {};
  };
  refused("lora.a and lora.states are both set", [&](LmHead& h, Gradients& g) {
    const ConstMatrix a = h.lora.a;
    with_states(h, g);
    h.lora.a = a;
  });
  refused("lora.states has 19 rows but hidden has 20", [&](LmHead& h, Gradients& g) {
    with_states(h, g);
    h.lora.states.rows = 19;
  });
  refused("lora.scale = 2 must be 1 with lora.states", [&](LmHead& h, Gradients& g) {
    with_states(h, g);
    h.lora.scale = 2;
  });
  refused("d_lora_a is set but the head has no lora.a", [&](LmHead& h, Gradients& g) {
    const Matrix d_a = g.d_lora_a;
    with_states(h, g);
    g.d_lora_a = d_a;
  });
  refused("overlap", [](LmHead&, Gradients& g) { g.d_lora_a.data = g.d_lora_b.data; });
  refused(
      "backward.mode = sampled cannot run: the head has a LoRA, and the noise of its gradients is not estimated: "
      "give backward.theta",
      [](LmHead&, Gradients& g) { g.backward.mode = BackwardMode::kSampled; });
}

// What stands beside logits or log-probabilities would be ignored.
TEST(LoraBadInput, NothingIsIgnored) {
  const AdaptedHead<float> adapted(kVocab, kHidden, 3, 1);
  const FromHidden source;
  const Batch batch;
  const std::vector<float> logits(kTokens * kVocab);
  Teacher teacher;
  teacher.logits = FinishedLogits(logits.data(), kBatch, kTime, kVocab);
  adapted.give(teacher.head);
  expect_invalid_input({"teacher: logits are given, and hidden states or a head beside them"},
                       [&] { distillation_loss(Context(), source.states(), source.head(), teacher, batch.targets()); });
  const std::vector<int64_t> ids = {1, 2};
  Reference with_lora = batch.reference(), with_ids = with_lora;
  adapted.give(with_lora.head);
  with_ids.head.ids = ids;
  const auto refused = [&](const Reference& reference, const char* what) {
    expect_invalid_input({std::string("ref_logps and reference.") + what + " are both set"}, [&] {
      preference_loss(Context(), source.states(), source.head(), batch.targets(), reference, {});
    });
  };
  refused(with_lora, "lora");
  refused(with_ids, "vocab_ids");
}

}  // namespace
}  // namespace logitless::testing

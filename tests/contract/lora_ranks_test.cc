// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Ranks must have the same LoRA, vocabulary and scales.
#include <gtest/gtest.h>

#include <Eigen/Core>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "logitless/logitless.h"
#include "support/adapted_head.h"
#include "support/calls.h"
#include "support/every_task.h"
#include "support/thread_ranks.h"
#include "support/views.h"

namespace logitless::testing {
namespace lora_ranks_test {

// Tensors that ranks share are compared.
TEST(LoraRanks, ThatHoldOtherThingsAreTold) {
  constexpr int64_t kRank = 3;
  const AdaptedHead<float> adapted(kVocab, kHidden, kRank, 1);
  const FromHidden source;
  const Batch batch;
  const auto told = [&](bool share_vocab, const std::string& why, const auto& head_of) {
    ThreadGroup group(2);
    for (const auto& error : run_ranks(2, [&](int rank) {
           ContextOptions options = small_tiles(PlanKind::kTwoPass);
           (share_vocab ? options.ranks.vocab : options.ranks.data) = &group.of(rank);
           cross_entropy(Context(options), source.states(), head_of(rank), batch.targets());
         })) {
      EXPECT_EQ(message_of(error), why + " must be the same on all ranks of ranks." + (share_vocab ? "vocab" : "data") +
                                       ": the values of rank 0 and rank 1 differ");
    }
  };
  std::vector<MatrixOf<float>> states(2, states_of(source) * adapted.a.transpose()), as(2, adapted.a);
  states[1].row(0) *= 2;
  as[1](0, 0) += 1;
  const auto with_states = [&](int rank) {
    LmHead head = adapted.head();
    head.lora.a = {};
    head.lora.states = {states[static_cast<size_t>(rank)].data(), kTokens, kRank};
    return head;
  };
  told(true, "lora.states", with_states);
  const auto with_a = [&](int rank) {
    LmHead head = adapted.head();
    head.lora.a.data = as[static_cast<size_t>(rank)].data();
    return head;
  };
  told(true, "lora.a", with_a);
  told(false, "lora.a", with_a);
  std::vector<std::vector<int64_t>> ids(2);
  for (int64_t k = 0; k < kVocab; ++k) ids[0].push_back(k), ids[1].push_back(k == 5 ? 6 : k);
  told(false, "weight.ids", [&](int rank) {
    LmHead head = adapted.head();
    head.ids = ids[static_cast<size_t>(rank)];
    return head;
  });
  const std::vector<int8_t> numbers(kVocab * kHidden, 3);
  std::vector<std::vector<float>> scales(2, std::vector<float>(kVocab, 0.5F));
  scales[1][0] = 0.25F;
  told(false, "weight.scales", [&](int rank) {
    LmHead head;
    head.packed.data = numbers.data();
    head.packed.rows = kVocab;
    head.packed.cols = kHidden;
    head.packed.scales = scales[static_cast<size_t>(rank)].data();
    return head;
  });
}

}  // namespace lora_ranks_test
}  // namespace logitless::testing

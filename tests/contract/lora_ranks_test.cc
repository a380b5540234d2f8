// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Ranks that share the vocabulary or the tokens of a call whose head has a LoRA.
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
namespace {

// Two ranks share a vocabulary, or the tokens of a batch: the gradients are those of one process.
TEST(LoraRanks, ShareItsGradients) {
  constexpr int64_t kRank = 3, kRankTokens = kTokens / 2;
  const AdaptedHead<float> adapted(kVocab, kHidden, kRank, 1.5);
  const FromHidden source;
  const double tolerance = adapted.tolerance(states_of(source));
  const Batch batch;
  CrossEntropy sum;
  sum.reduction = Reduction::kSum;
  const std::vector<int64_t> cut = {40, kVocab - 40};
  for (const auto& [plan, accumulate] :
       {std::pair(PlanKind::kTwoPass, false), std::pair(PlanKind::kTwoPass, true),
        std::pair(PlanKind::kExpectedRow, false), std::pair(PlanKind::kExpectedRow, true)}) {
    SCOPED_TRACE(std::string(name_of(plan)) + (accumulate ? " accumulated" : ""));
    const auto modes = [&](Gradients& g) {
      if (accumulate) g.d_hidden_mode = g.d_weight_mode = g.d_lora_mode = WriteMode::kAccumulate;
    };
    AdaptedOutputs<float> want(kTokens, kVocab, kHidden, kRank, 0.5F), sliced = want;
    Gradients views = want.views(true);
    modes(views);
    cross_entropy(Context(small_tiles(plan)), source.states(), adapted.head(), batch.targets(), sum, views);
    const auto expect_want = [&](const AdaptedOutputs<float>& got, int rank) {
      SCOPED_TRACE(rank);
      expect_near(got.d_hidden, want.d_hidden, tolerance, "d_hidden");
      expect_near(got.d_a, want.d_a, tolerance, "d_lora_a");
      expect_near(got.d_b, want.d_b, tolerance, "d_lora_b");
    };

    ContextOptions slices = small_tiles(plan);
    slices.ranks.slices = cut;
    views = sliced.views(true);
    modes(views);
    cross_entropy(Context(slices), source.states(), adapted.head(), batch.targets(), sum, views);
    expect_want(sliced, -1);

    // Each rank has some vocabulary entries, all of d_hidden and d_a, and d_b of its own entries.
    ThreadGroup vocab(2);
    std::vector<AdaptedOutputs<float>> of_rank(2, AdaptedOutputs<float>(kTokens, kVocab, kHidden, kRank, 0.5F));
    for (const auto& error : run_ranks(2, [&](int rank) {
           const auto r = static_cast<size_t>(rank);
           ContextOptions options = small_tiles(plan);
           options.ranks.vocab = &vocab.of(rank);
           const int64_t first = rank == 0 ? 0 : cut[0];
           LmHead head(ConstMatrix(adapted.weight.data() + first * kHidden, cut[r], kHidden));
           adapted.give(head);
           head.lora.b = {adapted.b.data() + first * kRank, cut[r], kRank};
           Gradients outputs = of_rank[r].views(true);
           outputs.d_weight = {};
           outputs.d_lora_b = {of_rank[r].d_b.data() + first * kRank, cut[r], kRank};
           modes(outputs);
           cross_entropy(Context(options), source.states(), head, batch.targets(), sum, outputs);
         })) {
      EXPECT_EQ(message_of(error), "");
    }
    of_rank[0].d_b.bottomRows(cut[1]) = of_rank[1].d_b.bottomRows(cut[1]);
    of_rank[1].d_b = of_rank[0].d_b;
    for (int rank = 0; rank < 2; ++rank) {
      expect_want(of_rank[static_cast<size_t>(rank)], rank);
      EXPECT_TRUE(of_rank[static_cast<size_t>(rank)].d_a == sliced.d_a);
    }
    if (accumulate) continue;

    // Each rank has some tokens, and the sums of d_a and d_b.
    ThreadGroup data(2);
    std::vector<AdaptedOutputs<float>> of_part(2, AdaptedOutputs<float>(kRankTokens, kVocab, kHidden, kRank, 0.5F));
    for (const auto& error : run_ranks(2, [&](int rank) {
           ContextOptions options = small_tiles(plan);
           options.ranks.data = &data.of(rank);
           options.ranks.sum_d_weight = true;
           const HiddenStates part(source.hidden.data() + rank * kRankTokens * kHidden, kBatch / 2, kTime, kHidden);
           cross_entropy(Context(options), part, adapted.head(),
                         Targets(batch.ids.data() + rank * kRankTokens, kBatch / 2, kTime), sum,
                         of_part[static_cast<size_t>(rank)].views(true));
         })) {
      EXPECT_EQ(message_of(error), "");
    }
    for (const AdaptedOutputs<float>& got : of_part) {
      expect_near(got.d_weight, want.d_weight, tolerance, "d_weight");
      expect_near(got.d_a, want.d_a, tolerance, "d_lora_a");
      expect_near(got.d_b, want.d_b, tolerance, "d_lora_b");
    }
  }
}

// States in place of a: their gradient is summed over the vocabulary, as d_hidden is.
TEST(LoraRanks, ShareTheGradientOfStates) {
  constexpr int64_t kRank = 3;
  const AdaptedHead<float> adapted(kVocab, kHidden, kRank, 1);
  const FromHidden source;
  const double tolerance = adapted.tolerance(states_of(source));
  const MatrixOf<float> states = states_of(source) * adapted.a.transpose();
  const Batch batch;
  const auto run = [&](const ContextOptions& options, int64_t first, int64_t entries, MatrixOf<float>& d_states) {
    LmHead head(ConstMatrix(adapted.weight.data() + first * kHidden, entries, kHidden));
    head.lora.states = {states.data(), kTokens, kRank};
    head.lora.b = {adapted.b.data() + first * kRank, entries, kRank};
    Gradients views;
    d_states = MatrixOf<float>::Constant(kTokens, kRank, 99.0F);
    views.d_lora_states = AdaptedOutputs<float>::view(d_states);
    cross_entropy(Context(options), source.states(), head, batch.targets(), {}, views);
  };
  MatrixOf<float> want;
  run(small_tiles(PlanKind::kTwoPass), 0, kVocab, want);
  ThreadGroup vocab(2);
  std::vector<MatrixOf<float>> got(2);
  for (const auto& error : run_ranks(2, [&](int rank) {
         ContextOptions options = small_tiles(PlanKind::kTwoPass);
         options.ranks.vocab = &vocab.of(rank);
         const int64_t first = rank == 0 ? 0 : 40;
         run(options, first, rank == 0 ? 40 : kVocab - 40, got[static_cast<size_t>(rank)]);
       })) {
    EXPECT_EQ(message_of(error), "");
  }
  for (const MatrixOf<float>& of_rank : got) expect_near(of_rank, want, tolerance, "d_lora_states");
}

// What ranks hold in common is compared.
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

}  // namespace
}  // namespace logitless::testing

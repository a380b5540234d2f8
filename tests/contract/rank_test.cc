// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Ranks of targets that rounding must not change. NamedEngineCalls.RankEqualLogits tests ties.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "support/calls.h"
#include "support/inputs.h"

namespace logitless::testing {
namespace rank_test {

constexpr StatsRequest kRank = {.argmax = true, .rank = true};

// The second pass over the vocabulary must see the bits of the first one; otherwise a logit could exceed the
// largest.
TEST(Rank, TheEntryWithTheLargestLogitIsFirst) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64}) {
    for (const HeadLayout layout : {HeadLayout::kHiddenVocab, HeadLayout::kVocabHidden}) {
      for (const int64_t row_tile : {0, 16, 48}) {
        InputSpec spec;
        spec.dtype = dtype;
        spec.layout = layout;
        spec.tokens = 131;
        spec.hidden = 333;
        spec.vocab = 1003;
        spec.ignored = 0.2;  // gathers rows
        spec.softcap = row_tile == 48 ? 20 : 0;
        Inputs inputs(spec);
        ContextOptions options;
        options.threads = 3;
        options.row_tile = row_tile;
        options.vocab_tile = row_tile * 7;
        const Context context(options);
        const auto stats = [&] {
          return compute_token_stats(context, inputs.hidden_view(), inputs.head_view(), inputs.targets_view(), {},
                                     kRank);
        };
        const std::vector<int64_t> best = stats().argmax;
        for (int64_t i = 0; i < spec.tokens; ++i) inputs.targets.data()[i] = best[i] < 0 ? spec.ignore_index : best[i];
        const std::vector<int64_t> rank = stats().rank;
        for (int64_t i = 0; i < spec.tokens; ++i) EXPECT_EQ(rank[i], best[i] < 0 ? 0 : 1) << i;
      }
    }
  }
}

TEST(Rank, OfLogitsThatTheCallerHolds) {
  // Row by row: the only largest logit, all equal, two above, a masked target, only masks, a NaN, +inf,
  // ignored.
  const float inf = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  const std::vector<float> logits = {1,    2,    3,    0,    5, 5,   5, 5, 9, 4, 7,   4, -inf, 2, -inf, 1,
                                     -inf, -inf, -inf, -inf, 1, nan, 2, 3, 1, 2, inf, 3, 1,    2, 3,    4};
  const std::vector<int64_t> targets = {2, 3, 1, 0, 1, 0, 0, -100};
  ContextOptions options;
  options.vocab_tile = 3;
  for (const std::string& target : simd_targets()) {
    options.simd_target = target;
    const TokenStats stats = compute_token_stats(Context(options), FinishedLogits(logits.data(), 1, 8, 4),
                                                 Targets(std::span(targets)), {}, {.rank = true});
    EXPECT_EQ(stats.rank, (std::vector<int64_t>{1, 1, 3, 3, 0, 0, 0, 0})) << target;
  }
}

TEST(Rank, WhoDoesNotAskDoesNotPay) {
  InputSpec spec;
  const Inputs inputs(spec);
  const auto workspace = [&](StatsRequest request) {
    Plan plan;
    compute_token_stats(Context(), inputs.hidden_view(), inputs.head_view(), inputs.targets_view(), {}, request, &plan);
    return plan.workspace_bytes;
  };
  EXPECT_EQ(workspace({true, true, true}), workspace({}));
  EXPECT_GT(workspace(kRank), workspace({}));
}

}  // namespace rank_test
}  // namespace logitless::testing

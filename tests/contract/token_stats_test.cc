// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// compute_token_stats, backpropagate_token_grads and run_token_loss against the fp64 oracle.
#include <gtest/gtest.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/calls.h"
#include "support/testers.h"

namespace logitless::testing {
namespace {

constexpr DType kDTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64};
constexpr HeadLayout kLayouts[] = {HeadLayout::kHiddenVocab, HeadLayout::kVocabHidden};

TokenStatsTester small() { return TokenStatsTester().tiles(16, 64).threads(2); }

const std::vector<std::function<void(TokenStatsTester&)>>& variations() {
  static const std::vector<std::function<void(TokenStatsTester&)>> all = {
      [](auto&) {},
      [](auto& t) { t.softcap(6); },
      [](auto& t) { t.temperatures(); },
      [](auto& t) { t.temperatures().temperature_meaning(TemperatureMeaning::kScaleLogp); },
      [](auto& t) { t.temperature(0.3).softcap(10).bias(false); },
      [](auto& t) { t.cross(); },
      [](auto& t) { t.uniform_logits(); },
      [](auto& t) { t.tokens(40).batch(5).shift().ignored(0.2).padding(3); },
      [](auto& t) {
        t.packed({0, 13, 13, 29, 37}).shift().cross();
      },
  };
  return all;
}

// Runs `check` for each variation in each type.
void for_each_variation(const std::function<void(TokenStatsTester&)>& check) {
  for (size_t k = 0; k < variations().size(); ++k) {
    SCOPED_TRACE("variation " + std::to_string(k));
    for (const DType dtype : kDTypes) {
      TokenStatsTester tester = small().dtype(dtype).layout(kLayouts[k % 2]);
      variations()[k](tester);
      check(tester);
    }
  }
}

TEST(TokenStats, EveryStatistic) {
  for_each_variation([](TokenStatsTester& tester) { tester.statistics_match_oracle(); });
}

TEST(TokenStats, OnlyWhatIsAskedFor) {
  TokenStatsTester tester = small().ignored(0.3);
  for (int asked = 0; asked < 16; ++asked) {
    const StatsRequest request = {(asked & 1) != 0, (asked & 2) != 0, (asked & 4) != 0, (asked & 8) != 0};
    tester.request(request).statistics_match_oracle();
  }
}

TEST(TokenStats, EveryInstructionSet) {
  for (const std::string& target : simd_targets()) {
    for_each_variation([&](TokenStatsTester& tester) {
      tester.simd_target(target).statistics_match_oracle();
      tester.backward_matches_oracle();
    });
  }
}

TEST(TokenStats, VocabulariesAndTokensAroundTileEdges) {
  for (const int64_t vocab : {1, 2, 63, 64, 65, 199, 2049}) {
    for (const int64_t tokens : {1, 16, 17, 33}) {
      small().vocab(vocab).tokens(tokens).statistics_match_oracle();
      small().vocab(vocab).tokens(tokens).tiles(0, 0).cross().statistics_match_oracle();
    }
  }
}

TEST(TokenStats, EmptyAndIgnoredBatches) {
  for (TokenStatsTester tester : {small().tokens(0), small().ignored(1)}) {
    tester.statistics_match_oracle();
    tester.backward_matches_oracle();
    tester.token_loss_matches_oracle();
    tester.accumulate().backward_matches_oracle();
  }
}

TEST(TokenGradients, EachTermAlone) {
  for (int term = 0; term < 5; ++term) {
    SCOPED_TRACE("term " + std::to_string(term));
    for_each_variation([&](TokenStatsTester& tester) {
      tester.terms(term == 0, term == 1, term == 2, term == 3, term == 4);
      tester.backward_matches_oracle();
      for (const PlanKind plan : {PlanKind::kOnePass, PlanKind::kTwoPass}) {
        tester.plan(plan).token_loss_matches_oracle();
      }
    });
  }
}

TEST(TokenGradients, AllTermsTogether) {
  for_each_variation([](TokenStatsTester& tester) {
    for (const int threads : {1, 3}) {
      tester.threads(threads).plan(PlanKind::kAuto).backward_matches_oracle();
      for (const PlanKind plan : {PlanKind::kOnePass, PlanKind::kTwoPass}) {
        tester.plan(plan).token_loss_matches_oracle();
      }
    }
  });
}

TEST(TokenGradients, PairsOfTerms) {
  for (int terms = 1; terms < 32; ++terms) {
    TokenStatsTester tester =
        small().terms(terms & 1, terms & 2, terms & 4, terms & 8, terms & 16).softcap(7).ignored(0.2);
    tester.backward_matches_oracle();
    tester.plan(PlanKind::kOnePass).token_loss_matches_oracle();
  }
}

TEST(TokenGradients, OnlyTheStatisticsThatTheTermsNeed) {
  // logp and lse alone need no further statistic, entropy's gradient needs the entropy.
  small().request({}).terms(true, true, false, false).backward_matches_oracle();
  small().request({}).terms(true, true, false, true).backward_matches_oracle();
  small().request({.outside = true}).terms(false, false, false, false, true).backward_matches_oracle();
  small().request({true, false, false}).terms(true, false, true, false).backward_matches_oracle();
  small().request({true, false, false}).terms(true, false, true, false).token_loss_matches_oracle();
}

TEST(TokenGradients, NoTermAtAllIsZero) {
  TokenStatsTester tester = small().terms(false, false, false, false);
  tester.backward_matches_oracle();
  tester.accumulate().backward_matches_oracle();
  tester.sink().backward_matches_oracle();
  tester.sink(false).plan(PlanKind::kOnePass).token_loss_matches_oracle();
}

TEST(TokenGradients, OutputsInEveryForm) {
  for (const DType dtype : kDTypes) {
    TokenStatsTester tester = small().dtype(dtype).ignored(0.2).padding(4);
    tester.accumulate().backward_matches_oracle();
    tester.accumulate(false).sink().backward_matches_oracle();
    tester.sink(false).gradients(true, false, false).backward_matches_oracle();
    tester.gradients(false, true, false).backward_matches_oracle();
    tester.gradients(false, false, true).backward_matches_oracle();
  }
  small().dtype(DType::kBFloat16).gradient_dtype(DType::kBFloat16).backward_matches_oracle();
}

// One pass has to evaluate rows chunk by chunk.
TEST(RunTokenLoss, ManyChunks) {
  TokenStatsTester tester = small().tokens(300).vocab(600).ignored(0.2).plan(PlanKind::kOnePass);
  tester.workspace(size_t{300} << 10);  // 240 rows x 600 vocabulary entries alone are 560 KiB
  for (const bool accumulate : {false, true}) {
    const Plan plan = tester.accumulate(accumulate).token_loss_matches_oracle();
    EXPECT_LE(plan.chunk_rows * 2, plan.active_rows);
  }
}

class FailingLoss : public TokenLoss {
 public:
  StatsRequest needs() const override { return {}; }
  GradsFilled gradients() const override { return {}; }
  void evaluate(std::span<const int64_t>, const TokenStats&, TokenGrads&) override {
    throw std::runtime_error("the loss failed");
  }
};

TEST(RunTokenLoss, ItsExceptionArrives) {
  InputSpec spec;
  Inputs inputs(spec);
  GradientOutputs outputs(inputs, {});
  for (const PlanKind plan : {PlanKind::kOnePass, PlanKind::kTwoPass}) {
    ContextOptions options;
    options.plan = plan;
    options.threads = 3;
    FailingLoss loss;
    EXPECT_THROW(run_token_loss(Context(options), inputs.hidden_view(), inputs.head_view(), inputs.targets_view(), {},
                                loss, outputs.gradients()),
                 std::runtime_error);
  }
}

}  // namespace
}  // namespace logitless::testing

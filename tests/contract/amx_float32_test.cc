// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The whole library on backend "amx_float32" with the emulated tile unit: the oracle's results in every plan,
// and bits that depend neither on threads nor on neighbours.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "logitless/cross_entropy.h"
#include "logitless/environment.h"
#include "logitless/token_stats.h"
#include "support/calls.h"
#include "support/environment_variable.h"
#include "support/inputs.h"
#include "support/testers.h"

namespace logitless::testing {
namespace {

const EnvironmentVariable kEmulated("LOGITLESS_AMX", "emulated");

constexpr HeadLayout kLayouts[] = {HeadLayout::kHiddenVocab, HeadLayout::kVocabHidden};
constexpr const char* kBackends[] = {"amx_float32", "amx_float32_two_terms"};

CrossEntropyTester small(const char* backend = "amx_float32") {
  return CrossEntropyTester().tiles(16, 64).threads(2).gemm_backend(backend);
}

TEST(AmxFloat32, MatchesTheOracleInEveryPlan) {
  for (const HeadLayout layout : kLayouts) {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
      for (const PlanKind plan : {PlanKind::kAuto, PlanKind::kOnePass, PlanKind::kTwoPass, PlanKind::kDense}) {
        CrossEntropyTester tester = small().layout(layout).dtype(dtype).plan(plan);
        tester.ignored(plan == PlanKind::kDense ? 0 : 0.2).matches_oracle();
        tester.metrics().label_smoothing(0.1).softcap(20).accumulate().gradient_dtype(DType::kFloat32).matches_oracle();
      }
    }
    small().layout(layout).gradients(true, false, false).plan(PlanKind::kExpectedRow).matches_oracle();
    small().layout(layout).form(Form::kSplit).matches_oracle();
  }
}

// Within the bounds of what two terms leave out, which are wide; products have tests of their own.
TEST(AmxFloat32, OfTwoTermsMatchesTheOracle) {
  for (const HeadLayout layout : kLayouts) {
    for (const PlanKind plan : {PlanKind::kOnePass, PlanKind::kTwoPass}) {
      small("amx_float32_two_terms").layout(layout).plan(plan).ignored(0.2).matches_oracle();
    }
  }
}

// Of more depth than is packed or summed at once, in tiles of the library's choice.
TEST(AmxFloat32, MatchesTheOracleOfLargeHeads) {
  for (const char* backend : kBackends) {
    for (const HeadLayout layout : kLayouts) {
      for (const PlanKind plan : {PlanKind::kOnePass, PlanKind::kTwoPass}) {
        CrossEntropyTester tester;
        tester.gemm_backend(backend).tokens(65).vocab(600).hidden(1250).layout(layout).plan(plan).matches_oracle();
      }
    }
  }
}

TEST(AmxFloat32, SumsOverManyTokens) {
  CrossEntropyTester().gemm_backend("amx_float32").tokens(1300).vocab(70).hidden(40).ignored(0.1).matches_oracle();
}

TEST(AmxFloat32, HasTheSameBitsForEveryNumberOfThreads) {
  InputSpec spec;
  spec.tokens = 150;
  spec.vocab = 1000;
  spec.hidden = 610;
  spec.ignored = 0.2;
  Inputs inputs(spec);
  std::set<std::vector<std::byte>> results;
  for (const char* backend : kBackends) {
    for (const PlanKind plan : {PlanKind::kOnePass, PlanKind::kTwoPass}) {
      std::set<std::vector<std::byte>> of_plan;
      for (const int threads : {1, 2, 3, 7}) {
        ContextOptions options;
        options.gemm_backend = backend;
        options.plan = plan;
        options.threads = threads;
        options.row_tile = 64;
        options.vocab_tile = 320;
        GradientOutputs outputs(inputs, {});
        const Plan ran = cross_entropy(Context(options), inputs.hidden_view(), inputs.head_view(),
                                       inputs.targets_view(), {}, outputs.gradients())
                             .plan;
        EXPECT_EQ(ran.gemm_library, backend);
        of_plan.insert(outputs.bytes());
      }
      EXPECT_EQ(of_plan.size(), 1u) << backend << " " << name_of(plan);
      results.merge(of_plan);
    }
  }
  EXPECT_GE(results.size(), 2u) << "the backends have other arithmetic";
}

// The first tokens have the same bits alone as among all, with the same tiles, where they are no few rows.
TEST(AmxFloat32, HasTheSameBitsWhicheverRowsAreThere) {
  InputSpec spec;
  spec.tokens = 90;
  spec.vocab = 500;
  spec.hidden = 200;
  const Inputs inputs(spec);
  ContextOptions options;
  options.gemm_backend = "amx_float32";
  options.row_tile = 32;
  options.vocab_tile = 128;
  const auto logps_of = [&](int64_t tokens) {
    HiddenStates hidden = inputs.hidden_view();
    hidden.states.rows = tokens;
    return compute_token_stats(Context(options), hidden, inputs.head_view(),
                               Targets(inputs.targets_view().data64, tokens))
        .logp;
  };
  const std::vector<double> all = logps_of(spec.tokens);
  for (const int64_t tokens : {33, 50, 64, 65, 89}) {
    const std::vector<double> some = logps_of(tokens);
    EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin())) << tokens;
  }
}

TEST(AmxFloat32, IsInTheListAndNeverChosenByItself) {
  const std::vector<std::string> names = gemm_backends();
  EXPECT_EQ(names.front(), "amx");
  EXPECT_EQ(names[names.size() - 2], "amx_float32");
  EXPECT_EQ(names.back(), "amx_float32_two_terms");
  EXPECT_EQ(Context().gemm_backend(), "amx");
  EXPECT_FALSE(CrossEntropyTester().tokens(60).planned().gemm_library.starts_with("amx"));
}

TEST(AmxFloat32, SaysThatItIsEmulated) {
  ContextOptions options;
  options.gemm_backend = "amx_float32";
  const Environment environment = describe_environment(Context(options));
  EXPECT_EQ(environment.gemm_bf16, "logitless (AMX, emulated)");
  EXPECT_TRUE(std::any_of(environment.warnings.begin(), environment.warnings.end(),
                          [](const std::string& line) { return line.find("LOGITLESS_AMX") != std::string::npos; }));
}

}  // namespace
}  // namespace logitless::testing

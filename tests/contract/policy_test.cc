// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// policy_loss on hidden states against the fp64 oracle.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "support/policy_tester.h"

namespace logitless::testing {
namespace {

constexpr DType kDTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat64, DType::kFloat16};
constexpr HeadLayout kLayouts[] = {HeadLayout::kHiddenVocab, HeadLayout::kVocabHidden};

// Small tiles: the default shape of 23 tokens and 150 vocabulary entries has 2 x 3 of them.
PolicyTester small() { return PolicyTester().tiles(16, 64).threads(1); }

PolicyTester policy(PolicyLossType variant, const std::vector<std::string>& twists = {}) {
  PolicyTester tester = small().loss_type(variant);
  for (const std::string& twist : twists) tester.twist(twist);
  return tester;
}

// Losses that are local to a token have gradients through the ratio, logp and the entropy.
std::vector<PolicyTester> token_local() {
  return {
      policy(PolicyLossType::kGrpo),
      policy(PolicyLossType::kCispo, {"beta with k3", "entropy bonus"}),
      policy(PolicyLossType::kDapo, {"advantages per token", "token_truncate clip_max", "entropy metric"}),
      policy(PolicyLossType::kSapo, {"on-policy", "loss scale"}),
      policy(PolicyLossType::kDppo, {"trust region kl", "beta with k3_plus", "number of items"}),
      policy(PolicyLossType::kImportanceSampling, {"trust region tv_both", "sampler penalty"}),
      policy(PolicyLossType::kTopr, {"likelihood of good answers", "no empty sequences"}),
  };
}
std::vector<PolicyTester> sequence_coupled() {
  return {
      policy(PolicyLossType::kGrpo, {"sequence level", "beta with k2, bias correction"}),
      policy(PolicyLossType::kRloo),
      policy(PolicyLossType::kGmpo, {"narrow clip", "geometric_mask clip_max"}),
      policy(PolicyLossType::kVespo, {"token_mask clip_max"}),
      policy(PolicyLossType::kDrGrpo, {"off-policy mask", "sequence_truncate clip_max"}),
  };
}
std::vector<PolicyTester> batch_coupled() {
  return {
      policy(PolicyLossType::kPpo, {"top entropy quantile", "entropy bonus"}),
      policy(PolicyLossType::kClipCov, {"covariances"}),
      policy(PolicyLossType::kKlCov, {"covariances", "second moments", "on-policy"}),
      policy(PolicyLossType::kLuspo, {"top entropy quantile", "sequence level", "beta with k1"}),
  };
}
std::vector<PolicyTester> representatives() {
  std::vector<PolicyTester> all = token_local();
  for (const auto& more : {sequence_coupled(), batch_coupled()}) all.insert(all.end(), more.begin(), more.end());
  return all;
}

TEST(Policy, EveryVariantAndOptionInBothPlans) {
  for (const PolicyCase& policy_case : policy_cases(0)) {
    PolicyTester tester = small().packed({0, 6, 6, 10, 13}).vocab(70).hidden(11).policy(policy_case);
    for (const PlanKind plan : {PlanKind::kOnePass, PlanKind::kTwoPass}) tester.plan(plan).matches_oracle();
  }
}

TEST(Policy, EveryTypeLayoutPlanAndThreads) {
  for (PolicyTester& tester : representatives()) {
    for (const DType dtype : kDTypes) {
      for (const HeadLayout layout : kLayouts) {
        tester.dtype(dtype).layout(layout).workspace(size_t{64} << 20);
        tester.threads(1).plan(PlanKind::kOnePass).matches_oracle();
        tester.threads(3).plan(PlanKind::kTwoPass).matches_oracle();
        tester.threads(2).plan(PlanKind::kAuto).matches_oracle();
        tester.threads(7).plan(PlanKind::kOnePass).tightest_workspace().matches_oracle();
      }
    }
  }
}

TEST(Policy, TemperaturesAndSoftcap) {
  for (PolicyTester tester : representatives()) {
    tester.softcap(12).padding(3).plan(PlanKind::kTwoPass);
    for (const auto meaning : {TemperatureMeaning::kScaleLogits, TemperatureMeaning::kScaleLogp}) {
      tester.temperature_meaning(meaning);
      tester.temperatures(false).temperature(0.7).matches_oracle();
      tester.temperatures().matches_oracle();
      tester.plan(PlanKind::kOnePass).tightest_workspace().matches_oracle();
      tester.plan(PlanKind::kTwoPass).workspace(size_t{64} << 20);
    }
  }
}

TEST(Policy, TheTwoHalves) {
  for (PolicyTester tester : representatives()) {
    tester.form(Form::kSplit).matches_oracle();
    for (const DType dtype : kDTypes) tester.dtype(dtype).upstream().temperatures().matches_oracle();
    tester.accumulate().workspace(size_t{64} << 20).matches_oracle();
  }
}

TEST(Policy, OutputsInEveryForm) {
  for (PolicyTester tester : representatives()) {
    tester.layout(HeadLayout::kVocabHidden).padding(5);
    tester.accumulate().matches_oracle();
    tester.plan(PlanKind::kTwoPass).matches_oracle();
    tester.sink().matches_oracle();
    tester.sink(false).accumulate(false).plan(PlanKind::kAuto);
    tester.gradients(true, false, false).matches_oracle();
    tester.gradients(false, true, true).plan(PlanKind::kOnePass).tightest_workspace().matches_oracle();
    tester.workspace(size_t{64} << 20).plan(PlanKind::kAuto).gradients(false, false, false);
    EXPECT_EQ(tester.matches_oracle().result.plan.kind, PlanKind::kForwardOnly);
    tester.gradients(true, true, true).bias(false).matches_oracle();
    for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
      tester.dtype(dtype).gradient_dtype(dtype).matches_oracle();
    }
  }
}

TEST(Policy, VectorsOfTheBatchInEveryType) {
  for (const DType dtype : kDTypes) {
    for (PolicyTester tester : representatives()) tester.batch_dtype(dtype).matches_oracle();
  }
}

TEST(Policy, BatchesOfEveryShape) {
  for (PolicyTester tester : representatives()) {
    tester.packed({0, 0, 1, 2, 2, 6}).matches_oracle();
    tester.padded(1, 1).ignored(0).matches_oracle();
    tester.padded(1, 24).ignored(0.3).matches_oracle();
    tester.padded(3, 8).matches_oracle();
    EXPECT_EQ(tester.ignored(1).matches_oracle().result.loss, 0);
  }
}

TEST(Policy, TokenLocalLossesRunOnePass) {
  for (PolicyTester tester : token_local()) {
    tester.packed({0, 20, 20, 35, 50}).tiles(8, 64);
    Plan plan = tester.workspace(size_t{256} << 20).plan(PlanKind::kAuto).planned();
    EXPECT_EQ(plan.kind, PlanKind::kOnePass);
    EXPECT_EQ(plan.chunk_rows, plan.active_rows);
    plan = tester.plan(PlanKind::kOnePass).tightest_workspace().planned();
    EXPECT_LE(plan.chunk_rows, 8);
    tester.matches_oracle();
  }
}

TEST(Policy, LossesOfSequencesRunOnePassWhereAChunkHoldsOne) {
  for (PolicyTester tester : sequence_coupled()) {
    tester.packed({0, 20, 20, 35, 50}).tiles(8, 64).ignored(0);
    EXPECT_EQ(tester.workspace(size_t{256} << 20).plan(PlanKind::kAuto).planned().kind, PlanKind::kOnePass);
    const Plan plan = tester.plan(PlanKind::kOnePass).tightest_workspace().planned();
    EXPECT_EQ(plan.chunk_rows, 20);  // the longest sequence
    tester.matches_oracle();
    const size_t least = tester.run_spec().context.workspace_bytes;
    EXPECT_EQ(tester.plan(PlanKind::kAuto).workspace(least - 1).planned().kind, PlanKind::kTwoPass);
    tester.matches_oracle();
  }
}

TEST(Policy, LossesOfTheBatchRunOnePassWhereAChunkHoldsAll) {
  for (PolicyTester tester : batch_coupled()) {
    tester.packed({0, 20, 20, 35, 50}).tiles(8, 64).ignored(0);
    EXPECT_EQ(tester.workspace(size_t{256} << 20).plan(PlanKind::kAuto).planned().kind, PlanKind::kOnePass);
    EXPECT_EQ(tester.plan(PlanKind::kOnePass).tightest_workspace().planned().chunk_rows, 50);
    tester.matches_oracle();
    const size_t least = tester.run_spec().context.workspace_bytes;
    EXPECT_EQ(tester.plan(PlanKind::kAuto).workspace(least - 1).planned().kind, PlanKind::kTwoPass);
    tester.matches_oracle();
  }
}

TEST(Policy, SameBitsForEveryNumberOfThreads) {
  for (PolicyTester tester : representatives()) {
    tester.packed({0, 31, 31, 47, 80}).vocab(401).hidden(70).tiles(16, 96);
    for (const PlanKind plan : {PlanKind::kOnePass, PlanKind::kTwoPass}) {
      for (const bool tight : {false, true}) {
        tester.workspace(size_t{64} << 20).plan(plan);
        if (tight) tester.plan(plan).tightest_workspace();
        const std::vector<std::byte> bytes = tester.threads(1).run_once().bytes;
        for (const int threads : {1, 2, 3, 7}) {
          EXPECT_TRUE(tester.threads(threads).run_once().bytes == bytes) << threads << " threads";
        }
      }
    }
  }
}

}  // namespace
}  // namespace logitless::testing

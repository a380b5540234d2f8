// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Gradients of chosen segments by `noise`: they have the requested error, and are exact if no error is
// requested or if choosing would not pay.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "logitless/logitless.h"
#include "segment_calls.h"
#include "support/views.h"

namespace logitless::testing {
namespace segment_noise_test {

TEST(SegmentNoise, TheNoiseIsTheOneThatIsAskedFor) {
  const SeededModel model(384, 32, 6000, 0.8);
  const Caller run = cross_entropy_of(model);
  const Outputs exact = outputs_of(model, run, {}, nullptr, options_of(2, PlanKind::kTwoPass));
  for (const double noise : {0.02, 0.05, 0.1}) {
    double hidden = 0, weight = 0;
    constexpr int kSeeds = 4;
    for (int seed = 0; seed < kSeeds; ++seed) {
      Plan plan;
      const Outputs got = outputs_of(model, run, by_noise(noise, seed), &plan, options_of(2));
      ASSERT_LT(plan.kept_share, 0.5) << noise;
      EXPECT_NEAR(plan.noise_estimate, noise, 1e-3 * noise);
      hidden += std::pow(got.hidden_distance(exact) / exact.hidden_norm(), 2) / kSeeds;
      weight += std::pow(got.weight_distance(exact) / exact.weight_norm(), 2) / kSeeds;
    }
    const double reached = std::sqrt(std::max(hidden, weight));
    EXPECT_GT(reached, noise / 1.3);
    EXPECT_LT(reached, noise * 1.3);
  }
}

TEST(SegmentNoise, NoNoiseMeansExactToTheBit) {
  const SeededModel model(40, 9, 2000, 2);
  const Caller run = cross_entropy_of(model);
  for (const PlanKind kind : {PlanKind::kAuto, PlanKind::kTwoPass}) {
    Plan plan;
    const Outputs exact = outputs_of(model, run, {}, nullptr, options_of(2, kind));
    EXPECT_EQ(outputs_of(model, run, by_noise(0), &plan, options_of(2, kind)).values, exact.values);
    EXPECT_EQ(plan.kept_share, 1);
  }
}

// The noise applies to d_hidden and d_weight; d_bias alone is exact.
TEST(SegmentNoise, TheBiasAloneIsExactByNoise) {
  const SeededModel model(40, 9, 2000, 2);
  const auto bias_of = [&](const BackwardOptions& backward) {
    std::vector<float> bias(2000);
    Gradients gradients;
    gradients.d_bias = {bias.data(), 2000};
    gradients.backward = backward;
    run_cross_entropy(model, Context(options_of(1, PlanKind::kTwoPass)), gradients);
    return bias;
  };
  EXPECT_EQ(bias_of(by_noise(0.1)), bias_of({}));
  EXPECT_NE(bias_of(sampled(0.2)), bias_of({}));
}

// Flat rows would choose nearly all segments.
TEST(SegmentNoise, AreExactWhereMostWouldBeTaken) {
  SeededModel model(40, 9, 2000);
  const Caller run = cross_entropy_of(model);
  std::fill(model.states.begin(), model.states.end(), 0.0F);
  std::fill(model.bias.begin(), model.bias.end(), 1.0F);
  const Outputs exact = outputs_of(model, run, {}, nullptr, options_of(1, PlanKind::kTwoPass));
  for (const BackwardOptions& backward : {by_noise(0.001), certified(0.001), sampled(1e-6)}) {
    Plan plan;
    EXPECT_EQ(outputs_of(model, run, backward, &plan).values, exact.values);
    EXPECT_EQ(plan.kept_share, 1);
    EXPECT_EQ(plan.noise_estimate, 0);
  }
  Plan plan;
  outputs_of(model, run, sampled(0.2), &plan);
  EXPECT_LT(plan.kept_share, 0.5);
}

}  // namespace segment_noise_test
}  // namespace logitless::testing

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Gradients of chosen segments: the mean of sampled ones is the exact gradient, they have the requested
// noise, and each output has the same bits alone. Drawn calls hold certified ones to their bound, and both to
// the same bits for any threads and ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "logitless/logitless.h"
#include "segment_calls.h"
#include "support/calls.h"
#include "support/views.h"

namespace logitless::testing {
namespace segment_gradients_test {

TEST(SegmentGradients, TheMeanOfSampledOnesIsExact) {
  SeededModel model(12, 5, 1000, 0.2);
  const auto expect_unbiased_with = [&](const char* what, const CrossEntropy& options) {
    SCOPED_TRACE(what);
    expect_unbiased(model, cross_entropy_of(model, options), 0.25);
  };
  expect_unbiased_with("the defaults", {});
  std::vector<float> weights(static_cast<size_t>(model.vocab));
  for (size_t v = 0; v < weights.size(); ++v) weights[v] = 0.5F + 0.001F * static_cast<float>(v);
  CrossEntropy smooth, weighted;
  smooth.label_smoothing = 0.1, smooth.z_loss = 0.02;
  expect_unbiased_with("label smoothing and z-loss", smooth);
  weighted.class_weights = weights, weighted.label_smoothing = 0.05, weighted.reduction = Reduction::kSum;
  expect_unbiased_with("class weights, sum", weighted);
  std::vector<double> temperatures;
  for (int64_t i = 0; i < model.tokens; ++i) temperatures.push_back(0.7 + 0.05 * static_cast<double>(i));
  CrossEntropy warm;
  warm.token.temperatures = temperatures;
  expect_unbiased_with("a temperature a token", warm);
  warm.token.temperature_meaning = TemperatureMeaning::kScaleLogp;
  expect_unbiased_with("a temperature a token, of log-probabilities", warm);
  model.softcap = 4;
  model.targets[3] = model.targets[7] = -100;
  expect_unbiased_with("softcap and ignored rows", {});
}

TEST(SegmentGradients, TheMeanOfSeveralIdsARowIsExact) {
  const SeededModel model(12, 5, 1000, 0.2);
  std::vector<int64_t> ids;
  std::vector<double> upstream;
  for (int64_t i = 0; i < 24; ++i) {
    ids.push_back((i * 71) % model.vocab);
    upstream.push_back(i % 2 == 0 ? 1 : -0.5);
  }
  const IdSets sets(Targets(ids.data(), 12, 2));
  const auto forward = id_logps.forward(Context(options_of()), model.hidden_states(), model.head(), sets);
  expect_unbiased(
      model,
      [&](const Context& context, const Gradients& gradients) {
        return id_logps.backward(context, model.hidden_states(), model.head(), sets, {}, forward, upstream, gradients);
      },
      0.25);
}

// The choice is made once, so each output alone has the bits that it has with the others.
TEST(SegmentGradients, EveryFormOfTheOutputs) {
  const SeededModel model(60, 17, 1500, 1);
  const auto run = [&](const std::function<void(Gradients&)>& change, float before = 0) {
    Outputs outputs(model);
    std::ranges::fill(outputs.values, before);
    Gradients views = outputs.views();
    views.backward = sampled(0.1, 11);
    change(views);
    EXPECT_LT(run_cross_entropy(model, Context(options_of(2)), views).kept_share, 0.5);
    return outputs.values;
  };
  const std::vector<float> all = run([](Gradients&) {});
  const size_t ends[] = {0, 60 * 17, (60 + 1500) * 17, all.size()};
  // The same with zeros for all outputs except this one.
  const auto part = [&](size_t k) {
    std::vector<float> out(all.size());
    for (size_t i = ends[k]; i < ends[k + 1]; ++i) out[i] = all[i];
    return out;
  };
  EXPECT_EQ(run([](Gradients& views) { views.d_weight = {}, views.d_bias = {}; }), part(0));
  EXPECT_EQ(run([](Gradients& views) { views.d_hidden = {}, views.d_bias = {}; }), part(1));
  EXPECT_EQ(run([](Gradients& views) { views.d_hidden = {}, views.d_weight = {}; }), part(2));

  // Tiles arrive in the order of the vocabulary, each once.
  std::vector<float> tiles;
  run([&](Gradients& views) {
    views.d_hidden = {}, views.d_weight = {}, views.d_bias = {};
    views.weight_sink = [&](int64_t first, int64_t count, const ConstMatrix& tile) {
      EXPECT_EQ(first * 17, static_cast<int64_t>(tiles.size()));
      for (int64_t v = 0; v < count; ++v) {
        const float* const row = static_cast<const float*>(tile.data) + v * tile.stride;
        tiles.insert(tiles.end(), row, row + 17);
      }
    };
  });
  EXPECT_EQ(tiles, std::vector<float>(all.begin() + 60 * 17, all.begin() + (60 + 1500) * 17));

  const std::vector<float> added = run(
      [](Gradients& views) { views.d_hidden_mode = views.d_weight_mode = views.d_bias_mode = WriteMode::kAccumulate; },
      0.25F);
  for (size_t i = 0; i < all.size(); ++i) ASSERT_NEAR(added[i], all[i] + 0.25F, 1e-6) << i;
}

TEST(SegmentGradients, TheNoiseIsTheOneThatIsAskedFor) {
  const SeededModel model(384, 32, 6000, 0.8);
  for (const double noise : {0.02, 0.1}) expect_noise(model, cross_entropy_of(model), noise);
}

TEST(SegmentGradients, NoNoiseMeansExactToTheBit) {
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
TEST(SegmentGradients, TheBiasAloneIsExactByNoise) {
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
TEST(SegmentGradients, AreExactWhereMostWouldBeTaken) {
  SeededModel model(40, 9, 2000);
  const Caller run = cross_entropy_of(model);
  std::ranges::fill(model.states, 0.0F);
  std::ranges::fill(model.bias, 1.0F);
  const Outputs exact = outputs_of(model, run, {}, nullptr, options_of(1, PlanKind::kTwoPass));
  for (const BackwardOptions& backward : {by_noise(0.001), certified(0.001), sampled(1e-6)}) {
    Plan plan;
    EXPECT_EQ(outputs_of(model, run, backward, &plan).values, exact.values);
    EXPECT_EQ(plan.kept_share, 1);
    EXPECT_EQ(plan.noise_estimate, 0);
  }
}

}  // namespace segment_gradients_test
}  // namespace logitless::testing

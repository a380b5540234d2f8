// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Gradients of chosen segments: the mean of sampled ones is the exact gradient, certified ones have the
// promised error, and both have the same bits for any threads and ranks. segment_noise_test.cc tests the
// promise of `noise`, segment_edge_cases_test.cc rare models.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "logitless/logitless.h"
#include "segment_calls.h"
#include "support/calls.h"
#include "support/every_task.h"
#include "support/refusal.h"
#include "support/views.h"

namespace logitless::testing {
namespace segment_gradients_test {

TEST(SegmentGradients, TheMeanOfSampledOnesIsExact) {
  SeededModel model(12, 5, 1000, 0.2);
  const auto expect_unbiased_with = [&](const char* what, const std::function<void(CrossEntropy&)>& set) {
    SCOPED_TRACE(what);
    CrossEntropy options;
    set(options);
    expect_unbiased(model, cross_entropy_of(model, options), 0.25);
  };
  expect_unbiased_with("the defaults", [](auto&) {});
  expect_unbiased_with("label smoothing and z-loss", [](auto& o) {
    o.label_smoothing = 0.1;
    o.z_loss = 0.02;
  });
  std::vector<float> weights(static_cast<size_t>(model.vocab));
  for (size_t v = 0; v < weights.size(); ++v) weights[v] = 0.5F + 0.001F * static_cast<float>(v);
  expect_unbiased_with("class weights, sum", [&](auto& o) {
    o.class_weights = weights;
    o.reduction = Reduction::kSum;
    o.label_smoothing = 0.05;
  });
  std::vector<double> temperatures;
  for (int64_t i = 0; i < model.tokens; ++i) temperatures.push_back(0.7 + 0.05 * static_cast<double>(i));
  expect_unbiased_with("a temperature a token", [&](auto& o) { o.token.temperatures = temperatures; });
  expect_unbiased_with("a temperature a token, of log-probabilities", [&](auto& o) {
    o.token.temperatures = temperatures;
    o.token.temperature_meaning = TemperatureMeaning::kScaleLogp;
  });
  model.softcap = 4;
  expect_unbiased_with("softcap", [](auto&) {});
  model.softcap = 0;
  model.targets[3] = model.targets[7] = -100;
  expect_unbiased_with("ignored rows", [](auto&) {});
}

TEST(SegmentGradients, TheMeanOfSampledOnesOfOtherLossesIsExact) {
  SeededModel model(12, 5, 1000, 0.2);
  std::vector<float> advantages = {1.5F, -0.5F, 2}, old_logps(12, -6.0F), ref_logps(12, -6.5F), sums = {-18, -20};
  const HiddenStates three(model.states.data(), 3, 4, model.hidden), two(model.states.data(), 2, 6, model.hidden);
  {
    SCOPED_TRACE("policy");
    PolicyBatch batch;
    batch.chosen_ids = Targets(model.targets.data(), 3, 4);
    batch.advantages = {advantages.data(), 3};
    batch.old_logps = {old_logps.data(), 12};
    batch.ref_logps = {ref_logps.data(), 12};
    PolicyLoss options;
    options.beta = 0.1;
    expect_unbiased(
        model,
        [&](const Context& context, const Gradients& gradients) {
          return policy_loss(context, three, model.head(), batch, options, gradients).plan;
        },
        0.25);
  }
  {
    SCOPED_TRACE("preference");
    Reference reference;
    reference.logps = {sums.data(), 2};
    expect_unbiased(
        model,
        [&](const Context& context, const Gradients& gradients) {
          return preference_loss(context, two, model.head(), Targets(model.targets.data(), 2, 6), reference, {},
                                 gradients)
              .plan;
        },
        0.25);
  }
  {
    SCOPED_TRACE("several ids a row");
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
          return id_logps.backward(context, model.hidden_states(), model.head(), sets, {}, forward, upstream,
                                   gradients);
        },
        0.25);
  }
}

// The choice is made once, so each output alone has the bits that it has with the others.
TEST(SegmentGradients, EveryFormOfTheOutputs) {
  const SeededModel model(60, 17, 1500, 1);
  const Context context(options_of(2));
  const BackwardOptions backward = sampled(0.1, 11);
  Outputs all(model);
  Gradients views = all.views();
  views.backward = backward;
  const auto run = [&](const Gradients& gradients) { return run_cross_entropy(model, context, gradients); };
  EXPECT_LT(run(views).kept_share, 0.5);
  const auto part = [&](int64_t begin, int64_t count) {
    return std::vector<float>(all.values.begin() + begin, all.values.begin() + begin + count);
  };
  const std::vector<float> hidden = part(0, 60 * 17), weight = part(60 * 17, 1500 * 17),
                           bias = part((60 + 1500) * 17, 1500);
  Gradients alone;
  alone.backward = backward;
  std::vector<float> out(hidden.size());
  alone.d_hidden = {out.data(), 60, 17};
  run(alone);
  EXPECT_EQ(out, hidden);

  alone.d_hidden = {};
  out.assign(weight.size(), 0);
  alone.d_weight = {out.data(), 1500, 17};
  run(alone);
  EXPECT_EQ(out, weight);

  alone.d_weight = {};
  out.assign(bias.size(), 0);
  alone.d_bias = {out.data(), 1500};
  run(alone);
  EXPECT_EQ(out, bias);

  // Tiles arrive in the order of the vocabulary, each once.
  alone.d_bias = {};
  out.assign(weight.size(), 99);
  int64_t next = 0;
  alone.weight_sink = [&](int64_t first, int64_t count, const ConstMatrix& tile) {
    EXPECT_EQ(first, next);
    next += count;
    for (int64_t v = 0; v < count; ++v) {
      std::copy_n(static_cast<const float*>(tile.data) + v * tile.stride, 17,
                  out.begin() + static_cast<ptrdiff_t>((first + v) * 17));
    }
  };
  run(alone);
  EXPECT_EQ(next, 1500);
  EXPECT_EQ(out, weight);

  Outputs added(model);
  std::fill(added.values.begin(), added.values.end(), 0.25F);
  Gradients accumulate = added.views();
  accumulate.backward = backward;
  accumulate.d_hidden_mode = accumulate.d_weight_mode = accumulate.d_bias_mode = WriteMode::kAccumulate;
  run(accumulate);
  for (size_t i = 0; i < added.values.size(); ++i) {
    ASSERT_NEAR(added.values[i], all.values[i] + 0.25F, 1e-6) << i;
  }
}

TEST(SegmentGradients, TellWhyTheyCannotBeChosen) {
  const FromHidden source;
  const Batch batch;
  FromHidden::Outputs outputs;
  const auto refused = [&](const std::string& why, const BackwardOptions& backward,
                           const std::function<void(const Context&, const Gradients&)>& call,
                           PlanKind plan = PlanKind::kAuto) {
    Gradients views = outputs.views();
    views.backward = backward;
    expect_invalid_input({why}, [&] { call(Context(options_of(1, plan)), views); });
    EXPECT_EQ(outputs.values(), FromHidden::Outputs().values());
  };
  const auto cross = [&](const Context& context, const Gradients& views) {
    cross_entropy(context, source.states(), source.head(), batch.targets(), {}, views);
  };
  const std::string cannot = "backward.mode = sampled cannot run: ";
  refused("backward.noise = 10 must be a number of at least 0 and below 1", by_noise(10), cross);
  refused("backward.noise = nan", by_noise(std::numeric_limits<double>::quiet_NaN()), cross);
  refused("backward.theta = -1 must be a number from 0 to 1000", sampled(-1), cross);
  refused("backward.theta = 1e+30 must be", sampled(1e30), cross);
  refused("backward.tolerance = 1 must be", certified(1), cross);
  refused(cannot + "it needs plan two_pass, but plan = one_pass is set", sampled(0.1), cross, PlanKind::kOnePass);
  refused(cannot + "the loss has a gradient of the entropy", sampled(0.1),
          [&](const Context& context, const Gradients& views) {
            PolicyLoss bonus;
            bonus.entropy_bonus = 0.1;
            policy_loss(context, source.states(), source.head(), batch.policy(), bonus, views);
          });
  ContextOptions sliced = options_of();
  sliced.ranks.slices = {50, 51};
  Gradients views = outputs.views();
  views.backward = by_noise(0.1);
  expect_invalid_input({cannot + "the vocabulary is cut", "backward.theta"}, [&] { cross(Context(sliced), views); });
}

}  // namespace segment_gradients_test
}  // namespace logitless::testing

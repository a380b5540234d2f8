// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Gradients of chosen segments: sampled ones have the exact gradient as their mean and the noise that was
// asked for, certified ones the error that they promise.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "logitless/logitless.h"
#include "support/every_task.h"
#include "support/refusal.h"
#include "support/thread_ranks.h"

namespace logitless::testing {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// A head, states of some peakedness and what calls say of them.
struct Model {
  int64_t tokens, hidden, vocab;
  std::vector<float> states, weight, bias;
  std::vector<int64_t> targets;
  double softcap = 0;

  Model(int64_t tokens_, int64_t hidden_, int64_t vocab_, double scale = 1.5)
      : tokens(tokens_),
        hidden(hidden_),
        vocab(vocab_),
        states(normal(static_cast<size_t>(tokens * hidden), 1, scale)),
        weight(normal(static_cast<size_t>(vocab * hidden), 2)),
        bias(normal(static_cast<size_t>(vocab), 3, 0.5)) {
    for (int64_t i = 0; i < tokens; ++i) targets.push_back((i * 37) % vocab);
  }

  HiddenStates source() const { return {states.data(), 1, tokens, hidden}; }
  LmHead head() const {
    LmHead out(ConstMatrix(weight.data(), vocab, hidden));
    out.bias = {bias.data(), vocab};
    out.softcap = softcap;
    return out;
  }
  Targets ids() const { return {targets.data(), 1, tokens}; }
};

// All gradients of one call: d_hidden, d_weight and d_bias, one behind the other.
struct Outputs {
  std::vector<float> values;
  int64_t tokens, hidden, vocab;

  explicit Outputs(const Model& model)
      : values(static_cast<size_t>((model.tokens + model.vocab) * model.hidden + model.vocab),
               std::numeric_limits<float>::quiet_NaN()),
        tokens(model.tokens),
        hidden(model.hidden),
        vocab(model.vocab) {}
  Gradients views() {
    Gradients out;
    out.d_hidden = {values.data(), tokens, hidden};
    out.d_weight = {values.data() + tokens * hidden, vocab, hidden};
    out.d_bias = {values.data() + (tokens + vocab) * hidden, vocab};
    return out;
  }
  // The norm of what parts the two, of d_hidden and of d_weight.
  double hidden_distance(const Outputs& other) const { return distance(other, 0, tokens * hidden); }
  double weight_distance(const Outputs& other) const { return distance(other, tokens * hidden, vocab * hidden); }
  double hidden_norm() const { return norm(0, tokens * hidden); }
  double weight_norm() const { return norm(tokens * hidden, vocab * hidden); }

 private:
  double distance(const Outputs& other, int64_t begin, int64_t count) const {
    double squares = 0;
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(begin + count); ++i) {
      squares += std::pow(static_cast<double>(values[i]) - static_cast<double>(other.values[i]), 2);
    }
    return std::sqrt(squares);
  }
  double norm(int64_t begin, int64_t count) const {
    double squares = 0;
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(begin + count); ++i) {
      squares += std::pow(static_cast<double>(values[i]), 2);
    }
    return std::sqrt(squares);
  }
};

BackwardOptions sampled(double theta, int64_t seed = 0) {
  BackwardOptions out;
  out.mode = BackwardMode::kSampled;
  out.theta = theta;
  out.seed = seed;
  return out;
}
BackwardOptions by_noise(double noise, int64_t seed = 0) {
  BackwardOptions out = sampled(0, seed);
  out.noise = noise;
  return out;
}
BackwardOptions certified(double tolerance) {
  BackwardOptions out;
  out.mode = BackwardMode::kCertified;
  out.tolerance = tolerance;
  return out;
}

ContextOptions options_of(int threads = 1, PlanKind plan = PlanKind::kAuto) {
  ContextOptions options;
  options.threads = threads;
  options.plan = plan;
  options.row_tile = 16;
  options.vocab_tile = 128;
  return options;
}

using Caller = std::function<Plan(const Context&, const Gradients&)>;

Plan run_cross_entropy(const Model& model, const Context& context, const Gradients& gradients,
                       const CrossEntropyOptions& options = {}) {
  return cross_entropy(context, model.source(), model.head(), model.ids(), options, gradients).plan;
}

Outputs outputs_of(const Model& model, const Caller& run, const BackwardOptions& backward, Plan* plan = nullptr,
                   ContextOptions options = options_of()) {
  Outputs outputs(model);
  Gradients views = outputs.views();
  views.backward = backward;
  const Plan ran = run(Context(options), views);
  if (plan) *plan = ran;
  return outputs;
}

// Over many seeds, the mean of each element lies near the exact one, by its own spread. Every pair should be
// drawn many times: rows are not peaked here.
void expect_unbiased(const Model& model, const Caller& run, double theta, double most_kept = 0.5) {
  constexpr int kSeeds = 4000;
  const Outputs exact = outputs_of(model, run, {}, nullptr, options_of(1, PlanKind::kTwoPass));
  const size_t count = exact.values.size();
  std::vector<double> sums(count), squares(count);
  std::vector<int> differ(count);
  double most = 0, kept = 0;
  for (const float value : exact.values) most = std::max(most, std::abs(static_cast<double>(value)));
  for (int seed = 0; seed < kSeeds; ++seed) {
    Plan plan;
    const Outputs one = outputs_of(model, run, sampled(theta, seed), &plan);
    ASSERT_LT(plan.kept_share, most_kept);
    kept += plan.kept_share / kSeeds;
    for (size_t i = 0; i < count; ++i) {
      const double off = static_cast<double>(one.values[i]) - static_cast<double>(exact.values[i]);
      sums[i] += off;
      squares[i] += off * off;
    }
  }
  ASSERT_GT(kept, 0.05);
  double chi_square = 0, worst = 0;
  int random = 0;
  for (size_t i = 0; i < count; ++i) {
    const double mean = sums[i] / kSeeds, variance = squares[i] / kSeeds;
    const double error = std::sqrt(variance / kSeeds);
    // What rounding makes is no noise.
    if (variance < 1e-12 * most * most) {
      ASSERT_LT(std::abs(mean), 3e-6 * most) << i;
      continue;
    }
    ++random;
    chi_square += mean * mean / (error * error);
    worst = std::max(worst, std::abs(mean) / error);
  }
  ASSERT_GT(random, static_cast<int>(count / 8));
  EXPECT_LT(worst, 5) << "standard errors, of " << random << " elements";
  // A number a row decides about all of its elements: there are about a hundred independent ones.
  if (model.tokens > 1) {
    EXPECT_NEAR(chi_square / random, 1, 0.5);
  }
}

TEST(SegmentGradients, TheMeanOfSampledOnesIsExact) {
  Model model(12, 5, 1000, 0.2);
  const auto with = [&](const std::function<void(CrossEntropyOptions&)>& set) -> Caller {
    CrossEntropyOptions options;
    set(options);
    return [&model, options](const Context& context, const Gradients& gradients) {
      return run_cross_entropy(model, context, gradients, options);
    };
  };
  {
    SCOPED_TRACE("cross-entropy");
    expect_unbiased(model, with([](auto&) {}), 0.25);
  }
  {
    SCOPED_TRACE("label smoothing and z-loss");
    expect_unbiased(model, with([](auto& o) {
                      o.label_smoothing = 0.1;
                      o.z_loss = 0.02;
                    }),
                    0.25);
  }
  {
    SCOPED_TRACE("class weights, sum");
    std::vector<float> weights(static_cast<size_t>(model.vocab));
    for (size_t v = 0; v < weights.size(); ++v) weights[v] = 0.5F + 0.001F * static_cast<float>(v);
    expect_unbiased(model, with([&](auto& o) {
                      o.class_weights = weights;
                      o.reduction = Reduction::kSum;
                      o.label_smoothing = 0.05;
                    }),
                    0.25);
  }
  {
    SCOPED_TRACE("a temperature a token");
    std::vector<double> temperatures;
    for (int64_t i = 0; i < model.tokens; ++i) temperatures.push_back(0.7 + 0.05 * static_cast<double>(i));
    expect_unbiased(model, with([&](auto& o) { o.token.temperatures = temperatures; }), 0.25);
    expect_unbiased(model, with([&](auto& o) {
                      o.token.temperatures = temperatures;
                      o.token.temperature_meaning = TemperatureMeaning::kScaleLogp;
                    }),
                    0.25);
  }
  {
    SCOPED_TRACE("softcap");
    model.softcap = 4;
    expect_unbiased(model, with([](auto&) {}), 0.25);
    model.softcap = 0;
  }
  {
    SCOPED_TRACE("ignored rows");
    model.targets[3] = model.targets[7] = -100;
    expect_unbiased(model, with([](auto&) {}), 0.25);
  }
}

TEST(SegmentGradients, TheMeanOfSampledOnesOfOtherLossesIsExact) {
  Model model(12, 5, 1000, 0.2);
  std::vector<float> advantages = {1.5F, -0.5F, 2}, old_logps(12, -6.0F), ref_logps(12, -6.5F), sums = {-18, -20};
  std::vector<uint8_t> labels = {1, 0, 1};
  const HiddenStates three(model.states.data(), 3, 4, model.hidden), two(model.states.data(), 2, 6, model.hidden);
  {
    SCOPED_TRACE("policy");
    PolicyBatch batch;
    batch.chosen_ids = Targets(model.targets.data(), 3, 4);
    batch.advantages = {advantages.data(), 3};
    batch.old_logps = {old_logps.data(), 12};
    batch.ref_logps = {ref_logps.data(), 12};
    PolicyOptions options;
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
    const auto forward = id_logps(Context(options_of()), model.source(), model.head(), sets);
    expect_unbiased(
        model,
        [&](const Context& context, const Gradients& gradients) {
          return id_logps_backward(context, model.source(), model.head(), sets, {}, forward, upstream, gradients);
        },
        0.25);
  }
}

// The statistics of a backward half come from another call, and its walk is made again.
TEST(SegmentGradients, HalvesHaveTheBitsOfOneCall) {
  const Model model(40, 9, 2000, 2);
  const Context context(options_of(2));
  Outputs one(model), apart(model);
  Gradients views = one.views();
  views.backward = sampled(0.1, 5);
  const auto result = cross_entropy(context, model.source(), model.head(), model.ids(), {}, views);
  EXPECT_LT(result.plan.kept_share, 0.5);
  EXPECT_EQ(result.plan.kind, PlanKind::kTwoPass);
  views = apart.views();
  views.backward = sampled(0.1, 5);
  const auto forward = cross_entropy_forward(context, model.source(), model.head(), model.ids());
  EXPECT_EQ(forward.result.loss, result.loss);
  const Plan plan = cross_entropy_backward(context, model.source(), model.head(), model.ids(), {}, forward, 1.0, views);
  EXPECT_EQ(plan.kept_share, result.plan.kept_share);
  EXPECT_EQ(apart.values, one.values);
}

TEST(SegmentGradients, TheLossIsThatOfExactGradients) {
  const Model model(40, 9, 2000, 2);
  Outputs outputs(model);
  const Context context(options_of(2, PlanKind::kTwoPass));
  const auto loss_of = [&](const BackwardOptions& backward) {
    Gradients views = outputs.views();
    views.backward = backward;
    return cross_entropy(context, model.source(), model.head(), model.ids(), {}, views).loss;
  };
  const double exact = loss_of({});
  EXPECT_EQ(loss_of(sampled(0.2)), exact);
  EXPECT_EQ(loss_of(certified(0.01)), exact);
}

TEST(SegmentGradients, TheSameBitsForAnyNumberOfThreads) {
  const Model model(130, 33, 3001, 0.6);
  for (const BackwardOptions& backward : {sampled(0.05, 7), by_noise(0.05, 7), certified(0.4)}) {
    const Caller run = [&](const Context& context, const Gradients& gradients) {
      return run_cross_entropy(model, context, gradients);
    };
    Plan plan;
    const Outputs one = outputs_of(model, run, backward, &plan, options_of(1));
    EXPECT_LT(plan.kept_share, 0.5) << name_of(backward.mode);
    for (const int threads : {2, 3, 7}) {
      Plan of_team;
      EXPECT_EQ(outputs_of(model, run, backward, &of_team, options_of(threads)).values, one.values) << threads;
      EXPECT_EQ(of_team.kept_share, plan.kept_share);
      EXPECT_EQ(of_team.noise_estimate, plan.noise_estimate);
    }
  }
}

TEST(SegmentGradients, AnotherSeedDrawsOthers) {
  const Model model(40, 9, 2000, 2);
  const Caller run = [&](const Context& context, const Gradients& gradients) {
    return run_cross_entropy(model, context, gradients);
  };
  const Outputs one = outputs_of(model, run, sampled(0.2, 1));
  EXPECT_EQ(outputs_of(model, run, sampled(0.2, 1)).values, one.values);
  EXPECT_NE(outputs_of(model, run, sampled(0.2, 2)).values, one.values);
}

// Slices of the vocabulary have the same bits however many ranks share them.
TEST(SegmentGradients, TheSameBitsForAnyNumberOfRanks) {
  const Model model(50, 9, 2000, 2);
  const std::vector<int64_t> slices = {700, 1000, 300};
  for (const BackwardOptions& backward : {sampled(0.2, 3), certified(0.05)}) {
    const auto run_world = [&](const std::vector<std::vector<int64_t>>& world) {
      const auto size = static_cast<int>(world.size());
      ThreadGroup group(size);
      std::vector<float> hidden(static_cast<size_t>(model.tokens * model.hidden));
      std::vector<float> weight(static_cast<size_t>(model.vocab * model.hidden), -1);
      std::vector<double> kept(world.size());
      const auto errors = run_ranks(size, [&](int rank) {
        const auto r = static_cast<size_t>(rank);
        int64_t first = 0, entries = 0;
        for (size_t other = 0; other < r; ++other) {
          for (const int64_t slice : world[other]) first += slice;
        }
        for (const int64_t slice : world[r]) entries += slice;
        ContextOptions options = options_of(1);
        if (size > 1) options.ranks.vocab = &group.of(rank);
        options.ranks.slices = world[r];
        LmHead head(ConstMatrix(model.weight.data() + first * model.hidden, entries, model.hidden));
        head.bias = {model.bias.data() + first, entries};
        std::vector<float> mine(hidden.size());
        Gradients gradients;
        gradients.d_hidden = {mine.data(), model.tokens, model.hidden};
        gradients.d_weight = {weight.data() + first * model.hidden, entries, model.hidden};
        gradients.backward = backward;
        kept[r] = cross_entropy(Context(options), model.source(), head, model.ids(), {}, gradients).plan.kept_share;
        if (rank == 0) hidden = mine;
      });
      for (const auto& error : errors) EXPECT_EQ(message_of(error), "");
      for (const double share : kept) EXPECT_LT(share, 0.5);
      hidden.insert(hidden.end(), weight.begin(), weight.end());
      return hidden;
    };
    const std::vector<float> one = run_world({{700, 1000, 300}});
    EXPECT_EQ(run_world({{700}, {1000, 300}}), one) << name_of(backward.mode);
    EXPECT_EQ(run_world({{700}, {1000}, {300}}), one) << name_of(backward.mode);
  }
}

// The choice is made once, so outputs have the bits that they have together.
TEST(SegmentGradients, EveryFormOfTheOutputs) {
  const Model model(60, 17, 1500, 1);
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

  // Tiles come in the order of the vocabulary, each once.
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

// A tolerance that next to nothing is dropped under makes what exact gradients are, of every type and layout.
// States and weights are small integers: their products are exact, so that both walks have the same logits
// whatever multiplies.
TEST(SegmentGradients, CertifiedOnesOfAPeakedModelAreExactInEveryType) {
  const int64_t n = 45, h = 19, v = 1111;
  Model model(n, h, v, 4);
  for (float& state : model.states) state = std::round(state);
  for (float& weight : model.weight) weight = std::round(3 * weight);
  const auto check = [&](auto number, HeadLayout layout, DType out_type, double tolerance) {
    using T = decltype(number);
    SCOPED_TRACE(name_of(DTypeOf<T>::value));
    const auto cast = [](float x) {
      if constexpr (std::is_same_v<T, bfloat16>) {
        return bfloat16{static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16)};
      } else {
        return static_cast<T>(x);
      }
    };
    std::vector<T> states(static_cast<size_t>(n * h)), weight(static_cast<size_t>(v * h));
    for (size_t i = 0; i < states.size(); ++i) states[i] = cast(model.states[i]);
    const bool tall = layout == HeadLayout::kVocabHidden;
    for (int64_t entry = 0; entry < v; ++entry) {
      for (int64_t c = 0; c < h; ++c) {
        weight[static_cast<size_t>(tall ? entry * h + c : c * v + entry)] =
            cast(model.weight[static_cast<size_t>(entry * h + c)]);
      }
    }
    const int64_t rows = tall ? v : h, cols = tall ? h : v;
    const LmHead head(ConstMatrix(weight.data(), rows, cols), layout);
    HiddenStates source(ConstMatrix(states.data(), 20, h), 1);
    source.second = ConstMatrix(states.data() + 20 * h, n - 20, h);
    const size_t bytes = static_cast<size_t>((n + v) * h) * size_of(out_type);
    const auto run = [&](const BackwardOptions& backward, Plan& plan) {
      std::vector<std::byte> out(bytes);
      Gradients gradients;
      gradients.d_hidden = Matrix(out.data(), out_type, 20, h);
      gradients.d_hidden_second =
          Matrix(out.data() + 20 * static_cast<size_t>(h) * size_of(out_type), out_type, n - 20, h);
      gradients.d_weight = Matrix(out.data() + static_cast<size_t>(n * h) * size_of(out_type), out_type, rows, cols);
      gradients.backward = backward;
      plan = cross_entropy(Context(options_of(2, PlanKind::kTwoPass)), source, head,
                           Targets(std::span<const int64_t>(model.targets)), {}, gradients)
                 .plan;
      std::vector<double> values;
      for (size_t i = 0; i < bytes / size_of(out_type); ++i) {
        values.push_back(out_type == DType::kFloat64 ? reinterpret_cast<const double*>(out.data())[i]
                         : out_type == DType::kFloat32
                             ? static_cast<double>(reinterpret_cast<const float*>(out.data())[i])
                             : static_cast<double>(std::bit_cast<float>(
                                   static_cast<uint32_t>(reinterpret_cast<const uint16_t*>(out.data())[i]) << 16)));
      }
      return values;
    };
    Plan plan;
    const std::vector<double> exact = run({}, plan);
    EXPECT_EQ(plan.kept_share, 1);
    const std::vector<double> got = run(certified(1e-7), plan);
    EXPECT_LT(plan.kept_share, 0.5);
    double most = 0;
    for (const double value : exact) most = std::max(most, std::abs(value));
    for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], exact[i], tolerance * most) << i;
  };
  for (const HeadLayout layout : {HeadLayout::kVocabHidden, HeadLayout::kHiddenVocab}) {
    check(float(), layout, DType::kFloat32, 1e-5);
    check(double(), layout, DType::kFloat64, 2e-7);
    check(bfloat16(), layout, DType::kFloat32, 1e-2);
    check(bfloat16(), layout, DType::kBFloat16, 1e-2);
  }
}

TEST(SegmentGradients, CertifiedErrorsAreBelowTheirBounds) {
  Model model(70, 21, 3000, 0.9);
  for (const double softcap : {0.0, 6.0}) {
    model.softcap = softcap;
    for (const bool smoothed : {false, true}) {
      CrossEntropyOptions options;
      if (smoothed) {
        options.label_smoothing = 0.001;
        options.token.temperature = 0.8;
      }
      const Caller run = [&](const Context& context, const Gradients& gradients) {
        return run_cross_entropy(model, context, gradients, options);
      };
      const Outputs exact = outputs_of(model, run, {}, nullptr, options_of(2, PlanKind::kTwoPass));
      double before = 1;
      for (const double tolerance : {0.1, 0.3, 0.6}) {
        Plan plan;
        const Outputs got = outputs_of(model, run, certified(tolerance), &plan);
        EXPECT_LE(plan.kept_share, before);
        before = plan.kept_share;
        EXPECT_EQ(plan.noise_estimate, 0);
        if (plan.kept_share == 1) continue;
        EXPECT_GT(got.hidden_distance(exact), 0);
        EXPECT_LE(got.hidden_distance(exact), plan.d_hidden_bound);
        EXPECT_LE(got.weight_distance(exact), plan.d_weight_bound);
      }
      EXPECT_LT(before, 0.5);
    }
  }
}

TEST(SegmentGradients, TheNoiseIsTheOneThatIsAskedFor) {
  const Model model(384, 32, 6000, 0.8);
  const Caller run = [&](const Context& context, const Gradients& gradients) {
    return run_cross_entropy(model, context, gradients);
  };
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

TEST(SegmentGradients, NoNoiseMeansExactToTheBit) {
  const Model model(40, 9, 2000, 2);
  const Caller run = [&](const Context& context, const Gradients& gradients) {
    return run_cross_entropy(model, context, gradients);
  };
  for (const PlanKind kind : {PlanKind::kAuto, PlanKind::kTwoPass}) {
    Plan plan;
    const Outputs exact = outputs_of(model, run, {}, nullptr, options_of(2, kind));
    EXPECT_EQ(outputs_of(model, run, by_noise(0), &plan, options_of(2, kind)).values, exact.values);
    EXPECT_EQ(plan.kept_share, 1);
  }
}

// Flat rows would take nearly all segments.
TEST(SegmentGradients, AreExactWhereMostWouldBeTaken) {
  Model model(40, 9, 2000);
  const Caller run = [&](const Context& context, const Gradients& gradients) {
    return run_cross_entropy(model, context, gradients);
  };
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

TEST(SegmentGradients, ATightBudgetMakesThemExact) {
  const Model model(40, 9, 20000, 2);
  ContextOptions options = options_of(1);
  const Caller run = [&](const Context& context, const Gradients& gradients) {
    return run_cross_entropy(model, context, gradients);
  };
  Plan wide, tight;
  outputs_of(model, run, sampled(0.2), &wide, options);
  EXPECT_LT(wide.kept_share, 0.5);
  EXPECT_GE(wide.workspace_bytes, 40u * (20000 / 64) * sizeof(float));
  options.workspace_bytes = wide.workspace_bytes / 2;
  outputs_of(model, run, sampled(0.2), &tight, options);
  EXPECT_EQ(tight.kept_share, 1);
  EXPECT_LE(tight.workspace_bytes, options.workspace_bytes);
}

TEST(SegmentGradients, RowsThatAreNotNumbersHaveNoOtherGradients) {
  Model model(30, 9, 2000, 2);
  model.states[5 * 9 + 2] = std::numeric_limits<float>::quiet_NaN();
  model.states[7 * 9 + 1] = std::numeric_limits<float>::infinity();
  const Caller run = [&](const Context& context, const Gradients& gradients) {
    return run_cross_entropy(model, context, gradients);
  };
  const Outputs exact = outputs_of(model, run, {}, nullptr, options_of(1, PlanKind::kTwoPass));
  for (const BackwardOptions& backward : {sampled(0.2), by_noise(0.1), certified(0.01)}) {
    Plan plan;
    const Outputs got = outputs_of(model, run, backward, &plan);
    for (size_t i = 0; i < got.values.size(); ++i) {
      ASSERT_EQ(std::isnan(got.values[i]), std::isnan(exact.values[i])) << i;
    }
  }
}

TEST(SegmentGradients, NearlyCertainTargetsKeepTheirDigits) {
  Model model(16, 64, 1000, 0.1);
  for (int64_t row = 0; row < model.tokens; ++row) {
    const float* target = model.weight.data() + model.targets[static_cast<size_t>(row)] * 64;
    double square = 0;
    for (int64_t c = 0; c < 64; ++c) square += static_cast<double>(target[c]) * static_cast<double>(target[c]);
    for (int64_t c = 0; c < 64; ++c) {
      model.states[static_cast<size_t>(row * 64 + c)] = static_cast<float>(30 / square * target[c]);
    }
  }
  const Caller run = [&](const Context& context, const Gradients& gradients) {
    return run_cross_entropy(model, context, gradients);
  };
  const Outputs exact = outputs_of(model, run, {}, nullptr, options_of(1, PlanKind::kTwoPass));
  // What is left to the others is 1e-7: a part of them is drawn, and the targets' own rows keep their digits,
  // of which 1 - p in float32 would leave none.
  Plan plan;
  const Outputs got = outputs_of(model, run, sampled(5e-8), &plan);
  EXPECT_LT(plan.kept_share, 0.5);
  for (const int64_t target : model.targets) {
    // Other rows' draws are in it too, a hundredth.
    const auto begin = static_cast<size_t>((model.tokens + target) * 64);
    double most = 0;
    for (size_t c = 0; c < 64; ++c) most = std::max(most, std::abs(static_cast<double>(exact.values[begin + c])));
    for (size_t c = 0; c < 64; ++c) {
      EXPECT_NEAR(got.values[begin + c], exact.values[begin + c], 0.1 * most) << target;
    }
  }
}

TEST(SegmentGradients, AVocabularyOfOneAndNoTokens) {
  const Model one(4, 3, 1), none(0, 3, 700);
  for (const BackwardOptions& backward : {sampled(0.2), by_noise(0.1), certified(0.01)}) {
    const auto of = [&](const Model& model) {
      return outputs_of(
                 model,
                 [&](const Context& context, const Gradients& gradients) {
                   return run_cross_entropy(model, context, gradients);
                 },
                 backward)
          .values;
    };
    for (const float value : of(one)) EXPECT_EQ(value, 0.0F);
    for (const float value : of(none)) EXPECT_EQ(value, 0.0F);
  }
}

// Rows without any gradient, of which some have been walked.
TEST(SegmentGradients, RowsWithoutAGradientGetZeros) {
  const Model model(30, 9, 2000, 2);
  const Context context(options_of(2));
  const auto forward =
      cross_entropy_forward(context, model.source(), model.head(), model.ids(), {.reduction = Reduction::kNone});
  std::vector<double> upstream(30, 0.0);
  const auto run = [&](Outputs& outputs) {
    Gradients views = outputs.views();
    views.backward = sampled(0.2);
    cross_entropy_backward(context, model.source(), model.head(), model.ids(), {.reduction = Reduction::kNone}, forward,
                           upstream, views);
  };
  Outputs nothing(model);
  run(nothing);
  for (const float value : nothing.values) ASSERT_EQ(value, 0.0F);
  upstream[3] = upstream[20] = 1;
  Outputs two(model);
  run(two);
  for (int64_t row = 0; row < 30; ++row) {
    for (int64_t c = 0; c < 9; ++c) {
      const float value = two.values[static_cast<size_t>(row * 9 + c)];
      ASSERT_EQ(value != 0, row == 3 || row == 20) << row;
    }
  }
}

// A callback may update the head at once: all that is read of its entries has been read.
TEST(SegmentGradients, ASinkMayOverwriteTheHead) {
  Model model(60, 17, 1500, 1);
  const auto hidden_of = [&](bool updates) {
    std::vector<float> hidden(60 * 17);
    Gradients gradients;
    gradients.d_hidden = {hidden.data(), 60, 17};
    gradients.backward = sampled(0.1, 3);
    gradients.weight_sink = [&](int64_t first, int64_t count, const ConstMatrix&) {
      if (updates) std::fill_n(model.weight.begin() + first * 17, count * 17, std::numeric_limits<float>::quiet_NaN());
    };
    EXPECT_LT(run_cross_entropy(model, Context(options_of(2)), gradients).kept_share, 0.5);
    return hidden;
  };
  const std::vector<float> want = hidden_of(false);
  EXPECT_EQ(hidden_of(true), want);
}

// What a draw takes must not decide whether it is used: here one of two segments, or none, beside the
// target's.
TEST(SegmentGradients, TheMeanIsExactWhereADrawMayTakeMost) {
  Model model(1, 3, 192, 0.01);
  model.targets[0] = 5;
  expect_unbiased(
      model,
      [&](const Context& context, const Gradients& gradients) { return run_cross_entropy(model, context, gradients); },
      1.45, 0.7);
}

// Few rows are multiplied by a backend that wants scratch of its own.
TEST(SegmentGradients, OfFewRowsOfEveryType) {
  for (const int64_t tokens : {1, 3, 8, 16, 17}) {
    const Model model(tokens, 768, 1300, 0.5);
    std::vector<bfloat16> states, weight;
    const auto cast = [](float x) { return bfloat16{static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16)}; };
    for (const float x : model.states) states.push_back(cast(x));
    for (const float x : model.weight) weight.push_back(cast(x));
    const auto run = [&](const BackwardOptions& backward, Plan& plan) {
      Outputs outputs(model);
      Gradients gradients = outputs.views();
      gradients.d_bias = {};
      gradients.backward = backward;
      plan = cross_entropy(Context(options_of(2, PlanKind::kTwoPass)), ConstMatrix(states.data(), tokens, 768),
                           LmHead(ConstMatrix(weight.data(), model.vocab, 768)), model.ids(), {}, gradients)
                 .plan;
      outputs.values.resize(static_cast<size_t>((tokens + model.vocab) * 768));
      return outputs;
    };
    Plan plan;
    const Outputs exact = run({}, plan);
    for (const BackwardOptions& backward : {certified(1e-6), by_noise(0.05), sampled(0.01)}) {
      const Outputs got = run(backward, plan);
      double off = 0, size = 0;
      for (size_t i = 0; i < got.values.size(); ++i) {
        off += std::pow(static_cast<double>(got.values[i]) - static_cast<double>(exact.values[i]), 2);
        size += std::pow(static_cast<double>(exact.values[i]), 2);
      }
      EXPECT_LT(std::sqrt(off / size), 0.15) << tokens << " " << name_of(backward.mode);
    }
  }
}

// A thread of a caller's team has a number that is none of the call's.
TEST(SegmentGradients, InsideATeamOfTheCallers) {
  const Model model(40, 9, 2000, 4);
  const Caller run = [&](const Context& context, const Gradients& gradients) {
    return run_cross_entropy(model, context, gradients);
  };
  for (const BackwardOptions& backward : {certified(0.01), sampled(0.1), by_noise(0.05)}) {
    const Outputs want = outputs_of(model, run, backward);
    std::vector<std::vector<float>> got(3);
#pragma omp parallel for num_threads(3)
    for (size_t i = 0; i < got.size(); ++i) got[i] = outputs_of(model, run, backward).values;
    for (const auto& one : got) EXPECT_EQ(one, want.values);
  }
}

// The noise is that of d_hidden and d_weight: by itself d_bias is exact.
TEST(SegmentGradients, TheBiasAloneIsExactByNoise) {
  const Model model(40, 9, 2000, 2);
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

TEST(SegmentGradients, TinyAndInfiniteGradients) {
  const Model model(40, 9, 2000, 4);
  const Caller small = [&](const Context& context, const Gradients& gradients) {
    CrossEntropyOptions options;
    options.loss_scale = 1e-30;
    return run_cross_entropy(model, context, gradients, options);
  };
  const Caller plain = [&](const Context& context, const Gradients& gradients) {
    return run_cross_entropy(model, context, gradients);
  };
  Plan of_small, of_plain;
  outputs_of(model, small, by_noise(0.05), &of_small);
  outputs_of(model, plain, by_noise(0.05), &of_plain);
  EXPECT_LT(of_plain.kept_share, 0.5);
  EXPECT_NEAR(of_small.kept_share, of_plain.kept_share, 0.05 * of_plain.kept_share);

  const Context context(options_of(1, PlanKind::kTwoPass));
  const TokenStats stats = compute_token_stats(context, model.source(), model.head(), model.ids());
  TokenGrads grads;
  grads.logp.assign(40, -1.0);
  grads.logp[3] = -std::numeric_limits<double>::infinity();
  const auto with = [&](const BackwardOptions& backward) {
    Outputs outputs(model);
    Gradients views = outputs.views();
    views.backward = backward;
    backpropagate_token_grads(context, model.source(), model.head(), model.ids(), {}, {}, stats, grads, views);
    return outputs.values;
  };
  const std::vector<float> exact = with({});
  for (const BackwardOptions& backward : {certified(0.01), sampled(0.1)}) {
    const std::vector<float> got = with(backward);
    for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(std::isfinite(got[i]), std::isfinite(exact[i])) << i;
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
  refused("backward.noise = nan", by_noise(kNan), cross);
  refused("backward.theta = -1 must be a number from 0 to 1000", sampled(-1), cross);
  refused("backward.theta = 1e+30 must be", sampled(1e30), cross);
  refused("backward.tolerance = 1 must be", certified(1), cross);
  refused(cannot + "it takes two pass, and plan = one_pass is asked for", sampled(0.1), cross, PlanKind::kOnePass);
  refused(cannot + "it takes two pass, and plan = dense is asked for", sampled(0.1), cross, PlanKind::kDense);
  refused(cannot + "the loss has a gradient of the entropy", sampled(0.1),
          [&](const Context& context, const Gradients& views) {
            PolicyOptions bonus;
            bonus.entropy_bonus = 0.1;
            policy_loss(context, source.states(), source.head(), batch.policy(), bonus, views);
          });
  refused("backward.mode = certified cannot run: the call has a teacher", certified(0.1),
          [&](const Context& context, const Gradients& views) {
            distillation_loss(context, source.states(), source.head(), batch.teacher(), batch.targets(), {}, views);
          });
  refused(cannot + "the loss has weights of each row", sampled(0.1),
          [&](const Context& context, const Gradients& views) {
            soft_cross_entropy(context, source.states(), source.head(), batch.dense(), {}, views);
          });
  ContextOptions sliced = options_of();
  sliced.ranks.slices = {50, 51};
  Gradients views = outputs.views();
  views.backward = by_noise(0.1);
  expect_invalid_input({cannot + "the vocabulary is cut", "backward.theta"}, [&] { cross(Context(sliced), views); });
}

}  // namespace
}  // namespace logitless::testing

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Heads with a LoRA, under sampled and certified gradients. Drawn calls have the other plans.
#include <gtest/gtest.h>

#include <Eigen/Core>
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "logitless/logitless.h"
#include "support/every_task.h"

namespace logitless::testing {
namespace lora_plans_test {

using Rows = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
constexpr int64_t kEntries = 3000;
constexpr double kScale = 0.3;

Rows drawn(int64_t rows, int64_t cols, uint64_t seed, double scale) {
  const std::vector<float> values = normal(static_cast<size_t>(rows * cols), seed, scale);
  return Eigen::Map<const Eigen::Matrix<float, -1, -1, Eigen::RowMajor>>(values.data(), rows, cols).cast<double>();
}
ConstTensor view_of(const Rows& of) { return view(of.data(), {of.rows(), of.cols()}); }
Tensor view_of(Rows& of) { return view(of.data(), {of.rows(), of.cols()}); }
void expect_near(const Rows& got, const Rows& want, const char* what) {
  EXPECT_LE((got - want).norm(), 1e-12 * want.norm()) << what;
}

struct Outputs {
  Rows d_hidden, d_weight, d_a, d_b;
  logitless::Gradients views(BackwardMode mode, bool lora = true) {
    logitless::Gradients out = {.d_hidden = view_of(d_hidden), .d_weight = view_of(d_weight)};
    if (lora) out.d_lora_a = view_of(d_a), out.d_lora_b = view_of(d_b);
    if (mode != BackwardMode::kExact) {
      out.backward = {.mode = mode, .theta = mode == BackwardMode::kSampled ? 0.3 : 0, .tolerance = 0.6, .seed = 11};
    }
    return out;
  }
};

// A model with rows so peaked that sampling pays.
struct PeakedModel {
  Rows hidden, weight, a, b;
  std::vector<int64_t> targets;
  std::vector<double> bias = std::vector<double>(kEntries);
  double softcap = 0;

  explicit PeakedModel(int64_t n = 70, int64_t h = 21, int64_t r = 5)
      : hidden(drawn(n, h, 1, 0.9)),
        weight(drawn(kEntries, h, 60, 1)),
        a(drawn(r, h, 61, 0.5)),
        b(drawn(kEntries, r, 62, 0.5)) {
    for (int64_t i = 0; i < n; ++i) targets.push_back(i % 9 == 4 ? -100 : (i * 37) % kEntries);
  }
  logitless::LmHead head() const {
    logitless::LmHead out = {.weight = view_of(weight), .bias = bias, .softcap = softcap};
    out.lora = {.a = view_of(a), .b = view_of(b), .scale = kScale};
    return out;
  }
  Plan run(const logitless::LmHead& of, const logitless::Gradients& gradients, int threads = 2) const {
    const Context context({.threads = threads, .row_tile = 16, .vocab_tile = 128});
    return logitless::run(context, Logits::of(view_of(hidden), of), CrossEntropy{.targets = targets}, gradients).plan;
  }
  Outputs outputs() const { return {hidden, weight, a, b}; }
};

// The same segments are chosen as for the whole matrix W + scale · b · a, so gradients differ only by the
// order of sums. If G is that matrix's gradient, then d_b = scale · G aᵀ and d_a = scale · bᵀ G.
TEST(LoraPlans, ChosenSegmentsAreThoseOfTheWholeMatrix) {
  PeakedModel model;
  const Rows whole = model.weight + kScale * model.b * model.a;
  for (const double softcap : {0.0, 6.0}) {
    model.softcap = softcap;
    for (const BackwardMode mode : {BackwardMode::kSampled, BackwardMode::kCertified}) {
      SCOPED_TRACE(std::string(name_of(mode)) + " softcap " + std::to_string(softcap));
      logitless::LmHead plain = model.head();
      plain.weight = view_of(whole), plain.lora = {};
      Outputs got = model.outputs(), want = got;
      const Plan plan = model.run(model.head(), got.views(mode));
      EXPECT_LT(plan.kept_share, 0.5);
      EXPECT_EQ(plan.kept_share, model.run(plain, want.views(mode, false)).kept_share);
      expect_near(got.d_hidden, want.d_hidden, "d_hidden");
      expect_near(got.d_weight, want.d_weight, "d_weight");
      expect_near(got.d_a, kScale * model.b.transpose() * want.d_weight, "d_lora_a");
      expect_near(got.d_b, kScale * want.d_weight * model.a.transpose(), "d_lora_b");
      for (const int threads : {1, 3}) {
        Outputs again = model.outputs();
        model.run(model.head(), again.views(mode), threads);
        EXPECT_TRUE(again.d_hidden == got.d_hidden && again.d_a == got.d_a && again.d_b == got.d_b);
      }
      // d_lora_a alone does not need d_hidden.
      Outputs alone = model.outputs();
      logitless::Gradients only_a = alone.views(mode), only_b = only_a;
      only_a.d_hidden = only_a.d_weight = only_a.d_lora_b = {};
      model.run(model.head(), only_a);
      EXPECT_TRUE(alone.d_a == got.d_a);
      only_b.d_hidden = only_b.d_weight = only_b.d_lora_a = {};
      model.run(model.head(), only_b);
      EXPECT_TRUE(alone.d_b == got.d_b);
    }
  }
}

// A rank may be larger than the hidden size, and all rows may choose one segment.
TEST(LoraPlans, CertifiedErrorsAreBelowTheirBounds) {
  PeakedModel model(500, 3, 260);
  std::fill_n(model.bias.begin(), 64, 20);
  Outputs exact = model.outputs(), got = exact;
  model.run(model.head(), exact.views(BackwardMode::kExact));
  const Plan plan = model.run(model.head(), got.views(BackwardMode::kCertified));
  EXPECT_LT(plan.kept_share, 0.5);
  EXPECT_GT((got.d_hidden - exact.d_hidden).norm(), 0);
  EXPECT_LE((got.d_hidden - exact.d_hidden).norm(), plan.d_hidden_bound);
  EXPECT_LE((got.d_weight - exact.d_weight).norm(), plan.d_weight_bound);
}

// States given instead of lora_a have their own gradient, which is sampled too.
TEST(LoraPlans, ChosenSegmentsOfGivenStates) {
  const PeakedModel model;
  const Rows states = kScale * model.hidden * model.a.transpose();
  logitless::LmHead given = model.head();
  given.lora = {.b = view_of(model.b), .states = view_of(states)};
  Outputs want = model.outputs(), got = want;
  model.run(model.head(), want.views(BackwardMode::kSampled));
  Rows d_states(states.rows(), states.cols());
  logitless::Gradients views = got.views(BackwardMode::kSampled);
  views.d_lora_a = {};
  views.d_lora_states = view_of(d_states);
  EXPECT_LT(model.run(given, views).kept_share, 0.5);
  expect_near(got.d_b, want.d_b, "d_lora_b");
  expect_near(kScale * d_states.transpose() * model.hidden, want.d_a, "d_lora_a");
  expect_near(got.d_hidden + kScale * d_states * model.a, want.d_hidden, "d_hidden");
}

}  // namespace lora_plans_test
}  // namespace logitless::testing

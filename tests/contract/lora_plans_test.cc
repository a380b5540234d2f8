// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Heads with a LoRA, under plans that use expected rows or chosen segments of the vocabulary.
#include <gtest/gtest.h>

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "logitless/logitless.h"
#include "support/adapted_head.h"
#include "support/calls.h"
#include "support/every_task.h"
#include "support/views.h"

namespace logitless::testing {
namespace lora_plans_test {

// For a frozen head with a frozen LoRA they are chosen automatically.
TEST(LoraPlans, ExpectedRowsAreTakenWhereTheHeadIsFrozen) {
  const AdaptedHead<float> adapted(kVocab, kHidden, 3, 1.75);
  const FromHidden source;
  const Batch batch;
  AdaptedOutputs<float> outputs(kTokens, kVocab, kHidden, 3, 99.0F);
  Gradients views = outputs.views(true);
  const auto kind = [&] {
    return cross_entropy(Context(small_tiles(PlanKind::kAuto)), source.states(), adapted.head(), batch.targets(), {},
                         views)
        .plan.kind;
  };
  EXPECT_NE(kind(), PlanKind::kExpectedRow);
  views.d_weight = views.d_lora_a = views.d_lora_b = {};
  EXPECT_EQ(kind(), PlanKind::kExpectedRow);
}

// A model with rows so peaked that sampling pays.
struct PeakedModel {
  static constexpr int64_t kEntries = 3000;
  int64_t rows, width, rank;
  AdaptedHead<double> adapted;
  MatrixOf<double> hidden;
  std::vector<int64_t> targets;
  std::vector<double> bias;
  double softcap = 0;

  explicit PeakedModel(int64_t n = 70, int64_t h = 21, int64_t r = 5)
      : rows(n), width(h), rank(r), adapted(kEntries, h, r, 0.3), hidden(drawn<double>(n, h, 1, 0.9)) {
    for (int64_t i = 0; i < rows; ++i) targets.push_back(i % 9 == 4 ? -100 : (i * 37) % kEntries);
  }
  Plan run(LmHead head, const Gradients& gradients, int threads = 2) const {
    head.softcap = softcap;
    if (!bias.empty()) head.bias = {bias.data(), kEntries};
    ContextOptions options = small_tiles(PlanKind::kAuto, threads);
    options.row_tile = 16;
    options.vocab_tile = 128;
    const HiddenStates states(ConstMatrix(hidden.data(), rows, width));
    return cross_entropy(Context(options), states, head, Targets(targets.data(), rows), {}, gradients).plan;
  }
  AdaptedOutputs<double> outputs() const { return {rows, kEntries, width, rank, 99.0}; }
};

BackwardOptions of_mode(BackwardMode mode) {
  BackwardOptions out;
  out.mode = mode;
  out.theta = mode == BackwardMode::kSampled ? 0.3 : 0;
  out.tolerance = 0.6;
  out.seed = 11;
  return out;
}

// The same segments are chosen as for the whole matrix, so gradients differ only by the order of sums.
TEST(LoraPlans, ChosenSegmentsAreThoseOfTheWholeMatrix) {
  PeakedModel model;
  const AdaptedHead<double>& adapted = model.adapted;
  const double tolerance = adapted.tolerance(model.hidden);
  for (const double softcap : {0.0, 6.0}) {
    model.softcap = softcap;
    for (const BackwardMode mode : {BackwardMode::kSampled, BackwardMode::kCertified}) {
      SCOPED_TRACE(std::string(name_of(mode)) + " softcap " + std::to_string(softcap));
      const auto run = [&](const LmHead& head, bool lora, AdaptedOutputs<double>& outputs, int threads = 2) {
        Gradients views = outputs.views(lora);
        views.backward = of_mode(mode);
        return model.run(head, views, threads);
      };
      AdaptedOutputs<double> got = model.outputs(), want = got, again = got;
      const Plan plan = run(adapted.head(), true, got);
      EXPECT_LT(plan.kept_share, 0.5);
      EXPECT_EQ(plan.kept_share, run(adapted.plain(), false, want).kept_share);
      expect_near(got.d_hidden, want.d_hidden, tolerance, "d_hidden");
      expect_near(got.d_weight, want.d_weight, tolerance, "d_weight");
      expect_near(got.d_a, adapted.d_a(want.d_weight), tolerance, "d_lora_a");
      expect_near(got.d_b, adapted.d_b(want.d_weight), tolerance, "d_lora_b");
      for (const int threads : {1, 3}) {
        run(adapted.head(), true, again, threads);
        EXPECT_TRUE(std::tie(again.d_hidden, again.d_a, again.d_b) == std::tie(got.d_hidden, got.d_a, got.d_b));
      }
    }
  }
}

// A rank may be larger than the hidden size, and all rows may choose one segment.
TEST(LoraPlans, CertifiedErrorsAreBelowTheirBounds) {
  PeakedModel wide(500, 3, 260);
  wide.bias.assign(PeakedModel::kEntries, 0);
  std::fill_n(wide.bias.begin(), 64, 20);
  for (const PeakedModel& model : {PeakedModel(), wide}) {
    SCOPED_TRACE(model.rank);
    AdaptedOutputs<double> exact = model.outputs(), got = exact;
    model.run(model.adapted.head(), exact.views(true));
    Gradients views = got.views(true);
    views.backward = of_mode(BackwardMode::kCertified);
    const Plan plan = model.run(model.adapted.head(), views);
    EXPECT_LT(plan.kept_share, 0.5);
    const double of_hidden = (got.d_hidden - exact.d_hidden).norm(), of_weight = (got.d_weight - exact.d_weight).norm();
    EXPECT_GT(of_hidden, 0);
    EXPECT_LE(of_hidden, plan.d_hidden_bound);
    EXPECT_LE(of_weight, plan.d_weight_bound);
  }
}

// States given instead of lora_a have their own gradient, which is sampled too.
TEST(LoraPlans, ChosenSegmentsOfGivenStates) {
  const PeakedModel model;
  const AdaptedHead<double>& adapted = model.adapted;
  const double tolerance = adapted.tolerance(model.hidden);
  const MatrixOf<double> states = adapted.scale * model.hidden * adapted.a.transpose();
  LmHead given = adapted.head();
  given.lora.a = {};
  given.lora.scale = 1;
  given.lora.states = {states.data(), model.rows, model.rank};
  AdaptedOutputs<double> want = model.outputs(), got = want;
  Gradients views = want.views(true);
  views.backward = of_mode(BackwardMode::kSampled);
  model.run(adapted.head(), views);
  MatrixOf<double> d_states(model.rows, model.rank);
  views = got.views(true);
  views.d_lora_a = {};
  views.d_lora_states = AdaptedOutputs<double>::view(d_states);
  views.backward = of_mode(BackwardMode::kSampled);
  EXPECT_LT(model.run(given, views).kept_share, 0.5);
  expect_near(got.d_b, want.d_b, tolerance, "d_lora_b");
  expect_near<double>(adapted.scale * d_states.transpose() * model.hidden, want.d_a, tolerance, "d_lora_a");
  expect_near<double>(got.d_hidden + adapted.scale * d_states * adapted.a, want.d_hidden, tolerance, "d_hidden");
}

// d_lora_a alone does not need d_hidden.
TEST(LoraPlans, ChosenSegmentsOfOneGradientAlone) {
  const PeakedModel model;
  AdaptedOutputs<double> all = model.outputs(), alone = all;
  const auto run = [&](AdaptedOutputs<double>& outputs, const auto& choose) {
    Gradients views = outputs.views(true);
    views.backward = of_mode(BackwardMode::kSampled);
    choose(views);
    model.run(model.adapted.head(), views);
  };
  run(all, [](Gradients&) {});
  run(alone, [](Gradients& g) { g.d_hidden = g.d_weight = g.d_lora_b = {}; });
  EXPECT_TRUE(alone.d_a == all.d_a);
  run(alone, [](Gradients& g) { g.d_hidden = g.d_weight = g.d_lora_a = {}; });
  EXPECT_TRUE(alone.d_b == all.d_b);
}

}  // namespace lora_plans_test
}  // namespace logitless::testing

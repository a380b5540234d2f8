// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// cross_entropy, fused and split, against the fp64 oracle.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "support/calls.h"
#include "support/testers.h"

namespace logitless::testing {
namespace {

constexpr DType kDTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64};
constexpr HeadLayout kLayouts[] = {HeadLayout::kHiddenVocab, HeadLayout::kVocabHidden};
constexpr PlanKind kPlans[] = {PlanKind::kOnePass, PlanKind::kTwoPass, PlanKind::kExpectedRow};

// Small tiles: the default shape of 37 tokens and 150 vocabulary entries has 3 x 3 of them.
constexpr int64_t kRowTile = 16;
constexpr int64_t kVocabTile = 64;

CrossEntropyTester small() { return CrossEntropyTester().tiles(kRowTile, kVocabTile).threads(2); }

void matches_oracle_in_every_plan(CrossEntropyTester tester) {
  for (const PlanKind plan : kPlans) {
    if (tester.can_run(plan)) tester.plan(plan).matches_oracle();
  }
}

TEST(CrossEntropy, EveryTypeLayoutPlanAndThreads) {
  for (const DType dtype : kDTypes) {
    for (const HeadLayout layout : kLayouts) {
      CrossEntropyTester tester = small().dtype(dtype).layout(layout).ignored(0.25);
      for (const int threads : {1, 2, 3, 7}) matches_oracle_in_every_plan(tester.threads(threads));
      tester.plan(PlanKind::kAuto).form(Form::kSplit).matches_oracle();
      tester.plan(PlanKind::kTwoPass).matches_oracle();
    }
  }
}

TEST(CrossEntropy, PaddedRows) {
  for (const DType dtype : kDTypes) {
    for (const HeadLayout layout : kLayouts) {
      for (const int64_t padding : {1, 5, 16}) {
        matches_oracle_in_every_plan(small().dtype(dtype).layout(layout).padding(padding).ignored(0.3));
      }
    }
  }
}

struct Option {
  const char* name;
  std::function<void(CrossEntropyTester&)> set;
};

const std::vector<Option>& options() {
  static const std::vector<Option> all = {
      {"no bias", [](auto& t) { t.bias(false); }},
      {"near-uniform logits", [](auto& t) { t.uniform_logits(); }},
      {"softcap", [](auto& t) { t.softcap(5); }},
      {"temperature below 1", [](auto& t) { t.temperature(0.4); }},
      {"temperature above 1", [](auto& t) { t.temperature(2.5); }},
      {"temperature of each token", [](auto& t) { t.temperatures(); }},
      {"temperature of logp", [](auto& t) { t.temperature(0.4).temperature_meaning(TemperatureMeaning::kScaleLogp); }},
      {"temperature of each logp",
       [](auto& t) { t.temperatures().temperature_meaning(TemperatureMeaning::kScaleLogp).z_loss(0.01); }},
      {"softcap and temperatures", [](auto& t) { t.softcap(8).temperatures(); }},
      {"label smoothing", [](auto& t) { t.label_smoothing(0.1); }},
      {"label smoothing of 1", [](auto& t) { t.label_smoothing(1); }},
      {"z-loss", [](auto& t) { t.z_loss(0.003); }},
      {"class weights", [](auto& t) { t.class_weights(); }},
      {"class weights and smoothing", [](auto& t) { t.class_weights().label_smoothing(0.2); }},
      {"class weights and z-loss", [](auto& t) { t.class_weights().z_loss(0.01); }},
      {"dft", [](auto& t) { t.dft(); }},
      {"dft with everything", [](auto& t) { t.dft().class_weights().label_smoothing(0.2).z_loss(0.01); }},
      {"dft, summed and scaled", [](auto& t) { t.dft().reduction(Reduction::kSum).loss_scale(-3).z_loss(0.01); }},
      {"sum", [](auto& t) { t.reduction(Reduction::kSum); }},
      {"weighted sum", [](auto& t) { t.reduction(Reduction::kSum).class_weights().label_smoothing(0.1).z_loss(0.01); }},
      {"none", [](auto& t) { t.reduction(Reduction::kNone).z_loss(0.01); }},
      {"weighted none", [](auto& t) { t.reduction(Reduction::kNone).class_weights().label_smoothing(0.1); }},
      {"loss scale", [](auto& t) { t.loss_scale(1024).z_loss(0.01); }},
      {"negative loss scale", [](auto& t) { t.loss_scale(-0.125); }},
      {"loss scale of a sum", [](auto& t) { t.loss_scale(0.5).reduction(Reduction::kSum); }},
      {"num_items_in_batch", [](auto& t) { t.num_items_in_batch(123.5).class_weights().z_loss(0.01); }},
      {"metrics", [](auto& t) { t.metrics().z_loss(0.01); }},
      {"metrics with weights", [](auto& t) { t.metrics().class_weights().label_smoothing(0.1).ignored(0.2); }},
      {"shift", [](auto& t) { t.shift(); }},
      {"shift in a batch", [](auto& t) { t.tokens(36).batch(4).shift().ignored(0.2); }},
      {"batch without shift", [](auto& t) { t.tokens(36).batch(4); }},
      {"shift in packed sequences",
       [](auto& t) {
         t.packed({0, 1, 1, 14, 31, 33, 37}).shift().ignored(0.1);
       }},
      {"two positions further on", [](auto& t) { t.tokens(36).batch(4).shift(2).ignored(0.2); }},
      {"three positions further on, in packed sequences",
       [](auto& t) {
         t.packed({0, 1, 1, 14, 31, 33, 37}).shift(3).ignored(0.1);
       }},
      {"further on than any sequence is long", [](auto& t) { t.tokens(36).batch(4).shift(int64_t{1} << 62); }},
      {"half ignored", [](auto& t) { t.ignored(0.5); }},
      {"nearly all ignored", [](auto& t) { t.ignored(0.95); }},
      {"an ignore_index that is a vocabulary entry",
       [](auto& t) {
         t.ignore_index(3).targets({3, 1, 149, 3, 0});
       }},
      {"int32 targets", [](auto& t) { t.targets32().ignored(0.2); }},
      {"everything",
       [](auto& t) {
         t.softcap(9).temperatures().label_smoothing(0.15).class_weights().z_loss(0.02).loss_scale(3).metrics();
         t.tokens(39).batch(3).shift().ignored(0.2).padding(3);
       }},
  };
  return all;
}

TEST(CrossEntropy, EveryOption) {
  for (const Option& option : options()) {
    SCOPED_TRACE(option.name);
    CrossEntropyTester tester = small();
    option.set(tester);
    matches_oracle_in_every_plan(tester);
    tester.plan(PlanKind::kAuto).form(Form::kSplit).upstream().matches_oracle();
    tester.upstream(false).matches_oracle();
  }
}

TEST(CrossEntropy, EveryOptionInOtherTypesAndTheOtherLayout) {
  for (const Option& option : options()) {
    SCOPED_TRACE(option.name);
    for (const DType dtype : {DType::kBFloat16, DType::kFloat16, DType::kFloat64}) {
      CrossEntropyTester tester = small().dtype(dtype).layout(HeadLayout::kVocabHidden);
      option.set(tester);
      matches_oracle_in_every_plan(tester);
    }
  }
}

TEST(CrossEntropy, EveryOptionOnEveryInstructionSet) {
  for (const Option& option : options()) {
    SCOPED_TRACE(option.name);
    CrossEntropyTester tester = small();
    option.set(tester);
    for (const std::string& target : simd_targets()) tester.simd_target(target).matches_oracle();
  }
}

TEST(CrossEntropy, EveryGemmBackend) {
  for (const std::string& backend : gemm_backends()) {
    for (const DType dtype : kDTypes) {
      for (const HeadLayout layout : kLayouts) {
        matches_oracle_in_every_plan(small().gemm_backend(backend).dtype(dtype).layout(layout).ignored(0.2));
      }
    }
  }
}

TEST(CrossEntropy, VocabulariesAroundTileEdges) {
  const int64_t sizes[] = {1, 2, kVocabTile - 1, kVocabTile, kVocabTile + 1, 2 * kVocabTile, 3 * kVocabTile + 7, 2049};
  for (const int64_t vocab : sizes) {
    for (const HeadLayout layout : kLayouts) {
      matches_oracle_in_every_plan(small().vocab(vocab).layout(layout).label_smoothing(0.1));
      matches_oracle_in_every_plan(small().vocab(vocab).layout(layout).dtype(DType::kBFloat16));
    }
    matches_oracle_in_every_plan(small().vocab(vocab).tiles(0, 0).metrics());
  }
}

TEST(CrossEntropy, TailsOfEveryWidth) {
  for (int64_t tail = 1; tail <= 37; ++tail) {
    small().tokens(5).hidden(3).vocab(37 + tail).tiles(4, 37).plan(PlanKind::kTwoPass).softcap(6).matches_oracle();
  }
}

TEST(CrossEntropy, TokensAroundRowTileEdges) {
  for (const int64_t tokens : {1, 2, 15, 16, 17, 31, 32, 33, 48, 49}) {
    for (const HeadLayout layout : kLayouts) {
      matches_oracle_in_every_plan(small().tokens(tokens).layout(layout));
      matches_oracle_in_every_plan(small().tokens(tokens).layout(layout).ignored(0.4).seed(7));
    }
  }
}

TEST(CrossEntropy, TilesOfOddSizes) {
  for (const auto& [rows, entries] :
       std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {1, 150}, {5, 37}, {37, 7}, {3, 149}}) {
    matches_oracle_in_every_plan(small().tiles(rows, entries).hidden(5));
  }
}

TEST(CrossEntropy, HiddenSizes) {
  for (const int64_t hidden : {1, 2, 3, 16, 31, 257, 515}) {
    matches_oracle_in_every_plan(small().hidden(hidden));
    matches_oracle_in_every_plan(small().hidden(hidden).layout(HeadLayout::kVocabHidden).dtype(DType::kBFloat16));
  }
}

TEST(CrossEntropy, TargetsAtBothSidesOfEveryTileEdge) {
  const std::vector<int64_t> edges = {0, 1, 63, 64, 65, 127, 128, 129, 149};
  for (const DType dtype : kDTypes) {
    matches_oracle_in_every_plan(small().dtype(dtype).targets(edges).metrics());
  }
  matches_oracle_in_every_plan(small().vocab(128).targets({0, 63, 64, 127}));
}

TEST(CrossEntropy, ShapesOfRealUse) {
  matches_oracle_in_every_plan(CrossEntropyTester().tokens(256).hidden(512).vocab(128));
  matches_oracle_in_every_plan(CrossEntropyTester().tokens(252).hidden(507).vocab(123).label_smoothing(0.1));
  matches_oracle_in_every_plan(CrossEntropyTester().tokens(4 * 47).batch(4).hidden(31).vocab(123).shift());
  matches_oracle_in_every_plan(CrossEntropyTester().tokens(257).hidden(33).vocab(2049).metrics());
}

TEST(CrossEntropy, EightSequencesOf128Tokens) {
  CrossEntropyTester tester;
  tester.tokens(8 * 128).batch(8).hidden(512).vocab(2560).shift().ignored(0.1);
  matches_oracle_in_every_plan(tester);
  tester.plan(PlanKind::kTwoPass).tightest_workspace().matches_oracle();
}

TEST(CrossEntropy, EmptyBatch) {
  for (const DType dtype : kDTypes) {
    CrossEntropyTester tester = small().tokens(0).dtype(dtype).metrics();
    matches_oracle_in_every_plan(tester);
    matches_oracle_in_every_plan(tester.accumulate());
    matches_oracle_in_every_plan(tester.accumulate(false).sink());
    tester.sink(false).plan(PlanKind::kAuto).form(Form::kSplit).matches_oracle();
  }
  matches_oracle_in_every_plan(small().tokens(0).reduction(Reduction::kNone));
  matches_oracle_in_every_plan(small().packed({0, 0, 0}).shift());
}

// loss_scale, reduction and num_items_in_batch are in it, so that the rest of the loss is the difference.
TEST(CrossEntropy, TheZLossOfTheMetricsIsPartOfTheLoss) {
  InputSpec spec;
  spec.ignored = 0.2;
  const Inputs inputs(spec);
  for (const Reduction reduction : {Reduction::kMean, Reduction::kSum, Reduction::kNone}) {
    const auto result = [&](double z_loss, double loss_scale) {
      CrossEntropy options;
      options.reduction = reduction;
      options.z_loss = z_loss;
      options.loss_scale = loss_scale;
      return cross_entropy(Context(), inputs.hidden_view(), inputs.head_view(), inputs.targets_view(), options);
    };
    for (const double scale : {1.0, 8.0}) {
      const CrossEntropyResult with = result(0.01, scale), without = result(0, scale);
      EXPECT_GT(with.metrics.z_loss, 0);
      EXPECT_EQ(with.metrics.z_loss, scale * result(0.01, 1).metrics.z_loss);
      EXPECT_NEAR(with.loss - with.metrics.z_loss, without.loss, 1e-12 * with.loss);
      EXPECT_EQ(with.metrics.mean_nll, result(0.01, 1).metrics.mean_nll);
    }
  }
}

TEST(CrossEntropy, AllIgnored) {
  for (const auto reduction : {Reduction::kMean, Reduction::kSum, Reduction::kNone}) {
    CrossEntropyTester tester = small().ignored(1).reduction(reduction).metrics();
    matches_oracle_in_every_plan(tester);
    matches_oracle_in_every_plan(tester.accumulate());
    matches_oracle_in_every_plan(tester.accumulate(false).sink());
    tester.sink(false).plan(PlanKind::kAuto).form(Form::kSplit).matches_oracle();
  }
  // Every position is the last one of its sequence.
  matches_oracle_in_every_plan(small().tokens(12).batch(12).shift());
}

TEST(CrossEntropy, ClassWeightsThatSumToZero) {
  const std::vector<float> weights(150, 0.0f);
  Inputs inputs{InputSpec()};
  CrossEntropy options;
  options.class_weights = weights;
  for (const PlanKind plan : {PlanKind::kOnePass, PlanKind::kTwoPass}) {
    GradientOutputs outputs(inputs, {});
    const auto result = cross_entropy(Context({.plan = plan}), inputs.hidden_view(), inputs.head_view(),
                                      inputs.targets_view(), options, outputs.gradients());
    EXPECT_EQ(result.loss, 0);
    EXPECT_GT(result.metrics.mean_nll, 0);
    for (const HostTensor* output : {&outputs.d_hidden(), &outputs.d_weight(), &outputs.d_bias()}) {
      double largest = 0;
      for (int64_t row = 0; row < output->rows(); ++row) {
        for (int64_t col = 0; col < output->cols(); ++col) {
          // NaN, too, must not be below the largest.
          if (!(std::abs(output->get(row, col)) <= largest)) largest = std::abs(output->get(row, col));
        }
      }
      EXPECT_EQ(largest, 0);
    }
  }
}

TEST(CrossEntropy, EachGradientAlone) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    CrossEntropyTester tester = small().dtype(dtype).ignored(0.2);
    for (int asked = 0; asked < 8; ++asked) {
      tester.gradients(asked & 1, asked & 2, asked & 4);
      matches_oracle_in_every_plan(tester);
      tester.plan(PlanKind::kAuto);
      if (asked != 0) tester.form(Form::kSplit).matches_oracle();
      tester.form(Form::kFused);
    }
  }
}

TEST(CrossEntropy, AddsToWhatIsThere) {
  for (const DType dtype : kDTypes) {
    for (const HeadLayout layout : kLayouts) {
      CrossEntropyTester tester = small().dtype(dtype).layout(layout).ignored(0.3).padding(2).accumulate();
      matches_oracle_in_every_plan(tester);
      tester.plan(PlanKind::kAuto).form(Form::kSplit).matches_oracle();
    }
  }
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    matches_oracle_in_every_plan(small().dtype(dtype).gradient_dtype(dtype).accumulate());
  }
}

TEST(CrossEntropy, NarrowGradientsAreRoundedOnce) {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    for (const HeadLayout layout : kLayouts) {
      // Many row blocks and tiles: sums that were kept in 16 bits would be off by far more than half an ulp.
      CrossEntropyTester tester = CrossEntropyTester().dtype(dtype).gradient_dtype(dtype);
      tester.tokens(200).vocab(1000).hidden(40).layout(layout).tiles(kRowTile, kVocabTile);
      // float16 has no numbers below 2^-24: a mean over 200 tokens would leave little but these.
      tester.loss_scale(dtype == DType::kFloat16 ? 1024 : 1);
      matches_oracle_in_every_plan(tester);
      tester.plan(PlanKind::kTwoPass).tightest_workspace().matches_oracle();
      tester.accumulate().workspace(size_t{256} << 20).matches_oracle();
    }
  }
}

TEST(CrossEntropy, OnePassInManyChunks) {
  for (const DType dtype : kDTypes) {
    for (const HeadLayout layout : kLayouts) {
      CrossEntropyTester tester = small().tokens(130).dtype(dtype).layout(layout).plan(PlanKind::kOnePass);
      tester.ignored(0.2).label_smoothing(0.1).tightest_workspace().matches_oracle();
      EXPECT_LE(tester.planned().chunk_rows * 3, tester.planned().active_rows);
      tester.accumulate().tightest_workspace().matches_oracle();
      tester.reduction(Reduction::kNone).z_loss(0.01).metrics().tightest_workspace().matches_oracle();
    }
  }
}

TEST(CrossEntropy, TwoPassInTheSmallestWorkspace) {
  for (const DType dtype : kDTypes) {
    CrossEntropyTester tester = small().dtype(dtype).plan(PlanKind::kTwoPass).ignored(0.2).tightest_workspace();
    EXPECT_EQ(tester.planned().tiles_alive, 1);
    for (const int threads : {1, 3}) tester.threads(threads).matches_oracle();
  }
}

TEST(CrossEntropy, PlansItself) {
  for (const size_t workspace : {size_t{100} << 10, size_t{1} << 20, size_t{256} << 20}) {
    CrossEntropyTester tester = CrossEntropyTester().tokens(300).vocab(500).tiles(32, 128).workspace(workspace);
    tester.ignored(0.3);
    const Plan planned = tester.planned();
    const Plan ran = tester.run_once().result.plan;
    EXPECT_EQ(planned.describe(), ran.describe());
    EXPECT_EQ(planned.workspace_bytes, ran.workspace_bytes);
    EXPECT_EQ(planned.kind, ran.kind);
    EXPECT_EQ(planned.vocab_tile, 128);
    EXPECT_LE(planned.row_tile, 32);
    tester.matches_oracle();
  }
}

}  // namespace
}  // namespace logitless::testing

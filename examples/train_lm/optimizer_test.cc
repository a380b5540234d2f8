// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// AdamW, and its update inside the head call: the same bits as an update after it, without the head's
// gradient in memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <span>
#include <stdexcept>
#include <vector>

#include "adamw.h"
#include "memory.h"
#include "train.h"

namespace {

std::vector<float> random_floats(size_t count, uint32_t seed) {
  std::mt19937 generator(seed);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(generator()) * 0x1p-31f - 1.0f;
  return values;
}

TEST(AdamW, FirstStepMovesByTheLearningRateAgainstTheGradientAndDecaysEveryValue) {
  std::vector<float> values = {1.0f, 1.0f, 1.0f}, gradient = {2.0f, -0.5f, 0.0f};
  AdamW adamw(std::vector<std::span<float>>{values}, {.weight_decay = 0.5});
  adamw.begin_step(0.1);
  adamw.update_all(0, gradient);
  EXPECT_NEAR(values[0], 0.95f - 0.1f, 1e-5f);
  EXPECT_NEAR(values[1], 0.95f + 0.1f, 1e-5f);
  EXPECT_EQ(values[2], 0.95f);
}

TEST(AdamW, PiecesOfAnyLengthGiveTheBitsOfTheWholeTensor) {
  constexpr size_t kSize = 5000;  // more than update_all() gives to one thread at a time
  const std::vector<float> start = random_floats(kSize, 1);
  for (const size_t piece : {1, 3, 37, 1024}) {
    std::vector<float> whole = start, pieces = start;
    AdamW one(std::vector<std::span<float>>{whole}), other(std::vector<std::span<float>>{pieces});
    for (uint32_t step = 1; step <= 3; ++step) {
      const std::vector<float> gradient = random_floats(kSize, 1 + step);
      one.begin_step(0.01);
      one.update_all(0, gradient);
      other.begin_step(0.01);
      for (size_t first = 0; first < kSize; first += piece) {
        const size_t count = std::min(piece, kSize - first);
        other.update(0, static_cast<int64_t>(first), std::span(gradient).subspan(first, count));
      }
    }
    EXPECT_TRUE(whole == pieces) << "pieces of " << piece;
    EXPECT_NE(whole, start);
  }
}

/// Several tiles of words and of rows; the head's rows begin at unaligned addresses.
ModelShape tiled_shape() { return {.vocabulary = 1531, .context = 3, .embedding = 5, .hidden = 37}; }
constexpr int64_t kBatchTokens = 1100;

struct Trained {
  std::vector<double> losses;
  Parameters parameters;
  logitless::Plan plan;
};

Trained run_steps(const TrainOptions& options, int steps) {
  const ModelShape shape = tiled_shape();
  std::mt19937_64 generator(7);
  std::vector<int32_t> ids(5000);
  for (int32_t& id : ids) id = static_cast<int32_t>(generator() % static_cast<uint64_t>(shape.vocabulary));
  BatchSampler sampler(ids, kBatchTokens, shape.context, 7);
  Trainer trainer(shape, options);
  Trained run;
  for (int step = 0; step < steps; ++step) run.losses.push_back(trainer.step(sampler.next()).loss);
  run.parameters = trainer.parameters();
  run.plan = trainer.plan();
  return run;
}

TEST(HeadOptimizer, FusedGivesTheBitsOfSeparateInEveryLossAndEveryParameter) {
  constexpr int kSteps = 8;
  for (const logitless::PlanKind plan : {logitless::PlanKind::kOnePass, logitless::PlanKind::kTwoPass}) {
    TrainOptions options;
    options.plan = plan;
    options.learning_rate = 1e-2;
    options.threads = 1;
    Trained separate = run_steps(options, kSteps);
    ASSERT_GT(separate.plan.vocab_size, separate.plan.vocab_tile);
    ASSERT_GT(separate.plan.active_rows, separate.plan.row_tile);
    options.head_optimizer = HeadOptimizer::kFused;
    for (const int threads : {1, 3}) {
      options.threads = threads;
      Trained fused = run_steps(options, kSteps);
      EXPECT_EQ(fused.losses, separate.losses) << separate.plan.describe();
      const auto expected = separate.parameters.tensors(), found = fused.parameters.tensors();
      for (size_t tensor = 0; tensor < expected.size(); ++tensor) {
        EXPECT_TRUE(std::ranges::equal(found[tensor], expected[tensor])) << "tensor " << tensor;
      }
    }
    const Parameters start = initial_parameters(tiled_shape(), options.seed);
    EXPECT_GT((separate.parameters.head_weight - start.head_weight).cwiseAbs().maxCoeff(), 0.01f);
  }
}

/// The rise of the resident set by a trainer and its first step, or -1 if the system does not report it.
int64_t step_peak(HeadOptimizer optimizer, const ModelShape& shape, int64_t& gradient_bytes) {
  TrainOptions options;
  options.head_optimizer = optimizer;
  options.plan = logitless::PlanKind::kTwoPass;
  options.threads = 1;
  Batch batch;
  batch.context_length = shape.context;
  batch.context.assign(static_cast<size_t>(64 * shape.context), 1);
  batch.targets.assign(64, 2);
  const PeakMeter meter;
  if (!meter.reset()) return -1;
  const int64_t before = memory_bytes("VmRSS");
  Trainer trainer(shape, options);
  trainer.step(batch);
  gradient_bytes = trainer.gradient_bytes();
  return trainer.peak_bytes() - before;
}

TEST(HeadOptimizer, FusedHoldsNoGradientOfTheHead) {
  const ModelShape shape = {.vocabulary = 20000, .context = 1, .embedding = 1, .hidden = 512};
  const int64_t head_bytes = shape.vocabulary * shape.hidden * 4;
  int64_t with = 0, without = 0;
  const int64_t fused = step_peak(HeadOptimizer::kFused, shape, without);
  const int64_t separate = step_peak(HeadOptimizer::kSeparate, shape, with);
  EXPECT_EQ(with - without, head_bytes);
  if (fused < 0) GTEST_SKIP() << "no peak of the resident set here";
  // The head and AdamW's two moments are resident, plus a sink's two tiles of at most 4,096 words.
  EXPECT_GT(fused, 3 * head_bytes);
  const int64_t sink_tiles = int64_t{2} * 4096 * shape.hidden * 4;
  EXPECT_GT(separate - fused, head_bytes - sink_tiles - head_bytes / 8);
}

TEST(HeadType, BFloat16TrainsAsFloat32DoesAndReadsItsGradientPrecision) {
  constexpr int kSteps = 8;
  TrainOptions options;
  options.threads = 1;
  options.learning_rate = 1e-2;
  const std::vector<double> wide = run_steps(options, kSteps).losses;
  options.head_type = logitless::DType::kBFloat16;
  for (const auto precision : {logitless::GradientPrecision::kNative, logitless::GradientPrecision::kFloat32}) {
    options.gradient_precision = precision;
    const Trained narrow = run_steps(options, kSteps);
    EXPECT_NE(narrow.losses, wide);
    for (size_t step = 0; step < wide.size(); ++step) EXPECT_NEAR(narrow.losses[step], wide[step], 0x1p-7 * wide[step]);
    const bool rounds = narrow.plan.gemm_library != "openblas" && precision == logitless::GradientPrecision::kNative;
    EXPECT_EQ(narrow.plan.gradient_dtype, rounds ? logitless::DType::kBFloat16 : logitless::DType::kFloat32);
  }
}

TEST(HeadOptimizer, FusedNeedsTheFusedHead) {
  TrainOptions options;
  options.head = HeadKind::kDense;
  options.head_optimizer = HeadOptimizer::kFused;
  EXPECT_THROW(Trainer(tiled_shape(), options), std::invalid_argument);
}

}  // namespace

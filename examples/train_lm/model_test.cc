// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "model.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "compare.h"
#include "metrics.h"
#include "text.h"
#include "train.h"

namespace {

constexpr uint64_t kSeed = 7;

ModelShape small_shape() {
  ModelShape shape;
  shape.vocabulary = 53;
  shape.context = 3;
  shape.embedding = 5;
  shape.hidden = 11;
  return shape;
}

std::vector<int32_t> random_ids(int64_t count, int64_t vocabulary) {
  std::mt19937_64 generator(kSeed);
  std::vector<int32_t> ids(count);
  for (int32_t& id : ids) id = static_cast<int32_t>(generator() % vocabulary);
  return ids;
}

/// The whole model again, in doubles and plain loops: the mean loss of the batch.
double reference_loss(const Parameters& p, const Batch& batch) {
  const int64_t embedding = p.embedding.cols(), hidden_size = p.head_weight.cols(), vocabulary = p.head_weight.rows();
  double loss = 0;
  for (int64_t i = 0; i < batch.tokens(); ++i) {
    std::vector<double> hidden(hidden_size);
    for (int64_t h = 0; h < hidden_size; ++h) {
      double sum = p.trunk_bias[h];
      for (int64_t c = 0; c < batch.context_length; ++c) {
        for (int64_t d = 0; d < embedding; ++d) {
          sum += double{p.embedding(batch.context[i * batch.context_length + c], d)} *
                 p.trunk_weight(c * embedding + d, h);
        }
      }
      hidden[h] = std::tanh(sum);
    }
    double normaliser = 0, target_logit = 0;
    for (int64_t v = 0; v < vocabulary; ++v) {
      double logit = p.head_bias[v];
      for (int64_t h = 0; h < hidden_size; ++h) logit += hidden[h] * p.head_weight(v, h);
      normaliser += std::exp(logit);
      if (v == batch.targets[i]) target_logit = logit;
    }
    loss += (std::log(normaliser) - target_logit) / static_cast<double>(batch.tokens());
  }
  return loss;
}

/// The central difference of the reference's loss by one parameter. Parameters are floats, so the step is
/// computed after rounding.
double numeric_gradient(Parameters& p, float& value, const Batch& batch) {
  const float center = value;
  value = center + 1e-3f;
  const double above = value, loss_above = reference_loss(p, batch);
  value = center - 1e-3f;
  const double below = value, loss_below = reference_loss(p, batch);
  value = center;
  return (loss_above - loss_below) / (above - below);
}

/// Trains on the same batch repeatedly, so that even random words can be learned.
std::vector<double> run_steps(TrainOptions options, int steps) {
  options.steps = steps;
  options.learning_rate = 1e-2;
  const ModelShape shape = small_shape();
  const std::vector<int32_t> ids = random_ids(500, shape.vocabulary);
  const Batch batch = BatchSampler(ids, 65, shape.context, kSeed).next();
  Trainer trainer(shape, options);
  std::vector<double> losses;
  for (int step = 0; step < steps; ++step) losses.push_back(trainer.step(batch).loss);
  return losses;
}

TEST(Model, GradientsOfAllTensorsMatchFiniteDifferencesOfAReferenceInDoubles) {
  const ModelShape shape = small_shape();
  const std::vector<int32_t> ids = random_ids(200, shape.vocabulary);
  const Batch batch = BatchSampler(ids, 40, shape.context, kSeed).next();
  for (const HeadKind head : {HeadKind::kDense, HeadKind::kFused}) {
    TrainOptions options;
    options.head = head;
    options.learning_rate = 0;  // the step does not change the parameters
    Trainer trainer(shape, options);
    Parameters reference = trainer.parameters();
    EXPECT_NEAR(trainer.step(batch).loss, reference_loss(reference, batch), 1e-6);

    Parameters gradients = trainer.gradients();
    const auto values = reference.tensors(), found = gradients.tensors();
    for (size_t tensor = 0; tensor < values.size(); ++tensor) {
      for (size_t i = 0; i < values[tensor].size(); ++i) {
        // float32 sums of at most 40 · 53 terms of size ~1/40, and 1e-6 for the third derivative in the
        // difference quotient.
        ASSERT_NEAR(found[tensor][i], numeric_gradient(reference, values[tensor][i], batch), 3e-6)
            << "tensor " << tensor << ", element " << i;
      }
    }
  }
}

TEST(Model, DenseAndFusedHeadsTrainAlike) {
  TrainOptions options;
  options.head = HeadKind::kDense;
  const std::vector<double> dense = run_steps(options, 20);
  options.head = HeadKind::kFused;
  const std::vector<double> fused = run_steps(options, 20);
  for (size_t i = 0; i < dense.size(); ++i) EXPECT_NEAR(dense[i], fused[i], 1e-6);
  EXPECT_LT(fused.back(), fused.front() - 0.5);
}

TEST(Text, SplitsIntoWordsMarksAndVerses) {
  const std::vector<std::string_view> expected = {"And", "Moses'", "rod",       ",",   "(",        "1",
                                                  "2",   ")",      kEndOfVerse, "and", kEndOfVerse};
  EXPECT_EQ(tokenize("And Moses' rod, (12)\r\n\n  and"), expected);
}

TEST(Text, RareWordsBecomeUnknown) {
  const auto tokens = tokenize("b b b a a c\n");
  const Vocabulary all(tokens, 0), four(tokens, 4);
  EXPECT_EQ(all.size(), 5);
  EXPECT_EQ(four.size(), 4);
  EXPECT_EQ(four.word(2), "b");
  EXPECT_EQ(four.id("a"), 3);
  EXPECT_EQ(four.id("c"), Vocabulary::kUnknownId);
}

TEST(Text, UnigramEntropyOfEvenlyUsedWordsIsTheLogarithmOfTheirNumber) {
  EXPECT_NEAR(unigram_entropy({0, 3, 1, 2, 2, 1, 0, 3}, 6), std::log(4.0), 1e-12);
}

TEST(Text, BatchesAreCausalSeededAndOfTheAskedSize) {
  std::vector<int32_t> ids(300);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i) + 2;  // an id tells its position
  BatchSampler sampler(ids, 100, 4, kSeed), same(ids, 100, 4, kSeed);
  for (int repeat = 0; repeat < 20; ++repeat) {
    const Batch batch = sampler.next();
    ASSERT_EQ(batch.tokens(), 100);
    for (int64_t i = 0; i < batch.tokens(); ++i) {
      for (int64_t c = 0; c < 4; ++c) {
        const int32_t before = batch.targets[i] - static_cast<int32_t>(4 - c);
        EXPECT_EQ(batch.context[i * 4 + c], before < 2 ? Vocabulary::kEndOfVerseId : before);
      }
    }
    const Batch again = same.next();
    EXPECT_EQ(batch.targets, again.targets);
    EXPECT_EQ(batch.context, again.context);
  }
}

RunRecord flat_run(double loss, size_t steps) {
  RunRecord run;
  run.losses.assign(steps, loss);
  run.summary.final_loss = loss;
  run.summary.unigram_entropy = 5.0;
  run.complete = true;
  return run;
}

TEST(Judge, AcceptsCurvesWithinTheToleranceThatEndBelowTheUnigramEntropy) {
  const Verdict verdict = verdict_of(flat_run(4.0, 200), flat_run(4.00005, 200));
  EXPECT_TRUE(verdict.agrees);
  EXPECT_TRUE(verdict.learns);
  EXPECT_NEAR(verdict.max_difference, 5e-5, 1e-9);
}

TEST(Judge, RejectsADifferenceANaNOrAMissingStep) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const RunRecord good = flat_run(4.0, 200);
  RunRecord differs = good, broken = good;
  differs.losses[117] += 2e-4;
  broken.losses[117] = nan;
  EXPECT_FALSE(verdict_of(good, differs).agrees);
  EXPECT_FALSE(verdict_of(good, broken).agrees);
  EXPECT_FALSE(verdict_of(broken, broken).agrees);
  EXPECT_FALSE(verdict_of(good, flat_run(4.0, 199)).agrees);
}

TEST(Judge, OptimizersOfOnePlanNeedTheSameBits) {
  const RunRecord good = flat_run(4.0, 200);
  RunRecord close = good, other_parameters = good;
  close.losses[117] = std::nextafter(4.0, 5.0);
  other_parameters.summary.parameters_hash = "1";
  EXPECT_TRUE(verdict_of_optimizers(good, good).agrees);
  EXPECT_TRUE(verdict_of(good, close).agrees);
  EXPECT_FALSE(verdict_of_optimizers(good, close).agrees);
  EXPECT_FALSE(verdict_of_optimizers(good, other_parameters).agrees);
  close.summary.plan_cut = "another one";
  EXPECT_TRUE(verdict_of_optimizers(good, close).agrees);
  close.losses[117] = 4.1;
  EXPECT_FALSE(verdict_of_optimizers(good, close).agrees);
}

TEST(Judge, RejectsARunThatLearnsNothingOnceItIsLongEnough) {
  EXPECT_FALSE(verdict_of(flat_run(6.0, 200), flat_run(6.0, 200)).learns);
  EXPECT_TRUE(verdict_of(flat_run(6.0, 199), flat_run(6.0, 199)).learns);
}

std::filesystem::path temporary_path(const std::string& name) {
  return std::filesystem::temp_directory_path() / (name + std::to_string(getpid()) + ".jsonl");
}

std::string read_file(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(Metrics, ALineHoldsStepNameAndValueAndIsInTheFileAtOnce) {
  const auto path = temporary_path("train-lm-metrics-");
  std::ofstream(path) << "of an earlier run\n";
  MetricsFile file(path.string());
  file.write(3, "loss", 0.1);
  file.write(4, "loss", std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(read_file(path),
            "{\"step\":3,\"name\":\"loss\",\"value\":0.1}\n"
            "{\"step\":4,\"name\":\"loss\",\"value\":null}\n");
  std::filesystem::remove(path);
}

TEST(Metrics, AFileThatCannotBeWrittenIsAnErrorBeforeAndDuringTheRun) {
  EXPECT_THROW(MetricsFile("/no/such/folder/metrics.jsonl"), std::runtime_error);
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  MetricsFile full("/dev/full");
  EXPECT_THROW(full.write(1, "loss", 1.0), std::runtime_error);
}

TEST(Metrics, AStepAndASummaryGiveEachFigureItsName) {
  const auto path = temporary_path("train-lm-figures-");
  MetricsFile file(path.string());
  TrainOptions options;
  options.steps = 300;
  options.batch_tokens = 1024;
  write_step(file, "fused/", {.step = 20, .loss = 6.5, .seconds = 0.25, .head_seconds = 0.125}, options);
  TrainSummary summary;
  summary.final_loss = 5.5;
  summary.unigram_entropy = 6;
  summary.peak_bytes = 1 << 20;
  summary.head_extra_bytes = 1 << 10;
  summary.workspace_bytes = 1 << 9;
  write_summary(file, "fused/", summary, options);

  const std::vector<std::tuple<int, std::string, double>> expected = {
      {20, "fused/loss", 6.5},
      {20, "fused/learning_rate", options.learning_rate},
      {20, "fused/tokens_per_s", 4096},
      {20, "fused/head_ms", 125},
      {300, "fused/final_loss", 5.5},
      {300, "fused/unigram_entropy", 6},
      {300, "fused/peak_bytes", 1 << 20},
      {300, "fused/head_extra_peak_bytes", 1 << 10},
      {300, "fused/workspace_bytes", 1 << 9}};
  std::istringstream lines(read_file(path));
  std::vector<std::tuple<int, std::string, double>> found;
  for (std::string line; std::getline(lines, line);) {
    const auto j = nlohmann::json::parse(line);
    found.emplace_back(j.at("step"), j.at("name"), j.at("value"));
  }
  EXPECT_EQ(found, expected);
  std::filesystem::remove(path);
}

}  // namespace

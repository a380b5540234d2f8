// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "model.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
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

TEST(Text, BecomesWordsMarksAndVersesOfWhichRareOnesAreUnknown) {
  const auto tokens = tokenize("And Moses' rod, (1)\r\n\n  and and and rod");
  EXPECT_EQ(tokens, (std::vector<std::string_view>{"And", "Moses'", "rod", ",", "(", "1", ")", kEndOfVerse, "and",
                                                   "and", "and", "rod", kEndOfVerse}));
  const Vocabulary four(tokens, 4);
  EXPECT_EQ(four.size(), 4);
  EXPECT_EQ(four.word(2), "and");
  EXPECT_EQ(four.id("rod"), 3);
  EXPECT_EQ(four.id("Moses'"), Vocabulary::kUnknownId);
  EXPECT_NEAR(unigram_entropy({0, 3, 1, 2, 2, 1, 0, 3}, 6), std::log(4.0), 1e-12);  // evenly used words
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

TEST(Judge, CurvesAgreeWithinTheToleranceAndEndBelowTheUnigramEntropy) {
  const RunRecord good = flat_run(4.0, 200);
  const auto with = [&](double loss) {
    RunRecord run = good;
    run.losses[117] = loss;
    return run;
  };
  const Verdict verdict = verdict_of(good, flat_run(4.00005, 200));
  EXPECT_TRUE(verdict.agrees && verdict.learns);
  EXPECT_NEAR(verdict.max_difference, 5e-5, 1e-9);
  const RunRecord broken = with(std::numeric_limits<double>::quiet_NaN());
  EXPECT_FALSE(verdict_of(good, with(4.0002)).agrees || verdict_of(good, broken).agrees ||
               verdict_of(broken, broken).agrees);
  EXPECT_FALSE(verdict_of(good, flat_run(4.0, 199)).agrees);
  EXPECT_FALSE(verdict_of(flat_run(6.0, 200), flat_run(6.0, 200)).learns);
  EXPECT_TRUE(verdict_of(flat_run(6.0, 199), flat_run(6.0, 199)).learns) << "too short to tell";

  // Optimizers under one plan need the same bits.
  RunRecord close = with(std::nextafter(4.0, 5.0)), other_parameters = good;
  other_parameters.summary.parameters_hash = "1";
  EXPECT_TRUE(verdict_of_optimizers(good, good).agrees && verdict_of(good, close).agrees);
  EXPECT_FALSE(verdict_of_optimizers(good, close).agrees || verdict_of_optimizers(good, other_parameters).agrees);
  close.summary.plan_cut = "another one";
  EXPECT_TRUE(verdict_of_optimizers(good, close).agrees);
  close.losses[117] = 4.1;
  EXPECT_FALSE(verdict_of_optimizers(good, close).agrees);
}

TEST(Metrics, AFigureIsALineOfTheFileAtOnce) {
  const auto path = std::filesystem::temp_directory_path() / ("train-lm-" + std::to_string(getpid()) + ".jsonl");
  const auto text = [&] {
    std::ostringstream out;
    out << std::ifstream(path).rdbuf();
    return out.str();
  };
  std::ofstream(path) << "of an earlier run\n";
  MetricsFile file(path.string());
  file.write(3, "loss", 0.1);
  file.write(4, "loss", std::numeric_limits<double>::quiet_NaN());
  std::string want =
      "{\"step\":3,\"name\":\"loss\",\"value\":0.1}\n"
      "{\"step\":4,\"name\":\"loss\",\"value\":null}\n";
  EXPECT_EQ(text(), want);

  TrainOptions options;
  options.steps = 300;
  options.batch_tokens = 1024;
  options.learning_rate = 0.5;
  write_step(file, "fused/", {.step = 20, .loss = 6.5, .seconds = 0.25, .head_seconds = 0.125}, options);
  TrainSummary summary;
  summary.final_loss = 5.5;
  summary.unigram_entropy = 6.5;
  summary.peak_bytes = 4;
  summary.head_extra_bytes = 3;
  summary.workspace_bytes = 2;
  write_summary(file, "fused/", summary, options);
  for (const auto& [step, name, value] : {std::tuple(20, "loss", "6.5"),
                                          {20, "learning_rate", "0.5"},
                                          {20, "tokens_per_s", "4096.0"},
                                          {20, "head_ms", "125.0"},
                                          {300, "final_loss", "5.5"},
                                          {300, "unigram_entropy", "6.5"},
                                          {300, "peak_bytes", "4.0"},
                                          {300, "head_extra_peak_bytes", "3.0"},
                                          {300, "workspace_bytes", "2.0"}}) {
    want += "{\"step\":" + std::to_string(step) + ",\"name\":\"fused/" + name + "\",\"value\":" + value + "}\n";
  }
  EXPECT_EQ(text(), want);
  std::filesystem::remove(path);

  EXPECT_THROW(MetricsFile("/no/such/folder/metrics.jsonl"), std::runtime_error);
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  MetricsFile full("/dev/full");
  EXPECT_THROW(full.write(1, "loss", 1.0), std::runtime_error);
}

}  // namespace

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Every kind of bad input of the calls of logits.h: the message names argument, value and rule, and nothing
// has been written.
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "logitless/logitless.h"
#include "support/calls.h"
#include "support/refusal.h"
#include "support/views.h"

namespace logitless::testing {
namespace {

// A good call for a case to spoil: [2, 3, 5] of float32, with room behind it.
struct Call {
  static constexpr int64_t kBatch = 2, kTime = 3, kVocab = 5;
  std::vector<float> memory = std::vector<float>(200, 0.5f);
  std::vector<float> written = std::vector<float>(200, 7.0f);
  std::vector<int64_t> ids = {0, 1, 2, 3, 4, -100};
  std::vector<double> doubles;
  std::vector<float> floats;
  FinishedLogits logits{memory.data(), kBatch, kTime, kVocab};
  LogitsGradient dlogits{written.data(), kBatch, kTime, kVocab};
  Targets targets{ids.data(), 6};
  CrossEntropy options;
  ContextOptions context;
};

using BadCase = testing::BadCase<Call>;

void run(Call& c) { cross_entropy(Context(c.context), c.logits, c.targets, c.options, c.dlogits); }

void expect_refused(const std::vector<BadCase>& cases) {
  for (const BadCase& bad : cases) {
    SCOPED_TRACE(bad.name);
    Call call;
    bad.spoil(call);
    const std::vector<float> memory = call.memory, written = call.written;
    expect_invalid_input(bad.parts, [&] { run(call); });
    EXPECT_TRUE(call.memory == memory && call.written == written) << "something was written";
  }
}

TEST(LogitsBadInput, TheCallThatTheCasesSpoilIsGood) {
  Call call;
  EXPECT_NO_THROW(run(call));
  EXPECT_NE(call.written[0], 7.0f);
  EXPECT_EQ(call.written[30], 7.0f);
}

TEST(LogitsBadInput, PointersAndShapes) {
  expect_refused({
      {"logits", [](Call& c) { c.logits.data = nullptr; }, {"logits.data", "null"}},
      {"targets", [](Call& c) { c.targets.data64 = nullptr; }, {"targets", "null"}},
      {"batch", [](Call& c) { c.logits.batch = -2; }, {"logits.sizes[0] = -2 is negative"}},
      {"time", [](Call& c) { c.logits.time = -3; }, {"logits.sizes[1] = -3 is negative"}},
      {"vocab", [](Call& c) { c.logits.vocab = 0; }, {"logits.vocab", "0", "positive"}},
      {"targets' size", [](Call& c) { c.targets.size = 5; }, {"targets", "5", "logits has 6 rows"}},
      {"d_logits' time", [](Call& c) { c.dlogits.time = 2; }, {"d_logits is [2, 2, 5]", "logits is [2, 3, 5]"}},
      {"d_logits' batch", [](Call& c) { c.dlogits.batch = 1; }, {"d_logits is [1, 3, 5]"}},
      {"d_logits' vocab",
       [](Call& c) { c.dlogits.vocab = c.dlogits.row_stride = 4; },
       {"d_logits is [2, 3, 4]", "logits is [2, 3, 5]"}},
      {"alignment",
       [](Call& c) { c.logits.data = reinterpret_cast<const char*>(c.memory.data()) + 2; },
       {"logits.data", "aligned", "float32"}},
      {"too many rows",
       [](Call& c) { c.logits.batch = c.logits.time = int64_t{1} << 40; },
       {"logits has more elements"}},
      {"too many sequences without rows",
       [](Call& c) {
         c.logits.batch = int64_t{1} << 40;
         c.logits.time = 0;
       },
       {"logits.batch = 1099511627776", "2147483647"}},
  });
}

TEST(LogitsBadInput, Strides) {
  expect_refused({
      {"rows", [](Call& c) { c.logits.row_stride = 4; }, {"logits.row_stride = 4", "5 elements"}},
      {"sequences", [](Call& c) { c.logits.batch_stride = 4; }, {"logits.batch_stride = 4", "5 elements"}},
      {"negative", [](Call& c) { c.logits.row_stride = -5; }, {"logits.strides[1] = -5 is negative"}},
      {"rows of dlogits", [](Call& c) { c.dlogits.row_stride = 3; }, {"d_logits.row_stride = 3"}},
      {"sequences of dlogits that overlap",
       [](Call& c) { c.dlogits.batch_stride = 14; },
       {"d_logits.batch_stride = 14", "overlap", "15"}},
      {"positions of dlogits that overlap",
       [](Call& c) {
         c.dlogits.batch_stride = 5;
         c.dlogits.row_stride = 9;
       },
       {"d_logits.batch_stride = 5", "row_stride = 9", "10"}},
  });
}

TEST(LogitsBadInput, Types) {
  expect_refused({
      {"float64 gradient of float32", [](Call& c) { c.dlogits.dtype = DType::kFloat64; }, {"d_logits is float64"}},
      {"float16 gradient of float32",
       [](Call& c) { c.dlogits.dtype = DType::kFloat16; },
       {"d_logits is float16", "must be float32"}},
      {"bfloat16 gradient of float16",
       [](Call& c) {
         c.logits.dtype = DType::kFloat16;
         c.dlogits.dtype = DType::kBFloat16;
       },
       {"d_logits is bfloat16", "float32", "float16"}},
      {"float32 gradient of float64", [](Call& c) { c.logits.dtype = DType::kFloat64; }, {"d_logits is float32"}},
      {"rounding", [](Call& c) { c.options.token.round_logits_to = DType::kFloat32; }, {"round_logits_to", "float32"}},
  });
}

TEST(LogitsBadInput, Overlaps) {
  expect_refused({
      {"one element further",
       [](Call& c) { c.dlogits.data = c.memory.data() + 1; },
       {"d_logits", "overlaps", "logits"}},
      {"the last element", [](Call& c) { c.dlogits.data = c.memory.data() + 29; }, {"d_logits", "overlaps", "logits"}},
      {"other strides in place",
       [](Call& c) {
         c.dlogits.data = c.memory.data();
         c.dlogits.row_stride = 6;
         c.dlogits.batch_stride = 18;
       },
       {"d_logits", "overlaps", "logits"}},
      {"another type in place",
       [](Call& c) {
         c.logits.dtype = DType::kFloat16;
         c.dlogits.data = c.memory.data();
       },
       {"d_logits", "overlaps", "logits"}},
      {"in place with rows that overlap",
       [](Call& c) {
         c.dlogits.data = c.memory.data();
         c.dlogits.batch_stride = c.logits.batch_stride = 7;
       },
       {"d_logits.batch_stride = 7", "overlap"}},
      {"targets",
       [](Call& c) { c.targets.data64 = reinterpret_cast<const int64_t*>(c.written.data() + 20); },
       {"targets"}},
      {"class weights",
       [](Call& c) { c.options.class_weights = std::span<const float>(c.written.data() + 28, 5); },
       {"d_logits", "overlaps", "class_weights"}},
  });
}

TEST(LogitsBadInput, TargetsAndOptions) {
  expect_refused({
      {"target above", [](Call& c) { c.ids[3] = 5; }, {"targets[3] = 5", "[0, 5)", "ignore_index"}},
      {"target below", [](Call& c) { c.ids[0] = -1; }, {"targets[0] = -1"}},
      {"temperature", [](Call& c) { c.options.token.temperature = 0; }, {"temperature = 0"}},
      {"temperatures",
       [](Call& c) {
         c.options.token.temperatures = c.doubles = {1, 1};
       },
       {"temperatures has 2 entries", "logits has 6 rows"}},
      {"a temperature",
       [](Call& c) { c.options.token.temperatures = c.doubles = {1, 1, -1, 1, 1, 1}; },
       {"temperatures[2]"}},
      {"class weights",
       [](Call& c) {
         c.options.class_weights = c.floats = {1, 2};
       },
       {"class_weights has 2 entries"}},
      {"label smoothing", [](Call& c) { c.options.label_smoothing = 1.5; }, {"label_smoothing = 1.5"}},
      {"workspace", [](Call& c) { c.context.workspace_bytes = 16; }, {"workspace_bytes = 16", "too small"}},
  });
}

TEST(LogitsBadInput, StatisticsWithoutTargets) {
  Call c;
  const Context context;
  const Logits logits = Logits::given(c.logits);
  const TokenStatistics good = {.request = {.entropy = true}};
  const auto refused = [&](std::initializer_list<std::string> words, const auto& spoil) {
    TokenStatistics task = good;
    spoil(task);
    expect_invalid_input(words, [&] { run(context, logits, task); });
  };
  refused({"rank", "no targets"}, [](TokenStatistics& task) { task.request.rank = true; });
  refused({"outside", "no targets"}, [](TokenStatistics& task) { task.request.outside = true; });
  refused({"shift = 1"}, [](TokenStatistics& task) { task.token.shift = 1; });
  refused({"ignore_index = 3"}, [](TokenStatistics& task) { task.token.ignore_index = 3; });
  refused({"temperature = -1"}, [](TokenStatistics& task) { task.token.temperature = -1; });
  expect_invalid_input({"gradients are wanted of token_stats"},
                       [&] { run(context, logits, good, gradients_of(c.dlogits)); });
  const Forward<TokenStatistics> saved = forward(context, logits, good);
  EXPECT_EQ(saved.result.stats.entropy.size(), 6U);
  EXPECT_EQ(saved.result.stats.logp, std::vector<double>(6, 0.0));
  TokenGrads grads;
  grads.entropy.assign(5, 1.0);
  expect_invalid_input({"entropy has 5 entries"},
                       [&] { backward(context, logits, good, saved, grads, gradients_of(c.dlogits)); });
  expect_invalid_input({"upstream is a number"},
                       [&] { backward(context, logits, good, saved, 1.0, gradients_of(c.dlogits)); });
  EXPECT_EQ(c.written, std::vector<float>(200, 7.0f));
  grads.entropy.assign(6, 1.0);
  EXPECT_NO_THROW(backward(context, logits, good, saved, grads, gradients_of(c.dlogits)));
}

// One verb, two kinds of logits: what the other kind has is refused.
TEST(LogitsBadInput, GradientsOfTheOtherKind) {
  Call c;
  const Context context;
  const CrossEntropy task = {.targets = c.targets};
  float number = 0;
  const auto refused = [&](std::initializer_list<std::string> words, const auto& spoil) {
    logitless::Gradients gradients = gradients_of(c.dlogits);
    spoil(gradients);
    expect_invalid_input(words, [&] { run(context, Logits::given(c.logits), task, gradients); });
  };
  refused({"d_hidden is set"}, [&](logitless::Gradients& g) { g.d_hidden = view(&number, {1, 1}); });
  refused({"d_weight is set"}, [&](logitless::Gradients& g) { g.d_weight = view(&number, {1, 1}); });
  refused({"d_bias is set"}, [&](logitless::Gradients& g) { g.d_bias = view(&number, {1}); });
  refused({"d_lora_a is set"}, [&](logitless::Gradients& g) { g.d_lora_a = view(&number, {1, 1}); });
  refused({"d_lora_b is set"}, [&](logitless::Gradients& g) { g.d_lora_b = view(&number, {1, 1}); });
  refused({"d_lora_states is set"}, [&](logitless::Gradients& g) { g.d_lora_states = view(&number, {1, 1}); });
  refused({"weight_sink is set"},
          [](logitless::Gradients& g) { g.weight_sink = [](int64_t, int64_t, const ConstTensor&) {}; });
  refused({"backward.mode = sampled"}, [](logitless::Gradients& g) { g.backward.mode = BackwardMode::kSampled; });
  const std::vector<float> hidden(6 * 2), weight(5 * 2);
  const Logits product = Logits::of(view(hidden.data(), {6, 2}), view(weight.data(), {c.logits.vocab, 2}));
  expect_invalid_input({"d_logits is set"}, [&] { run(context, product, task, gradients_of(c.dlogits)); });
}

}  // namespace
}  // namespace logitless::testing

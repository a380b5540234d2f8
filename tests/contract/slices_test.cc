// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Slices of a vocabulary without a communicator: the caller exchanges their statistics. Results have the bits
// of one process with all slices.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "support/calls.h"
#include "support/every_task.h"
#include "support/refusal.h"
#include "support/views.h"

namespace logitless::testing {
namespace slices_test {

const std::vector<int64_t> kSlices = {34, 40, 27};

FromHidden slice_of(size_t number) {
  FromHidden source;
  for (size_t s = 0; s < number; ++s) source.first_entry += kSlices[s];
  source.entries = kSlices[number];
  return source;
}

ContextOptions tiles(PlanKind plan = PlanKind::kAuto) {
  ContextOptions options;
  options.plan = plan;
  options.row_tile = 3;
  options.vocab_tile = 16;
  return options;
}

ContextOptions context_of(const FromHidden& source, std::span<const std::byte> gathered = {}) {
  ContextOptions options = tiles();
  options.ranks.slice = VocabSlice{source.first_entry, kVocab, gathered};
  return options;
}

// fold_slice() of a task, and its run() with gradients. Both return bytes.
using Fold = std::function<std::vector<std::byte>(const Context&, const FromHidden&)>;
using Run = std::function<std::vector<std::byte>(const Context&, const FromHidden&, const Gradients&)>;

void expect_bits_of_one_process(const char* name, const Fold& fold, const Run& run) {
  SCOPED_TRACE(name);
  ContextOptions of_one = tiles(PlanKind::kTwoPass);
  of_one.ranks.slices = kSlices;
  FromHidden::Outputs one, all;
  const FromHidden whole;
  const std::vector<std::byte> expected = run(Context(of_one), whole, one.views());

  std::vector<std::byte> gathered;
  for (size_t s = 0; s < kSlices.size(); ++s) {
    const FromHidden source = slice_of(s);
    const std::vector<std::byte> mine = fold(Context(context_of(source)), source);
    ASSERT_FALSE(mine.empty());
    gathered.insert(gathered.end(), mine.begin(), mine.end());
  }
  std::vector<float> d_hidden(static_cast<size_t>(kTokens * kHidden), 0.0F);
  for (size_t s = 0; s < kSlices.size(); ++s) {
    const FromHidden source = slice_of(s);
    FromHidden::Outputs mine;
    const std::vector<std::byte> returned =
        run(Context(context_of(source, gathered)), source, mine.views(source.first_entry, source.entries));
    EXPECT_EQ(returned, expected) << "slice " << s;
    all.take_entries(mine, source.first_entry, source.entries);
    for (size_t i = 0; i < d_hidden.size(); ++i) d_hidden[i] += mine.values()[i];
  }
  std::vector<float> values = all.values();
  std::copy(d_hidden.begin(), d_hidden.end(), values.begin());
  EXPECT_EQ(values, one.values());
}

using Gather = std::function<std::vector<std::byte>(const std::vector<std::byte>&)>;

// As in docs/parallel.md.
double loss_of_slice(int64_t first, int64_t vocab_size, const Logits& logits, const CrossEntropy& task,
                     const logitless::Gradients& gradients, const Gather& gather) {
  // [slice]
  ContextOptions options;
  options.ranks.slice = VocabSlice{.first = first, .vocab_size = vocab_size};
  const std::vector<std::byte> mine = fold_slice(Context(options), logits, task);
  const std::vector<std::byte> all = gather(mine);  // of all ranks, in the vocabulary's order
  options.ranks.slice->gathered = all;
  const double loss = run(Context(options), logits, task, gradients).loss;
  // [/slice]
  return loss;
}

TEST(Slices, AreOneCallWhereThereIsOneOfThem) {
  const FromHidden source;
  const Batch batch;
  FromHidden::Outputs one, outputs;
  const Context two_pass(tiles(PlanKind::kTwoPass));
  const double loss =
      loss_of_slice(0, kVocab, logits_of(source.states(), source.head()), CrossEntropy{.targets = batch.targets()},
                    gradients_of(outputs.views(), source.states(), source.head()),
                    [](const std::vector<std::byte>& mine) { return mine; });
  EXPECT_NEAR(loss, cross_entropy(two_pass, source.states(), source.head(), batch.targets(), {}, one.views()).loss,
              1e-6);
  for (size_t i = 0; i < one.values().size(); ++i) EXPECT_NEAR(outputs.values()[i], one.values()[i], 1e-6);
}

CrossEntropy cross_entropy_options(std::span<const float> weights) {
  CrossEntropy options;
  options.token.temperature = 0.7;
  options.token.shift = 1;
  options.label_smoothing = 0.1;
  options.z_loss = 0.01;
  options.class_weights = weights;
  options.want_accuracy = options.want_entropy = true;
  return options;
}

TEST(Slices, HaveTheBitsOfOneProcess) {
  const Batch batch;
  std::vector<float> weights(static_cast<size_t>(kVocab));
  for (size_t v = 0; v < weights.size(); ++v) weights[v] = 0.5F + static_cast<float>(v % 7) / 8;
  const CrossEntropy options = cross_entropy_options(weights);
  expect_bits_of_one_process(
      "cross_entropy",
      [&](const Context& context, const FromHidden& source) {
        return cross_entropy_slice(context, source.states(), source.head(), batch.targets(), options);
      },
      [&](const Context& context, const FromHidden& source, const Gradients& gradients) {
        CrossEntropyResult result =
            cross_entropy(context, source.states(), source.head(), batch.targets(), options, gradients);
        result.plan = {};
        return bytes_of(result);
      });
  const StatsRequest request = {.entropy = true, .cross = true, .argmax = true, .top_k = 30, .cross_weights = weights};
  expect_bits_of_one_process(
      "token_stats",
      [&](const Context& context, const FromHidden& source) {
        return token_stats_slice(context, source.states(), source.head(), batch.targets(), {}, request);
      },
      [&](const Context& context, const FromHidden& source, const Gradients& gradients) {
        const TokenStats stats =
            compute_token_stats(context, source.states(), source.head(), batch.targets(), {}, request);
        backpropagate_token_grads(context, source.states(), source.head(), batch.targets(), {}, request, stats,
                                  batch.grads, gradients);
        return bytes_of(stats);
      });
  // Any other loss with the statistics of the request.
  PolicyLoss policy;
  policy.beta = 0.04;
  policy.entropy_bonus = 0.01;
  expect_bits_of_one_process(
      "policy_loss",
      [&](const Context& context, const FromHidden& source) {
        return token_stats_slice(context, source.states(), source.head(), batch.targets(), {}, {.entropy = true});
      },
      [&](const Context& context, const FromHidden& source, const Gradients& gradients) {
        PolicyResult result =
            policy_loss(context, source.states(), source.head(), batch.policy_with_reference(), policy, gradients);
        result.plan = {};
        return bytes_of(result);
      });
}

TEST(Slices, SayWhatEachTokenTakes) {
  EXPECT_EQ(slice_bytes_per_token(DType::kFloat32), 16U);
  EXPECT_EQ(slice_bytes_per_token(DType::kBFloat16, StatsRequest{.entropy = true}), 24U);
  EXPECT_EQ(slice_bytes_per_token(DType::kFloat64), 24U);
  EXPECT_EQ(slice_bytes_per_token(DType::kFloat32, StatsRequest{.top_k = 5}), 16U + 5 * 12);
  EXPECT_EQ(slice_bytes_per_token(DType::kFloat64, StatsRequest{.top_k = 1}), 24U + 16);
  CrossEntropy options;
  options.label_smoothing = 0.1;
  options.want_accuracy = true;
  EXPECT_EQ(slice_bytes_per_token(DType::kFloat32, options), 40U);
  const FromHidden source = slice_of(1);
  const Batch batch;
  EXPECT_EQ(
      cross_entropy_slice(Context(context_of(source)), source.states(), source.head(), batch.targets(), options).size(),
      40U * kTokens);
}

TEST(Slices, AreRefusedWhereTheyFitNothing) {
  const Batch batch;
  const FromHidden source = slice_of(1);
  const auto refused = [&](const std::function<void(ContextOptions&)>& edit, const StatsRequest& request = {}) {
    ContextOptions options = context_of(source);
    edit(options);
    try {
      compute_token_stats(Context(options), source.states(), source.head(), batch.targets(), {}, request);
    } catch (const InvalidInput& error) {
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  const std::vector<std::byte> odd(17 * kTokens);
  EXPECT_EQ(refused([](ContextOptions&) {}),
            "ranks.slice.gathered is empty: a call needs the statistics of all slices");
  EXPECT_EQ(refused([&](ContextOptions& o) { o.ranks.slice->gathered = odd; }),
            "ranks.slice.gathered has 340 bytes, which is not a multiple of the 320 of a slice");
  EXPECT_NE(refused([](ContextOptions& o) { o.ranks.slice->first = 62; }).find("which is not within"),
            std::string::npos);
  EXPECT_NE(refused([](ContextOptions& o) { o.ranks.slice->first = -1; }).find("which is not within"),
            std::string::npos);
  EXPECT_NE(refused([](ContextOptions& o) { o.ranks.slice->vocab_size = 39; }).find("which is not within"),
            std::string::npos);
  EXPECT_NE(refused([](ContextOptions& o) { o.ranks.slices = {40}; }).find("set together with"), std::string::npos);
  EXPECT_NE(refused([](ContextOptions&) {}, {.rank = true}).find("rank is requested"), std::string::npos);
  // What is gathered is of one model.
  const std::vector<std::byte> gathered(3 * 320);
  Reference model;
  model.hidden = source.states();
  model.head = source.head();
  expect_invalid_input({"reference.hidden and ranks.slice are both set"}, [&] {
    kto_loss(Context(context_of(source, gathered)), source.states(), source.head(), batch.kto(model));
  });
  EXPECT_THROW(token_stats_slice(Context(), source.states(), source.head(), batch.targets()), InvalidInput);
}

}  // namespace slices_test
}  // namespace logitless::testing

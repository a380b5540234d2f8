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

Logits logits_at(const FromHidden& source) { return logits_of(source.states(), source.head()); }

// `folded` is the task whose slices are gathered. `run` returns the results of a call with gradients as
// bytes.
template <class Folded, class Run>
void expect_bits_of_one_process(const char* name, const Folded& folded, const Run& run) {
  SCOPED_TRACE(name);
  ContextOptions of_one = tiles(PlanKind::kTwoPass);
  of_one.ranks.slices = kSlices;
  FromHidden::Outputs one, all;
  const std::vector<std::byte> expected = run(Context(of_one), FromHidden(), one.views());

  std::vector<std::byte> gathered;
  for (size_t s = 0; s < kSlices.size(); ++s) {
    const FromHidden source = slice_of(s);
    const std::vector<std::byte> mine = fold_slice(Context(context_of(source)), logits_at(source), folded);
    ASSERT_FALSE(mine.empty());
    gathered.insert(gathered.end(), mine.begin(), mine.end());
  }
  std::vector<float> d_hidden(static_cast<size_t>(kTokens * kHidden), 0.0F);
  for (size_t s = 0; s < kSlices.size(); ++s) {
    const FromHidden source = slice_of(s);
    FromHidden::Outputs mine;
    EXPECT_EQ(run(Context(context_of(source, gathered)), source, mine.views(source.first_entry, source.entries)),
              expected)
        << "slice " << s;
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
  const double loss = loss_of_slice(0, kVocab, logits_at(source), CrossEntropy{.targets = batch.targets()},
                                    gradients_of(outputs.views(), source.states(), source.head()),
                                    [](const std::vector<std::byte>& mine) { return mine; });
  EXPECT_NEAR(loss, cross_entropy(two_pass, source.states(), source.head(), batch.targets(), {}, one.views()).loss,
              1e-6);
  for (size_t i = 0; i < one.values().size(); ++i) EXPECT_NEAR(outputs.values()[i], one.values()[i], 1e-6);
}

TEST(Slices, HaveTheBitsOfOneProcess) {
  const Batch batch;
  std::vector<float> weights(static_cast<size_t>(kVocab));
  for (size_t v = 0; v < weights.size(); ++v) weights[v] = 0.5F + static_cast<float>(v % 7) / 8;
  const auto run_of = [](const auto& task) {
    return [&task](const Context& context, const FromHidden& source, const Gradients& gradients) {
      auto result = run(context, logits_at(source), task, gradients_of(gradients, source.states(), source.head()));
      result.plan = {};
      return bytes_of(result);
    };
  };
  CrossEntropy cross = {.targets = batch.targets(), .token = {.shift = 1, .temperature = 0.7}};
  cross.label_smoothing = 0.1;
  cross.z_loss = 0.01;
  cross.class_weights = weights;
  cross.want_accuracy = cross.want_entropy = true;
  expect_bits_of_one_process("cross_entropy", cross, run_of(cross));
  const StatsRequest request = {.entropy = true,
                                .cross = true,
                                .argmax = true,
                                .top_k = 30,
                                .cross_weights = weights,
                                .draws = 4,
                                .draw_seed = 9};
  expect_bits_of_one_process("token_stats", TokenStatistics{batch.targets(), {}, request},
                             [&](const Context& context, const FromHidden& source, const Gradients& gradients) {
                               const TokenStats stats = compute_token_stats(context, source.states(), source.head(),
                                                                            batch.targets(), {}, request);
                               backpropagate_token_grads(context, source.states(), source.head(), batch.targets(), {},
                                                         request, stats, batch.grads, gradients);
                               return bytes_of(stats);
                             });
  // Any other loss with the statistics of the request.
  PolicyLoss policy;
  policy.beta = 0.04;
  policy.entropy_bonus = 0.01;
  policy = with(policy, batch.policy_with_reference());
  expect_bits_of_one_process("policy_loss", TokenStatistics{batch.targets(), {}, {.entropy = true}}, run_of(policy));
}

TEST(Slices, SayWhatEachTokenTakes) {
  const auto bytes = [](DType dtype, const StatsRequest& request) {
    return slice_bytes_per_token(dtype, TokenStatistics{.request = request});
  };
  EXPECT_EQ(bytes(DType::kFloat32, {}), 16U);
  EXPECT_EQ(bytes(DType::kBFloat16, {.entropy = true}), 24U);
  EXPECT_EQ(bytes(DType::kFloat64, {}), 24U);
  EXPECT_EQ(bytes(DType::kFloat32, {.top_k = 5}), 16U + 5 * 12);
  EXPECT_EQ(bytes(DType::kFloat64, {.top_k = 1}), 24U + 16);
  const Batch batch;
  CrossEntropy task = {.targets = batch.targets()};
  task.label_smoothing = 0.1;
  task.want_accuracy = true;
  EXPECT_EQ(slice_bytes_per_token(DType::kFloat32, task), 40U);
  const FromHidden source = slice_of(1);
  EXPECT_EQ(fold_slice(Context(context_of(source)), logits_at(source), task).size(), 40U * kTokens);
}

TEST(Slices, AreRefusedWhereTheyFitNothing) {
  const Batch batch;
  const FromHidden source = slice_of(1);
  const auto expect_refused = [&](const char* words, const std::function<void(ContextOptions&)>& edit,
                                  const StatsRequest& request = {}) {
    ContextOptions options = context_of(source);
    edit(options);
    expect_invalid_input({words}, [&] {
      run(Context(options), logits_at(source), TokenStatistics{batch.targets(), {}, request});
    });
  };
  const std::vector<std::byte> odd(17 * kTokens), gathered(3 * 320);
  const auto nothing = [](ContextOptions&) {};
  expect_refused("ranks.slice.gathered is empty: a call needs the statistics of all slices", nothing);
  expect_refused("ranks.slice.gathered has 340 bytes, which is not a multiple of the 320 of a slice",
                 [&](ContextOptions& o) { o.ranks.slice->gathered = odd; });
  expect_refused("which is not within", [](ContextOptions& o) { o.ranks.slice->first = 62; });
  expect_refused("which is not within", [](ContextOptions& o) { o.ranks.slice->first = -1; });
  expect_refused("which is not within", [](ContextOptions& o) { o.ranks.slice->vocab_size = 39; });
  expect_refused("set together with", [](ContextOptions& o) { o.ranks.slices = {40}; });
  expect_refused("rank is requested", nothing, {.rank = true});
  // What is gathered is of one model.
  Reference model;
  model.hidden = source.states();
  model.head = source.head();
  expect_invalid_input({"reference.hidden and ranks.slice are both set"}, [&] {
    kto_loss(Context(context_of(source, gathered)), source.states(), source.head(), batch.kto(model));
  });
  EXPECT_THROW(fold_slice(Context(), logits_at(source), TokenStatistics{batch.targets()}), InvalidInput);
}

}  // namespace slices_test
}  // namespace logitless::testing

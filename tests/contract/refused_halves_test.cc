// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Refusals of forward() and backward(): an upstream gradient or statistics that do not belong to the call.
// Also outputs that do not fit the kind of logits.
#include <gtest/gtest.h>

#include <functional>
#include <initializer_list>
#include <limits>
#include <string>
#include <vector>

#include "logitless/logitless.h"
#include "support/refusal.h"

namespace logitless::testing {
namespace refused_halves_test {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// 6 tokens, 5 vocabulary entries, H = 4.
struct Small {
  std::vector<float> hidden = std::vector<float>(24, 0.5F), weight = std::vector<float>(20, 0.25F), finished;
  std::vector<float> written = std::vector<float>(80, 7);
  std::vector<int64_t> targets = {0, 1, 2, 3, 4, 0};
  Context context;

  Small() {
    for (int i = 0; i < 30; ++i) finished.push_back(0.1F * static_cast<float>(i % 7));
  }
  Logits logits() const { return Logits::of(view(hidden.data(), {6, 4}), view(weight.data(), {5, 4})); }
  Logits given() const { return Logits::given(view(finished.data(), {6, 5})); }
  logitless::Gradients gradients() {
    logitless::Gradients out;
    out.d_hidden = view(written.data(), {6, 4});
    out.d_weight = view(written.data() + 24, {5, 4});
    return out;
  }
  logitless::Gradients d_logits() {
    logitless::Gradients out;
    out.d_logits = view(written.data() + 44, {6, 5});
    return out;
  }
  ~Small() { EXPECT_EQ(written, std::vector<float>(80, 7)) << "an output was written"; }
};

// Expects the task's backward() to refuse the result of `forward()` after a change.
template <class Task>
struct Halves {
  Small& small;
  Task task;
  Forward<Task> left = forward(small.context, small.logits(), task);

  void expect_refused(const std::vector<std::string>& words, const Upstream& upstream,
                      const std::function<void(Forward<Task>&)>& change = {}) {
    Forward<Task> changed = left;
    if (change) change(changed);
    expect_invalid_input(words,
                         [&] { backward(small.context, small.logits(), task, changed, upstream, small.gradients()); });
  }
};

TEST(RefusedHalves, OfACrossEntropy) {
  Small small;
  Halves<CrossEntropy> one{small, {.targets = small.targets}};
  const std::vector<double> none, two = {1, 2}, six(6, 1.0);
  one.expect_refused({"upstream has 2 entries but must have 1"}, two);
  one.expect_refused({"upstream has 0 entries but must have 1"}, none);
  Halves<CrossEntropy> each{small, {.targets = small.targets, .reduction = Reduction::kNone}};
  each.expect_refused({"upstream has 2 entries but must have 6"}, two);
  for (const double bad : {kNaN, std::numeric_limits<double>::infinity()}) {
    one.expect_refused({"upstream = ", "finite"}, bad);
    one.expect_refused({"upstream = ", "finite"}, std::vector<double>{bad});
    std::vector<double> some = six;
    some[4] = bad;
    each.expect_refused({"upstream[4] = ", "finite"}, some);
  }
  each.task.z_loss = 0.1;  // its gradient needs lse
  each.expect_refused({"lse", "3", "6"}, six, [](auto& left) { left.stats.lse.resize(3); });
  each.expect_refused({"log_sum is not given", "6"}, six, [](auto& left) { left.stats.log_sum.clear(); });
  each.task.label_smoothing = 0.1;  // its loss needs the cross statistic
  each.expect_refused({"cross", "2", "6"}, six, [](auto& left) { left.stats.cross.assign(2, -1.0); });
}

TEST(RefusedHalves, OfSetsAndDivergences) {
  Small small;
  const std::vector<int64_t> ids = {4, 0, 1, 1, 2, 3}, offsets = {0, 1, 2, 3, 4, 5, 6};
  const std::vector<int64_t> more = {4, 0, 1, 1, 2, 3, 3}, other_offsets = {0, 1, 2, 3, 4, 5, 7};
  const std::vector<double> five(5, 1.0), seven(7, 1.0), two(2, 1.0);
  for (const NormaliseOver over : {NormaliseOver::kVocabulary, NormaliseOver::kSet}) {
    Halves<IdLogps> sets{small, {.sets = IdSets(ConstTensor(ids), offsets), .normalise_over = over}};
    sets.expect_refused({"upstream has 5 entries but the sets have 6"}, five);
    sets.expect_refused({"upstream must have one number"}, 1.0);
    sets.task.sets = IdSets(ConstTensor(more), other_offsets);
    sets.expect_refused({"forward.stats.logp", "7"}, seven);
  }
  Distillation task;
  task.teacher = small.logits();
  Halves<Distillation> distilled{small, task};
  distilled.expect_refused({"upstream has 2 entries but must have 1"}, two);
  distilled.expect_refused({"upstream = nan"}, kNaN);
  distilled.expect_refused({"stats.divergence has 5 entries but hidden has 6 rows"}, 1.0,
                           [](auto& left) { left.stats.divergence.mean.pop_back(); });
  expect_invalid_input({"teacher: "}, [&] { run(small.context, small.logits(), Distillation()); });
  ContextOptions slice;
  slice.ranks.slice = VocabSlice{};
  slice.ranks.slice->vocab_size = 5;
  expect_invalid_input({"a divergence is requested: it needs a second walk"},
                       [&] { run(Context(slice), small.logits(), task); });
}

TEST(RefusedHalves, OfStatistics) {
  Small small;
  Halves<TokenStatistics> with_targets{small, {.targets = small.targets}};
  TokenGrads grads;
  const auto refused = [&](std::vector<double> TokenGrads::*column, size_t entries, std::vector<std::string> words) {
    grads = {};
    (grads.*column).assign(entries, 1);
    with_targets.expect_refused(words, grads);
  };
  refused(&TokenGrads::logp, 2, {"logp", "2", "6"});
  refused(&TokenGrads::cross, 7, {"cross", "7", "6"});
  refused(&TokenGrads::entropy, 6, {"entropy"});  // it was not requested
  refused(&TokenGrads::divergence, 6, {"grads.divergence is given but the call has no teacher"});
  with_targets.expect_refused({"upstream is a number"}, 1.0);

  const TokenStatistics task = {.request = {.entropy = true}};
  const Forward<TokenStatistics> left = forward(small.context, small.given(), task);
  EXPECT_EQ(left.result.stats.entropy.size(), 6U);
  EXPECT_EQ(left.result.stats.logp, std::vector<double>(6, 0.0));
  grads = {};
  grads.entropy.assign(5, 1.0);
  expect_invalid_input({"entropy has 5 entries"},
                       [&] { backward(small.context, small.given(), task, left, grads, small.d_logits()); });
  expect_invalid_input({"gradients are requested from token_stats"},
                       [&] { run(small.context, small.given(), task, small.d_logits()); });
}

// run() takes both kinds of logits, and refuses outputs that belong to the other kind.
TEST(RefusedHalves, OutputsOfTheOtherKindOfLogits) {
  Small small;
  const CrossEntropy task = {.targets = small.targets};
  float number = 0;
  const auto refused = [&](const char* words, const std::function<void(logitless::Gradients&)>& change) {
    logitless::Gradients gradients = small.d_logits();
    change(gradients);
    expect_invalid_input({words}, [&] { run(small.context, small.given(), task, gradients); });
  };
  const auto sink = [](int64_t, int64_t, const ConstTensor&) { FAIL() << "called"; };
  refused("d_hidden is set", [&](logitless::Gradients& g) { g.d_hidden = view(&number, {1, 1}); });
  refused("d_weight is set", [&](logitless::Gradients& g) { g.d_weight = view(&number, {1, 1}); });
  refused("d_bias is set", [&](logitless::Gradients& g) { g.d_bias = view(&number, {1}); });
  refused("d_lora_a is set", [&](logitless::Gradients& g) { g.d_lora_a = view(&number, {1, 1}); });
  refused("d_lora_b is set", [&](logitless::Gradients& g) { g.d_lora_b = view(&number, {1, 1}); });
  refused("d_lora_states is set", [&](logitless::Gradients& g) { g.d_lora_states = view(&number, {1, 1}); });
  refused("weight_sink is set", [&](logitless::Gradients& g) { g.weight_sink = sink; });
  refused("backward.mode = sampled", [](logitless::Gradients& g) { g.backward.mode = BackwardMode::kSampled; });
  expect_invalid_input({"d_logits is set"}, [&] { run(small.context, small.logits(), task, small.d_logits()); });
  logitless::Gradients both = small.gradients();
  both.weight_sink = sink;
  expect_invalid_input({"d_weight and weight_sink are both set"},
                       [&] { run(small.context, small.logits(), task, both); });
}

// Rows in several chunks reach a sink, or a bfloat16 gradient, through sums of all entries: here 469 KiB.
TEST(RefusedHalves, OnePassWhoseSumsDoNotFit) {
  const std::vector<float> hidden(300 * 60, 0.01F), weight(2000 * 60, 0.01F);
  const std::vector<uint16_t> halves(2000 * 60);
  const std::vector<int64_t> targets(300, 7);
  std::vector<float> d_weight(2000 * 60);
  ContextOptions options;
  options.row_tile = 16, options.vocab_tile = 64, options.plan = PlanKind::kOnePass;
  options.workspace_bytes = size_t{400} << 10;
  const CrossEntropy task = {.targets = targets};
  const auto runs = [&](DType dtype, const logitless::Gradients& gradients) {
    const void* states = dtype == DType::kFloat32 ? static_cast<const void*>(hidden.data()) : halves.data();
    const void* head = dtype == DType::kFloat32 ? static_cast<const void*>(weight.data()) : halves.data();
    run(Context(options), Logits::of(ConstTensor(states, dtype, {300, 60}), ConstTensor(head, dtype, {2000, 60})), task,
        gradients);
  };
  logitless::Gradients whole, sink, rounded;
  whole.d_weight = view(d_weight.data(), {2000, 60});
  sink.weight_sink = [](int64_t, int64_t, const ConstTensor&) {};
  rounded.d_weight = Tensor(d_weight.data(), DType::kBFloat16, {2000, 60});
  EXPECT_NO_THROW(runs(DType::kFloat32, whole));
  EXPECT_THROW(runs(DType::kFloat32, sink), InvalidInput);
  EXPECT_THROW(runs(DType::kBFloat16, rounded), InvalidInput);
  options.plan = PlanKind::kAuto;
  EXPECT_NO_THROW(runs(DType::kBFloat16, rounded));
}

}  // namespace refused_halves_test
}  // namespace logitless::testing

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Refusals of forward() and backward(): an upstream gradient or statistics that do not belong to the call.
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

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN(), kInfinity = std::numeric_limits<double>::infinity();

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
  const std::vector<double> two = {1, 2}, six(6, 1.0);
  one.expect_refused({"upstream has 2 entries but must have 1"}, two);
  one.expect_refused({"upstream has 0 entries but must have 1"}, std::vector<double>());
  Halves<CrossEntropy> each{small, {.targets = small.targets, .reduction = Reduction::kNone}};
  each.expect_refused({"upstream has 2 entries but must have 6"}, two);
  one.expect_refused({"upstream = nan", "finite"}, kNaN);
  one.expect_refused({"upstream = nan", "finite"}, std::vector<double>{kNaN});
  each.expect_refused({"upstream[4] = inf", "finite"}, std::vector<double>{1, 1, 1, 1, kInfinity, 1});
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
  for (const NormaliseOver over : {NormaliseOver::kVocabulary, NormaliseOver::kSet}) {
    Halves<IdLogps> sets{small, {.sets = IdSets(ConstTensor(ids), offsets), .normalise_over = over}};
    sets.expect_refused({"upstream must have one number"}, 1.0);
    sets.task.sets = IdSets(ConstTensor(more), other_offsets);
    sets.expect_refused({"forward.stats.logp", "7"}, std::vector<double>(7));
  }
  Distillation task;
  task.teacher = small.logits();
  Halves<Distillation> distilled{small, task};
  distilled.expect_refused({"upstream has 2 entries but must have 1"}, std::vector<double>(2));
  distilled.expect_refused({"stats.divergence has 5 entries but hidden has 6 rows"}, 1.0,
                           [](auto& left) { left.stats.divergence.mean.pop_back(); });
  ContextOptions slice;
  slice.ranks.slice = VocabSlice{};
  slice.ranks.slice->vocab_size = 5;
  expect_invalid_input({"a divergence is requested: it needs a second walk"},
                       [&] { run(Context(slice), small.logits(), task); });
}

TEST(RefusedHalves, OfStatistics) {
  Small small;
  Halves<TokenStatistics> statistics{small, {.targets = small.targets}};
  statistics.expect_refused({"upstream is a number"}, 1.0);
  expect_invalid_input({"gradients are requested from token_stats"},
                       [&] { run(small.context, small.given(), statistics.task, small.d_logits()); });
}

TEST(RefusedHalves, ASinkThatHasNoPlace) {
  Small small;
  const CrossEntropy task = {.targets = small.targets};
  logitless::Gradients finished = small.d_logits(), both = small.gradients();
  finished.weight_sink = both.weight_sink = [](int64_t, int64_t, const ConstTensor&) { FAIL() << "called"; };
  expect_invalid_input({"weight_sink is set"}, [&] { run(small.context, small.given(), task, finished); });
  expect_invalid_input({"d_weight and weight_sink are both set"},
                       [&] { run(small.context, small.logits(), task, both); });
}

}  // namespace refused_halves_test
}  // namespace logitless::testing

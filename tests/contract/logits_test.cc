// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Calls on finished logits: the same bits for every plan and team, budgets, non-finite rows, messages.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "logitless/logitless.h"
#include "support/every_task.h"
#include "support/refusal.h"

namespace logitless::testing {
namespace logits_test {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// A call with 23 rows of 150 logits, and all its results.
struct RowsOfLogits {
  std::vector<float> logits = normal(23 * 150, 3), out = logits;
  std::vector<int64_t> targets;
  ContextOptions options = {.threads = 2, .vocab_tile = 64, .row_block = 5};
  bool in_place = false;
  Plan plan, planned;

  RowsOfLogits() {
    for (int64_t i = 0; i < 23; ++i) targets.push_back(i * 37 % 150);
  }
  std::vector<std::byte> bytes() {
    out = logits;
    CrossEntropy task;
    task.label_smoothing = 0.1;
    task.targets = targets;
    const Logits given = Logits::given(view((in_place ? out : logits).data(), {23, 150}));
    const logitless::Gradients gradients = {.d_logits = view(out.data(), {23, 150})};
    planned = logitless::plan(Context(options), given, task, gradients);
    CrossEntropyResult result = run(Context(options), given, task, gradients);
    plan = std::exchange(result.plan, {});
    std::vector<std::byte> all = bytes_of(result);
    const auto more = std::as_bytes(std::span(out));
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
};

// The bits of a row do not depend on the other rows of its block, the block's size, or the place of the
// gradient.
TEST(Logits, TheSameBitsForEveryRowTileAndInPlace) {
  RowsOfLogits call;
  const std::vector<std::byte> bytes = call.bytes();
  for (const int64_t rows : {0, 1, 2, 23, 100}) {
    call.options.row_block = rows;
    for (const bool in_place : {false, true}) {
      call.in_place = in_place;
      for (const PlanKind plan : {PlanKind::kAuto, PlanKind::kOnePass, PlanKind::kTwoPass}) {
        call.options.plan = plan;
        EXPECT_TRUE(call.bytes() == bytes) << rows;
      }
    }
  }
}

// The smallest accepted budget is the need of one thread, whatever the team. It gives the same bits; one byte
// less is refused with a message that names it.
TEST(Logits, ASmallBudgetTakesFewerThreads) {
  for (const PlanKind kind : {PlanKind::kOnePass, PlanKind::kTwoPass}) {
    RowsOfLogits call;
    call.options.plan = kind;
    call.options.row_block = 2;
    call.options.threads = 1;
    const std::vector<std::byte> bytes = call.bytes();
    const size_t one = call.plan.workspace_bytes;
    call.options.threads = 3;
    EXPECT_TRUE(call.bytes() == bytes);
    EXPECT_EQ(call.plan.threads, 3);
    const size_t three = call.plan.workspace_bytes;
    for (const int threads : {1, 2, 3, 7}) {
      call.options.threads = threads;
      call.options.workspace_bytes = one;
      EXPECT_TRUE(call.bytes() == bytes) << threads << " threads";
      EXPECT_EQ(call.plan.threads, 1);
      EXPECT_EQ(call.plan.workspace_bytes, one);
      EXPECT_EQ(call.planned.least_workspace_bytes, one);
      call.options.workspace_bytes = one - 1;
      expect_invalid_input({"workspace_bytes = " + std::to_string(one - 1), "64 vocabulary entries of a row",
                            "needs at least " + std::to_string(one) + " bytes"},
                           [&] { call.bytes(); });
    }
    // A budget between the needs of one and three threads uses two.
    call.options.threads = 3;
    call.options.workspace_bytes = three - 1;
    EXPECT_TRUE(call.bytes() == bytes);
    EXPECT_EQ(call.plan.threads, 2);
  }
}

// A row with NaN, or with one +inf, affects only its own results.
TEST(Logits, NonFiniteRowsTouchOnlyThemselves) {
  constexpr int64_t kRows = 9, kEntries = 70, kBad = 4;
  const std::vector<int64_t> targets(kRows, 5);
  for (const std::string& target : simd_targets()) {
    const Context context({.vocab_tile = 32, .row_block = 4, .simd_target = target});
    std::vector<float> logits(kRows * kEntries), clean(logits.size()), spoiled(logits.size());
    for (size_t i = 0; i < logits.size(); ++i) logits[i] = std::sin(static_cast<float>(i));
    const auto losses = [&](std::vector<float>& out) {
      return run(context, Logits::given(view(logits.data(), {kRows, kEntries})),
                 CrossEntropy{.targets = targets, .reduction = Reduction::kSum},
                 {.d_logits = view(out.data(), {kRows, kEntries})})
          .per_token_loss;
    };
    const std::vector<double> good = losses(clean);
    for (const double bad : {kNaN, kInfinity}) {
      for (const int64_t at : {0, 31, 32, 69}) {
        const float before = std::exchange(logits[kBad * kEntries + at], static_cast<float>(bad));
        const std::vector<double> got = losses(spoiled);
        logits[kBad * kEntries + at] = before;
        for (size_t i = 0; i < kRows; ++i) EXPECT_TRUE(i == kBad ? std::isnan(got[i]) : got[i] == good[i]) << target;
        for (size_t k = 0; k < clean.size(); ++k) {
          ASSERT_TRUE(k / kEntries == kBad ? std::isnan(spoiled[k]) : spoiled[k] == clean[k]) << target << " " << k;
        }
      }
    }
  }
}

// A row whose token gradients are zero is not read; its gradient is 0 whatever the row holds.
TEST(Logits, ARowWithoutUpstreamHasNoGradient) {
  std::vector<float> numbers(3 * 40, 0.5F), out(numbers.size(), 7);
  numbers[45] = static_cast<float>(kNaN);
  const Logits logits = Logits::given(view(numbers.data(), {3, 40}));
  const TokenStatistics task = {.request = {.entropy = true}};
  const Forward<TokenStatistics> left = forward(Context(), logits, task);
  TokenGrads grads;
  grads.entropy = {1, 0, -1};
  backward(Context(), logits, task, left, grads, {.d_logits = view(out.data(), {3, 40})});
  EXPECT_TRUE(std::isnan(left.result.stats.entropy[1]));
  EXPECT_NEAR(left.result.stats.entropy[0], std::log(40.0), 1e-6);
  for (size_t v = 40; v < 80; ++v) EXPECT_EQ(out[v], 0);
}

TEST(Logits, OffsetsArePackedSequences) {
  const std::vector<float> logits(12 * 50, 0.5F);
  const std::vector<int64_t> ids(12, 3), offsets = {0, 5, 5, 12}, few = {0, 5};
  CrossEntropy task;
  task.targets = view(ids.data(), {12});
  expect_invalid_input({"offsets[1] = 5 must be the number of rows of logits, 12"}, [&] {
    run(Context(), {.offsets = few, .finished = view(logits.data(), {12, 50})}, task);
  });
  expect_invalid_input({"offsets is given, but logits is [B, T, V]"}, [&] {
    run(Context(), {.offsets = offsets, .finished = view(logits.data(), {3, 4, 50})}, task);
  });
}

}  // namespace logits_test
}  // namespace logitless::testing

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Calls on finished logits: their bits, budgets, non-finite rows, and messages.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "support/calls.h"
#include "support/every_task.h"
#include "support/refusal.h"
#include "support/views.h"

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
    const FinishedLogits given((in_place ? out : logits).data(), 1, 23, 150);
    const LogitsGradient gradient(out.data(), 1, 23, 150);
    planned = cross_entropy.plan(Context(options), given, Targets(std::span(targets)), task, gradient);
    CrossEntropyResult result = cross_entropy(Context(options), given, Targets(std::span(targets)), task, gradient);
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
  const int64_t rows = 9, vocab = 70;
  for (const std::string& target : simd_targets()) {
    for (const double bad : {kNaN, kInfinity}) {
      for (const int64_t at : {0, 31, 32, 69}) {
        std::vector<float> logits(rows * vocab), clean(rows * vocab), spoiled(rows * vocab);
        for (size_t i = 0; i < logits.size(); ++i) logits[i] = std::sin(static_cast<float>(i));
        const std::vector<int64_t> targets(rows, 5);
        ContextOptions options;
        options.simd_target = target;
        options.vocab_tile = 32;
        options.row_block = 4;
        const auto call = [&](std::vector<float>& out) {
          return cross_entropy(Context(options), FinishedLogits(logits.data(), 1, rows, vocab),
                               Targets(std::span(targets)), {}, LogitsGradient(out.data(), 1, rows, vocab));
        };
        const auto good = call(clean);
        logits[4 * vocab + at] = static_cast<float>(bad);
        const auto result = call(spoiled);
        EXPECT_TRUE(std::isnan(result.loss));
        for (int64_t i = 0; i < rows; ++i) {
          const auto k = static_cast<size_t>(i);
          EXPECT_TRUE(i == 4 ? std::isnan(result.per_token_loss[k])
                             : result.per_token_loss[k] == good.per_token_loss[k]);
          for (int64_t v = 0; v < vocab; ++v) {
            const float got = spoiled[i * vocab + v];
            ASSERT_TRUE(i == 4 ? std::isnan(got) : got == clean[i * vocab + v]) << target << " " << i << " " << v;
          }
        }
      }
    }
  }
}

class Thrower final : public TokenLoss {
 public:
  StatsRequest needs() const override { return {}; }
  GradsFilled gradients() const override { return {}; }
  void evaluate(std::span<const int64_t> rows, const TokenStats&, TokenGrads&) override {
    if (rows.back() >= 20) throw std::runtime_error("from the loss");
  }
};

// Gradients in a separate call are refused under one_pass, for finished logits as for hidden states, and
// nothing is written.
TEST(Logits, GradientsOfTheirOwnCannotRunInOneSweep) {
  const std::vector<float> logits(6 * 30, 1.0f);
  std::vector<float> out(logits.size(), 7.0f);
  const std::vector<int64_t> targets(6, 5);
  ContextOptions options;
  const FinishedLogits view(logits.data(), 1, 6, 30);
  const LogitsGradient gradient(out.data(), 1, 6, 30);
  const TokenStats stats = compute_token_stats(Context(options), view, Targets(std::span(targets)));
  const auto backward = [&] {
    TokenGrads grads;
    grads.logp.assign(6, 1.0);
    Plan plan;
    backpropagate_token_grads(Context(options), view, Targets(std::span(targets)), {}, {}, stats, grads, gradient,
                              &plan);
    return plan;
  };
  EXPECT_EQ(backward().kind, PlanKind::kTwoPass);
  out.assign(out.size(), 7.0f);
  options.plan = PlanKind::kOnePass;
  expect_invalid_input({"plan = one_pass cannot run: backward() comes after the forward pass"}, [&] { backward(); });
  EXPECT_EQ(out, std::vector<float>(out.size(), 7.0f));
}

TEST(Logits, WhatALossThrowsReachesTheCaller) {
  const std::vector<float> logits(40 * 30, 1.0f);
  std::vector<float> out(logits.size());
  const std::vector<int64_t> targets(40, 5);
  ContextOptions options;
  options.row_block = 4;
  for (const int threads : {1, 3}) {
    options.threads = threads;
    Thrower loss;
    EXPECT_THROW(run_token_loss(Context(options), FinishedLogits(logits.data(), 1, 40, 30), Targets(std::span(targets)),
                                {}, loss, LogitsGradient(out.data(), 1, 40, 30)),
                 std::runtime_error);
  }
}

// A row whose token gradients are zero is not read; its gradient is 0 whatever the row holds.
TEST(Logits, ARowWithoutUpstreamHasNoGradient) {
  std::vector<float> logits(3 * 40, 0.5f), out(logits.size(), 7.0f);
  logits[45] = static_cast<float>(kNaN);
  const std::vector<double> upstream = {1, 0, -1};
  const auto entropy = entropy_from_logits(Context(), FinishedLogits(logits.data(), 1, 3, 40), {}, upstream,
                                           LogitsGradient(out.data(), 1, 3, 40));
  EXPECT_TRUE(std::isnan(entropy[1]));
  EXPECT_NEAR(entropy[0], std::log(40.0), 1e-6);
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

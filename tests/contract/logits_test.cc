// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The calls of logits.h against the fp64 oracle: values, strides, tiles, memory, threads, instruction sets.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "support/calls.h"
#include "support/guard_pages.h"
#include "support/logits_tester.h"
#include "support/policy_tester.h"
#include "support/refusal.h"
#include "support/views.h"

namespace logitless::testing {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Each row alone: neither the other rows of its block, nor its block's size, nor where the gradient goes
// decides about a bit.
TEST(Logits, TheSameBitsForEveryRowTileAndInPlace) {
  LogitsTester tester = small().tokens(23).label_smoothing(0.1);
  const auto bytes = tester.tiles(1, 64).cross_entropy_once().bytes;
  for (const int64_t rows : {0, 2, 5, 23, 100}) {
    EXPECT_TRUE(tester.tiles(rows, 64).in_place(false).cross_entropy_once().bytes == bytes);
    EXPECT_TRUE(tester.in_place().cross_entropy_once().bytes == bytes);
  }
  for (const PlanKind plan : {PlanKind::kOnePass, PlanKind::kTwoPass}) {
    EXPECT_TRUE(tester.plan(plan).cross_entropy_once().bytes == bytes);
  }
}

// The least budget is that of one thread, whatever the team: it is accepted and leaves the same bits, and one
// byte less is refused with a message that names it.
TEST(Logits, ASmallBudgetTakesFewerThreads) {
  for (const DType dtype : kDTypes) {
    for (const PlanKind kind : {PlanKind::kOnePass, PlanKind::kTwoPass}) {
      LogitsTester tester = small().dtype(dtype).plan(kind).tiles(2, 64).threads(3);
      const LogitsRun roomy = tester.cross_entropy_once();
      EXPECT_EQ(roomy.result.plan.threads, 3);
      const size_t one = LogitsTester(tester).threads(1).cross_entropy_once().result.plan.workspace_bytes;
      for (const int threads : {1, 2, 3, 7}) {
        tester.threads(threads).workspace(one);
        const LogitsRun tight = tester.cross_entropy_once();
        EXPECT_EQ(tight.result.plan.threads, 1);
        EXPECT_EQ(tight.result.plan.workspace_bytes, one);
        EXPECT_EQ(tester.planned().least_workspace_bytes, one);
        EXPECT_TRUE(tight.bytes == roomy.bytes) << threads << " threads";
        expect_invalid_input({"workspace_bytes = " + std::to_string(one - 1), "64 vocabulary entries of a row",
                              "needs at least " + std::to_string(one) + " bytes"},
                             [&] { tester.workspace(one - 1).cross_entropy_once(); });
      }
      // What lies between takes the threads that it holds.
      const LogitsRun middle = tester.workspace(roomy.result.plan.workspace_bytes - 1).threads(3).cross_entropy_once();
      EXPECT_EQ(middle.result.plan.threads, 2);
      EXPECT_TRUE(middle.bytes == roomy.bytes);
    }
  }
}

// A row of NaN, or with one +inf, reaches its own results and no other row's.
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

TEST(Logits, ACoupledLossCannotRunInOneSweep) {
  expect_invalid_input({"plan = one_pass cannot run"},
                       [] { small().groups().plan(PlanKind::kOnePass).token_loss_once(); });
}

// Gradients in a call of their own are refused under one_pass from logits as they are from hidden states, and
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
  expect_invalid_input({"plan = one_pass cannot run: gradients that come after the forward pass"}, [&] { backward(); });
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

// A row whose token gradients are zero is not read for its gradient, which is 0 whatever the row holds.
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

TEST(Logits, PackedSequencesAreThoseOfCallsOfTheirOwn) {
  constexpr int64_t kRows = 12, kVocab = 50;
  const std::vector<int64_t> offsets = {0, 5, 5, 12};
  std::vector<float> logits, packed(kRows * kVocab, 9.0F), apart = packed;
  for (int64_t i = 0; i < kRows * kVocab; ++i) logits.push_back(static_cast<float>(i * 37 % 101) / 20);
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < kRows; ++i) ids.push_back(i * 7 % kVocab);
  CrossEntropy task;
  task.token.shift = 1;
  task.reduction = Reduction::kSum;
  const auto loss_of = [&](const std::vector<int64_t>& sequences, int64_t first, int64_t count, float* out) {
    task.targets = view(&ids[static_cast<size_t>(first)], {count});
    const Logits given = {.offsets = sequences,
                          .finished = view(&logits[static_cast<size_t>(first * kVocab)], {count, kVocab})};
    return run(Context(), given, task, {.d_logits = view(out + first * kVocab, {count, kVocab})}).loss;
  };
  const double loss = loss_of(offsets, 0, kRows, packed.data());
  EXPECT_NEAR(loss, loss_of({}, 0, 5, apart.data()) + loss_of({}, 5, 7, apart.data()), 1e-12 * loss);
  EXPECT_EQ(packed, apart);
  const std::vector<float> before = packed;
  expect_invalid_input({"offsets[1] = 5 must be the number of rows of logits, 12"}, [&] {
    loss_of({0, 5}, 0, kRows, packed.data());
  });
  const Logits batched = {.offsets = offsets, .finished = view(logits.data(), {3, 4, kVocab})};
  expect_invalid_input({"offsets is given, but logits is [B, T, V]"}, [&] { run(Context(), batched, task); });
  EXPECT_EQ(packed, before);
}

}  // namespace
}  // namespace logitless::testing

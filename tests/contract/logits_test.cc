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

constexpr DType kDTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64};
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// 37 rows of 150 vocabulary entries: tiles that divide neither.
LogitsTester small() { return LogitsTester().tiles(5, 64).threads(2); }

void matches_oracle_in_both_places(LogitsTester tester) {
  tester.in_place(false).matches_oracle();
  tester.gradient_dtype(tester.spec().dtype).matches_oracle();
  tester.in_place().matches_oracle();
}

TEST(Logits, EveryTypeInPlaceAndApart) {
  for (const DType dtype : kDTypes) {
    matches_oracle_in_both_places(small().dtype(dtype));
    matches_oracle_in_both_places(small().dtype(dtype).tokens(36).batch(4).ignored(0.25).shift());
    small().dtype(dtype).without_gradient().ignored(0.25).matches_oracle();
  }
}

TEST(Logits, StridedSlices) {
  for (const DType dtype : kDTypes) {
    // logits[:, :-1, :], rows with something behind them, and [T, B, V] transposed.
    for (const int64_t later : {0, 1, 3}) {
      for (const int64_t padding : {0, 1, 16}) {
        LogitsTester tester = small().dtype(dtype).tokens(24).batch(3).later(later).padding(padding).ignored(0.2);
        matches_oracle_in_both_places(tester);
        matches_oracle_in_both_places(tester.time_first());
      }
    }
  }
}

TEST(Logits, VocabulariesAroundTileEdges) {
  for (const int64_t vocab : {1, 2, 63, 64, 65, 128, 3 * 64 + 7}) {
    for (const DType dtype : kDTypes) {
      matches_oracle_in_both_places(small().vocab(vocab).dtype(dtype).label_smoothing(0.1).metrics());
    }
  }
  for (const int64_t vocab : {2047, 2048, 2049, 3 * 2048 + 7}) {
    matches_oracle_in_both_places(LogitsTester().tokens(11).vocab(vocab).metrics());
  }
}

TEST(Logits, TilesThatDivideNothing) {
  for (const auto& [rows, entries] :
       std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {3, 7}, {36, 149}, {37, 150}, {38, 151}, {512, 65536}}) {
    matches_oracle_in_both_places(small().tiles(rows, entries).ignored(0.3).class_weights().label_smoothing(0.1));
  }
}

TEST(Logits, RowsAroundRowTileEdges) {
  for (const int64_t tokens : {1, 4, 5, 6, 9, 10, 11}) {
    for (const double ignored : {0.0, 0.4, 1.0}) small().tokens(tokens).ignored(ignored).matches_oracle();
  }
}

// Losses of 12 rows of 41 vocabulary entries are local to a token, coupled by sequence, or coupled by the
// batch.
std::vector<PolicyTester> policy_losses() {
  PolicyTester tester = PolicyTester().from_logits().padded(3, 4).vocab(41).tiles(5, 16).threads(2);
  std::vector<PolicyTester> testers(4, tester.loss_type(PolicyLossType::kGrpo));
  testers[1].loss_type(PolicyLossType::kCispo).twist("beta with k3").twist("entropy bonus");
  testers[2].loss_type(PolicyLossType::kRloo).twist("sequence_truncate clip_max");
  testers[3].loss_type(PolicyLossType::kBnpo).twist("top entropy quantile").twist("advantages per token");
  return testers;
}

TEST(Logits, PolicyLosses) {
  for (PolicyTester& tester : policy_losses()) {
    for (const DType dtype : kDTypes) {
      tester.dtype(dtype).gradient_dtype(std::nullopt).padding(3).temperature(0.8).matches_oracle();
      tester.gradient_dtype(dtype).padding(0).temperatures().matches_oracle();
      tester.temperatures(false);
    }
    tester.dtype(DType::kFloat32).gradient_dtype(std::nullopt);
    for (const auto& [rows, entries] :
         std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {7, 23}, {12, 41}, {100, 100}}) {
      tester.tiles(rows, entries).matches_oracle();
    }
    tester.ignored(1).matches_oracle();
  }
}

struct Option {
  const char* name;
  std::function<void(LogitsTester&)> set;
};

const std::vector<Option>& options() {
  static const std::vector<Option> all = {
      {"near-uniform logits", [](auto& t) { t.uniform_logits(); }},
      {"temperature below 1", [](auto& t) { t.temperature(0.4); }},
      {"temperature of each token", [](auto& t) { t.temperatures().ignored(0.2); }},
      {"temperature of logp", [](auto& t) { t.temperature(2.5).temperature_meaning(TemperatureMeaning::kScaleLogp); }},
      {"temperature of each logp",
       [](auto& t) { t.temperatures().temperature_meaning(TemperatureMeaning::kScaleLogp).z_loss(0.01); }},
      {"label smoothing", [](auto& t) { t.label_smoothing(0.1); }},
      {"label smoothing of 1", [](auto& t) { t.label_smoothing(1); }},
      {"z-loss", [](auto& t) { t.z_loss(0.003); }},
      {"class weights", [](auto& t) { t.class_weights(); }},
      {"class weights and smoothing", [](auto& t) { t.class_weights().label_smoothing(0.2).z_loss(0.01); }},
      {"sum", [](auto& t) { t.reduction(Reduction::kSum).loss_scale(0.5); }},
      {"none", [](auto& t) { t.reduction(Reduction::kNone).z_loss(0.01).class_weights(); }},
      {"num_items_in_batch", [](auto& t) { t.num_items_in_batch(123.5).class_weights().z_loss(0.01); }},
      {"negative loss scale", [](auto& t) { t.loss_scale(-8).metrics(); }},
      {"half ignored", [](auto& t) { t.ignored(0.5).metrics(); }},
      {"shift in a batch", [](auto& t) { t.tokens(36).batch(4).shift().ignored(0.2); }},
      {"int32 targets", [](auto& t) { t.targets32().ignored(0.2); }},
      {"targets at tile edges",
       [](auto& t) {
         t.targets({0, 63, 64, 127, 128, 149});
       }},
      {"masked vocabulary entries", [](auto& t) { t.masked(60, 70); }},
      {"a masked tile", [](auto& t) { t.masked(0, 64); }},
      {"rounded to bfloat16", [](auto& t) { t.round_to(DType::kBFloat16).temperature(0.7); }},
      {"rounded to float16", [](auto& t) { t.round_to(DType::kFloat16).label_smoothing(0.1); }},
      {"groups", [](auto& t) { t.groups().ignored(0.3); }},
  };
  return all;
}

TEST(Logits, EveryOptionAndType) {
  for (const Option& option : options()) {
    SCOPED_TRACE(option.name);
    for (const DType dtype : kDTypes) {
      LogitsTester tester = small().dtype(dtype);
      option.set(tester);
      matches_oracle_in_both_places(tester);
    }
  }
}

TEST(Logits, TheTwoHalves) {
  for (const Option& option : options()) {
    SCOPED_TRACE(option.name);
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
      LogitsTester tester = small().dtype(dtype).form(Form::kSplit).upstream();
      option.set(tester);
      for (const bool in_place : {false, true}) {
        tester.in_place(in_place).cross_entropy_matches_oracle();
        tester.token_loss_matches_oracle();
      }
    }
  }
  for (const DType dtype : kDTypes) {
    LogitsTester tester = small().form(Form::kSplit).dtype(dtype).gradient_dtype(dtype).tokens(24).batch(3);
    tester.later(1).padding(3).ignored(0.2).shift().cross_entropy_matches_oracle();
    tester.time_first().token_loss_matches_oracle();
    tester.without_gradient().cross_entropy_matches_oracle();
    tester.tokens(0).without_gradient(false).cross_entropy_matches_oracle();
  }
}

TEST(Logits, EveryOptionOnEveryInstructionSet) {
  for (const Option& option : options()) {
    SCOPED_TRACE(option.name);
    for (const std::string& target : simd_targets()) {
      for (const DType dtype : {DType::kFloat32, DType::kFloat16}) {
        LogitsTester tester = small().dtype(dtype).simd_target(target);
        option.set(tester);
        tester.matches_oracle();
      }
    }
  }
}

TEST(Logits, EmptyBatch) {
  for (const DType dtype : kDTypes) matches_oracle_in_both_places(small().tokens(0).dtype(dtype).metrics());
  matches_oracle_in_both_places(small().tokens(0).batch(3));
}

TEST(Logits, TheSameBitsForEveryNumberOfThreads) {
  for (const DType dtype : kDTypes) {
    for (const bool groups : {false, true}) {
      LogitsTester tester = small().dtype(dtype).tokens(131).vocab(517).ignored(0.2).groups(groups);
      tester.label_smoothing(0.1).z_loss(0.01);
      for (const int64_t rows : {0, 1, 7}) {
        tester.tiles(rows, 96).threads(1);
        const auto cross_entropy = tester.cross_entropy_once().bytes;
        const auto token_loss = tester.token_loss_once().bytes;
        for (const int threads : {1, 2, 3, 7}) {
          tester.threads(threads);
          EXPECT_TRUE(tester.cross_entropy_once().bytes == cross_entropy) << threads << " threads";
          EXPECT_TRUE(tester.token_loss_once().bytes == token_loss) << threads << " threads";
        }
      }
    }
  }
}

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

TEST(Logits, GuardPages) {
  for (const Flush flush : {Flush::kEnd, Flush::kBegin}) {
    SCOPED_TRACE(flush == Flush::kEnd ? "flush with the end" : "flush with the beginning");
    const auto memory = [flush](size_t bytes) { return guarded_memory(bytes, flush); };
    for (const DType dtype : kDTypes) {
      for (const std::string& target : simd_targets()) {
        LogitsTester tester = LogitsTester().memory(memory).dtype(dtype).simd_target(target).threads(2);
        tester.class_weights().label_smoothing(0.1).temperatures().ignored(0.2);
        for (const auto& [tokens, vocab, entries] :
             std::vector<std::array<int64_t, 3>>{{1, 1, 0}, {3, 37, 7}, {7, 65, 64}, {5, 63, 64}, {2, 150, 0}}) {
          matches_oracle_in_both_places(tester.tokens(tokens).vocab(vocab).tiles(2, entries));
        }
        matches_oracle_in_both_places(tester.tokens(6).batch(2).vocab(33).later(1).padding(5));
      }
    }
  }
}

// The batch's vectors, temperatures and mask stand there, too.
TEST(Logits, PolicyLossesOnGuardPages) {
  for (const Flush flush : {Flush::kEnd, Flush::kBegin}) {
    SCOPED_TRACE(flush == Flush::kEnd ? "flush with the end" : "flush with the beginning");
    for (PolicyTester& tester : policy_losses()) {
      tester.memory([flush](size_t bytes) { return guarded_memory(bytes, flush); }).temperatures();
      tester.padding(flush == Flush::kEnd ? 0 : 3);
      for (const DType dtype : kDTypes) {
        tester.dtype(dtype).batch_dtype(dtype).gradient_dtype(dtype).threads(1);
        for (const std::string& target : simd_targets()) tester.simd_target(target).tiles(5, 17).matches_oracle();
        tester.tiles(1, 1).matches_oracle();
        tester.tiles(7, 0).threads(2).matches_oracle();
      }
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

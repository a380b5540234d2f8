// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The largest logits with all ties, on whole-numbered hidden states and heads, whose logits are exact in
// every GEMM; and the functions on these lists.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "logitless/logitless.h"
#include "support/calls.h"
#include "support/refusal.h"
#include "support/views.h"

namespace logitless::testing {
namespace top_k_test {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr int64_t kHidden = 5;

// Logits are sums of products from -4 to 4, with many ties.
struct WholeModel {
  int64_t tokens, vocab;
  std::vector<float> states, weight;
  std::vector<int64_t> targets;

  WholeModel(int64_t tokens_, int64_t vocab_) : tokens(tokens_), vocab(vocab_) {
    for (int64_t i = 0; i < tokens * kHidden; ++i) states.push_back(static_cast<float>(i * 7 % 11 % 5 - 2));
    for (int64_t i = 0; i < vocab * kHidden; ++i) weight.push_back(static_cast<float>(i * 5 % 13 % 5 - 2));
    for (int64_t i = 0; i < tokens; ++i) targets.push_back(i % 5 == 4 ? -100 : i * 37 % vocab);
  }
  HiddenStates hidden() const { return {states.data(), 1, tokens, kHidden}; }
  LmHead head() const { return LmHead(ConstMatrix(weight.data(), vocab, kHidden)); }
  Targets ids() const { return {targets.data(), 1, tokens}; }
  TokenStats statistics(const ContextOptions& options, int64_t top_k, Plan* plan = nullptr) const {
    return compute_token_stats(Context(options), hidden(), head(), ids(), {}, {.top_k = top_k}, plan);
  }
  Plan planned(int64_t top_k) const {
    return plan_token_stats(Context(), hidden(), head(), ids(), {}, {.top_k = top_k});
  }

  std::vector<int64_t> largest(int64_t top_k) const {
    std::vector<int64_t> out;
    for (int64_t i = 0; i < tokens; ++i) {
      std::vector<float> logits(static_cast<size_t>(vocab));
      for (int64_t v = 0; v < vocab; ++v) {
        logits[static_cast<size_t>(v)] = std::inner_product(
            states.begin() + i * kHidden, states.begin() + (i + 1) * kHidden, weight.begin() + v * kHidden, 0.0F);
      }
      std::vector<int64_t> ids(targets[static_cast<size_t>(i)] < 0 ? 0 : logits.size());
      std::iota(ids.begin(), ids.end(), int64_t{0});
      std::stable_sort(ids.begin(), ids.end(), [&](int64_t a, int64_t b) {
        return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
      });
      ids.resize(static_cast<size_t>(top_k), -1);
      out.insert(out.end(), ids.begin(), ids.end());
    }
    return out;
  }
};

// A loss that reads the lists, and has a gradient for every row.
class ListLoss final : public TokenLoss {
 public:
  explicit ListLoss(int64_t top_k) : top_k_(top_k) {}
  StatsRequest needs() const override { return {.top_k = top_k_}; }
  GradsFilled gradients() const override { return {}; }
  void evaluate(std::span<const int64_t> rows, const TokenStats& stats, TokenGrads& grads) override {
    for (const int64_t row : rows) {
      without_list += stats.top_ids[static_cast<size_t>(row * top_k_)] < 0;
      grads.logp[static_cast<size_t>(row)] = 1;
    }
  }
  int64_t without_list = 0;

 private:
  int64_t top_k_;
};

TEST(TopK, TiesGoToTheLowerIdHoweverTheVocabularyIsCut) {
  for (const int64_t vocab : {1, 65, 2049}) {
    const WholeModel model(17, vocab);
    for (const int64_t top_k : {1, 9, 64, 256}) {
      SCOPED_TRACE(std::to_string(vocab) + " entries, top " + std::to_string(top_k));
      ContextOptions options;
      options.threads = 2, options.row_tile = 16, options.vocab_tile = 64;
      const std::vector<int64_t> want = model.largest(top_k);
      EXPECT_EQ(model.statistics(options, top_k).top_ids, want);
      for (const PlanKind plan : {PlanKind::kOnePass, PlanKind::kTwoPass}) {
        options.plan = plan;
        ListLoss loss(top_k);
        std::vector<float> d_hidden(model.states.size());
        Gradients gradients;
        gradients.d_hidden = {d_hidden.data(), model.tokens, kHidden};
        const TokenStats stats =
            run_token_loss(Context(options), model.hidden(), model.head(), model.ids(), {}, loss, gradients);
        EXPECT_EQ(stats.top_ids, want);
        EXPECT_EQ(loss.without_list, 0) << "evaluated before it had its list";
      }
      if (vocab == 1) continue;
      options.plan = PlanKind::kAuto;
      options.ranks.slices = {1, 0, 30, vocab - 31};
      EXPECT_EQ(model.statistics(options, top_k).top_ids, want);
    }
  }
}

TEST(TopK, OfLogitsThatTheCallerHolds) {
  // Row by row: all different, all equal, masks, only masks, a NaN, +inf, ignored.
  const float inf = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  const std::vector<float> logits = {1,    2,    3, 0, 5,   5, 5, 5, -inf, 2,   -inf, 1, -inf, -inf,
                                     -inf, -inf, 1, 9, nan, 3, 1, 2, inf,  3.0, 1,    2, 3,    4};
  const std::vector<int64_t> targets = {2, 3, 1, 0, 1, 0, -100};
  const auto lists = [&](const std::string& target, int64_t top_k) {
    ContextOptions options;
    options.vocab_tile = 3;
    options.simd_target = target;
    return compute_token_stats(Context(options), FinishedLogits(logits.data(), 1, 7, 4), Targets(std::span(targets)),
                               {}, {.top_k = top_k});
  };
  for (const std::string& target : simd_targets()) {
    SCOPED_TRACE(target);
    const TokenStats three = lists(target, 3);
    EXPECT_EQ(three.top_ids,
              (std::vector<int64_t>{2, 1, 0, 0, 1, 2, 1, 3, 0, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1}));
    EXPECT_EQ(three.top_logps[8], -kInfinity) << "a masked entry";
    for (size_t at = 9; at < 18; ++at) EXPECT_TRUE(std::isnan(three.top_logps[at])) << at;
    for (size_t at = 18; at < 21; ++at) EXPECT_EQ(three.top_logps[at], 0) << at;
    const TokenStats six = lists(target, 6);  // of 4 entries
    EXPECT_EQ(std::vector(six.top_ids.begin(), six.top_ids.begin() + 6), (std::vector<int64_t>{2, 1, 0, 3, -1, -1}));
    EXPECT_EQ(six.top_logps[4], -kInfinity);
    EXPECT_NEAR(top_masses(six)[0], 1, 1e-6);
  }
}

TEST(TopK, WrongCountsAreRefused) {
  const WholeModel model(3, 7);
  for (const int64_t top_k : {int64_t{-1}, int64_t{257}, std::numeric_limits<int64_t>::max()}) {
    const std::string value = top_k == 257 ? "257" : top_k > 0 ? "9223372036854775808" : "-";
    const std::vector<std::string> message = {"top_k = " + value, "an integer from 0 to 256"};
    expect_invalid_input(message, [&] { model.statistics({}, top_k); });
    expect_invalid_input(message, [&] { model.planned(top_k); });
    expect_invalid_input(message, [&] { slice_bytes_per_token(DType::kFloat32, {.top_k = top_k}); });
    ListLoss loss(top_k);
    expect_invalid_input(message,
                         [&] { run_token_loss(Context(), model.hidden(), model.head(), model.ids(), {}, loss, {}); });
  }
}

TEST(TopK, MassesAddWhatTheListsHold) {
  TokenStats stats;
  stats.lse = {1, 2, 3, 4};
  stats.top_ids = {7, 3, -1, -1, -1, -1, 5, -1};
  stats.top_logps = {std::log(0.5), std::log(0.25), 0, 0, kNaN, kNaN, std::log(0.125), -kInfinity};
  const std::vector<double> masses = top_masses(stats);
  EXPECT_DOUBLE_EQ(masses[0], 0.75);
  EXPECT_EQ(masses[1], 0) << "takes no part";
  EXPECT_TRUE(std::isnan(masses[2]));
  EXPECT_DOUBLE_EQ(masses[3], 0.125);
  EXPECT_TRUE(top_masses(TokenStats()).empty());
  stats.top_logps.pop_back();
  expect_invalid_input({"stats.top_logps has 7 entries", "8"}, [&] { top_masses(stats); });
  stats.top_ids.clear();
  expect_invalid_input({"stats.top_ids is empty", "request top_k above 0"}, [&] { top_masses(stats); });
}

TEST(TopK, UnionsHaveEachIdOnce) {
  const std::vector<int64_t> a = {3, 1, 2, 9, -1, -1}, b = {2, 7, 9, 4};
  const TopUnions got = top_unions(a, b, 2);
  EXPECT_EQ(got.ids, (std::vector<int64_t>{3, 1, 2, 7, 9, 4}));
  EXPECT_EQ(got.offsets, (std::vector<int64_t>{0, 4, 6}));
  EXPECT_EQ(top_unions(a, {}, 2).offsets, (std::vector<int64_t>{0, 3, 4}));
  EXPECT_EQ(top_unions({}, {}, 0).offsets, std::vector<int64_t>{0});
  expect_invalid_input({"b has 4 ids", "3 rows"}, [&] { top_unions(a, b, 3); });
  expect_invalid_input({"rows = -1"}, [&] { top_unions(a, b, -1); });
}

TEST(TopK, OverlapsCountSharedIds) {
  const std::vector<int64_t> a = {4, 2, 9, 7, -1, -1}, b = {9, 1, 4, 8, -1, 7, -1, -1};
  EXPECT_EQ(top_overlaps(a, b, 2), (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(top_overlaps(b, a, 2), (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(top_overlaps(a, {}, 2), (std::vector<int64_t>{0, 0}));
  EXPECT_TRUE(top_overlaps({}, {}, 0).empty());
  expect_invalid_input({"b has 8 ids", "3 rows"}, [&] { top_overlaps(a, b, 3); });
  expect_invalid_input({"a has 6 ids", "0 rows"}, [&] { top_overlaps(a, b, 0); });
  expect_invalid_input({"rows = -1"}, [&] { top_overlaps(a, b, -1); });
}

// Lists that do not fit are computed in chunks, with the same result.
TEST(TopK, AnyBudgetThatIsAcceptedGivesTheSameLists) {
  const WholeModel model(700, 900);
  ContextOptions options;
  options.threads = 2;
  for (const int64_t top_k : {1, 256}) {
    Plan whole;
    options.workspace_bytes = size_t{1} << 30;
    const TokenStats want = model.statistics(options, top_k, &whole);
    EXPECT_EQ(whole.chunk_rows, whole.active_rows);
    const size_t least = model.planned(top_k).least_workspace_bytes;
    for (size_t bytes = least; bytes < 2 * whole.workspace_bytes; bytes += 1 + bytes / 3) {
      SCOPED_TRACE(std::to_string(bytes) + " bytes, top " + std::to_string(top_k));
      Plan plan;
      options.workspace_bytes = bytes;
      EXPECT_EQ(model.statistics(options, top_k, &plan).top_ids, want.top_ids);
      EXPECT_LE(plan.workspace_bytes, bytes);
      if (top_k == 256 && bytes == least) {
        EXPECT_LT(plan.chunk_rows, plan.active_rows);
      }
    }
    options.workspace_bytes = least - 1;
    EXPECT_THROW(model.statistics(options, top_k), InvalidInput);
  }
}

TEST(TopK, WhoDoesNotAskDoesNotPay) {
  const WholeModel model(46, 150);
  // A list has 16 bytes per entry and gathers up to 2 k + 16 entries, for any number of vocabulary ranges.
  const size_t cache_lines = 2 * 64, lists = 37 * (216 * 16 + 24);
  EXPECT_GE(model.planned(100).workspace_bytes, model.planned(0).workspace_bytes + lists);
  EXPECT_LE(model.planned(100).workspace_bytes, model.planned(0).workspace_bytes + lists + cache_lines);
}

}  // namespace top_k_test
}  // namespace logitless::testing

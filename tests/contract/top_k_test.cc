// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The largest logits and the target's rank where logits are not finite, the lists that a caller's loss gets,
// and the functions on lists. Drawn calls have ties and budgets.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
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

// Whole numbers, whose sums are exact and often equal. Equal logits are listed in the order of their ids.
TEST(TopK, ALossHasItsListsInEveryPlan) {
  constexpr int64_t kRows = 17, kWidth = 5, kEntries = 2049, kTop = 64;
  std::vector<float> x, w, d_x(kRows * kWidth);
  std::vector<int64_t> targets, want;
  for (int64_t i = 0; i < kRows * kWidth; ++i) x.push_back(static_cast<float>(i * 7 % 11 % 5 - 2));
  for (int64_t i = 0; i < kEntries * kWidth; ++i) w.push_back(static_cast<float>(i * 5 % 13 % 5 - 2));
  for (int64_t i = 0; i < kRows; ++i) {
    targets.push_back(i * 37);
    const auto logit = [&](int64_t v) {
      return std::inner_product(x.begin() + i * kWidth, x.begin() + (i + 1) * kWidth, w.begin() + v * kWidth, 0.0F);
    };
    std::vector<int64_t> ids(kEntries);
    std::iota(ids.begin(), ids.end(), int64_t{0});
    std::ranges::stable_sort(ids, std::greater(), logit);
    want.insert(want.end(), ids.begin(), ids.begin() + kTop);
  }
  for (const PlanKind plan : {PlanKind::kOnePass, PlanKind::kTwoPass}) {
    ContextOptions options;
    options.threads = 2, options.row_tile = 16, options.vocab_tile = 64, options.plan = plan;
    ListLoss loss(kTop);
    const auto result =
        run(Context(options), Logits::of(view(x.data(), {kRows, kWidth}), view(w.data(), {kEntries, kWidth})),
            CustomLoss{targets, {}, &loss}, {.d_hidden = view(d_x.data(), {kRows, kWidth})});
    EXPECT_EQ(result.stats.top_ids, want);
    EXPECT_EQ(loss.without_list, 0) << "evaluated before it had its list";
  }
}

TEST(TopK, OfLogitsThatAreNotFinite) {
  // Row by row: all different, all equal, masks, only masks, a NaN, +inf, ignored, a masked target.
  const float inf = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  const std::vector<float> logits = {1, 2, 3,   0, 5, 5, 5,   5, -inf, 2, -inf, 1, -inf, -inf, -inf, -inf,
                                     1, 9, nan, 3, 1, 2, inf, 3, 1,    2, 3,    4, -inf, 2,    -inf, 1};
  const std::vector<int64_t> targets = {2, 3, 1, 0, 1, 0, -100, 0};
  const auto lists = [&](const std::string& target, int64_t top_k) {
    ContextOptions options;
    options.vocab_tile = 3;
    options.simd_target = target;
    return run(Context(options), Logits::given(view(logits.data(), {8, 4})),
               TokenStatistics{targets, {}, {.rank = true, .top_k = top_k}})
        .stats;
  };
  for (const std::string& target : simd_targets()) {
    SCOPED_TRACE(target);
    const TokenStats three = lists(target, 3);
    EXPECT_EQ(three.rank, (std::vector<int64_t>{1, 1, 1, 0, 0, 0, 0, 3}));
    const std::vector<int64_t> ids = {2, 1, 0, 0, 1, 2, 1, 3, 0};
    EXPECT_TRUE(std::equal(ids.begin(), ids.end(), three.top_ids.begin()));
    EXPECT_EQ(three.top_logps[8], -kInfinity) << "a masked entry";
    for (size_t at = 9; at < 21; ++at) {
      EXPECT_EQ(three.top_ids[at], -1) << at;
      EXPECT_TRUE(at < 18 ? std::isnan(three.top_logps[at]) : three.top_logps[at] == 0) << at;
    }
    const TokenStats six = lists(target, 6);  // of 4 entries
    EXPECT_EQ(std::vector(six.top_ids.begin(), six.top_ids.begin() + 6), (std::vector<int64_t>{2, 1, 0, 3, -1, -1}));
    EXPECT_EQ(six.top_logps[4], -kInfinity);
    EXPECT_NEAR(top_masses(six)[0], 1, 1e-6);
  }
}

// Refusals tests the number that a task requests.
TEST(TopK, ALossMayNotRequestTooMany) {
  const std::vector<float> logits(7);
  const std::vector<int64_t> targets = {3};
  ListLoss loss(257);
  expect_invalid_input({"top_k = 257", "an integer from 0 to 256"}, [&] {
    run(Context(), Logits::given(view(logits.data(), {1, 7})), CustomLoss{targets, {}, &loss});
  });
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

}  // namespace top_k_test
}  // namespace logitless::testing

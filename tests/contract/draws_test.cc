// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Draws follow the softmax, and which draws rows without a distribution get. Generated calls compare draws
// with the oracle, on every plan, team and cut of the vocabulary.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "logitless/logitless.h"
#include "support/calls.h"
#include "support/refusal.h"
#include "support/views.h"

namespace logitless::testing {
namespace draws_test {

constexpr int64_t kEntries = 200;

// Logits that give probabilities from 0.2 down to 1e-7.
std::vector<double> logits_of_row() {
  std::vector<double> logits;
  for (int64_t v = 0; v < kEntries; ++v) logits.push_back(-13.0 * static_cast<double>(v * 37 % kEntries) / kEntries);
  return logits;
}

// Returns the probabilities of a row's draws, by the definition of the request.
std::vector<double> probabilities(const std::vector<double>& logits, double temperature, const StatsRequest& request) {
  std::vector<size_t> order(logits.size());
  for (size_t v = 0; v < order.size(); ++v) order[v] = v;
  std::ranges::stable_sort(order, std::greater(), [&](size_t v) { return logits[v]; });
  if (request.draw_top_k > 0) order.resize(static_cast<size_t>(request.draw_top_k));
  const auto mass = [&](size_t v) { return std::exp(logits[v] / temperature); };
  const auto sum_of = [&] {
    double sum = 0;
    for (const size_t v : order) sum += mass(v);
    return sum;
  };
  const double all = sum_of();
  double sum = 0;
  size_t kept = 0;
  while (kept < order.size() && sum < request.draw_top_p * all) sum += mass(order[kept++]);
  order.resize(kept);
  const double total = sum_of();
  std::vector<double> p(logits.size());
  for (const size_t v : order) p[v] = mass(v) / total;
  return p;
}

// Returns Pearson's statistic of the draws, minus its number of degrees of freedom, in units of its standard
// deviation. Ids with an expected count below 5 are counted together.
double deviation(const std::vector<int64_t>& ids, const std::vector<double>& p) {
  std::vector<double> counts(p.size());
  for (const int64_t id : ids) counts.at(static_cast<size_t>(id)) += 1;
  const auto draws = static_cast<double>(ids.size());
  double sum = 0, rare = 0, rare_counts = 0;
  int cells = 0;
  const auto add = [&](double expected, double count) {
    sum += (count - expected) * (count - expected) / expected;
    ++cells;
  };
  for (size_t v = 0; v < p.size(); ++v) {
    if (p[v] == 0) {
      EXPECT_EQ(counts[v], 0) << "id " << v << " has no mass";
    } else if (p[v] * draws < 5) {
      rare += p[v] * draws, rare_counts += counts[v];
    } else {
      add(p[v] * draws, counts[v]);
    }
  }
  if (rare > 0) add(rare, rare_counts);
  return (sum - (cells - 1)) / std::sqrt(2.0 * (cells - 1));
}

// 20,480 draws: their seed is fixed, so this cannot fail by chance.
TEST(Draws, FollowTheSoftmax) {
  constexpr int64_t kRows = 80, kDraws = 256;
  const std::vector<double> row = logits_of_row();
  std::vector<float> logits;
  for (int64_t i = 0; i < kRows; ++i) logits.insert(logits.end(), row.begin(), row.end());
  for (const double temperature : {0.3, 1.0, 4.0}) {
    for (const StatsRequest& restricted :
         std::vector<StatsRequest>{{}, {.draw_top_k = 20}, {.draw_top_k = 100, .draw_top_p = 0.8}}) {
      SCOPED_TRACE("temperature " + std::to_string(temperature) + ", top " + std::to_string(restricted.draw_top_k));
      StatsRequest request = restricted;
      request.draws = kDraws, request.draw_seed = 12, request.top_k = 256;
      const TokenStats stats = run(Context(), Logits::given(view(logits.data(), {kRows, kEntries})),
                                   TokenStatistics{{}, {.temperature = temperature}, request})
                                   .stats;
      EXPECT_LT(std::abs(deviation(stats.drawn_ids, probabilities(row, temperature, request))), 4);
      for (size_t i = 0; i < stats.drawn_ids.size(); ++i) {
        const auto list = stats.top_ids.begin() + static_cast<ptrdiff_t>(i / kDraws * 256);
        const auto at = std::find(list, list + 256, stats.drawn_ids[i]) - stats.top_ids.begin();
        ASSERT_EQ(stats.drawn_logps[i], stats.top_logps[static_cast<size_t>(at)]) << "other bits";
      }
    }
  }
}

TEST(Draws, OfLogitsThatAreNotFinite) {
  // Row by row: one entry that is not masked, only masks, a NaN, +inf, ignored, large logits.
  const float inf = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  const std::vector<float> logits = {-inf, -inf, -3,  -inf, -inf, -inf, -inf, -inf, 1,     9,      nan, 3,
                                     1,    2,    inf, 3,    1,    2,    3,    4,    1e38F, -1e38F, 0,   1};
  const std::vector<int64_t> targets = {2, 3, 1, 0, -100, 0};
  for (const std::string& target : simd_targets()) {
    for (const int64_t top_k : {0, 3}) {
      ContextOptions options;
      options.vocab_tile = 3, options.simd_target = target;
      const TokenStats stats = run(Context(options), Logits::given(view(logits.data(), {6, 4})),
                                   TokenStatistics{targets, {}, {.draws = 2, .draw_seed = 1, .draw_top_k = top_k}})
                                   .stats;
      EXPECT_EQ(stats.drawn_ids, (std::vector<int64_t>{2, 2, -1, -1, -1, -1, -1, -1, -1, -1, 0, 0})) << target;
      for (size_t i = 0; i < 12; ++i) {
        const bool undefined = i >= 2 && i < 8;
        EXPECT_TRUE(undefined ? std::isnan(stats.drawn_logps[i]) : stats.drawn_logps[i] == 0) << i;
      }
    }
  }
}

TEST(Draws, RefuseANucleusOfAllIds) {
  const std::vector<float> logits(7);
  const auto refuse = [&](const std::vector<std::string>& words, const StatsRequest& request) {
    expect_invalid_input(words, [&] {
      run(Context(), Logits::given(view(logits.data(), {1, 7})), TokenStatistics{{}, {}, request});
    });
  };
  refuse({"draw_top_p = 0.5", "needs draw_top_k"}, {.draws = 1, .draw_top_p = 0.5});
  refuse({"draw_top_p = 0 ", "above 0 and up to 1"}, {.draws = 1, .draw_top_k = 3, .draw_top_p = 0});
  refuse({"draws = 257", "from 0 to 256"}, {.draws = 257});
  refuse({"draw_top_k = -1", "from 0 to 256"}, {.draws = 1, .draw_top_k = -1});
  refuse({"draw_seed = 3", "draws is 0"}, {.draw_seed = 3});
  refuse({"draw_top_k = 3", "draws is 0"}, {.draw_top_k = 3});
}

}  // namespace draws_test
}  // namespace logitless::testing

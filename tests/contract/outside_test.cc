// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The log-probability of everything except the target, where 1 - p has no correct digits or no mass.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "logitless/error.h"
#include "logitless/logits.h"
#include "logitless/token_stats.h"
#include "support/calls.h"

namespace logitless::testing {
namespace outside_test {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// One row of logits; the target is entry 0.
struct Row {
  std::vector<float> values;
  std::vector<int64_t> target = {0};

  FinishedLogits logits() const { return {values.data(), 1, 1, static_cast<int64_t>(values.size())}; }
  TokenStats stats(const TokenOptions& options = {}) const {
    return compute_token_stats(Context(), logits(), Targets(std::span<const int64_t>(target)), options,
                               {.outside = true});
  }
  std::vector<float> gradient(const TokenOptions& options = {}) const {
    std::vector<float> out(values.size(), 99);
    TokenGrads grads;
    grads.outside = {1};
    backpropagate_token_grads(Context(), logits(), Targets(std::span<const int64_t>(target)), options,
                              {.outside = true}, stats(options), grads,
                              LogitsGradient(out.data(), 1, 1, static_cast<int64_t>(values.size())));
    return out;
  }
};

TEST(Outside, KeepsItsDigitsWhereTheTargetIsNearlyCertain) {
  for (const float lead : {20.0F, 40.0F, 80.0F}) {
    const Row row = {{lead, 0, 0, 0}};
    const double others = std::log(3.0) - lead;
    EXPECT_NEAR(row.stats().outside[0], others - std::log1p(std::exp(others)), 1e-6 * lead) << lead;
  }
}

TEST(Outside, StaysFiniteAtTenThousandNats) {
  const Row row = {{0, -10000, -10000, -10001}};
  const double want = -10000 + std::log(2 + std::exp(-1.0));
  EXPECT_NEAR(row.stats().outside[0], want, 1e-3);
  // The other entries share the gradient, and the target's differs from -1 by less than rounding.
  const std::vector<float> gradient = row.gradient();
  EXPECT_NEAR(gradient[0], -1, 1e-6);
  const double share = 1 / (2 + std::exp(-1.0));
  EXPECT_NEAR(gradient[1], share, 1e-6);
  EXPECT_NEAR(gradient[3], share * std::exp(-1.0), 1e-6);
}

TEST(Outside, IsMinusInfinityWhereNothingElseHasMass) {
  const auto inf = static_cast<float>(kInfinity);
  for (const Row& row : {Row{{3}}, Row{{3, -inf, -inf}}}) {
    EXPECT_EQ(row.stats().outside[0], -kInfinity);
    EXPECT_EQ(row.stats().outside_max[0], -kInfinity);
  }
}

TEST(Outside, IsNanWhereTheRowIs) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const Row& row : {Row{{nan, 1, 2}}, Row{{1, nan, 2}}}) EXPECT_TRUE(std::isnan(row.stats().outside[0]));
}

TEST(Outside, AGradientNeedsItsStatistics) {
  const Row row = {{4, 0, 2}};
  TokenStats stats = compute_token_stats(Context(), row.logits(), Targets(std::span<const int64_t>(row.target)));
  TokenGrads grads;
  grads.outside = {1};
  std::vector<float> out(3, 99);
  try {
    backpropagate_token_grads(Context(), row.logits(), Targets(std::span<const int64_t>(row.target)), {}, {}, stats,
                              grads, LogitsGradient(out.data(), 1, 1, 3));
    FAIL() << "nothing was thrown";
  } catch (const InvalidInput& error) {
    EXPECT_NE(std::string(error.what()).find("stats.outside is not given"), std::string::npos) << error.what();
  }
  EXPECT_EQ(out, std::vector<float>(3, 99));
}

}  // namespace outside_test
}  // namespace logitless::testing

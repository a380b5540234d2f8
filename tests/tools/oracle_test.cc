// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Compares the oracle's statistics with numbers worked out by hand and its gradients with finite differences;
// drawn calls and golden values hold its losses to the library. Its measurements of errors are tested too.
#include "oracle/oracle.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "core/matrices.h"
#include "oracle/deviation.h"
#include "oracle/tiled_truth.h"

namespace logitless::testing {
namespace oracle_test {

using oracle::Deviation;
using oracle::MatrixXd;
using oracle::TokenGradients;
using oracle::TokenStatistics;
using oracle::VectorXd;

constexpr double kLog3 = 1.0986122886681098;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN(), kInfinity = std::numeric_limits<double>::infinity();

// One token with these raw logits.
struct OneToken {
  std::vector<double> logits;
  oracle::Tokens tokens;

  OneToken(std::vector<double> values, int64_t label) : logits(std::move(values)) {
    const auto vocab = static_cast<int64_t>(logits.size());
    tokens.labels = {label};
    tokens.temperature = VectorXd::Ones(1);
    tokens.cross = VectorXd::Constant(vocab, 1.0 / static_cast<double>(vocab));
  }
  oracle::LogitsTruth truth() const {
    return {FinishedLogits(logits.data(), 1, 1, tokens.vocab()), tokens, size_t{1} << 20};
  }
  TokenStatistics statistics() const { return truth().compute_statistics(); }
  // Returns dL/dlogits, [1, V].
  MatrixXd gradient(const TokenGradients& grads) const {
    MatrixXd out;
    truth().compute_logit_gradients(statistics(), grads, [&](int64_t, const MatrixXd& tile) { out = tile; });
    return out;
  }
};

TokenGradients of_logp() {
  TokenGradients grads(1);
  grads.logp[0] = 1;
  return grads;
}

TEST(Oracle, StatisticsOfProbabilitiesOneQuarterAndThreeQuarters) {
  const TokenStatistics stats = OneToken({5.0, 5.0 + kLog3}, 0).statistics();
  EXPECT_DOUBLE_EQ(stats.logp[0], -std::log(4.0));
  EXPECT_DOUBLE_EQ(stats.lse[0], 5.0 + std::log(4.0));
  EXPECT_DOUBLE_EQ(stats.entropy[0], std::log(4.0) - 0.75 * kLog3);
  EXPECT_DOUBLE_EQ(stats.cross[0], 0.5 * kLog3 - std::log(4.0));
  EXPECT_EQ(stats.argmax[0], 1);
}

TEST(Oracle, KeepsTheDigitsOfANearlyCertainToken) {
  // p_other / p_label = e^-30, so logp = -log1p(e^-30) = -e^-30 (1 - e^-30 / 2 + ...).
  const OneToken token({0, 30}, 1);
  const TokenStatistics stats = token.statistics();
  const double rest = std::exp(-30.0);
  EXPECT_NEAR(stats.logp[0], -rest, 1e-13 * rest);
  EXPECT_NEAR(stats.entropy[0], rest * 31, 1e-12 * rest * 31);
  EXPECT_NEAR(token.gradient(of_logp())(0, 1), rest, 1e-13 * rest);
}

TEST(Oracle, SoftcapAndTemperatures) {
  OneToken token({30 * std::atanh(0.5), 0}, 0);  // capped: 15 and 0
  token.tokens.softcap = 30;
  token.tokens.temperature[0] = 15 / kLog3;  // final: log 3 and 0
  EXPECT_NEAR(token.statistics().logp[0], std::log(0.75), 1e-15);
  // (1 - p) (1 - tanh²) / temperature.
  EXPECT_NEAR(token.gradient(of_logp())(0, 0), 0.25 * 0.75 * kLog3 / 15, 1e-16);

  token.tokens.softcap = 0;
  token.logits[0] = kLog3;
  token.tokens.temperature[0] = 2;
  token.tokens.temperature_meaning = TemperatureMeaning::kScaleLogp;
  EXPECT_DOUBLE_EQ(token.statistics().logp[0], std::log(0.75) / 2);
  EXPECT_DOUBLE_EQ(token.statistics().lse[0], std::log(4.0));
  EXPECT_DOUBLE_EQ(token.gradient(of_logp())(0, 0), 0.125);
}

TEST(Oracle, MaskedEntriesAndBadRows) {
  OneToken token({0, -kInfinity, 0}, 0);
  EXPECT_DOUBLE_EQ(token.statistics().logp[0], -std::log(2.0));
  EXPECT_DOUBLE_EQ(token.statistics().entropy[0], std::log(2.0));
  EXPECT_EQ(token.statistics().cross[0], -kInfinity);
  for (const double bad : {kInfinity, kNaN}) {
    token.logits[1] = bad;
    const TokenStatistics stats = token.statistics();
    EXPECT_TRUE(std::isnan(stats.logp[0]) && std::isnan(stats.lse[0]) && std::isnan(stats.entropy[0]));
  }
  token.logits.assign(3, -kInfinity);
  EXPECT_TRUE(std::isnan(token.statistics().lse[0]));
}

// Central differences: their error, h² curvature / 6 + 2^-53 |statistic| / h, is about 1e-10.
TEST(Oracle, EachTokenGradientIsASlope) {
  constexpr double kStep = 1e-5;
  for (const double softcap : {0.0, 0.7}) {
    for (const auto meaning : {TemperatureMeaning::kScaleLogits, TemperatureMeaning::kScaleLogp}) {
      OneToken token({0.4, -1.1, 0.9, 0.2, -0.3}, 2);
      token.tokens.softcap = softcap;
      token.tokens.temperature[0] = 0.8;
      token.tokens.temperature_meaning = meaning;
      token.tokens.cross << 0.1, 0.5, 0, 0.7, 0.2;
      for (const auto& [gradient, statistic] : {std::pair(&TokenGradients::logp, &TokenStatistics::logp),
                                                {&TokenGradients::lse, &TokenStatistics::lse},
                                                {&TokenGradients::entropy, &TokenStatistics::entropy},
                                                {&TokenGradients::cross, &TokenStatistics::cross}}) {
        TokenGradients grads(1);
        (grads.*gradient)[0] = -1.5;
        const MatrixXd got = token.gradient(grads);
        for (size_t v = 0; v < token.logits.size(); ++v) {
          OneToken above = token, below = token;
          above.logits[v] += kStep;
          below.logits[v] -= kStep;
          const double slope =
              -1.5 * ((above.statistics().*statistic)[0] - (below.statistics().*statistic)[0]) / (2 * kStep);
          EXPECT_NEAR(got(0, static_cast<int64_t>(v)), slope, 1e-8) << softcap << " " << v;
        }
      }
    }
  }
}

// Tiles of a few rows or vocabulary entries give what one tile gives; only the rounding of products may
// differ.
TEST(Oracle, TilesGiveTheSame) {
  constexpr int64_t kTokens = 36, kHidden = 19, kVocab = 150;
  std::vector<float> hidden(kTokens * kHidden), weight(kVocab * kHidden), bias(kVocab);
  for (size_t i = 0; i < hidden.size(); ++i) hidden[i] = std::sin(static_cast<float>(i * i % 1009));
  for (size_t i = 0; i < weight.size(); ++i) weight[i] = std::cos(static_cast<float>(i * i % 2003));
  for (size_t i = 0; i < bias.size(); ++i) bias[i] = std::sin(static_cast<float>(3 * i));
  HeadMatrices head(ConstMatrix(weight.data(), kVocab, kHidden));
  head.bias = {bias.data(), kVocab};
  head.softcap = 20;
  oracle::Tokens tokens;
  tokens.temperature = VectorXd::LinSpaced(kTokens, 0.5, 2);
  tokens.cross = VectorXd::LinSpaced(kVocab, 0, 1);
  TokenGradients grads(kTokens);
  for (int64_t i = 0; i < kTokens; ++i) {
    tokens.labels.push_back(i % 4 == 3 ? oracle::kNoLabel : i * 37 % kVocab);
    for (VectorXd* column : {&grads.logp, &grads.lse, &grads.entropy, &grads.cross}) {
      (*column)[i] = i % 3 == 0 ? 0 : std::sin(static_cast<double>(i));
    }
  }
  const HiddenStates states(ConstMatrix(hidden.data(), kTokens, kHidden), 3);
  // Returns all numbers with this much scratch, one part after another.
  const auto all = [&](size_t scratch_bytes, int* tiles) {
    const oracle::FusedTruth truth(states, head, tokens, scratch_bytes);
    const TokenStatistics stats = truth.compute_statistics();
    std::vector<double> out;
    const auto add = [&](const auto& part) { out.insert(out.end(), part.data(), part.data() + part.size()); };
    for (const auto& column : {stats.max, stats.log_sum, stats.logp, stats.lse, stats.entropy, stats.cross})
      add(column);
    for (const int64_t id : stats.argmax) out.push_back(static_cast<double>(id));
    MatrixXd d_raw(kTokens, kVocab), d_weight(kVocab, kHidden);
    truth.compute_logit_gradients(
        stats, grads, [&](int64_t first, const MatrixXd& tile) { d_raw.middleCols(first, tile.cols()) = tile; });
    VectorXd d_bias(kVocab);
    add(truth.compute_parameter_gradients(stats, grads,
                                          [&](int64_t first, const MatrixXd& weight_tile, const VectorXd& bias_tile) {
                                            ++*tiles;
                                            d_weight.middleRows(first, weight_tile.rows()) = weight_tile;
                                            d_bias.segment(first, bias_tile.size()) = bias_tile;
                                          }));
    add(d_raw), add(d_weight), add(d_bias);
    return out;
  };
  int few = 0, one = 0;
  const std::vector<double> got = all(20'000, &few), want = all(size_t{1} << 30, &one);
  EXPECT_GT(few, 2);
  EXPECT_EQ(one, 1);
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-12 * (1 + std::abs(want[i]))) << i;
}

TEST(Deviation, SumsOverTiles) {
  MatrixXd want(2, 5);
  want << 1, 2, 3, 4, 5, 6, 7, 8, 9, 10;
  const double got[] = {1, 3, 3, 4, 5, kNaN, 6, 7, 8, 9, 7, kNaN};  // rows of five, and what follows them
  Deviation deviation;
  for (const auto& [first, cols] : {std::pair<int64_t, int64_t>(0, 2), {2, 1}, {3, 2}}) {
    deviation.add(want.middleCols(first, cols), {got + first, DType::kFloat64, 6, 1});
  }
  EXPECT_EQ(deviation.max_abs(), 3);
  EXPECT_EQ(deviation.max_rel(), 0.5);
  EXPECT_DOUBLE_EQ(deviation.rel_l2(), std::sqrt(10.0 / 385));
}

TEST(Deviation, RelativeErrorsBeginAtTheSmallestNormalNumber) {
  const double zero = 0;  // of any type
  for (const auto& [dtype, smallest] : {std::pair(DType::kFloat16, 0x1p-14),
                                        {DType::kBFloat16, 0x1p-126},
                                        {DType::kFloat32, 0x1p-126},
                                        {DType::kFloat64, 0x1p-1022}}) {
    for (const double want : {smallest, smallest / 2}) {
      Deviation deviation;
      deviation.add(MatrixXd::Constant(1, 1, want), {&zero, dtype, 1, 1});
      EXPECT_EQ(deviation.max_rel(), want == smallest ? 1 : 0);
      EXPECT_EQ(deviation.max_abs(), want);
    }
  }
}

}  // namespace oracle_test
}  // namespace logitless::testing

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Hard cases for floating point, with bounds that drawn calls do not have: common offsets, near certainty,
// saturation, vanishing numbers, masks.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>
#include <string>
#include <vector>

#include "logitless/logitless.h"
#include "support/calls.h"
#include "support/views.h"

namespace logitless::testing {
namespace numerics_test {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// A row of logits that the engine computes without rounding, because hidden is [[1]]. d_weight is then the
/// gradient of the logits.
template <class T>
struct Row {
  std::vector<T> logits;
  int64_t target = 0;
  double temperature = 1, softcap = 0;
  TokenGrads grads = {.logp = {1}, .lse = {}, .entropy = {}, .cross = {}};

  struct Result {
    TokenStats stats;
    std::vector<T> d_logits;
    double logp() const { return stats.logp[0]; }
  };
  Result run(const std::string& simd_target) const {
    const T one = 1;
    const auto vocab = static_cast<int64_t>(logits.size());
    const std::vector<int64_t> ids = {target};
    ContextOptions options;
    options.simd_target = simd_target, options.vocab_tile = 32;
    const Context context(options);
    const Logits source = Logits::of(view(&one, {1, 1}),
                                     logitless::LmHead{.weight = view(logits.data(), {vocab, 1}), .softcap = softcap});
    TokenStatistics task = {.targets = ids, .request = {.entropy = true, .cross = true, .outside = true}};
    task.token.temperature = temperature;
    const Forward<TokenStatistics> left = forward(context, source, task);
    Result out{left.result.stats, std::vector<T>(logits.size(), 99)};
    backward(context, source, task, left, grads, {.d_weight = view(out.d_logits.data(), {vocab, 1})});
    return out;
  }
};

template <class Test>
void on_every_target(const Test& test) {
  for (const std::string& target : simd_targets()) {
    SCOPED_TRACE(target);
    test(target);
  }
}

// Whole numbers from 0 down to -30, in an order that does not depend on the offset.
std::vector<float> whole_logits(int64_t vocab, double offset, double scale = 1) {
  std::vector<float> logits;
  for (int64_t v = 0; v < vocab; ++v) {
    logits.push_back(static_cast<float>(offset - scale * static_cast<double>(v * 37 % 31)));
  }
  return logits;
}

// The offset is not part of any rounding.
TEST(Numerics, CommonOffsetCostsNoDigits) {
  on_every_target([](const std::string& target) {
    for (const int64_t vocab : {1, 2, 31, 70, 133}) {
      for (const double temperature : {1.0, 0.7}) {
        const auto run = [&](double offset) {
          return Row<float>{whole_logits(vocab, offset), vocab / 2, temperature}.run(target);
        };
        const auto want = run(0);
        for (const double offset : {1000.0, -1e6, 0x1p20, 0x1p24, -0x1p24 + 30}) {
          const auto got = run(offset);
          EXPECT_EQ(got.logp(), want.logp()) << offset;
          EXPECT_EQ(got.d_logits, want.d_logits) << offset;
          EXPECT_EQ(got.stats.max_logit[0], offset);
        }
      }
    }
  });
}

// A padded column of zeros would outweigh all of them.
TEST(Numerics, AllLogitsFarBelowZero) {
  on_every_target([](const std::string& target) {
    for (const int64_t vocab : {1, 2, 15, 16, 17, 63, 64, 65, 100}) {
      const double count = std::log(static_cast<double>(vocab));
      const auto got = Row<float>{std::vector<float>(static_cast<size_t>(vocab), -10000), vocab - 1}.run(target);
      EXPECT_NEAR(got.logp(), -count, 1e-5);
      EXPECT_NEAR(got.stats.lse[0], -10000 + count, 1e-5);
    }
  });
}

// 99 entries have e^-gap each: at 20.75, p of the target is 1 - 1e-7. 99 terms, exp and log1p have at most
// 128 roundings.
template <class T>
void expect_relative_accuracy(const std::string& target, double gap, int64_t certain, double temperature) {
  std::vector<T> logits(100, static_cast<T>(-gap * temperature));
  logits[static_cast<size_t>(certain)] = 0;
  const auto got = Row<T>{logits, certain, temperature}.run(target);
  const double rest = 99 * std::exp(-gap), error = 128 * 0x1p-24;
  EXPECT_NEAR(got.logp() / -std::log1p(rest), 1, error);
  EXPECT_NEAR(temperature * got.d_logits[static_cast<size_t>(certain)] / (rest / (1 + rest)), 1, error);
  EXPECT_NEAR(got.stats.outside[0], std::log(rest / (1 + rest)), error * (1 + gap));
}
TEST(Numerics, NearlyCertainTokenKeepsRelativeAccuracy) {
  on_every_target([](const std::string& target) {
    for (const double gap : {8.0, 16.0, 20.75, 40.0, 80.0}) {
      for (const int64_t certain : {0, 40, 99}) {
        for (const double temperature : {1.0, 2.0}) {
          expect_relative_accuracy<float>(target, gap, certain, temperature);
          expect_relative_accuracy<double>(target, gap, certain, temperature);
        }
      }
    }
  });
}

TEST(Numerics, OutsideStaysFiniteAtTenThousandNats) {
  on_every_target([](const std::string& target) {
    Row<float> row = {{0, -10000, -10000, -10001}};
    row.grads = {};
    row.grads.outside = {1};
    const auto got = row.run(target);
    const double share = 1 / (2 + std::exp(-1.0));
    EXPECT_NEAR(got.stats.outside[0], -10000 - std::log(share), 1e-3);
    // The other entries share the gradient, and the target's differs from -1 by less than rounding.
    const double want[] = {-1, share, share, share / std::numbers::e};
    for (size_t v = 0; v < 4; ++v) EXPECT_NEAR(got.d_logits[v], want[v], 1e-6);
    const float nan = std::nanf("");
    for (const Row<float>& bad : {Row<float>{{nan, 1, 2}}, Row<float>{{1, nan, 2}}}) {
      EXPECT_TRUE(std::isnan(bad.run(target).stats.outside[0]));
    }
  });
}

// r / softcap is up to 20, where tanh is 1 in every type and its derivative, 4 e^-40, is not 0.
template <class T>
void expect_softcap(const std::string& target, double sign, double error) {
  constexpr double kCap = 30;
  std::vector<T> logits;
  for (int r = 0; r <= 600; r += 8) logits.push_back(static_cast<T>(sign * r));
  const auto capped = [&](size_t v) { return std::tanh(sign * 8 * static_cast<double>(v) / kCap); };
  for (const size_t id : {0, 40, 75}) {
    double others = 0;
    for (size_t v = 0; v < 76; ++v) others += v == id ? 0 : std::exp(kCap * capped(v));
    const double sum = others + std::exp(kCap * capped(id));
    const auto got = Row<T>{logits, static_cast<int64_t>(id), 1, kCap}.run(target);
    for (size_t v = 0; v < 76; ++v) {
      const double slope = std::pow(std::cosh(sign * 8 * static_cast<double>(v) / kCap), -2);
      const double want = slope * (v == id ? others : -std::exp(kCap * capped(v))) / sum;
      EXPECT_NEAR(got.d_logits[v] / want, 1, error) << v;
    }
  }
}
TEST(Numerics, SoftcapNearSaturation) {
  on_every_target([](const std::string& target) {
    for (const double sign : {1.0, -1.0}) {
      expect_softcap<float>(target, sign, 1e-4);
      expect_softcap<double>(target, sign, 1e-12);
    }
  });
}

// The signs of logp, cross and entropy are always right.
TEST(Numerics, LogitsOfEveryMagnitude) {
  on_every_target([](const std::string& target) {
    for (const double scale : {1e-30, 1e-6, 1e-3, 1.0, 30.0, 1e3, 1e6, 1e30}) {
      for (const int64_t id : {0, 1, 31, 66}) {
        const auto got = Row<float>{whole_logits(67, 15 * scale, scale), id}.run(target);
        double sum = 0;
        for (int64_t v = 0; v < 67; ++v) sum += std::exp(-scale * static_cast<double>(v * 37 % 31));
        const double want = -scale * static_cast<double>(id * 37 % 31) - std::log(sum);
        EXPECT_NEAR(got.logp(), want, 2e-6 * (1 + std::abs(want))) << scale;
        EXPECT_LE(got.logp(), 0);
        EXPECT_LE(got.stats.cross[0], 0);
        EXPECT_GE(got.stats.entropy[0], 0);
      }
    }
  });
}

TEST(Numerics, OneEntryIsCertain) {
  on_every_target([](const std::string& target) {
    const auto inf = static_cast<float>(kInfinity);
    for (const std::vector<float>& logits : {std::vector<float>{0}, {-1e4F}, {1e30F}, {3, -inf, -inf}}) {
      const TokenStats stats = Row<float>{logits}.run(target).stats;
      EXPECT_EQ(stats.logp[0], 0);
      EXPECT_EQ(stats.entropy[0], 0);
      EXPECT_EQ(stats.lse[0], logits[0]);
      EXPECT_EQ(stats.outside[0], -kInfinity);
      EXPECT_EQ(stats.outside_max[0], -kInfinity);
    }
  });
}

// One entry, a tile's edge, the first tile, the last tile, all other tiles, all other entries.
TEST(Numerics, MaskedEntriesAreAbsent) {
  on_every_target([](const std::string& target) {
    const std::pair<size_t, size_t> masks[] = {{10, 11}, {30, 35}, {0, 32}, {64, 75}, {32, 75}, {1, 75}};
    for (const auto& [first, last] : masks) {
      Row<float> row = {whole_logits(75, -20)}, apart = {{}};
      for (size_t v = 0; v < 75; ++v) {
        if (v < first || v >= last) apart.logits.push_back(row.logits[v]);
        if (v >= first && v < last) row.logits[v] = -static_cast<float>(kInfinity);
      }
      row.target = first == 0 ? static_cast<int64_t>(last) : 0;
      const auto got = row.run(target), want = apart.run(target);
      EXPECT_NEAR(got.logp(), want.logp(), 1e-6) << first;
      EXPECT_NEAR(got.stats.entropy[0], want.stats.entropy[0], 1e-6) << first;
      for (size_t v = 0; v < 75; ++v) {
        const bool masked = v >= first && v < last;
        EXPECT_NEAR(got.d_logits[v], masked ? 0 : want.d_logits[v < first ? v : v - (last - first)], 1e-7) << v;
      }
    }
  });
}

TEST(Numerics, MaskedEntriesInALoss) {
  std::vector<float> logits(40, -static_cast<float>(kInfinity));
  const std::vector<int64_t> ids = {36};
  const auto loss_of = [&](double label_smoothing) {
    return run(Context(), Logits::given(view(logits.data(), {1, 40})),
               CrossEntropy{.targets = ids, .label_smoothing = label_smoothing})
        .loss;
  };
  EXPECT_TRUE(std::isnan(loss_of(0)));
  logits[36] = logits[37] = 1;
  EXPECT_TRUE(std::isfinite(loss_of(0)));
  EXPECT_EQ(loss_of(0.1), kInfinity);  // impossible entries have a share of the target
}

}  // namespace numerics_test
}  // namespace logitless::testing

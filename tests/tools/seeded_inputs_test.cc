// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The seeded inputs: the same on every machine, and as random as they say.
#include "io/seeded_inputs.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "core/matrices.h"
#include "io/safetensors.h"

namespace logitless::io {
namespace {

std::vector<float> seeded_head(HeadLayout layout, int64_t hidden, int64_t vocab, uint64_t seed = 5) {
  std::vector<float> head(static_cast<size_t>(hidden * vocab));
  SeededNumbers(seed, "lm_head")
      .fill(DType::kFloat32, 4, vocab, hidden, head.data(), layout == HeadLayout::kHiddenVocab);
  return head;
}

TEST(SeededInputs, AreTheSameForEveryNumberOfThreads) {
  const int before = omp_get_max_threads();
  omp_set_num_threads(1);
  const std::vector<float> tall = seeded_head(HeadLayout::kVocabHidden, 33, 257);
  const std::vector<float> wide = seeded_head(HeadLayout::kHiddenVocab, 33, 257);
  for (const int threads : {2, 3, 7}) {
    omp_set_num_threads(threads);
    EXPECT_EQ(seeded_head(HeadLayout::kVocabHidden, 33, 257), tall) << threads;
    EXPECT_EQ(seeded_head(HeadLayout::kHiddenVocab, 33, 257), wide) << threads;
  }
  omp_set_num_threads(before);
}

TEST(SeededInputs, ATensorThatIsNotListedHasNoDraws) { EXPECT_THROW(SeededNumbers(5, "head"), std::logic_error); }

TEST(SeededInputs, AnEntryHasTheSameValuesInBothLayouts) {
  for (const int64_t hidden : {1, 2, 33}) {
    const auto tall = seeded_head(HeadLayout::kVocabHidden, hidden, 57),
               wide = seeded_head(HeadLayout::kHiddenVocab, hidden, 57);
    for (int64_t v = 0; v < 57; ++v) {
      for (int64_t h = 0; h < hidden; ++h) {
        ASSERT_EQ(tall[static_cast<size_t>(v * hidden + h)], wide[static_cast<size_t>(h * 57 + v)]) << v << " " << h;
      }
    }
  }
}

TEST(SeededInputs, DependOnTheSeedAndRoundToTheirType) {
  EXPECT_NE(seeded_head(HeadLayout::kVocabHidden, 8, 8, 1), seeded_head(HeadLayout::kVocabHidden, 8, 8, 2));
  std::vector<float> narrow(64);
  std::vector<bfloat16> rounded(64);
  std::vector<double> wide(64);
  SeededNumbers(1, "hidden").fill(DType::kFloat32, 1, 8, 8, narrow.data());
  SeededNumbers(1, "hidden").fill(DType::kBFloat16, 1, 8, 8, rounded.data());
  SeededNumbers(1, "hidden").fill(DType::kFloat64, 1, 8, 8, wide.data());
  for (size_t i = 0; i < narrow.size(); ++i) {
    EXPECT_EQ(rounded[i].bits, to_bfloat16(narrow[i]).bits);
    EXPECT_EQ(wide[i], narrow[i]);
  }
}

TEST(SeededInputs, HaveTheMomentsTheyPromise) {
  // Of n independent draws the mean has deviation 1/sqrt(n), the variance sqrt(2/n): five of each are
  // allowed.
  constexpr int64_t kTokens = 500, kSize = 1000;
  std::vector<float> hidden(kTokens * kSize);
  SeededNumbers(0, "hidden").fill(DType::kFloat32, 1, kTokens, kSize, hidden.data());
  double sum = 0, squares = 0;
  for (const float x : hidden) {
    sum += x;
    squares += static_cast<double>(x) * x;
  }
  const auto n = static_cast<double>(hidden.size());
  EXPECT_LT(std::abs(sum / n), 5 / std::sqrt(n));
  EXPECT_LT(std::abs(squares / n - 1), 5 * std::sqrt(2 / n));
}

TEST(SeededInputs, NumbersBelowABoundCoverIt) {
  const SeededNumbers numbers(3, "targets");
  std::vector<int> counts(7);
  for (int64_t i = 0; i < 30000; ++i) {
    const int64_t number = numbers.below(i, 7);
    ASSERT_GE(number, 0);
    ASSERT_LT(number, 7);
    ++counts[static_cast<size_t>(number)];
  }
  // Binomial counts of mean 4286 have a deviation of 61: five are allowed.
  for (const int count : counts) EXPECT_NEAR(count, 30000 / 7.0, 305);
}

TEST(SeededInputs, UniformNumbersHaveTheirShares) {
  const SeededNumbers numbers(3, "ignored");
  int low = 0;
  for (int64_t i = 0; i < 40000; ++i) {
    const double number = numbers.uniform(i);
    ASSERT_TRUE(number >= 0 && number < 1) << number;
    low += number < 0.25;
  }
  // The deviation is 87: five are allowed.
  EXPECT_NEAR(low, 10000, 435);
  EXPECT_NE(numbers.uniform(0), numbers.uniform(1));
  EXPECT_NE(numbers.uniform(0), SeededNumbers(3, "mask").uniform(0));
}

}  // namespace
}  // namespace logitless::io

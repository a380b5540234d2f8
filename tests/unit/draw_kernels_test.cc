// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The noise of draws, and the kernels that draw, on every instruction set of this CPU, in memory of the exact
// size. They are compared with an argmax over the noised logits of all ids.
#include "kernels/draw_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "row_kernel_calls.h"

namespace logitless::kernels {
namespace draw_kernels_test {

using Words = std::array<uint32_t, 4>;

// The known answers of Random123, kat_vectors: philox4x32 with 10 rounds.
TEST(Philox, GivesItsKnownAnswers) {
  EXPECT_EQ(philox({0, 0, 0, 0}, 0), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(philox({kOnes, kOnes, kOnes, kOnes}, ~uint64_t{0}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0x299f31d0a4093822),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

// No two of (row, id, draw, word) may have the same number, also where an index passes 32 bits.
TEST(DrawNoise, DiffersForEachRowIdDrawAndWord) {
  std::vector<uint64_t> numbers;
  for (const int64_t row : {int64_t{0}, int64_t{1}, int64_t{1} << 32, int64_t{1} << 40}) {
    const DrawNoise noise = {7, row};
    for (const int64_t first : {int64_t{0}, int64_t{1} << 34, int64_t{1} << 35, int64_t{1} << 50}) {
      for (const int64_t draw : {0, 1, 255}) {
        for (int64_t id = first; id < first + 130; ++id) {
          numbers.push_back(uint64_t{noise.word(draw, id, false)} << 32 | noise.word(draw, id, true));
        }
      }
    }
  }
  std::sort(numbers.begin(), numbers.end());
  EXPECT_EQ(std::adjacent_find(numbers.begin(), numbers.end()), numbers.end());
}

// Returns the value of each id of a row, by the formula. Rows are longer than any block of ids.
template <class T>
std::vector<DrawEntry> truth(const std::vector<T>& capped, int64_t first_column, RowDraws row) {
  std::vector<DrawEntry> best(static_cast<size_t>(row.draws));
  for (int64_t draw = 0; draw < row.draws; ++draw) {
    for (size_t v = 0; v < capped.size(); ++v) {
      const auto logit = static_cast<double>(capped[v]);
      const int64_t id = first_column + static_cast<int64_t>(v);
      if (std::isnan(logit) || logit == -kInf) continue;
      const DrawEntry entry = {row.noised(draw, id, logit, row.noise.word(draw, id, false)), logit, id};
      DrawEntry& of_draw = best[static_cast<size_t>(draw)];
      if (comes_before(entry, of_draw)) of_draw = entry;
    }
  }
  return best;
}

template <class T>
void expect_truth(const TypedKernels<T>& kernels, const std::vector<T>& capped, double temperature,
                  int64_t first_column) {
  RowDraws row = {{static_cast<uint64_t>(capped.size()), 3}, temperature, 5, nullptr};
  const std::vector<DrawEntry> want = truth(capped, first_column, row);
  for (const bool backwards : {false, true}) {
    for (const Flush flush : {Flush::kEnd, Flush::kBegin}) {
      std::vector<DrawEntry> got(static_cast<size_t>(row.draws));
      row.best = got.data();
      std::vector<size_t> cuts = {0, std::min<size_t>(3, capped.size()), std::min<size_t>(70, capped.size()),
                                  capped.size()};
      for (size_t part = 0; part < 3; ++part) {
        const size_t at = backwards ? 2 - part : part, begin = cuts[at], end = cuts[at + 1];
        const Guarded<T> columns(std::vector<T>(capped.begin() + static_cast<ptrdiff_t>(begin),
                                                capped.begin() + static_cast<ptrdiff_t>(end)),
                                 flush);
        kernels.draw(
            {columns.data(), static_cast<int64_t>(end - begin), first_column + static_cast<int64_t>(begin), row});
      }
      for (size_t draw = 0; draw < got.size(); ++draw) {
        EXPECT_EQ(got[draw].id, want[draw].id) << draw << (backwards ? " backwards" : "");
        EXPECT_EQ(got[draw].logit, want[draw].logit) << draw;
        EXPECT_EQ(got[draw].value, want[draw].value) << draw;
      }
    }
  }
}

template <class T>
void compare(const TypedKernels<T>& kernels) {
  std::mt19937 random(1);
  std::normal_distribution<double> normal(0, 4);
  for (const size_t cols : {1, 2, 5, 16, 17, 63, 64, 65, 127, 200, 1000}) {
    for (const int64_t first_column : {int64_t{0}, int64_t{37}, int64_t{64}, (int64_t{1} << 34) - 100}) {
      for (const double temperature : {1.0, 0.01, 30.0}) {
        SCOPED_TRACE(std::to_string(cols) + " columns from " + std::to_string(first_column) + ", temperature " +
                     std::to_string(temperature));
        std::vector<T> capped(cols);
        for (T& logit : capped) logit = static_cast<T>(normal(random));
        expect_truth(kernels, capped, temperature, first_column);
        std::fill(capped.begin(), capped.end(), T{1e4});
        expect_truth(kernels, capped, temperature, first_column);
      }
    }
  }
}

// A special logit in every lane and in the scalar tail. Results of rows with a NaN or +inf are not used.
template <class T>
void plant_special_values(const TypedKernels<T>& kernels) {
  for (const double special : {-kInf, -3e38, 3e38, 100.0}) {
    for (size_t at = 0; at < 150; at += 7) {
      std::vector<T> capped;
      for (int v = 0; v < 150; ++v) capped.push_back(static_cast<T>(v % 11));
      capped[at] = static_cast<T>(special);
      SCOPED_TRACE("special " + std::to_string(special) + " at " + std::to_string(at));
      expect_truth(kernels, capped, 0.5, 100);
      expect_truth(kernels, std::vector<T>(150, static_cast<T>(special)), 0.5, 100);
    }
  }
}

class DrawKernelTargets : public ::testing::TestWithParam<const RowKernels*> {};

TEST_P(DrawKernelTargets, DrawTheArgmaxOfNoisedLogits) {
  compare(GetParam()->f32);
  compare(GetParam()->f64);
}

TEST_P(DrawKernelTargets, SeeASpecialLogitInEveryColumn) {
  plant_special_values(GetParam()->f32);
  plant_special_values(GetParam()->f64);
}

// E must be positive and finite, and its smallest values must not be rounded to each other.
TEST(DrawNoise, ResolvesTheSmallestExponentials) {
  const RowDraws row = {{5, 0}, 1, 1, nullptr};
  const double largest = row.noised(0, 0, 0, 0), smallest = row.noised(0, 0, 0, 0xffffffff);
  EXPECT_GT(largest, std::log(0x1p32));
  EXPECT_LE(largest, 65 * std::log(2.0) + 1e-9);
  EXPECT_GE(smallest, -std::log(65 * std::log(2.0)));
  EXPECT_LT(smallest, -std::log(32 * std::log(2.0)));
  for (const uint32_t word : {0x0U, 0x1U, 0x1000U, 0x7fffffffU, 0x80000000U, 0xfffffffeU}) {
    const uint64_t number = uint64_t{word} << 32 | row.noise.word(0, 0, true);
    const long double w = (static_cast<long double>(number) + 0.5L) * 0x1p-64L;  // 1 - w keeps 32 bits
    EXPECT_NEAR(row.noised(0, 0, 0, word), static_cast<double>(-std::log(-std::log1p(-w))), 1e-9) << word;
    EXPECT_GT(row.noised(0, 0, 0, word), row.noised(0, 0, 0, word + 1));
  }
}

std::vector<const RowKernels*> all_kernels() {
  std::vector<const RowKernels*> all = simd_kernels();
  all.push_back(&plain_kernels());
  return all;
}

INSTANTIATE_TEST_SUITE_P(AllTargets, DrawKernelTargets, ::testing::ValuesIn(all_kernels()),
                         [](const auto& info) { return std::string(info.param->name); });

}  // namespace draw_kernels_test
}  // namespace logitless::kernels

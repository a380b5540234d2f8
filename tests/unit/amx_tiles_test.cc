// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Tests the emulated instruction on cases worked out by hand, and compares the panels of the CPU's unit and
// of the emulated one byte by byte.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "gemm/amx_tiles.h"
#include "gemm/cpu_bfloat16.h"

namespace logitless::testing {
namespace amx_tiles_test {

using gemm::tiles::kPanel;
using gemm::tiles::kStep;
using gemm::tiles::kStepElements;
using gemm::tiles::TileUnit;
using gemm::tiles::View;
using gemm::tiles::widened_bfloat16;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

uint32_t bits_of(float x) { return std::bit_cast<uint32_t>(x); }
uint16_t bfloat16_bits(float x) {
  EXPECT_EQ(bits_of(x) & 0xffff, 0u) << x << " is no bfloat16";
  return static_cast<uint16_t>(bits_of(x) >> 16);
}

// Returns the result of one instruction for c, with the first pairs of a row of A and a column of B.
float dot(float c, const std::vector<float>& a, const std::vector<float>& b) {
  std::vector<uint16_t> a_row(kStep), b_column(kStep);
  std::transform(a.begin(), a.end(), a_row.begin(), bfloat16_bits);
  std::transform(b.begin(), b.end(), b_column.begin(), bfloat16_bits);
  const TileUnit& unit = gemm::tiles::amx::emulated_unit();
  alignas(64) uint16_t a_panel[kStepElements], b_panel[kStepElements];
  unit.reorder_a({a_row.data(), kStep, 1}, 1, kStep, a_panel);
  unit.reorder_b({b_column.data(), kStep, 1}, 1, kStep, b_panel);
  std::vector<float> block(kPanel * kPanel, c);
  unit.multiply(a_panel, b_panel, 1, block.data(), kPanel, true);
  return block[0];
}

TEST(EmulatedTiles, SumEvenAndOddProductsApartAndAddCLast) {
  EXPECT_EQ(dot(3, {2, 5}, {7, 11}), 3 + 2 * 7 + 5 * 11);
  // Each 1 alone would be rounded away when added to 2^24.
  EXPECT_EQ(dot(0x1p24f, {1, 1}, {1, 1}), 0x1p24f + 2);
  EXPECT_EQ(dot(0x1p24f, {1, 0, 1}, {1, 0, 1}), 0x1p24f + 2);
  EXPECT_EQ(dot(-0x1p24f, {0x1p12f, 0, 1, 1}, {0x1p12f, 0, 1, 1}), 0);
  EXPECT_EQ(dot(-0x1p24f, {0x1p12f, 1, 0, 1}, {0x1p12f, 1, 0, 1}), 2);
  // In order: a 1 after 2^24 is lost, one before it is not.
  EXPECT_EQ(dot(0, {0x1p12f, 0, 1, 0, 1}, {0x1p12f, 0, 1, 0, 1}), 0x1p24f);
  EXPECT_EQ(dot(0, {1, 0, 1, 0, 0x1p12f}, {1, 0, 1, 0, 0x1p12f}), 0x1p24f + 2);
}

TEST(EmulatedTiles, RoundOnceAndToEven) {
  EXPECT_EQ(dot(0, {0x1p12f, 0, 1}, {0x1p12f, 0, 3}), 0x1p24f + 4);  // 2^24 + 3 is half way
  // A product is not flushed, and does not overflow, before the addition.
  EXPECT_EQ(dot(0, {0x1p-63f, 0, 0x1.8p-76f}, {0x1p-63f, 0, 0x1p-51f}), 0x1.cp-126f);
  EXPECT_EQ(dot(0, {-0x1p64f, 0, 0x1p64f}, {0x1p63f, 0, 0x1p64f}), 0x1p127f);
  EXPECT_EQ(dot(0, {0x1p64f}, {0x1p64f}), kInfinity);
  // Half way except for a product far below the last bit of a double.
  EXPECT_EQ(dot(0, {0x1p12f, 0, 0x1p-60f}, {0x1p12f, 0, 0x1p-60f}), 0x1p24f);
  EXPECT_EQ(dot(0, {0x1p12f, 0, 1, 0, 0x1p-60f}, {0x1p12f, 0, 1, 0, 0x1p-60f}), 0x1p24f);
  EXPECT_EQ(dot(0, {0x1p-60f, 0, 0x1.02p0f}, {0x1p-60f, 0, 0x1.02p0f}), 0x1.0404p0f);
}

TEST(EmulatedTiles, TakeDenormalNumbersAsZerosAndFlushSuchSums) {
  EXPECT_EQ(dot(1, {0x1p-127f}, {0x1p100f}), 1);
  EXPECT_TRUE(std::isnan(dot(1, {0x1p-127f}, {kInfinity})));
  EXPECT_EQ(dot(0x1p-127f, {1}, {0x1p-126f}), 0x1p-126f);
  EXPECT_EQ(dot(-0x1p-126f, {1}, {0x1.8p-126f}), 0);
  EXPECT_EQ(dot(0, {0x1p-64f}, {0x1p-63f}), 0);
  // A sum that would round to 2^-126 with a wider exponent range is kept.
  EXPECT_EQ(dot(0, {0x1p-63f, 0, -0x1p-76f}, {0x1p-63f, 0, 0x1p-76f}), 0x1p-126f);  // less 2^-152
  EXPECT_EQ(dot(0, {0x1p-63f, 0, -0x1p-76f}, {0x1p-63f, 0, 0x1p-75f}), 0x1p-126f);  // less 2^-151: half way
  EXPECT_EQ(dot(0, {0x1p-63f, 0, -0x1p-75f}, {0x1p-63f, 0, 0x1p-75f}), 0);          // less 2^-150
  EXPECT_TRUE(std::signbit(dot(-0x1.8p-126f, {1}, {0x1p-126f})));
}

TEST(EmulatedTiles, PassInfinityAndNaNOn) {
  EXPECT_EQ(dot(1, {kInfinity}, {2}), kInfinity);
  EXPECT_EQ(dot(-kInfinity, {1}, {2}), -kInfinity);
  EXPECT_TRUE(std::isnan(dot(1, {kInfinity}, {0})));
  EXPECT_TRUE(std::isnan(dot(1, {kInfinity, kInfinity}, {1, -1})));
  EXPECT_TRUE(std::isnan(dot(1, {kNaN}, {0})));
  EXPECT_TRUE(std::isnan(dot(kNaN, {1}, {1})));
}

// Compares with the CPU's fused multiply-add, element by element.
TEST(EmulatedTiles, AreFusedMultiplyAddsThatFlush) {
  const auto flushed = [](float x) { return std::abs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x; };
  const TileUnit& unit = gemm::tiles::amx::emulated_unit();
  std::mt19937_64 random(5);
  for (const int widest : {0, 20, 130}) {
    const auto draw = [&] {
      const float x = std::normal_distribution<float>()(random);
      return std::ldexp(x, static_cast<int>(random() % static_cast<uint64_t>(2 * widest + 1)) - widest);
    };
    alignas(64) uint16_t a[kStepElements], b[kStepElements];
    std::vector<float> c(kPanel * kPanel);
    for (uint16_t& x : a) x = static_cast<uint16_t>(bits_of(draw()) >> 16);
    for (uint16_t& x : b) x = static_cast<uint16_t>(bits_of(draw()) >> 16);
    for (float& x : c) x = draw();
    std::vector<float> want = c;
    for (int64_t i = 0; i < kPanel; ++i) {
      for (int64_t j = 0; j < kPanel; ++j) {
        float sums[2] = {};
        for (int64_t p = 0; p < kStep; ++p) {
          const float x = widened_bfloat16(a[i * kStep + p]);
          const float y = widened_bfloat16(b[j / 16 * 512 + p / 2 * 32 + j % 16 * 2 + p % 2]);
          sums[p % 2] = flushed(std::fma(flushed(x), flushed(y), sums[p % 2]));
        }
        float& element = want[static_cast<size_t>(i * kPanel + j)];
        element = flushed(flushed(element) + flushed(sums[0] + sums[1]));
      }
    }
    unit.multiply(a, b, 1, c.data(), kPanel, true);
    for (size_t i = 0; i < c.size(); ++i) ASSERT_EQ(bits_of(c[i]), bits_of(want[i])) << widest << ", element " << i;
  }
}

class PackingOfTheCpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!gemm::cpu_has_avx512_bfloat16()) GTEST_SKIP() << "this CPU lacks AVX-512 with bfloat16";
  }
  const TileUnit& emulated_ = gemm::tiles::amx::emulated_unit();
};

TEST_F(PackingOfTheCpu, WritesTheSameBytes) {
  const TileUnit& cpu = *gemm::tiles::amx::cpu_unit();
  constexpr int64_t kStride = 203;
  std::vector<uint16_t> data(kStride * kStride);
  std::mt19937_64 random(2);
  for (uint16_t& x : data) x = static_cast<uint16_t>(random());
  struct alignas(64) Panel {
    uint16_t at[4 * kStepElements];
  };
  const auto panels = std::make_unique<Panel[]>(2);
  for (const bool along_depth : {false, true}) {
    for (const auto reorder : {&TileUnit::reorder_a, &TileUnit::reorder_b}) {
      for (const int64_t edges : {1, 2, 15, 16, 17, 31, 32}) {
        for (const int64_t depth : {1, 2, 31, 32, 33, 63, 64, 100, 128}) {
          const View view = {data.data() + 1, along_depth ? kStride : 1, along_depth ? 1 : kStride};
          const auto used = static_cast<size_t>((depth + kStep - 1) / kStep * kStepElements) * sizeof(uint16_t);
          std::memset(panels.get(), 0xcc, 2 * sizeof(Panel));
          (cpu.*reorder)(view, edges, depth, panels[0].at);
          (emulated_.*reorder)(view, edges, depth, panels[1].at);
          ASSERT_EQ(0, std::memcmp(panels[0].at, panels[1].at, used)) << edges << " x " << depth;
          ASSERT_EQ(0, std::memcmp(&panels[0], &panels[1], sizeof(Panel))) << "written past its end";
        }
      }
    }
  }
}

}  // namespace amx_tiles_test
}  // namespace logitless::testing

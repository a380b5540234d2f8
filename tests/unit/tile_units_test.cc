// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Tests the emulated tile units of AMX and BFMMLA on cases worked out by hand and against other sums, and
// compares the CPU's units and panels with them bit by bit.
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
#include "gemm/bfmmla_tiles.h"
#include "gemm/cpu_bfloat16.h"

namespace logitless::testing {
namespace tile_units_test {

namespace amx = gemm::tiles::amx;
namespace bfmmla = gemm::tiles::bfmmla;
using gemm::tiles::kPanel;
using gemm::tiles::kStep;
using gemm::tiles::kStepElements;
using gemm::tiles::TileUnit;
using gemm::tiles::View;
using gemm::tiles::widened_bfloat16;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kMax = std::numeric_limits<float>::max();

uint32_t bits_of(float x) { return std::bit_cast<uint32_t>(x); }
uint16_t bfloat16_bits(float x) {
  EXPECT_EQ(bits_of(x) & 0xffff, 0u) << x << " is no bfloat16";
  return static_cast<uint16_t>(bits_of(x) >> 16);
}

// Returns a normal number times a power of two of up to 2^widest.
float scaled_normal(std::mt19937_64& random, int widest) {
  const float x = std::normal_distribution<float>()(random);
  return std::ldexp(x, static_cast<int>(random() % static_cast<uint64_t>(2 * widest + 1)) - widest);
}

// Returns a unit's result for c, with the first elements of a row of A and a column of B.
float dot(const TileUnit& unit, float c, const std::vector<float>& a, const std::vector<float>& b) {
  std::vector<uint16_t> a_row(kStep), b_column(kStep);
  std::transform(a.begin(), a.end(), a_row.begin(), bfloat16_bits);
  std::transform(b.begin(), b.end(), b_column.begin(), bfloat16_bits);
  alignas(64) uint16_t a_panel[kStepElements], b_panel[kStepElements];
  unit.reorder_a({a_row.data(), kStep, 1}, 1, kStep, a_panel);
  unit.reorder_b({b_column.data(), kStep, 1}, 1, kStep, b_panel);
  std::vector<float> block(kPanel * kPanel, c);
  unit.multiply(a_panel, b_panel, 1, block.data(), kPanel, true);
  return block[0];
}

float amx_dot(float c, const std::vector<float>& a, const std::vector<float>& b) {
  return dot(amx::emulated_unit(), c, a, b);
}

// Expects two units to write the same panels, and nothing after them.
void pack_the_same(const TileUnit& cpu, const TileUnit& emulated) {
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
          std::memset(panels.get(), 0xcc, 2 * sizeof(Panel));
          (cpu.*reorder)(view, edges, depth, panels[0].at);
          (emulated.*reorder)(view, edges, depth, panels[1].at);
          ASSERT_EQ(0, std::memcmp(&panels[0], &panels[1], sizeof(Panel))) << edges << " x " << depth;
        }
      }
    }
  }
}

TEST(EmulatedTiles, ArePackedAsByTheCpu) {
  if (!gemm::cpu_has_avx512_bfloat16()) GTEST_SKIP() << "this CPU lacks AVX-512 with bfloat16";
  pack_the_same(*amx::cpu_unit(), amx::emulated_unit());
}

TEST(Bfmmla, IsPackedAsByTheCpu) {
  if (!bfmmla::cpu_unit()) GTEST_SKIP() << "this CPU has no BFMMLA";
  pack_the_same(*bfmmla::cpu_unit(), bfmmla::emulated_unit());
}

TEST(EmulatedTiles, SumEvenAndOddProductsApartAndAddCLast) {
  EXPECT_EQ(amx_dot(3, {2, 5}, {7, 11}), 3 + 2 * 7 + 5 * 11);
  // Each 1 alone would be rounded away when added to 2^24.
  EXPECT_EQ(amx_dot(0x1p24f, {1, 1}, {1, 1}), 0x1p24f + 2);
  EXPECT_EQ(amx_dot(0x1p24f, {1, 0, 1}, {1, 0, 1}), 0x1p24f + 2);
  EXPECT_EQ(amx_dot(-0x1p24f, {0x1p12f, 0, 1, 1}, {0x1p12f, 0, 1, 1}), 0);
  EXPECT_EQ(amx_dot(-0x1p24f, {0x1p12f, 1, 0, 1}, {0x1p12f, 1, 0, 1}), 2);
  // In order: a 1 after 2^24 is lost, one before it is not.
  EXPECT_EQ(amx_dot(0, {0x1p12f, 0, 1, 0, 1}, {0x1p12f, 0, 1, 0, 1}), 0x1p24f);
  EXPECT_EQ(amx_dot(0, {1, 0, 1, 0, 0x1p12f}, {1, 0, 1, 0, 0x1p12f}), 0x1p24f + 2);
}

TEST(EmulatedTiles, RoundOnceAndToEven) {
  EXPECT_EQ(amx_dot(0, {0x1p12f, 0, 1}, {0x1p12f, 0, 3}), 0x1p24f + 4);  // 2^24 + 3 is half way
  // A product is not flushed, and does not overflow, before the addition.
  EXPECT_EQ(amx_dot(0, {0x1p-63f, 0, 0x1.8p-76f}, {0x1p-63f, 0, 0x1p-51f}), 0x1.cp-126f);
  EXPECT_EQ(amx_dot(0, {-0x1p64f, 0, 0x1p64f}, {0x1p63f, 0, 0x1p64f}), 0x1p127f);
  EXPECT_EQ(amx_dot(0, {0x1p64f}, {0x1p64f}), kInfinity);
  // Half way except for a product far below the last bit of a double.
  EXPECT_EQ(amx_dot(0, {0x1p12f, 0, 0x1p-60f}, {0x1p12f, 0, 0x1p-60f}), 0x1p24f);
  EXPECT_EQ(amx_dot(0, {0x1p12f, 0, 1, 0, 0x1p-60f}, {0x1p12f, 0, 1, 0, 0x1p-60f}), 0x1p24f);
  EXPECT_EQ(amx_dot(0, {0x1p-60f, 0, 0x1.02p0f}, {0x1p-60f, 0, 0x1.02p0f}), 0x1.0404p0f);
}

TEST(EmulatedTiles, TakeDenormalNumbersAsZerosAndFlushSuchSums) {
  EXPECT_EQ(amx_dot(1, {0x1p-127f}, {0x1p100f}), 1);
  EXPECT_TRUE(std::isnan(amx_dot(1, {0x1p-127f}, {kInfinity})));
  EXPECT_EQ(amx_dot(0x1p-127f, {1}, {0x1p-126f}), 0x1p-126f);
  EXPECT_EQ(amx_dot(-0x1p-126f, {1}, {0x1.8p-126f}), 0);
  EXPECT_EQ(amx_dot(0, {0x1p-64f}, {0x1p-63f}), 0);
  // A sum that would round to 2^-126 with a wider exponent range is kept.
  EXPECT_EQ(amx_dot(0, {0x1p-63f, 0, -0x1p-76f}, {0x1p-63f, 0, 0x1p-76f}), 0x1p-126f);  // less 2^-152
  EXPECT_EQ(amx_dot(0, {0x1p-63f, 0, -0x1p-76f}, {0x1p-63f, 0, 0x1p-75f}),
            0x1p-126f);                                                         // less 2^-151: half way
  EXPECT_EQ(amx_dot(0, {0x1p-63f, 0, -0x1p-75f}, {0x1p-63f, 0, 0x1p-75f}), 0);  // less 2^-150
  EXPECT_TRUE(std::signbit(amx_dot(-0x1.8p-126f, {1}, {0x1p-126f})));
}

TEST(EmulatedTiles, PassInfinityAndNaNOn) {
  EXPECT_EQ(amx_dot(1, {kInfinity}, {2}), kInfinity);
  EXPECT_EQ(amx_dot(-kInfinity, {1}, {2}), -kInfinity);
  EXPECT_TRUE(std::isnan(amx_dot(1, {kInfinity}, {0})));
  EXPECT_TRUE(std::isnan(amx_dot(1, {kInfinity, kInfinity}, {1, -1})));
  EXPECT_TRUE(std::isnan(amx_dot(1, {kNaN}, {0})));
  EXPECT_TRUE(std::isnan(amx_dot(kNaN, {1}, {1})));
}

// Compares with the CPU's fused multiply-add, element by element.
TEST(EmulatedTiles, AreFusedMultiplyAddsThatFlush) {
  const auto flushed = [](float x) { return std::abs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x; };
  const TileUnit& unit = amx::emulated_unit();
  std::mt19937_64 random(5);
  for (const int widest : {0, 20, 130}) {
    const auto draw = [&] { return scaled_normal(random, widest); };
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

// Returns the units that this machine has.
std::vector<const TileUnit*> units() {
  std::vector<const TileUnit*> out = {&bfmmla::emulated_unit()};
  if (const TileUnit* cpu = bfmmla::cpu_unit()) out.push_back(cpu);
  return out;
}

TEST(Bfmmla, AddsTwoProductsAndThenC) {
  for (const TileUnit* unit : units()) {
    SCOPED_TRACE(unit->emulated ? "emulated" : "CPU");
    EXPECT_EQ(dot(*unit, 3, {2, 5}, {7, 11}), 3 + 2 * 7 + 5 * 11);
    EXPECT_EQ(dot(*unit, 3, {2, 5, 1, 1}, {7, 11, 4, 8}), 3 + 2 * 7 + 5 * 11 + 4 + 8);
    EXPECT_EQ(dot(*unit, 0x1p24f, {1, 1}, {1, 1}), 0x1p24f + 2);  // a single 1 would be rounded away
    EXPECT_EQ(dot(*unit, 0, {0x1p12f, 0, -0x1p12f}, {0x1p12f, 0, 0x1p12f}), 0);
  }
}

TEST(Bfmmla, RoundsToOdd) {
  for (const TileUnit* unit : units()) {
    SCOPED_TRACE(unit->emulated ? "emulated" : "CPU");
    EXPECT_EQ(dot(*unit, 0x1p24f, {1}, {1}), 0x1p24f + 2);         // 2^24 + 1 has two neighbours
    EXPECT_EQ(dot(*unit, 0x1p24f + 2, {1}, {1}), 0x1p24f + 2);     // its last bit is already 1
    EXPECT_EQ(dot(*unit, 0x1p24f, {0x1p-60f}, {1}), 0x1p24f + 2);  // a little more rounds up
    EXPECT_EQ(dot(*unit, 0x1p24f + 4, {-0x1p-60f}, {1}), 0x1p24f + 2);
    EXPECT_EQ(dot(*unit, -0x1p24f, {0x1p-60f}, {1}), -0x1p24f + 1);
    EXPECT_EQ(dot(*unit, 0, {0x1p12f, 0x1p-60f}, {0x1p12f, 1}), 0x1p24f + 2);
    // A small product prevents the emulation from computing four columns at a time.
    EXPECT_EQ(dot(*unit, 1, {-0x1p-60f, 0x1p-63f}, {1, 0x1p-63f}), 0x1.fffffep-1f);
    EXPECT_EQ(dot(*unit, kMax, {1}, {1}), kMax);
    EXPECT_EQ(dot(*unit, 0, {0x1p64f}, {0x1p64f}), kInfinity);
    EXPECT_EQ(dot(*unit, kMax, {0x1p63f}, {0x1p41f}), kInfinity);  // 2^128 itself
  }
}

TEST(Bfmmla, TakesSmallNumbersAsZeros) {
  for (const TileUnit* unit : units()) {
    SCOPED_TRACE(unit->emulated ? "emulated" : "CPU");
    EXPECT_EQ(dot(*unit, 1, {0x1p-127f}, {0x1p100f}), 1);
    EXPECT_TRUE(std::isnan(dot(*unit, 1, {0x1p-127f}, {kInfinity})));
    EXPECT_EQ(dot(*unit, 0x1p-127f, {1}, {0x1p-126f}), 0x1p-126f);
    EXPECT_EQ(dot(*unit, -0x1p-126f, {1}, {0x1.8p-126f}), 0);
    EXPECT_EQ(dot(*unit, 0, {0x1p-64f}, {0x1p-63f}), 0);
  }
}

TEST(Bfmmla, PassesInfinityOnAndMakesTheDefaultNaN) {
  for (const TileUnit* unit : units()) {
    SCOPED_TRACE(unit->emulated ? "emulated" : "CPU");
    EXPECT_EQ(dot(*unit, 1, {kInfinity}, {2}), kInfinity);
    EXPECT_EQ(dot(*unit, -kInfinity, {1}, {2}), -kInfinity);
    EXPECT_EQ(bits_of(dot(*unit, 1, {kInfinity}, {0})), 0x7fc00000u);
    EXPECT_EQ(bits_of(dot(*unit, 1, {kInfinity, kInfinity}, {1, -1})), 0x7fc00000u);
    EXPECT_EQ(bits_of(dot(*unit, 1, {-kNaN}, {0})), 0x7fc00000u);
    EXPECT_EQ(bits_of(dot(*unit, -kNaN, {1}, {1})), 0x7fc00000u);
  }
}

// Numbers that are integers of at most 62 bits: the sums must equal integer sums rounded to odd.
TEST(Bfmmla, SumsAsIntegersDo) {
  const auto to_odd = [](int64_t x) {
    const uint64_t size = static_cast<uint64_t>(std::abs(x));
    const int cut = std::max(0, static_cast<int>(std::bit_width(size)) - 24);
    uint64_t kept = size >> cut;
    if (kept << cut != size) kept |= 1;
    return (x < 0 ? -1 : 1) * static_cast<int64_t>(kept << cut);
  };
  std::mt19937_64 random(6);
  const auto draw = [&](int digits, int most) {
    const auto size = static_cast<int64_t>(random() >> (64 - digits)) << random() % static_cast<uint64_t>(most);
    return random() % 2 == 0 ? size : -size;
  };
  for (int i = 0; i < 3000; ++i) {
    std::vector<float> a, b;
    int64_t want = draw(24, 37);
    const auto c = static_cast<float>(want);
    for (int p = 0; p < 8; p += 2) {
      int64_t products = 0;
      for (int q = 0; q < 2; ++q) {
        const int64_t x = draw(8, 21), y = draw(8, 21);
        a.push_back(static_cast<float>(x));
        b.push_back(static_cast<float>(y));
        products += x * y;
      }
      want = to_odd(want + to_odd(products));
    }
    for (const TileUnit* unit : units())
      ASSERT_EQ(dot(*unit, c, a, b), static_cast<float>(want)) << unit->emulated << i;
  }
}

TEST(Bfmmla, OfTheCpuHasTheBitsOfTheEmulatedOne) {
  if (!bfmmla::cpu_unit()) GTEST_SKIP() << "this CPU has no BFMMLA";
  std::mt19937_64 random(3);
  for (const int widest : {0, 20, 130}) {
    const auto draw = [&] { return scaled_normal(random, widest); };
    for (const int64_t steps : {1, 3}) {
      const auto elements = static_cast<size_t>(steps * kStepElements);
      std::vector<uint16_t> a(elements), b(elements);
      for (auto* panel : {&a, &b}) {
        for (uint16_t& x : *panel) x = static_cast<uint16_t>(bits_of(draw()) >> 16);
      }
      std::vector<float> c(kPanel * (kPanel + 3));
      for (float& x : c) x = draw();
      for (const bool accumulate : {false, true}) {
        std::vector<float> got = c, want = c;
        bfmmla::cpu_unit()->multiply(a.data(), b.data(), steps, got.data(), kPanel + 3, accumulate);
        bfmmla::emulated_unit().multiply(a.data(), b.data(), steps, want.data(), kPanel + 3, accumulate);
        ASSERT_EQ(0, std::memcmp(got.data(), want.data(), got.size() * sizeof(float))) << widest << ", " << steps;
      }
    }
  }
}

}  // namespace tile_units_test
}  // namespace logitless::testing

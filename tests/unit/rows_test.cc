// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Every vectorised row kernel against its plain twin, on every instruction set of this CPU, in exactly sized
// memory.
#include "kernels/row_kernels.h"

#include <gtest/gtest.h>
#include <hwy/highway.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <ostream>
#include <random>
#include <vector>

#include "logitless/context.h"
#include "support/guard_pages.h"

namespace logitless::kernels {

// The name of an instruction set in the list of tests, which must not be an address.
void PrintTo(const RowKernels* kernels, std::ostream* out) { *out << kernels->name; }

namespace {

using logitless::testing::Flush;
using logitless::testing::guarded_memory;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

/// An array whose last (or first) byte touches a page that nobody may touch.
template <class T>
class Guarded {
 public:
  Guarded(const std::vector<T>& values, Flush flush)
      : memory_(guarded_memory(std::max<size_t>(1, values.size()) * sizeof(T), flush)), size_(values.size()) {
    if (!values.empty()) std::memcpy(data(), values.data(), values.size() * sizeof(T));
  }
  T* data() const { return static_cast<T*>(memory_.get()); }
  std::vector<T> values() const { return {data(), data() + size_}; }

 private:
  std::shared_ptr<void> memory_;
  size_t size_;
};

/// What one kernel call works on; a test names only what it varies.
template <class T>
struct Tile {
  int64_t rows = 3;
  int64_t cols = 37;
  int64_t padding = 3;
  bool bias = false;
  T softcap = 0;
  std::optional<DType> round_to;
  bool entropy = false;
  bool argmax = false;
  bool prior = false;
  bool prior_weights = false;
  std::vector<T> logits;  // filled by seed() unless given

  int64_t stride() const { return cols + padding; }
  // The last row has no padding behind it: a kernel that reads there leaves the memory.
  size_t elements() const { return static_cast<size_t>((rows - 1) * stride() + cols); }
  void seed(unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<double> normal(0, 4);
    logits.resize(elements());
    for (T& x : logits) x = static_cast<T>(normal(random));
    logits[elements() / 2] += 15;  // peaked
  }
};

template <class T>
std::vector<T> sequence(int64_t count, double from, double step) {
  std::vector<T> out;
  for (int64_t i = 0; i < count; ++i) out.push_back(static_cast<T>(from + step * static_cast<double>(i % 11)));
  return out;
}

template <class T>
std::vector<RowStats> fold(const TypedKernels<T>& kernels, const Tile<T>& tile, Flush flush = Flush::kEnd) {
  const Guarded<T> logits(tile.logits, flush);
  const Guarded<T> bias(sequence<T>(tile.cols, -1, 0.25), flush);
  const Guarded<float> weights(sequence<float>(tile.cols, 0, 0.125), flush);
  const Guarded<T> scratch(std::vector<T>(static_cast<size_t>(tile.cols), static_cast<T>(kNan)), flush);
  const Guarded<T> inverse_temperature(sequence<T>(tile.rows, 0.5, 0.25), flush);
  std::vector<int32_t> targets(static_cast<size_t>(tile.rows), -1);
  for (int64_t r = 0; r < tile.rows; ++r)
    targets[static_cast<size_t>(r)] = static_cast<int32_t>(r % (tile.cols + 2)) - 1;
  const Guarded<int32_t> target(targets, flush);
  std::vector<RowStats> stats(static_cast<size_t>(tile.rows));
  FoldArgs<T> args;
  args.shape = {tile.rows, tile.cols, tile.stride(), tile.bias ? bias.data() : nullptr, tile.softcap, tile.round_to};
  args.logits = logits.data();
  args.inverse_temperature = inverse_temperature.data();
  args.target = target.data();
  args.first_column = 100;
  args.entropy = tile.entropy;
  args.argmax = tile.argmax;
  args.prior = tile.prior;
  args.prior_weights = tile.prior_weights ? weights.data() : nullptr;
  args.uniform_prior = 0.01;
  const std::vector<float> q = weights.values();
  args.weights_mass = std::accumulate(q.begin(), q.end(), 0.0);
  args.scratch = scratch.data();
  args.stats = stats.data();
  kernels.fold(args);
  EXPECT_EQ(0, std::memcmp(logits.data(), tile.logits.data(), tile.logits.size() * sizeof(T))) << "fold wrote logits";
  return stats;
}

/// Counts the columns above chosen[row], on top of 5.
template <class T>
std::vector<int64_t> count_above(const TypedKernels<T>& kernels, const Tile<T>& tile, const std::vector<T>& chosen,
                                 Flush flush = Flush::kEnd) {
  const Guarded<T> logits(tile.logits, flush);
  const Guarded<T> bias(sequence<T>(tile.cols, -1, 0.25), flush);
  const Guarded<T> scratch(std::vector<T>(static_cast<size_t>(tile.cols), static_cast<T>(kNan)), flush);
  const Guarded<T> limits(chosen, flush);
  const Guarded<int64_t> counts(std::vector<int64_t>(chosen.size(), 5), flush);
  kernels.count_above(
      {{tile.rows, tile.cols, tile.stride(), tile.bias ? bias.data() : nullptr, tile.softcap, tile.round_to},
       logits.data(),
       limits.data(),
       scratch.data(),
       counts.data()});
  EXPECT_EQ(0, std::memcmp(logits.data(), tile.logits.data(), tile.logits.size() * sizeof(T))) << "the logits changed";
  return counts.values();
}

/// gradients with every term on, rows `kept` of the tile
template <class T>
std::vector<T> gradient(const TypedKernels<T>& kernels, const Tile<T>& tile, const std::vector<int32_t>& kept,
                        Flush flush = Flush::kEnd, bool apart = false) {
  const Guarded<T> logits(tile.logits, flush);
  const Guarded<T> out(tile.logits, flush);
  const Guarded<T> bias(sequence<T>(tile.cols, -1, 0.25), flush);
  const Guarded<float> weights(sequence<float>(tile.cols, 0, 0.125), flush);
  const Guarded<T> scratch(std::vector<T>(static_cast<size_t>(tile.cols), static_cast<T>(kNan)), flush);
  std::vector<RowGradient<T>> gradients;
  for (const int32_t row : kept) {
    RowGradient<T> g;
    g.max = static_cast<T>(8 + row);
    g.log_sum = static_cast<T>(9.5);
    g.inverse_temperature = static_cast<T>(0.5 + 0.25 * row);
    g.softmax_term = static_cast<T>(-1.25);
    g.entropy_term = tile.entropy ? static_cast<T>(0.75) : 0;
    g.entropy = static_cast<T>(2.5);
    g.prior_term = tile.prior ? static_cast<T>(-0.5) : 0;
    g.target_gradient = static_cast<T>(3);
    g.target = row % (static_cast<int32_t>(tile.cols) + 1);
    g.source_row = row;
    gradients.push_back(g);
  }
  GradientArgs<T> args;
  args.shape = {tile.rows, tile.cols, tile.stride(), tile.bias ? bias.data() : nullptr, tile.softcap, tile.round_to};
  args.logits = logits.data();
  args.out = apart ? out.data() : logits.data();
  args.count = static_cast<int64_t>(kept.size());
  args.gradients = gradients.data();
  args.entropy = tile.entropy;
  args.prior = tile.prior;
  args.prior_weights = tile.prior_weights ? weights.data() : nullptr;
  args.uniform_prior = 0.01;
  args.scratch = scratch.data();
  kernels.gradient(args);
  if (apart) {
    EXPECT_EQ(logits.values(), tile.logits) << "the logits were written";
  }
  return apart ? out.values() : logits.values();
}

/// |got − want| within `relative` of want, and NaN and infinities alike.
void expect_close(double got, double want, double relative, const char* what) {
  if (std::isnan(want)) {
    EXPECT_TRUE(std::isnan(got)) << what << " is " << got << ", not NaN";
  } else if (std::isinf(want)) {
    EXPECT_EQ(got, want) << what;
  } else {
    EXPECT_TRUE(std::abs(got - want) <= relative * std::abs(want)) << what << " is " << got << ", not " << want;
  }
}

template <class T>
void expect_same_stats(const std::vector<RowStats>& got, const std::vector<RowStats>& want, const Tile<T>& tile) {
  const double eps = std::numeric_limits<T>::epsilon();
  // Both sides round u = (c − max) / t once or twice, and exp carries |u| eps of it; tanh differs by 4 ulp,
  // which a softcap scales up to its size. |u| is at most a few dozen on these inputs. Sums add (cols + 8)
  // eps as the contract says.
  const double term = eps * (64 + 16 * static_cast<double>(tile.softcap));
  const double sum = term + eps * static_cast<double>(tile.cols + 8);
  for (size_t r = 0; r < want.size(); ++r) {
    expect_close(got[r].max, want[r].max, tile.softcap > 0 ? 8 * eps : 0, "max");
    expect_close(got[r].rest, want[r].rest, sum, "rest");
    expect_close(got[r].weighted, want[r].weighted, sum, "weighted");
    expect_close(got[r].prior, want[r].prior, sum, "prior");
    expect_close(got[r].prior_mass, want[r].prior_mass, 1e-12, "prior_mass");
    expect_close(got[r].chosen, want[r].chosen, tile.softcap > 0 ? 8 * eps : 0, "chosen");
    EXPECT_EQ(got[r].argmax, want[r].argmax);
  }
}

template <class T>
void expect_same_gradient(const std::vector<T>& got, const std::vector<T>& want, double softcap) {
  const double eps = std::numeric_limits<T>::epsilon();
  double scale = 0;
  for (const T x : want) scale = std::max(scale, std::abs(static_cast<double>(x)));
  for (size_t i = 0; i < want.size(); ++i) {
    // As above; the terms of one element may cancel, so the bound is relative to the largest of the tile.
    EXPECT_TRUE(std::abs(static_cast<double>(got[i]) - want[i]) <= eps * (64 + 16 * softcap) * scale)
        << i << ": " << got[i] << ", not " << want[i];
  }
}

class SimdTargets : public ::testing::TestWithParam<const RowKernels*> {};

template <class T>
void compare_all_options(const RowKernels& simd) {
  const TypedKernels<T>& plain = plain_kernels().typed<T>();
  unsigned seed = 1;
  for (const int64_t cols : {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 64, 65, 127, 200}) {
    for (int option = 0; option < 24; ++option) {
      Tile<T> tile;
      tile.cols = cols;
      tile.padding = option % 5;
      tile.bias = option & 1;
      tile.softcap = option & 2 ? 5 : 0;
      tile.entropy = option & 4;
      tile.argmax = option & 4;
      tile.prior = option >= 8;
      tile.prior_weights = option >= 16;
      tile.seed(seed++);
      SCOPED_TRACE("cols " + std::to_string(cols) + " option " + std::to_string(option));
      for (const Flush flush : {Flush::kEnd, Flush::kBegin}) {
        expect_same_stats(fold(simd.typed<T>(), tile, flush), fold(plain, tile, flush), tile);
        for (const auto& kept : {std::vector<int32_t>{0, 1, 2}, {1}, {0, 2}}) {
          expect_same_gradient(gradient(simd.typed<T>(), tile, kept, flush), gradient(plain, tile, kept, flush),
                               static_cast<double>(tile.softcap));
        }
      }
    }
  }
}

TEST_P(SimdTargets, MatchesThePlainKernelsInFloat32) { compare_all_options<float>(*GetParam()); }
TEST_P(SimdTargets, MatchesThePlainKernelsInFloat64) { compare_all_options<double>(*GetParam()); }

// The vector's every lane, and the scalar tail behind it, must see what is special.
template <class T>
void plant_special_values(const RowKernels& kernels) {
  for (const double special : {kNan, kInf, -kInf}) {
    for (const T softcap : {T{0}, T{5}}) {
      for (int64_t at = 0; at < 37; ++at) {
        Tile<T> tile;
        tile.rows = 1;
        tile.softcap = softcap;
        tile.entropy = tile.argmax = tile.prior = true;
        tile.seed(7);
        tile.logits[static_cast<size_t>(at)] = static_cast<T>(special);
        const RowStats got = fold(kernels.typed<T>(), tile)[0];
        const RowStats want = fold(plain_kernels().typed<T>(), tile)[0];
        SCOPED_TRACE("special " + std::to_string(special) + " at " + std::to_string(at));
        EXPECT_EQ(std::isnan(got.max), std::isnan(special));
        if (std::isnan(special)) continue;
        expect_close(got.max, want.max, softcap > 0 ? 1e-6 : 0, "max");
        expect_close(got.rest, want.rest, 1e-4, "rest");
        expect_close(got.weighted, want.weighted, 1e-4, "weighted");
        expect_close(got.prior, want.prior, 1e-4, "prior");
        EXPECT_EQ(got.argmax, want.argmax);
      }
    }
  }
}

TEST_P(SimdTargets, SeesASpecialValueInEveryColumn) {
  plant_special_values<float>(*GetParam());
  plant_special_values<double>(*GetParam());
}

TEST_P(SimdTargets, NothingButMinusInfinityIsNoMass) {
  Tile<float> tile;
  tile.entropy = tile.prior = true;
  tile.logits.assign(tile.elements(), -std::numeric_limits<float>::infinity());
  for (const RowStats& stats : fold(GetParam()->f32, tile)) {
    EXPECT_EQ(stats.max, -kInf);
    EXPECT_EQ(stats.rest, 0);
    EXPECT_EQ(stats.weighted, 0);
    EXPECT_DOUBLE_EQ(stats.prior_mass, 0.37);
  }
}

TEST_P(SimdTargets, NoColumnsChangeNothing) {
  Tile<float> tile;
  tile.seed(3);
  tile.cols = 0;
  RowStats before;
  before.max = 3;
  before.rest = 0.5;
  std::vector<RowStats> stats(3, before);
  FoldArgs<float> args;
  args.shape = {3, 0, tile.stride(), nullptr, 0, {}};
  args.logits = tile.logits.data();
  args.stats = stats.data();
  GetParam()->f32.fold(args);
  for (const RowStats& s : stats) {
    EXPECT_EQ(s.max, 3);
    EXPECT_EQ(s.rest, 0.5);
  }
}

// exp(x), x in [-87, 0], within 2 ulp: read off the gradient kernel, which computes −p · softmax_term.
TEST_P(SimdTargets, ExponentialWithinTwoUlp) {
  constexpr int64_t kCount = 1 << 18;
  std::vector<float> x(kCount), scratch(kCount);
  for (int64_t i = 0; i < kCount; ++i) x[static_cast<size_t>(i)] = -87.0f * static_cast<float>(i) / kCount;
  std::vector<float> y = x;
  RowGradient<float> g;
  g.softmax_term = -1;
  GradientArgs<float> args;
  args.shape = {1, kCount, kCount, nullptr, 0, {}};
  args.logits = args.out = y.data();
  args.count = 1;
  args.gradients = &g;
  args.scratch = scratch.data();
  GetParam()->f32.gradient(args);
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double exact = std::exp(static_cast<double>(x[i]));
    worst = std::max(worst, std::abs(y[i] - exact) / std::ldexp(1.0, std::ilogb(exact) - 23));
  }
  EXPECT_TRUE(worst <= 2) << worst << " ulp";
}

TEST_P(SimdTargets, ColumnSumsAndAdditions) {
  for (const int64_t cols : {1, 5, 16, 33}) {
    Tile<float> tile;
    tile.cols = cols;
    tile.seed(static_cast<unsigned>(cols));
    for (const bool accumulate : {false, true}) {
      const Guarded<float> logits(tile.logits, Flush::kEnd);
      const std::vector<float> start(static_cast<size_t>(cols), accumulate ? 2.0f : static_cast<float>(kNan));
      const Guarded<float> got(start, Flush::kEnd), want(start, Flush::kEnd);
      GetParam()->f32.add_column_sums(logits.data(), tile.stride(), tile.rows, cols, accumulate, got.data());
      plain_kernels().f32.add_column_sums(logits.data(), tile.stride(), tile.rows, cols, accumulate, want.data());
      EXPECT_EQ(got.values(), want.values());
    }
    const Guarded<float> from(std::vector<float>(tile.logits.begin(), tile.logits.begin() + cols), Flush::kEnd);
    const Guarded<float> got(sequence<float>(cols, 1, 2), Flush::kEnd), want(sequence<float>(cols, 1, 2), Flush::kEnd);
    GetParam()->f32.add(from.data(), cols, got.data());
    plain_kernels().f32.add(from.data(), cols, want.data());
    EXPECT_EQ(got.values(), want.values());
  }
}

std::vector<uint16_t> rounded(const RowKernels& kernels, const std::vector<float>& from, bool accumulate) {
  const Guarded<float> source(from, Flush::kEnd);
  const Guarded<bfloat16> to(std::vector<bfloat16>(from.size(), bfloat16{0x3F81}), Flush::kEnd);
  kernels.round_bf16(source.data(), static_cast<int64_t>(from.size()), accumulate, to.data());
  std::vector<uint16_t> bits;
  for (const bfloat16 x : to.values()) bits.push_back(x.bits);
  return bits;
}

TEST_P(SimdTargets, RoundsToNearestEven) {
  // Ties to even both ways, just beside the ties, overflow to infinity, denormals, signed zeros, infinities,
  // NaN.
  const std::vector<uint32_t> bits = {0x3F808000, 0x3F818000, 0x3F808001, 0x3F807FFF, 0x7F7FFFFF, 0x00000001,
                                      0x00008000, 0x00018000, 0x80000000, 0x00000000, 0x7F800000, 0xFF800000,
                                      0x7F800001, 0xFFFFFFFF, 0xBF808000, 0xBF818000, 0xC2C80000, 0x42C80000};
  const std::vector<uint16_t> want = {0x3F80, 0x3F82, 0x3F81, 0x3F80, 0x7F80, 0x0000, 0x0000, 0x0002, 0x8000,
                                      0x0000, 0x7F80, 0xFF80, 0x7FC0, 0xFFFF, 0xBF80, 0xBF82, 0xC2C8, 0x42C8};
  std::vector<float> values;
  for (const uint32_t b : bits) values.push_back(std::bit_cast<float>(b));
  EXPECT_EQ(rounded(*GetParam(), values, false), want);
  EXPECT_EQ(rounded(plain_kernels(), values, false), want);
  EXPECT_EQ(rounded(*GetParam(), values, true), rounded(plain_kernels(), values, true));
}

TEST_P(SimdTargets, WidensEveryBfloat16Exactly) {
  std::vector<bfloat16> all(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i].bits = static_cast<uint16_t>(i);
  const Guarded<bfloat16> from(all, Flush::kEnd);
  const Guarded<float> to(std::vector<float>(all.size()), Flush::kEnd);
  GetParam()->widen_bf16(from.data(), 65536, to.data());
  for (uint32_t i = 0; i < 65536; ++i) ASSERT_EQ(std::bit_cast<uint32_t>(to.data()[i]), i << 16);
}

TEST_P(SimdTargets, WidensEveryFloat16Exactly) {
  std::vector<float16> all(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i].bits = static_cast<uint16_t>(i);
  for (const RowKernels* kernels : {GetParam(), &plain_kernels()}) {
    const Guarded<float16> from(all, Flush::kEnd);
    const Guarded<float> to(std::vector<float>(all.size()), Flush::kEnd);
    kernels->widen_f16(from.data(), 65536, to.data());
    for (int i = 0; i < 65536; ++i) {
      const int exponent = i >> 10 & 31, mantissa = i & 1023;
      const float got = to.data()[i];
      ASSERT_EQ(std::signbit(got), i >= 0x8000) << i;
      if (exponent == 31) {
        ASSERT_TRUE(mantissa == 0 ? std::isinf(got) : std::isnan(got)) << i;
      } else {
        ASSERT_EQ(std::abs(got), exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25))
            << i;
      }
    }
  }
}

std::vector<uint16_t> rounded_to_half(const RowKernels& kernels, const std::vector<float>& from, bool accumulate) {
  const Guarded<float> source(from, Flush::kEnd);
  const Guarded<float16> to(std::vector<float16>(from.size(), float16{0x3C01}), Flush::kEnd);
  kernels.round_f16(source.data(), static_cast<int64_t>(from.size()), accumulate, to.data());
  std::vector<uint16_t> bits;
  for (const float16 x : to.values()) bits.push_back(x.bits);
  return bits;
}

// Each half number, the middle to its next one, and the floats on both sides of both: every place where
// rounding turns.
TEST_P(SimdTargets, RoundsToTheNearestFloat16AtEveryEdge) {
  std::vector<float> values;
  std::vector<uint16_t> want;
  const auto expect = [&](float value, uint32_t magnitude) {
    for (const uint32_t sign : {0u, 0x8000u}) {
      values.push_back(sign ? -value : value);
      want.push_back(static_cast<uint16_t>(sign | magnitude));
    }
  };
  const auto value_of = [](uint32_t half) {  // of infinity: what would be the next number
    return static_cast<float>(half < 0x400 ? std::ldexp(half, -24)
                                           : std::ldexp(1024 + (half & 1023), static_cast<int>(half >> 10) - 25));
  };
  for (uint32_t half = 0; half < 0x7C00; ++half) {
    const float here = value_of(half), middle = (here + value_of(half + 1)) / 2;
    expect(here, half);
    expect(std::nextafter(here, 1e9f), half);
    expect(std::nextafter(middle, 0.0f), half);
    expect(middle, half % 2 == 0 ? half : half + 1);
    expect(std::nextafter(middle, 1e9f), half + 1);
    expect(std::nextafter(value_of(half + 1), 0.0f), half + 1);
  }
  for (const float large : {65536.0f, 1e9f, std::numeric_limits<float>::max(), static_cast<float>(kInf)})
    expect(large, 0x7C00);
  expect(std::numeric_limits<float>::denorm_min(), 0);
  values.insert(values.end(), {std::bit_cast<float>(0x7F800001), std::bit_cast<float>(0xFFFFE000)});
  want.insert(want.end(), {0x7E00, 0xFFFF});
  for (const RowKernels* kernels : {GetParam(), &plain_kernels()}) {
    const std::vector<uint16_t> got = rounded_to_half(*kernels, values, false);
    for (size_t i = 0; i < want.size(); ++i) ASSERT_EQ(got[i], want[i]) << kernels->name << ": " << values[i];
  }
  EXPECT_EQ(rounded_to_half(*GetParam(), values, true), rounded_to_half(plain_kernels(), values, true));
}

// One logit alone: its raw value comes back as stats.chosen.
template <class T>
T rounded_logit(const RowKernels& kernels, DType round_to, T value, T bias) {
  FoldArgs<T> args;
  const T one = 1;
  const int32_t target = 0;
  T scratch = 0;
  RowStats stats;
  args.shape = {1, 1, 1, &bias, 0, round_to};
  args.logits = &value;
  args.inverse_temperature = &one;
  args.target = &target;
  args.scratch = &scratch;
  args.stats = &stats;
  kernels.typed<T>().fold(args);
  return static_cast<T>(stats.chosen);
}

template <class T>
void expect_rounded_logits(const RowKernels& simd) {
  for (const RowKernels* kernels : {&simd, &plain_kernels()}) {
    for (const DType type : {DType::kFloat16, DType::kBFloat16}) {
      const bool half = type == DType::kFloat16;
      const T ulp = half ? T{0x1p-10} : T{0x1p-7}, least = half ? T{0x1p-24} : static_cast<T>(0x1p-133);
      const T largest = half ? T{65504} : static_cast<T>(0x1.FEp127),
              last_half = half ? T{16} : static_cast<T>(0x1p119);
      const T eps = std::numeric_limits<T>::epsilon();
      const auto expect = [&](T value, T want) {
        for (const T sign : {T{1}, T{-1}}) {
          EXPECT_EQ(rounded_logit<T>(*kernels, type, sign * value, 0), sign * want)
              << kernels->name << ", " << name_of(type) << " of " << value;
        }
      };
      expect(1, 1);
      expect(1 + ulp / 2, 1);
      expect(1 + ulp / 2 + 2 * eps, 1 + ulp);
      expect(1 + ulp * 3 / 2, 1 + 2 * ulp);
      expect(1 + ulp * 3 / 2 - 2 * eps, 1 + ulp);
      expect(3 * least, 3 * least);
      expect(least * T{2.5}, 2 * least);
      expect(least * T{3.5}, 4 * least);
      expect(least / 2, 0);
      expect(least * T{0.75}, least);
      expect(largest, largest);
      if (half || sizeof(T) == 8) expect(std::nextafter(largest + last_half, T{0}), largest);
      expect(largest + last_half, static_cast<T>(kInf));
      expect(static_cast<T>(kInf), static_cast<T>(kInf));
      // The bias belongs to the raw logit: it is added before the rounding.
      EXPECT_EQ(rounded_logit<T>(*kernels, type, 1, ulp * T{0.75}), 1 + ulp);
      EXPECT_TRUE(std::isnan(rounded_logit<T>(*kernels, type, static_cast<T>(kNan), 0)));
    }
  }
}

TEST_P(SimdTargets, RoundsLogitsToNarrowTypes) {
  expect_rounded_logits<float>(*GetParam());
  expect_rounded_logits<double>(*GetParam());
}

template <class T>
void compare_rounded_tiles(const RowKernels& simd) {
  for (const DType type : {DType::kFloat16, DType::kBFloat16}) {
    for (const int64_t cols : {1, 15, 16, 37}) {
      for (const T softcap : {T{0}, T{5}}) {
        Tile<T> tile;
        tile.cols = cols;
        tile.bias = tile.entropy = tile.argmax = tile.prior = true;
        tile.softcap = softcap;
        tile.round_to = type;
        tile.seed(static_cast<unsigned>(cols));
        const TypedKernels<T>&fast = simd.typed<T>(), &plain = plain_kernels().typed<T>();
        expect_same_stats(fold(fast, tile), fold(plain, tile), tile);
        expect_same_gradient(gradient(fast, tile, {0, 2}), gradient(plain, tile, {0, 2}), static_cast<double>(softcap));
      }
    }
  }
}

TEST_P(SimdTargets, TilesOfRoundedLogitsMatchThePlainKernels) {
  compare_rounded_tiles<float>(*GetParam());
  compare_rounded_tiles<double>(*GetParam());
}

// Above what fold() of the same kernels has chosen; rows without a target have NaN there.
template <class T>
std::vector<int64_t> count_above_target(const TypedKernels<T>& kernels, const Tile<T>& tile, Flush flush) {
  std::vector<T> chosen;
  for (const RowStats& stats : fold(kernels, tile, flush)) chosen.push_back(static_cast<T>(stats.chosen));
  return count_above(kernels, tile, chosen, flush);
}

template <class T>
void compare_counts(const RowKernels& simd) {
  unsigned seed = 1;
  for (const int64_t cols : {0, 1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 33, 64, 65, 200}) {
    for (const std::optional<DType> round_to : {std::optional<DType>(), {DType::kBFloat16}, {DType::kFloat16}}) {
      for (int option = 0; option < 4; ++option) {
        Tile<T> tile;
        tile.rows = 7;
        tile.cols = std::max<int64_t>(cols, 1);
        tile.bias = option & 1;
        tile.softcap = option & 2 ? 30 : 0;
        tile.round_to = round_to;
        tile.seed(seed++);
        tile.cols = cols;
        SCOPED_TRACE("cols " + std::to_string(cols) + " option " + std::to_string(option));
        for (const Flush flush : {Flush::kEnd, Flush::kBegin}) {
          EXPECT_EQ(count_above_target(simd.typed<T>(), tile, flush),
                    count_above_target(plain_kernels().typed<T>(), tile, flush));
        }
      }
    }
  }
}

TEST_P(SimdTargets, CountsLikeThePlainKernels) {
  compare_counts<float>(*GetParam());
  compare_counts<double>(*GetParam());
}

// Every lane, and the scalar tail behind the vectors, counts what is larger and nothing else.
template <class T>
void count_one_by_one(const TypedKernels<T>& kernels) {
  for (const T softcap : {T{0}, T{5}}) {
    Tile<T> tile;
    tile.rows = 1;
    tile.softcap = softcap;
    tile.logits.assign(tile.elements(), T{1.5});
    const T equal = static_cast<T>(fold(kernels, tile)[0].max);
    EXPECT_EQ(count_above(kernels, tile, {equal}), std::vector<int64_t>{5}) << "equal logits";
    EXPECT_EQ(count_above(kernels, tile, {std::nextafter(equal, T{0})}), std::vector<int64_t>{5 + tile.cols});
    EXPECT_EQ(count_above(kernels, tile, {static_cast<T>(kNan)}), std::vector<int64_t>{5});
    EXPECT_EQ(count_above(kernels, tile, {static_cast<T>(-kInf)}), std::vector<int64_t>{5 + tile.cols});
    for (int64_t at = 0; at < tile.cols; ++at) {
      for (const double other : {2.0, 1.0, -kInf, kInf}) {
        Tile<T> one = tile;
        one.logits[static_cast<size_t>(at)] = static_cast<T>(other);
        EXPECT_EQ(count_above(kernels, one, {equal}), std::vector<int64_t>{other > 1.5 ? 6 : 5}) << other << " " << at;
      }
    }
  }
}

TEST_P(SimdTargets, CountsEveryColumnThatIsLarger) {
  for (const RowKernels* kernels : {GetParam(), &plain_kernels()}) {
    count_one_by_one(kernels->f32);
    count_one_by_one(kernels->f64);
  }
}

TEST_P(SimdTargets, GradientsApartFromTheLogits) {
  for (const int64_t cols : {1, 16, 37}) {
    for (const int option : {0, 1, 2, 3}) {
      Tile<float> tile;
      tile.cols = cols;
      tile.bias = option & 1;
      tile.softcap = option & 2 ? 5 : 0;
      tile.entropy = tile.prior = true;
      tile.seed(static_cast<unsigned>(cols));
      EXPECT_EQ(gradient(GetParam()->f32, tile, {0, 2}, Flush::kEnd, true),
                gradient(GetParam()->f32, tile, {0, 2}, Flush::kEnd, false));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllTargets, SimdTargets, ::testing::ValuesIn(simd_kernels()),
                         [](const auto& info) { return std::string(info.param->name); });

TEST(Dispatch, ReachesTheBestTargetOfThisCpu) {
  // Lower bits are better targets; the scalar one is what remains when nothing else is there.
  const int64_t supported = hwy::SupportedTargets();
  const int64_t best = supported & -supported;
  EXPECT_EQ(Context().simd_target(), hwy::TargetName(best));
}

TEST(Dispatch, AContextRunsTheTargetThatItNames) {
  std::vector<std::string> names = simd_targets();
  EXPECT_EQ(names.back(), "plain");
  EXPECT_EQ(names.size(), simd_kernels().size() + 1);
  std::vector<const void*> functions;
  for (const std::string& name : names) {
    ContextOptions options;
    options.simd_target = name;
    EXPECT_EQ(Context(options).simd_target(), name);
    // Two names that share a kernel would be one target under two names.
    functions.push_back(reinterpret_cast<const void*>(find_kernels(name)->f32.fold));
  }
  std::sort(functions.begin(), functions.end());
  EXPECT_EQ(std::adjacent_find(functions.begin(), functions.end()), functions.end());
}

TEST(RowStatsMerge, JoinsInEveryGrouping) {
  Tile<double> tile;
  tile.rows = 1;
  tile.cols = 30;
  tile.padding = 0;
  tile.entropy = tile.argmax = tile.prior = true;
  tile.seed(5);
  const RowStats whole = fold(plain_kernels().f64, tile)[0];
  for (size_t cut = 1; cut < 30; ++cut) {
    Tile<double> left = tile, right = tile;
    left.cols = static_cast<int64_t>(cut);
    left.logits.resize(cut);
    right.cols = static_cast<int64_t>(30 - cut);
    right.logits.erase(right.logits.begin(), right.logits.begin() + static_cast<int64_t>(cut));
    const RowStats joined = merge(fold(plain_kernels().f64, left)[0], fold(plain_kernels().f64, right)[0], 0.5);
    EXPECT_EQ(joined.max, whole.max);
    expect_close(joined.rest, whole.rest, 1e-13, "rest");
    expect_close(joined.weighted, whole.weighted, 1e-13, "weighted");
    expect_close(joined.prior, whole.prior, 1e-13, "prior");
  }
}

}  // namespace
}  // namespace logitless::kernels

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Compares the kernels that round, widen, and fold rounded logits, on every instruction set of this CPU, with
// IEEE 754 and with their plain twins.
#include <bit>

#include "row_kernel_calls.h"

namespace logitless::kernels {
namespace rounding_test {

// Rounds to numbers that hold `before`, or adds to it.
template <class To>
std::vector<uint16_t> rounded(const RowKernels& kernels, const std::vector<float>& from, bool accumulate, To before) {
  const Guarded<float> source(from, Flush::kEnd);
  const Guarded<To> to(std::vector<To>(from.size(), before), Flush::kEnd);
  const auto count = static_cast<int64_t>(from.size());
  if constexpr (std::is_same_v<To, bfloat16>) kernels.round_bf16(source.data(), count, accumulate, to.data());
  if constexpr (std::is_same_v<To, float16>) kernels.round_f16(source.data(), count, accumulate, to.data());
  std::vector<uint16_t> bits;
  for (const To x : to.values()) bits.push_back(x.bits);
  return bits;
}

TEST_P(SimdTargets, RoundsToNearestEven) {
  // Ties to even both ways, numbers next to ties, overflow to infinity, denormals, signed zeros, infinities,
  // NaN.
  const std::vector<uint32_t> bits = {0x3F808000, 0x3F818000, 0x3F808001, 0x3F807FFF, 0x7F7FFFFF, 0x00000001,
                                      0x00008000, 0x00018000, 0x80000000, 0x00000000, 0x7F800000, 0xFF800000,
                                      0x7F800001, 0xFFFFFFFF, 0xBF808000, 0xBF818000, 0xC2C80000, 0x42C80000};
  const std::vector<uint16_t> want = {0x3F80, 0x3F82, 0x3F81, 0x3F80, 0x7F80, 0x0000, 0x0000, 0x0002, 0x8000,
                                      0x0000, 0x7F80, 0xFF80, 0x7FC0, 0xFFFF, 0xBF80, 0xBF82, 0xC2C8, 0x42C8};
  std::vector<float> values;
  for (const uint32_t b : bits) values.push_back(std::bit_cast<float>(b));
  EXPECT_EQ(rounded(*GetParam(), values, false, bfloat16{0x3F81}), want);
  EXPECT_EQ(rounded(plain_kernels(), values, false, bfloat16{0x3F81}), want);
  EXPECT_EQ(rounded(*GetParam(), values, true, bfloat16{0x3F81}),
            rounded(plain_kernels(), values, true, bfloat16{0x3F81}));
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

// Each half number, the midpoint to the next one, and the floats on both sides of either: all places where
// rounding changes.
TEST_P(SimdTargets, RoundsToTheNearestFloat16AtEveryEdge) {
  std::vector<float> values;
  std::vector<uint16_t> want;
  const auto expect = [&](float value, uint32_t magnitude) {
    for (const uint32_t sign : {0u, 0x8000u}) {
      values.push_back(sign ? -value : value);
      want.push_back(static_cast<uint16_t>(sign | magnitude));
    }
  };
  const auto value_of = [](uint32_t half) {  // for infinity: the number that would come next
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
    const std::vector<uint16_t> got = rounded(*kernels, values, false, float16{0x3C01});
    for (size_t i = 0; i < want.size(); ++i) ASSERT_EQ(got[i], want[i]) << kernels->name << ": " << values[i];
  }
  EXPECT_EQ(rounded(*GetParam(), values, true, float16{0x3C01}),
            rounded(plain_kernels(), values, true, float16{0x3C01}));
}

// Folds one logit, and returns its raw value through a pick.
template <class T>
T rounded_logit(const RowKernels& kernels, DType round_to, T value, T bias) {
  FoldArgs<T> args;
  const T one = 1;
  const int64_t id = 0, row = 0;
  double picked = 0;
  T scratch = 0;
  RowStats stats;
  args.shape = {1, 1, 1, &bias, 0, round_to};
  args.logits = &value;
  args.inverse_temperature = &one;
  args.picks.ids = &id;
  args.call_rows = &row;
  args.picked = &picked;
  args.scratch = &scratch;
  args.stats = &stats;
  kernels.typed<T>().fold(args);
  return static_cast<T>(picked);
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
      // The bias is part of the raw logit: it is added before rounding.
      EXPECT_EQ(rounded_logit<T>(*kernels, type, 1, ulp * T{0.75}), 1 + ulp);
      EXPECT_TRUE(std::isnan(rounded_logit<T>(*kernels, type, static_cast<T>(kNan), 0)));
    }
  }
}

TEST_P(SimdTargets, RoundsLogitsToNarrowTypes) {
  expect_rounded_logits<float>(*GetParam());
  expect_rounded_logits<double>(*GetParam());
}

}  // namespace rounding_test
}  // namespace logitless::kernels

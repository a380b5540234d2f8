// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Compares every vectorised row kernel with its plain twin, on every instruction set of this CPU, in memory
// of the exact size.
#include <hwy/highway.h>

#include "logitless/context.h"
#include "row_kernel_calls.h"

namespace logitless::kernels {
namespace rows_test {

template <class T>
void compare_all_options(const RowKernels& simd) {
  const TypedKernels<T>& plain = plain_kernels().typed<T>();
  unsigned seed = 1;
  for (const int64_t cols : {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 64, 65, 127, 200}) {
    for (int option = 0; option < 32; ++option) {
      Tile<T> tile;
      tile.cols = cols;
      tile.padding = option % 5;
      tile.bias = option & 1;
      tile.softcap = option & 2 ? 5 : 0;
      tile.entropy = option & 4;
      tile.argmax = option & 4;
      tile.cross = option >= 8;
      tile.cross_weights = option >= 16 && option < 24;
      tile.row_weights = option >= 24;
      if (option % 7 == 3) tile.round_to = DType::kFloat16;
      if (option % 7 == 6) tile.round_to = DType::kBFloat16;
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

// Compares the masses of segments. Computing them must not change the statistics.
template <class T>
void compare_masses(const RowKernels& simd) {
  unsigned seed = 500;
  for (const int64_t cols : {1, 7, 63, 64, 65, 100, 128, 200, 333}) {
    for (const double special : {0.0, kNan, kInf, -kInf}) {
      for (int option = 0; option < 8; ++option) {
        Tile<T> tile;
        tile.cols = cols;
        tile.bias = option & 1;
        tile.softcap = option & 2 ? 5 : 0;
        tile.entropy = tile.cross = option & 4;
        tile.seed(seed++);
        if (special != 0) tile.logits[static_cast<size_t>(tile.stride() + cols / 2)] = static_cast<T>(special);
        SCOPED_TRACE("cols " + std::to_string(cols) + " option " + std::to_string(option));
        const Folded without = fold(simd.typed<T>(), tile);
        tile.masses = true;
        const Folded got = fold(simd.typed<T>(), tile), want = fold(plain_kernels().typed<T>(), tile);
        for (size_t r = 0; r < got.stats.size(); ++r) {
          EXPECT_EQ(0, std::memcmp(&got.stats[r], &without.stats[r], sizeof(RowStats))) << r;
          if (!std::isnan(want.largest[r])) expect_close(got.largest[r], want.largest[r], 1e-6, "largest");
        }
        const size_t segments = got.masses.size() / got.stats.size();
        for (size_t k = 0; k < got.masses.size(); ++k) {
          const bool is_number = want.largest[k / segments] < kInf;
          ASSERT_EQ(std::isnan(got.masses[k]), !is_number) << k;
          ASSERT_EQ(std::isnan(want.masses[k]), !is_number) << k;
          if (is_number)
            expect_close(static_cast<double>(got.masses[k]), static_cast<double>(want.masses[k]), 1e-4, "mass");
        }
        // In a row without a special value they add up to the sum of its exponentials.
        double sum = 0;
        for (size_t k = 0; k < segments; ++k) sum += static_cast<double>(got.masses[k]);
        expect_close(sum, 1 + got.stats[0].rest, 1e-4, "sum");
      }
    }
  }
}

TEST_P(SimdTargets, MassesOfSegments) {
  compare_masses<float>(*GetParam());
  compare_masses<double>(*GetParam());
}

// Plants special values in every lane and in the scalar tail.
template <class T>
void plant_special_values(const RowKernels& kernels) {
  for (const double special : {kNan, kInf, -kInf}) {
    for (const T softcap : {T{0}, T{5}}) {
      for (int64_t at = 0; at < 37; ++at) {
        Tile<T> tile;
        tile.rows = 1;
        tile.softcap = softcap;
        tile.entropy = tile.argmax = tile.cross = true;
        tile.seed(7);
        tile.logits[static_cast<size_t>(at)] = static_cast<T>(special);
        const RowStats got = fold(kernels.typed<T>(), tile).stats[0];
        const RowStats want = fold(plain_kernels().typed<T>(), tile).stats[0];
        SCOPED_TRACE("special " + std::to_string(special) + " at " + std::to_string(at));
        EXPECT_EQ(std::isnan(got.max), std::isnan(special));
        if (std::isnan(special)) continue;
        expect_close(got.max, want.max, softcap > 0 ? 1e-6 : 0, "max");
        expect_close(got.rest, want.rest, 1e-4, "rest");
        expect_close(got.weighted, want.weighted, 1e-4, "weighted");
        expect_close(got.cross, want.cross, 1e-4, "cross");
        EXPECT_EQ(got.argmax, want.argmax);
      }
    }
  }
}

TEST_P(SimdTargets, SeesASpecialValueInEveryColumn) {
  plant_special_values<float>(*GetParam());
  plant_special_values<double>(*GetParam());
}

// exp(x) is within 2 ulp for x in [-87, 0]; its values come from the gradient kernel, which computes −p ·
// softmax_scale.
TEST_P(SimdTargets, ExponentialWithinTwoUlp) {
  constexpr int64_t kCount = 1 << 18;
  std::vector<float> x(kCount), scratch(kCount);
  for (int64_t i = 0; i < kCount; ++i) x[static_cast<size_t>(i)] = -87.0f * static_cast<float>(i) / kCount;
  std::vector<float> y = x;
  RowGradient<float> g;
  g.softmax_scale = -1;
  GradientArgs<float> args;
  args.shape = {1, kCount, kCount, nullptr, 0, {}};
  args.logits = args.out = y.data();
  args.out_stride = kCount;
  args.count = 1;
  args.gradients = &g;
  const int32_t place = 0;
  args.places = &place;
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

// Counts the logits above the first pick of fold() by the same kernels. Rows whose pick is outside the tile
// have NaN.
template <class T>
std::vector<int64_t> count_above_pick(const TypedKernels<T>& kernels, const Tile<T>& tile, Flush flush) {
  const TilePicks picks(tile.rows, tile.cols);
  const std::vector<double> picked = fold(kernels, tile, flush).picked;
  std::vector<T> thresholds;
  for (size_t r = 0; r < picks.call_rows.size(); ++r) thresholds.push_back(static_cast<T>(picked[picks.first_of(r)]));
  return count_above(kernels, tile, thresholds, flush);
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
          EXPECT_EQ(count_above_pick(simd.typed<T>(), tile, flush),
                    count_above_pick(plain_kernels().typed<T>(), tile, flush));
        }
      }
    }
  }
}

TEST_P(SimdTargets, CountsLikeThePlainKernels) {
  compare_counts<float>(*GetParam());
  compare_counts<double>(*GetParam());
}

// Every lane and the scalar tail must count exactly the larger logits.
template <class T>
void count_one_by_one(const TypedKernels<T>& kernels) {
  for (const T softcap : {T{0}, T{5}}) {
    Tile<T> tile;
    tile.rows = 1;
    tile.softcap = softcap;
    tile.logits.assign(tile.elements(), T{1.5});
    const T equal = static_cast<T>(fold(kernels, tile).stats[0].max);
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
      tile.entropy = tile.cross = true;
      tile.seed(static_cast<unsigned>(cols));
      EXPECT_EQ(gradient(GetParam()->f32, tile, {0, 2}, Flush::kEnd, true),
                gradient(GetParam()->f32, tile, {0, 2}, Flush::kEnd, false));
    }
  }
}

// A bfloat16 gradient is the float32 gradient rounded once; the second term is the rounded residual.
void rounds_gradients_once(const RowKernels& kernels, const Tile<float>& tile, NarrowForm form) {
  for (const Flush flush : {Flush::kEnd, Flush::kBegin}) {
    const std::vector<int32_t> kept = {0, 2};
    const std::vector<float> exact = gradient(kernels.f32, tile, kept, flush);
    const std::vector<bfloat16> got = narrow_gradient(kernels.bf16, tile, kept, flush, form);
    const size_t cols = static_cast<size_t>(tile.cols), terms = static_cast<size_t>(form.terms);
    ASSERT_EQ(got.size(), terms * kept.size() * cols);
    for (size_t k = 0; k < kept.size(); ++k) {
      std::vector<float> left(exact.begin() + static_cast<int64_t>(k) * tile.stride(),
                              exact.begin() + static_cast<int64_t>(k) * tile.stride() + tile.cols);
      for (size_t term = 0; term < terms; ++term) {
        std::vector<bfloat16> want(cols);
        plain_kernels().round_bf16(left.data(), tile.cols, false, want.data());
        const bfloat16* row = got.data() + (term * kept.size() + k) * cols;
        EXPECT_EQ(0, std::memcmp(row, want.data(), cols * sizeof(bfloat16))) << "term " << term << " of row " << k;
        std::vector<float> widened(cols);
        plain_kernels().widen_bf16(row, tile.cols, widened.data());
        for (size_t v = 0; v < cols; ++v) left[v] = std::isfinite(left[v]) ? left[v] - widened[v] : 0;
      }
    }
  }
}

// Rounding residuals of the gradients are summed per row and per column. The gradients do not change.
void sums_what_is_left(const RowKernels& kernels, const Tile<float>& tile) {
  const std::vector<int32_t> kept = {0, 2};
  const auto cols = static_cast<size_t>(tile.cols);
  const std::vector<float> exact = gradient(kernels.f32, tile, kept);
  const std::vector<bfloat16> want = narrow_gradient(kernels.bf16, tile, kept, Flush::kEnd, {});
  const Guarded<float> rows(std::vector<float>(kept.size(), 99), Flush::kEnd);
  const Guarded<float> columns(std::vector<float>(cols, 99), Flush::kEnd);
  const Guarded<float> sizes(std::vector<float>(cols, 99), Flush::kEnd);
  const std::vector<bfloat16> got =
      narrow_gradient(kernels.bf16, tile, kept, Flush::kEnd, {1, false, {rows.data(), columns.data(), sizes.data()}});
  EXPECT_EQ(0, std::memcmp(got.data(), want.data(), got.size() * sizeof(bfloat16)));
  std::vector<float> widened(got.size());
  plain_kernels().widen_bf16(got.data(), static_cast<int64_t>(got.size()), widened.data());
  std::vector<double> of_rows(kept.size()), of_columns(cols), of_sizes(cols);
  double size = 0;
  for (size_t k = 0; k < kept.size(); ++k) {
    for (size_t v = 0; v < cols; ++v) {
      const double d = exact[k * static_cast<size_t>(tile.stride()) + v], left = d - widened[k * cols + v];
      of_rows[k] += left;
      of_columns[v] += left;
      of_sizes[v] += std::abs(d);
      size = std::max(size, std::abs(d));
    }
  }
  // The gradient that a pick replaces is no larger than the others; it is added and subtracted again.
  const double bound = 0x1p-22 * 0x1p-8 * size * static_cast<double>(tile.cols + 4);
  for (size_t k = 0; k < kept.size(); ++k) EXPECT_NEAR(rows.data()[k], of_rows[k], bound) << "row " << k;
  for (size_t v = 0; v < cols; ++v) EXPECT_NEAR(columns.data()[v], of_columns[v], bound) << "column " << v;
  for (size_t v = 0; v < cols; ++v) EXPECT_NEAR(sizes.data()[v], of_sizes[v], 0x1p-20 * size) << "size " << v;
}

// Calls use(kernels, tile, option) with tiles of every shape, for each option in [0, options).
template <class Use>
void for_each_narrow_tile(const RowKernels& target, int options, const Use& use) {
  for (const RowKernels* kernels : {&target, &plain_kernels()}) {
    for (const int64_t cols : {1, 15, 16, 37, 64}) {
      for (int option = 0; option < options; ++option) {
        Tile<float> tile;
        tile.cols = cols;
        tile.padding = option % 3;
        tile.bias = option & 1;
        tile.softcap = option & 2 ? 5 : 0;
        tile.entropy = tile.cross = true;
        tile.seed(static_cast<unsigned>(cols));
        SCOPED_TRACE(std::string(kernels->name) + " cols " + std::to_string(cols) + " option " +
                     std::to_string(option));
        use(*kernels, tile, option);
      }
    }
  }
}

TEST_P(SimdTargets, SumsWhatRoundingLeaves) {
  for_each_narrow_tile(*GetParam(), 4, [](const RowKernels& kernels, const Tile<float>& tile, int) {
    sums_what_is_left(kernels, tile);
  });
}

TEST_P(SimdTargets, GradientsInBFloat16) {
  for_each_narrow_tile(*GetParam(), 16, [](const RowKernels& kernels, const Tile<float>& tile, int option) {
    rounds_gradients_once(kernels, tile, {option & 4 ? 2 : 1, (option & 8) != 0});
  });
}

TEST_P(SimdTargets, GradientsInBFloat16KeepWhatIsNotFinite) {
  for (const double special : {kInf, -kInf, kNan}) {
    for (const int terms : {1, 2}) {
      Tile<float> tile;
      tile.seed(3);
      std::vector<RowGradient<float>> rows = row_gradients(tile, {0});
      const PickGradient<float> pick = {5, static_cast<float>(special)};
      rows[0].picks = &pick;
      rows[0].pick_count = 1;
      const int32_t place = 0;
      std::vector<float> scratch(static_cast<size_t>(2 * tile.cols));
      std::vector<bfloat16> out(static_cast<size_t>(2 * tile.cols));
      GradientArgs<float, bfloat16> args;
      args.shape = {tile.rows, tile.cols, tile.stride(), nullptr, 0, {}};
      args.logits = tile.logits.data();
      args.out = out.data();
      args.out_stride = tile.cols;
      args.low = terms == 2 ? out.data() + tile.cols : nullptr;
      args.count = 1;
      args.gradients = rows.data();
      args.places = &place;
      args.scratch = scratch.data();
      GetParam()->bf16.gradient(args);
      std::vector<float> got(out.size());
      plain_kernels().widen_bf16(out.data(), static_cast<int64_t>(out.size()), got.data());
      expect_close(got[5], special, 0, "the gradient");
      if (terms == 2) {
        EXPECT_EQ(got[static_cast<size_t>(tile.cols) + 5], 0) << "the low term";
      }
      rows[0].max = static_cast<float>(kNan);
      GetParam()->bf16.gradient(args);
      plain_kernels().widen_bf16(out.data(), static_cast<int64_t>(out.size()), got.data());
      for (int64_t v = 0; v < tile.cols; ++v) EXPECT_TRUE(std::isnan(got[static_cast<size_t>(v)])) << v;
    }
  }
}

TEST_P(SimdTargets, SumsColumnsOfBFloat16) {
  constexpr int64_t kRows = 5, kCols = 37, kStride = 41;
  std::vector<float> values;
  for (int64_t i = 0; i < kRows * kStride; ++i) values.push_back(static_cast<float>(i % 23) / 8 - 1);
  std::vector<bfloat16> tile(values.size());
  plain_kernels().round_bf16(values.data(), static_cast<int64_t>(values.size()), false, tile.data());
  for (const bool accumulate : {false, true}) {
    std::vector<float> sums(kCols, 2);
    GetParam()->bf16.add_column_sums(tile.data(), kStride, kRows, kCols, accumulate, sums.data());
    for (int64_t v = 0; v < kCols; ++v) {
      float want = accumulate ? 2 : 0;
      for (int64_t row = 0; row < kRows; ++row) want += values[static_cast<size_t>(row * kStride + v)];
      EXPECT_EQ(sums[static_cast<size_t>(v)], want) << v;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllTargets, SimdTargets, ::testing::ValuesIn(simd_kernels()),
                         [](const auto& info) { return std::string(info.param->name); });

TEST(Dispatch, ReachesTheBestTargetOfThisCpu) {
  // Lower bits are better targets; the scalar target is the fallback. Highway does not compile AVX3_DL by
  // default.
  const int64_t left_out = HWY_DISABLED_TARGETS | HWY_AVX3_DL;
  const int64_t supported = hwy::SupportedTargets() & ~left_out;
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
    // If two names shared a kernel, they would be the same target.
    functions.push_back(reinterpret_cast<const void*>(find_kernels(name)->f32.fold));
  }
  std::sort(functions.begin(), functions.end());
  EXPECT_EQ(std::adjacent_find(functions.begin(), functions.end()), functions.end());
}

TEST(RowStatsMerge, TheEarlierOfEqualLogitsStaysTheArgmax) {
  RowStats earlier, later;
  earlier.max = later.max = 3;
  earlier.argmax = 1, later.argmax = 7;
  EXPECT_EQ(merge(earlier, later, 1).argmax, 1);
  later.max = 4;
  EXPECT_EQ(merge(earlier, later, 1).argmax, 7);
}

}  // namespace rows_test
}  // namespace logitless::kernels

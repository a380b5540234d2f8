// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Compares every vectorised kernel for two heads with its plain twin, on every instruction set of this CPU,
// in memory of the exact size.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "kernels/divergence_kernels.h"
#include "row_kernel_calls.h"

namespace logitless::kernels {

namespace divergence_rows_test {

const DivergenceForm kForms[] = {DivergenceForm::kKl, DivergenceForm::kMixture, DivergenceForm::kOverlap};
const std::pair<DivergenceForm, PairSlope> kFormsAndSlopes[] = {{DivergenceForm::kKl, PairSlope::kNone},
                                                                {DivergenceForm::kKl, PairSlope::kLogRatio},
                                                                {DivergenceForm::kKl, PairSlope::kSign},
                                                                {DivergenceForm::kMixture, PairSlope::kNone},
                                                                {DivergenceForm::kOverlap, PairSlope::kNone}};

// The input of one call: a student's and a teacher's tile, with the same rows and columns but different
// strides.
template <class T>
struct Pairs {
  Tile<T> student, teacher;
  DivergenceRule<T> rule;
  bool softmax = true;

  Pairs(DivergenceForm form, int64_t cols, unsigned seed, bool capped, PairSlope slope = PairSlope::kLogRatio) {
    teacher.padding = 5;
    for (Tile<T>* tile : {&student, &teacher}) {
      tile->cols = cols;
      tile->bias = capped;
      tile->softcap = capped ? 6 : 0;
      tile->seed(++seed * 7);
    }
    teacher.bias = true;
    // The two nearly agree in some columns, which tests ties and the series near 0.
    for (int64_t r = 0; r < student.rows; ++r) {
      for (int64_t v = r; v < cols; v += 3) {
        teacher.logits[static_cast<size_t>(r * teacher.stride() + v)] =
            student.logits[static_cast<size_t>(r * student.stride() + v)] * T(0.999);
      }
    }
    rule = {form, slope, T(0.3), T(0.7), T(0.7), T(-0.2)};
  }

  // The log-sum-exp slightly exceeds the largest logit, so that log-probabilities are at most 0.
  std::vector<RowPair<T>> rows() const {
    std::vector<RowPair<T>> out;
    for (int64_t r = 0; r < student.rows; ++r) {
      out.push_back({{static_cast<T>(25), static_cast<T>(0.5 + 0.1 * static_cast<double>(r)), T{0.5}},
                     {static_cast<T>(26), static_cast<T>(0.7), T{0.75}}});
    }
    return out;
  }
};

template <class T>
TileShape<T> shape_of(const Tile<T>& tile, const Guarded<T>& bias) {
  return {tile.rows, tile.cols, tile.stride(), tile.bias ? bias.data() : nullptr, tile.softcap, tile.round_to};
}

// Returns the sums of a fold, and the masses of segments if requested.
template <class T>
std::vector<DivergenceSums> fold(const TypedKernels<T>& kernels, const Pairs<T>& pairs, Flush flush,
                                 std::vector<float>* masses = nullptr) {
  const Guarded<T> student(pairs.student.logits, flush), teacher(pairs.teacher.logits, flush);
  const Guarded<T> bias(sequence<T>(pairs.student.cols, -1, 0.25), flush);
  const Guarded<T> scratch(std::vector<T>(static_cast<size_t>(2 * pairs.student.cols), static_cast<T>(kNan)), flush);
  const Guarded<RowPair<T>> rows(pairs.rows(), flush);
  std::vector<DivergenceSums> sums(static_cast<size_t>(pairs.student.rows));
  DivergenceFoldArgs<T> args = {pairs.rule,     shape_of(pairs.student, bias),
                                student.data(), shape_of(pairs.teacher, bias),
                                teacher.data(), rows.data(),
                                scratch.data(), sums.data()};
  const int64_t segments = (pairs.student.cols + kSegment - 1) / kSegment;
  const Guarded<float> of_segments(
      std::vector<float>(static_cast<size_t>(pairs.student.rows * segments), static_cast<float>(kNan)), flush);
  if (masses) {
    args.mass = {T(0.5), T(0.25), T(0.75)};
    args.masses = of_segments.data();
    args.masses_stride = segments;
  }
  kernels.divergence_fold(args);
  if (masses) *masses = of_segments.values();
  EXPECT_EQ(student.values(), pairs.student.logits) << "the logits changed";
  EXPECT_EQ(teacher.values(), pairs.teacher.logits) << "the teacher's logits changed";
  return sums;
}

// Returns the gradients of rows 0 and 2 of the tile, in place, or in bfloat16 in another buffer.
template <class T, class Kernels>
auto gradient(const Kernels& kernels, const Pairs<T>& pairs, Flush flush, bfloat16* narrow = nullptr,
              Residuals residuals = {}) {
  const std::vector<int32_t> kept = {0, 2};
  const Guarded<T> teacher(pairs.teacher.logits, flush);
  const Guarded<T> bias(sequence<T>(pairs.teacher.cols, -1, 0.25), flush);
  const GradientInputs<T> inputs(pairs.student, kept, flush, 3);
  std::vector<RowDivergence<T>> divergences;
  for (const int32_t row : kept) {
    RowDivergence<T> g;
    g.pair = pairs.rows()[static_cast<size_t>(row)];
    g.by_difference = T{0.5};
    g.by_slope = T{0.75};
    g.mean = T(-0.1);
    g.log_overlap = T{-3};
    divergences.push_back(g);
  }
  const auto make = [&](auto args, auto* out) {
    args.base = inputs.template args<std::remove_pointer_t<decltype(out)>>();
    args.base.out = out;
    args.base.out_stride = pairs.student.stride();
    args.base.residuals = residuals;
    args.rule = pairs.rule;
    args.softmax = pairs.softmax;
    args.divergences = divergences.data();
    args.teacher_shape = shape_of(pairs.teacher, bias);
    args.teacher_logits = teacher.data();
    kernels.divergence_gradient(args);
  };
  if constexpr (std::is_same_v<Kernels, TypedKernels<T>>) {
    make(DivergenceGradientArgs<T>(), inputs.logits.data());
  } else {
    make(DivergenceGradientArgs<T, bfloat16>(), narrow);
  }
  EXPECT_EQ(teacher.values(), pairs.teacher.logits) << "the teacher's logits changed";
  return inputs.logits.values();
}

// Computing masses as well must not change the sums.
void expect_same_sums(const std::vector<DivergenceSums>& got, const std::vector<DivergenceSums>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t r = 0; r < want.size(); ++r) {
    for (double DivergenceSums::*sum :
         {&DivergenceSums::forward, &DivergenceSums::reverse, &DivergenceSums::distance, &DivergenceSums::overlap,
          &DivergenceSums::slope, &DivergenceSums::shared, &DivergenceSums::below}) {
      EXPECT_EQ(got[r].*sum, want[r].*sum);
    }
  }
}

class DivergenceTargets : public ::testing::TestWithParam<const RowKernels*> {};

template <class T>
void compare(const TypedKernels<T>& simd, const TypedKernels<T>& plain) {
  unsigned seed = 1;
  const double eps = std::numeric_limits<T>::epsilon();
  for (const int64_t cols : {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 64, 65, 127, 200}) {
    for (const auto& [form, slope] : kFormsAndSlopes) {
      for (const bool capped : {false, true}) {
        for (const Flush flush : {Flush::kEnd, Flush::kBegin}) {
          SCOPED_TRACE("cols " + std::to_string(cols) + " form " + std::to_string(static_cast<int>(form)));
          Pairs<T> pairs(form, cols, seed++, capped, slope);
          const std::vector<DivergenceSums> got = fold(simd, pairs, flush), want = fold(plain, pairs, flush);
          for (size_t r = 0; r < want.size(); ++r) {
            // As in rows_test: log-probabilities, of at most a few dozen, have a relative error of eps; tanh
            // differs by 4 ulp of the softcap; sums add (cols + 16) eps. The bound of a signed sum is
            // relative to sums without cancellation.
            const double bound =
                eps * (256 + 32 * static_cast<double>(pairs.student.softcap) + static_cast<double>(cols));
            const double scale = want[r].forward + want[r].reverse + want[r].distance + want[r].overlap;
            EXPECT_NEAR(got[r].forward, want[r].forward, bound * scale);
            EXPECT_NEAR(got[r].reverse, want[r].reverse, bound * scale);
            EXPECT_NEAR(got[r].distance, want[r].distance, bound * scale);
            EXPECT_NEAR(got[r].overlap, want[r].overlap, bound * scale);
            EXPECT_NEAR(got[r].slope, want[r].slope, 64 * bound * scale);
            if (form != DivergenceForm::kOverlap) continue;
            EXPECT_NEAR(got[r].most, want[r].most, bound * (1 + std::abs(want[r].most)));
            EXPECT_NEAR(got[r].shared, want[r].shared, bound * want[r].shared * (1 + std::abs(want[r].most)));
            EXPECT_NEAR(got[r].below, want[r].below, bound * want[r].shared * (1 + std::abs(want[r].most)));
          }
          std::vector<float> got_masses, want_masses;
          expect_same_sums(fold(simd, pairs, flush, &got_masses), got);
          fold(plain, pairs, flush, &want_masses);
          ASSERT_EQ(got_masses.size(), want_masses.size());
          for (size_t i = 0; i < want_masses.size(); ++i) {
            const auto want_mass = static_cast<double>(want_masses[i]);
            EXPECT_NEAR(static_cast<double>(got_masses[i]), want_mass, 1e-4 * want_mass + 1e-30) << i;
          }
          for (const bool softmax : {false, true}) {
            pairs.softmax = softmax;
            expect_same_gradient(gradient(simd, pairs, flush), gradient(plain, pairs, flush),
                                 static_cast<double>(8 + pairs.student.softcap));
          }
          if (::testing::Test::HasFailure()) return;
        }
      }
    }
  }
}

TEST_P(DivergenceTargets, MatchThePlainKernelsInFloat32) { compare(GetParam()->f32, plain_kernels().f32); }
TEST_P(DivergenceTargets, MatchThePlainKernelsInFloat64) { compare(GetParam()->f64, plain_kernels().f64); }

// A special entry is planted in every lane and in the scalar tail: one that the student, the teacher or both
// have masked.
TEST_P(DivergenceTargets, MaskedColumnsWeighAsTheirLimits) {
  for (const DivergenceForm form : kForms) {
    for (int64_t at = 0; at < 37; ++at) {
      for (int who = 1; who < 4; ++who) {
        Pairs<float> pairs(form, 37, 5, false);
        pairs.student.rows = pairs.teacher.rows = 1;
        pairs.student.logits.resize(37);
        pairs.teacher.logits.resize(37);
        if (who & 1) pairs.student.logits[static_cast<size_t>(at)] = -std::numeric_limits<float>::infinity();
        if (who & 2) pairs.teacher.logits[static_cast<size_t>(at)] = -std::numeric_limits<float>::infinity();
        const DivergenceSums got = fold(GetParam()->f32, pairs, Flush::kEnd)[0];
        const DivergenceSums want = fold(plain_kernels().f32, pairs, Flush::kEnd)[0];
        SCOPED_TRACE("form " + std::to_string(static_cast<int>(form)) + " masked " + std::to_string(who));
        expect_close(got.forward, want.forward, 1e-4, "forward");
        expect_close(got.reverse, want.reverse, 1e-4, "reverse");
        expect_close(got.distance, want.distance, 1e-4, "distance");
        expect_close(got.overlap, want.overlap, 1e-4, "overlap");
        expect_close(got.shared, want.shared, 1e-4, "shared");
        EXPECT_EQ(std::isinf(got.forward), form == DivergenceForm::kKl && who == 1);
      }
    }
  }
}

TEST_P(DivergenceTargets, ARowWithoutANumberHasNone) {
  for (const DivergenceForm form : kForms) {
    Pairs<float> pairs(form, 5, 3, false);
    std::vector<RowPair<float>> rows = pairs.rows();
    rows[1].teacher.log_sum = static_cast<float>(kNan);
    std::vector<float> scratch(10);
    std::vector<DivergenceSums> sums(3);
    const Guarded<float> bias(sequence<float>(5, -1, 0.25), Flush::kEnd);
    GetParam()->f32.divergence_fold({pairs.rule, shape_of(pairs.student, bias), pairs.student.logits.data(),
                                     shape_of(pairs.teacher, bias), pairs.teacher.logits.data(), rows.data(),
                                     scratch.data(), sums.data()});
    for (size_t r = 0; r < 3; ++r) EXPECT_EQ(std::isnan(sums[r].distance), r == 1);
  }
}

// Rounding residuals of a row are counted once, including its replaced columns.
TEST_P(DivergenceTargets, SumWhatRoundingLeaves) {
  Pairs<float> pairs(DivergenceForm::kKl, 37, 5, false);
  const auto cols = static_cast<size_t>(pairs.student.cols), stride = static_cast<size_t>(pairs.student.stride());
  // Give some probability to the columns that picks replace.
  for (const size_t column : {size_t{0}, cols - 1}) pairs.student.logits[column] = 25.3F;
  for (const size_t column : {size_t{2}, cols - 1}) pairs.student.logits[2 * stride + column] = 19.1F;
  const std::vector<float> exact = gradient(GetParam()->f32, pairs, Flush::kEnd);
  std::vector<bfloat16> rounded(2 * stride);
  std::vector<float> of_rows(2), of_columns(cols), sizes(cols), widened(rounded.size());
  gradient(GetParam()->bf16, pairs, Flush::kEnd, rounded.data(), {of_rows.data(), of_columns.data(), sizes.data()});
  plain_kernels().widen_bf16(rounded.data(), static_cast<int64_t>(rounded.size()), widened.data());
  for (size_t k = 0; k < 2; ++k) {
    double left = 0, size = 0;
    for (size_t v = 0; v < cols; ++v) {
      left += static_cast<double>(exact[k * stride + v]) - static_cast<double>(widened[k * stride + v]);
      size = std::max(size, std::abs(static_cast<double>(exact[k * stride + v])));
    }
    EXPECT_NEAR(of_rows[k], left, 0x1p-28 * size * static_cast<double>(cols)) << k;
  }
}

INSTANTIATE_TEST_SUITE_P(AllTargets, DivergenceTargets, ::testing::ValuesIn(simd_kernels()),
                         [](const auto& info) { return std::string(info.param->name); });

}  // namespace divergence_rows_test
}  // namespace logitless::kernels

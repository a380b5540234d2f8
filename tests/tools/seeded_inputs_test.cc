// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Seeded inputs: the same on every machine, and as random as specified.
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
namespace seeded_inputs_test {

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

}  // namespace seeded_inputs_test
}  // namespace logitless::io

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// A trainer makes thousands of calls and allocates in between: its process must not grow by a workspace per
// call.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <vector>

#include "logitless/logitless.h"
#include "support/calls.h"
#include "support/views.h"

namespace logitless::testing {
namespace {

int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

TEST(RepeatedCalls, DoNotGrowTheProcess) {
  constexpr int64_t kTokens = 512, kHidden = 64, kVocab = 8000;
  std::vector<float> hidden(kTokens * kHidden, 0.01f), weight(kVocab * kHidden, 0.02f), d_hidden(hidden.size()),
      d_weight(weight.size());
  const std::vector<int32_t> targets(kTokens, 3);
  Gradients gradients;
  gradients.d_hidden = {d_hidden.data(), kTokens, kHidden};
  gradients.d_weight = {d_weight.data(), kVocab, kHidden};
  const Context context({.workspace_bytes = size_t{12} << 20});
  std::vector<std::vector<char>> kept;
  int64_t settled = 0;
  size_t workspace = 0;
  for (int call = 0; call < 24; ++call) {
    const CrossEntropyResult result = cross_entropy(context, ConstMatrix(hidden.data(), kTokens, kHidden),
                                                    LmHead({weight.data(), kVocab, kHidden}, HeadLayout::kVocabHidden),
                                                    std::span<const int32_t>(targets), {}, gradients);
    workspace = result.plan.workspace_bytes;
    kept.emplace_back(40000, 'x');  // the caller's block lands where the workspace was
    if (call == 3) settled = resident_bytes();
  }
  ASSERT_GT(workspace, size_t{8} << 20);
  // If each call left a workspace behind, there would be twenty. Huge pages and the kernel's own batching
  // account for less than a few.
  EXPECT_LT(resident_bytes() - settled, static_cast<int64_t>(4 * workspace));
}

}  // namespace
}  // namespace logitless::testing

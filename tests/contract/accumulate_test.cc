// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The rounding error of an accumulating gradient: a single rounding if sums are separate from the output, and
// otherwise the error in tensors.h.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "logitless/cross_entropy.h"
#include "support/calls.h"
#include "support/inputs.h"
#include "support/views.h"

namespace logitless::testing {
namespace accumulate_test {

// Adds d_hidden over 12 tiles of the vocabulary, and d_weight over blocks of rows, to numbers a million times
// larger.
TEST(Accumulated, GradientsLoseNoMoreThanTheirHeaderSays) {
  struct Case {
    PlanKind plan;
    int64_t row_tile = 48;
    double ignored = 0;
    bool apart = true;  // the workspace holds separate sums of d_hidden
  };
  for (const Case& c : {Case{PlanKind::kOnePass},
                        {PlanKind::kOnePass, 48, 0.4},
                        {PlanKind::kOnePass, 3},
                        {PlanKind::kTwoPass},
                        {PlanKind::kTwoPass, 1},
                        {PlanKind::kTwoPass, 3, 0.4},
                        {PlanKind::kTwoPass, 48, 0, false},
                        {PlanKind::kTwoPass, 48, 0.4, false}}) {
    SCOPED_TRACE(::testing::Message() << name_of(c.plan) << " " << c.row_tile << " " << c.ignored << " " << c.apart);
    InputSpec spec;
    spec.tokens = 96, spec.vocab = 3000, spec.hidden = 40;
    spec.bias = false;
    spec.ignored = c.ignored;
    const Inputs inputs(spec);
    const Context context({.workspace_bytes = size_t{256} << (c.apart ? 18 : 10),
                           .plan = c.plan,
                           .row_tile = c.row_tile,
                           .vocab_tile = 256});
    const auto held = [](size_t i) { return static_cast<float>(1 + static_cast<int>(i % 1013)) * 1.00390625f; };
    std::vector<float> alone[2], sums[2];
    for (auto* const outputs : {&alone, &sums}) {
      for (const int64_t rows : {spec.tokens, spec.vocab}) {
        std::vector<float>& output = (*outputs)[rows == spec.vocab];
        for (size_t i = 0; i < static_cast<size_t>(rows * spec.hidden); ++i) output.push_back(held(i));
      }
      Gradients gradients;
      gradients.d_hidden = {(*outputs)[0].data(), spec.tokens, spec.hidden};
      gradients.d_weight = {(*outputs)[1].data(), spec.hidden, spec.vocab};
      gradients.d_hidden_mode = gradients.d_weight_mode =
          outputs == &sums ? WriteMode::kAccumulate : WriteMode::kOverwrite;
      cross_entropy(context, inputs.hidden_view(), inputs.head_view(), inputs.targets_view(), {}, gradients);
    }
    double units[2] = {};  // the largest errors, in units of the result's unit roundoff
    for (const size_t k : {0, 1}) {
      for (size_t i = 0; i < sums[k].size(); ++i) {
        const double exact = static_cast<double>(held(i)) + static_cast<double>(alone[k][i]);
        units[k] =
            std::max(units[k], std::fabs(static_cast<double>(sums[k][i]) - exact) / (0x1p-24 * std::fabs(exact)));
      }
    }
    // Without separate sums, the gradient is summed in another order. Its own error is far below one unit
    // here. The bound must not be trivial: 12 roundings can be distinguished from one.
    const int64_t tiles = (spec.vocab + 255) / 256 + spec.vocab / 64;
    EXPECT_LE(units[0], c.apart ? 1 : static_cast<double>(tiles + 1));
    EXPECT_GT(units[0], c.apart ? 0 : 2);
    // Gaps between the rows that count end some tiles early.
    const int64_t row_tiles =
        spec.ignored > 0 ? 2 * spec.tokens / c.row_tile + 1 : (spec.tokens + c.row_tile - 1) / c.row_tile;
    EXPECT_LE(units[1], static_cast<double>(row_tiles + spec.tokens / 64 + 1));
    EXPECT_GT(units[1], c.row_tile <= 3 ? 4 : 0);
  }
}

}  // namespace accumulate_test
}  // namespace logitless::testing

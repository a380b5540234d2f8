// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The rounding error of an accumulating gradient: a single rounding if sums are separate from the output, and
// otherwise the error in tensors.h.
#include <gtest/gtest.h>

#include <cmath>
#include <ostream>
#include <vector>

#include "logitless/cross_entropy.h"
#include "support/calls.h"
#include "support/inputs.h"
#include "support/views.h"

namespace logitless::testing {
namespace accumulate_test {

struct Case {
  PlanKind plan;
  size_t workspace;
  bool apart;      // the workspace holds separate sums of d_hidden
  double dropped;  // share of ignored rows
  int64_t row_tile = 48;
};

// Prints the name of a case in the list of tests.
void PrintTo(const Case& c, std::ostream* out) {
  *out << name_of(c.plan) << " in " << (c.workspace >> 10) << " KiB, " << c.dropped << " dropped, row_tile "
       << c.row_tile;
}

class Accumulated : public ::testing::TestWithParam<Case> {};

// Adds d_hidden over 12 tiles of the vocabulary, and d_weight over blocks of rows, to numbers a million times
// larger.
TEST_P(Accumulated, GradientsLoseNoMoreThanTheirHeaderSays) {
  InputSpec spec;
  spec.tokens = 96;
  spec.vocab = 3000;
  spec.hidden = 40;
  spec.bias = false;
  spec.ignored = GetParam().dropped;
  const Inputs inputs(spec);
  const int64_t n = spec.tokens, h = spec.hidden, v = spec.vocab, row_tile = GetParam().row_tile, vocab_tile = 256;
  ContextOptions options;
  options.plan = GetParam().plan;
  options.workspace_bytes = GetParam().workspace;
  options.row_tile = row_tile;
  options.vocab_tile = vocab_tile;
  const Context context(options);
  const auto run = [&](std::vector<float>& d_hidden, std::vector<float>& d_weight, WriteMode mode) {
    Gradients gradients;
    gradients.d_hidden = {d_hidden.data(), n, h};
    gradients.d_weight = {d_weight.data(), h, v};
    gradients.d_hidden_mode = gradients.d_weight_mode = mode;
    cross_entropy(context, inputs.hidden_view(), inputs.head_view(), inputs.targets_view(), {}, gradients);
  };
  std::vector<float> d_hidden(static_cast<size_t>(n * h)), d_weight(static_cast<size_t>(h * v));
  run(d_hidden, d_weight, WriteMode::kOverwrite);
  const auto held = [](size_t i) { return static_cast<float>(1 + static_cast<int>(i % 1013)) * 1.00390625f; };
  std::vector<float> hidden_sum(d_hidden.size()), weight_sum(d_weight.size());
  for (size_t i = 0; i < hidden_sum.size(); ++i) hidden_sum[i] = held(i);
  for (size_t i = 0; i < weight_sum.size(); ++i) weight_sum[i] = held(i);
  run(hidden_sum, weight_sum, WriteMode::kAccumulate);

  const auto most_error = [&](const std::vector<float>& sums, const std::vector<float>& added) {
    double units = 0;  // in units of the result's unit roundoff
    for (size_t i = 0; i < sums.size(); ++i) {
      const double exact = static_cast<double>(held(i)) + static_cast<double>(added[i]);
      units = std::max(units, std::fabs(static_cast<double>(sums[i]) - exact) / (0x1p-24 * std::fabs(exact)));
    }
    return units;
  };
  // Without separate sums, the gradient is summed in another order. Its own error is far below one unit here.
  const double additions_of_entries = static_cast<double>((v + vocab_tile - 1) / vocab_tile + v / 64);
  // Gaps between the rows that count end some tiles early.
  const int64_t row_tiles = spec.ignored > 0 ? 2 * n / row_tile + 1 : (n + row_tile - 1) / row_tile;
  const double additions_of_rows = static_cast<double>(row_tiles + n / 64);
  const double hidden_units = most_error(hidden_sum, d_hidden);
  EXPECT_LE(hidden_units, GetParam().apart ? 1.0 : additions_of_entries + 1);
  const double weight_units = most_error(weight_sum, d_weight);
  EXPECT_LE(weight_units, additions_of_rows + 1);
  // The bound must not be trivial: 12 roundings can be distinguished from one.
  if (!GetParam().apart) {
    EXPECT_GT(hidden_units, 2);
  }
  if (row_tile <= 3) {
    EXPECT_GT(weight_units, 4);
  }
}

INSTANTIATE_TEST_SUITE_P(Plans, Accumulated,
                         ::testing::Values(Case{PlanKind::kOnePass, size_t{64} << 20, true, 0},
                                           Case{PlanKind::kOnePass, size_t{64} << 20, true, 0.4},
                                           Case{PlanKind::kTwoPass, size_t{64} << 20, true, 0},
                                           Case{PlanKind::kTwoPass, size_t{64} << 20, true, 0.4},
                                           Case{PlanKind::kTwoPass, size_t{256} << 10, false, 0},
                                           Case{PlanKind::kTwoPass, size_t{256} << 10, false, 0.4},
                                           Case{PlanKind::kOnePass, size_t{64} << 20, true, 0, 1},
                                           Case{PlanKind::kOnePass, size_t{64} << 20, true, 0, 3},
                                           Case{PlanKind::kTwoPass, size_t{64} << 20, true, 0, 1},
                                           Case{PlanKind::kTwoPass, size_t{64} << 20, true, 0.4, 3}));

}  // namespace accumulate_test
}  // namespace logitless::testing

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Packed heads, and chosen entries of them, have the bits of the matrix that they represent.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "logitless/logitless.h"
#include "support/calls.h"
#include "support/every_task.h"
#include "support/refusal.h"
#include "support/views.h"

namespace logitless::testing {
namespace heads_test {

struct Int8Head {
  std::vector<int8_t> values;
  std::vector<float> scales, weight;
  PackedMatrix packed;

  Int8Head(int64_t rows, int64_t cols) {
    for (const float drawn : normal(static_cast<size_t>(rows * cols), 51, 40)) {
      const auto row = static_cast<int64_t>(values.size()) / cols;
      if (static_cast<int64_t>(scales.size()) == row) scales.push_back(0.01F + 0.001F * static_cast<float>(row % 7));
      values.push_back(static_cast<int8_t>(std::lround(std::clamp(drawn, -127.0F, 127.0F))));
      weight.push_back(static_cast<float>(values.back()) * scales.back());
    }
    packed.data = values.data();
    packed.rows = rows;
    packed.cols = cols;
    packed.scales = scales.data();
  }
};

// Plans that read rows of the head in addition to tiles.
TEST(Heads, ExpectedRowsAndChosenSegmentsHaveTheBitsOfTheirMatrix) {
  constexpr int64_t kEntries = 2000;
  const Int8Head head(2 * kEntries, kHidden);
  std::vector<int64_t> ids;
  std::vector<float> chosen;
  for (int64_t k = 0; k < kEntries; ++k) {
    ids.push_back((k * 89 + 13) % (2 * kEntries));
    const auto row = head.weight.begin() + ids.back() * kHidden;
    chosen.insert(chosen.end(), row, row + kHidden);
  }
  const LmHead plain(ConstMatrix(chosen.data(), kEntries, kHidden));
  LmHead packed(head.packed);
  packed.ids = ids;
  const FromHidden source;
  const Batch batch;
  const auto run = [&](const LmHead& of, double softcap, const BackwardOptions& backward, Plan& plan) {
    LmHead capped = of;
    capped.softcap = softcap;
    std::vector<float> d_hidden(kTokens * kHidden);
    Gradients outputs;
    outputs.d_hidden = {d_hidden.data(), kTokens, kHidden};
    outputs.backward = backward;
    ContextOptions options = small_tiles(PlanKind::kAuto);
    options.vocab_tile = 128;
    plan = cross_entropy(Context(options), source.states(), capped, batch.targets(), {}, outputs).plan;
    return d_hidden;
  };
  BackwardOptions drawn, certified;
  drawn.mode = BackwardMode::kSampled;
  drawn.theta = 0.2;
  certified.mode = BackwardMode::kCertified;
  certified.tolerance = 0.8;
  for (const double softcap : {0.0, 4.0}) {
    for (const BackwardOptions& backward : {BackwardOptions(), drawn, certified}) {
      SCOPED_TRACE(name_of(backward.mode));
      Plan of_packed, of_plain;
      EXPECT_EQ(run(packed, softcap, backward, of_packed), run(plain, softcap, backward, of_plain));
      EXPECT_EQ(of_packed.kind, of_plain.kind);
      EXPECT_EQ(of_packed.d_hidden_bound, of_plain.d_hidden_bound);
      EXPECT_EQ(of_plain.kept_share < 0.9, backward.mode != BackwardMode::kExact);
    }
  }
}

TEST(Heads, GroupsAndTypesThatDoNotFit) {
  const Int8Head good(kVocab, 14);
  const std::vector<float> hidden(kTokens * 14);
  const std::vector<double> wide(kTokens * 14);
  const Batch batch;
  const auto refused = [&](const std::string& why, Packing packing, int64_t group, bool in_double = false) {
    PackedMatrix packed = good.packed;
    packed.packing = packing, packed.group = group;
    const ConstMatrix states =
        in_double ? ConstMatrix(wide.data(), kTokens, 14) : ConstMatrix(hidden.data(), kTokens, 14);
    expect_invalid_input({why},
                         [&] { cross_entropy(Context(), HiddenStates(states), LmHead(packed), batch.targets()); });
  };
  refused("group = 3 must be 0 or a divisor of the 14 numbers of a row of weight", Packing::kInt8, 3);
  refused("group = 7 is not a multiple of 2, the block of nf4", Packing::kNf4, 7);
  refused("hidden is float64, but weight is packed", Packing::kInt8, 0, true);
}

}  // namespace heads_test
}  // namespace logitless::testing

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Packed heads, and chosen entries of them, have the bits of the matrix that they represent.
#include <gtest/gtest.h>

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

  Int8Head(int64_t rows, int64_t cols, int64_t group) {
    const std::vector<float> drawn = normal(static_cast<size_t>(rows * cols), 51, 40);
    const int64_t in_group = group > 0 ? group : cols;
    for (int64_t g = 0; g < rows * cols / in_group; ++g) scales.push_back(0.01F + 0.001F * static_cast<float>(g % 7));
    for (size_t i = 0; i < drawn.size(); ++i) {
      values.push_back(static_cast<int8_t>(std::lround(std::fmin(std::fmax(drawn[i], -127.0F), 127.0F))));
      weight.push_back(static_cast<float>(values[i]) * scales[i / static_cast<size_t>(in_group)]);
    }
    packed.data = values.data();
    packed.rows = rows;
    packed.cols = cols;
    packed.scales = scales.data();
    packed.group = group;
  }
};

// Plans that read rows of the head in addition to tiles.
TEST(Heads, ExpectedRowsAndChosenSegmentsHaveTheBitsOfTheirMatrix) {
  constexpr int64_t kEntries = 2000;
  const Int8Head head(2 * kEntries, kHidden, 0);
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

TEST(Heads, SaysWhatIsWrong) {
  const FromHidden source;
  const Batch batch;
  const Int8Head good(kVocab, kHidden, 0);
  FromHidden::Outputs outputs;
  const auto refused = [&](const std::string& why, const LmHead& head, bool d_weight = false) {
    Gradients views = outputs.views();
    if (!d_weight) views.d_weight = {};
    views.d_bias = {};
    expect_invalid_input({why}, [&] { cross_entropy(Context(), source.states(), head, batch.targets(), {}, views); });
    EXPECT_EQ(outputs.values(), FromHidden::Outputs().values());
  };
  const auto with = [&](const auto& set) {
    LmHead head(good.packed);
    set(head);
    return head;
  };
  refused("d_weight is set but weight is packed (int8): it is frozen", good.packed, true);
  refused("scales is null", with([](LmHead& h) { h.packed.scales = nullptr; }));
  refused("group = 2 must be 0 or a divisor of the 7 numbers of a row of weight",
          with([](LmHead& h) { h.packed.group = 2; }));
  refused("weight.row_bytes = 6 is less than a row, which takes 7", with([](LmHead& h) { h.packed.row_bytes = 6; }));
  refused("group = 7 is not a multiple of 2, the block of nf4", with([](LmHead& h) {
            h.packed.packing = Packing::kNf4;
            h.packed.cols = 14;
            h.packed.group = 7;
          }));
  refused("weight.data is null", with([](LmHead& h) { h.packed.data = nullptr; }));
  const std::vector<int64_t> outside = {0, kVocab}, below = {-1};
  refused("vocab_ids[1] = 101 is outside [0, 101)", with([&](LmHead& h) { h.ids = outside; }));
  refused("vocab_ids[0] = -1 is outside", with([&](LmHead& h) { h.ids = below; }));
  const std::vector<double> hidden(kTokens * kHidden, 0.5);
  expect_invalid_input({"hidden is float64, but weight is packed"}, [&] {
    cross_entropy(Context(), HiddenStates(hidden.data(), kBatch, kTime, kHidden), LmHead(good.packed), batch.targets());
  });
}

}  // namespace heads_test
}  // namespace logitless::testing

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Heads that are no plain matrix: some entries of one, and packed ones. Each has the bits of the matrix that
// it stands for, in every task and plan.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "logitless/logitless.h"
#include "support/calls.h"
#include "support/every_task.h"
#include "support/refusal.h"
#include "support/result_columns.h"
#include "support/views.h"

namespace logitless::testing {
namespace {

// Everything that all tasks return and write, task by task.
std::vector<std::vector<std::byte>> outcomes(const FromHead& source, const Batch& batch, PlanKind plan, bool d_weight) {
  std::vector<std::vector<std::byte>> all;
  visit_every_task(source, batch, [&](const auto& task) {
    if (cannot_run(task, plan)) return;
    const Context context(small_tiles(plan));
    const auto views_of = [&](FromHead::Outputs& outputs) {
      Gradients views = outputs.views();
      if (!d_weight) views.d_weight = {};
      return views;
    };
    FromHead::Outputs one, apart;  // of one call and of its halves, which one pass has not
    std::vector<std::byte> bytes = bytes_of(task.run(context, views_of(one)));
    if (plan != PlanKind::kOnePass) task.backward(context, task.forward(context), 1.0, views_of(apart));
    for (const FromHead::Outputs* outputs : {&one, &apart}) {
      const auto more = std::as_bytes(std::span(outputs->values()));
      bytes.insert(bytes.end(), more.begin(), more.end());
    }
    all.push_back(std::move(bytes));
  });
  return all;
}

void expect_same(const FromHead& got, const FromHead& want, bool d_weight = true) {
  const Batch batch;
  for (const PlanKind plan : kPlansOfGradients) {
    SCOPED_TRACE(name_of(plan));
    const auto of_got = outcomes(got, batch, plan, d_weight), of_want = outcomes(want, batch, plan, d_weight);
    ASSERT_EQ(of_got.size(), of_want.size());
    for (size_t task = 0; task < of_want.size(); ++task) EXPECT_EQ(of_got[task], of_want[task]) << task;
  }
}

// Where entry k of the call's vocabulary stands in a larger one.
std::vector<int64_t> scattered_ids(int64_t larger) {
  std::vector<int64_t> ids;
  for (int64_t k = 0; k < kVocab; ++k) ids.push_back((k * 89 + 13) % larger);
  return ids;
}

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

TEST(Heads, ChosenEntriesHaveTheBitsOfTheirMatrix) {
  constexpr int64_t kLarger = 307;
  const std::vector<int64_t> ids = scattered_ids(kLarger);
  const std::vector<float> weight = normal(kLarger * kHidden, 41), bias = normal(kLarger, 42);
  FromHead want;
  for (size_t k = 0; k < ids.size(); ++k) {
    std::copy_n(weight.begin() + ids[k] * kHidden, kHidden, want.weight.begin() + static_cast<int64_t>(k) * kHidden);
    want.bias[k] = bias[static_cast<size_t>(ids[k])];
  }
  want.given = want.FromHidden::head();
  FromHead got;
  got.given = LmHead(ConstMatrix(weight.data(), kLarger, kHidden));
  got.given.bias = {bias.data(), kLarger};
  got.given.ids = ids;
  for (const double softcap : {0.0, 3.0}) {
    got.given.softcap = want.given.softcap = softcap;
    expect_same(got, want);
  }

  // A weight with an entry a column.
  std::vector<float> turned(weight.size());
  for (int64_t v = 0; v < kLarger; ++v) {
    for (int64_t h = 0; h < kHidden; ++h) {
      turned[static_cast<size_t>(h * kLarger + v)] = weight[static_cast<size_t>(v * kHidden + h)];
    }
  }
  got.given.weight = ConstMatrix(turned.data(), kHidden, kLarger);
  got.given.layout = HeadLayout::kHiddenVocab;
  expect_same(got, want, /*d_weight=*/false);
}

TEST(Heads, ChosenEntriesOfSixteenBitsHaveTheBitsOfTheirMatrix) {
  constexpr int64_t kLarger = 307;
  const std::vector<int64_t> ids = scattered_ids(kLarger);
  const auto cast = [](float x) { return bfloat16{static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16)}; };
  std::vector<bfloat16> weight, chosen(kVocab * kHidden);
  for (const float x : normal(kLarger * kHidden, 41)) weight.push_back(cast(x));
  for (size_t k = 0; k < ids.size(); ++k) {
    std::copy_n(weight.begin() + ids[k] * kHidden, kHidden, chosen.begin() + static_cast<int64_t>(k) * kHidden);
  }
  FromHead want, got;
  want.given = LmHead(ConstMatrix(chosen.data(), kVocab, kHidden));
  want.given.bias = {want.bias.data(), kVocab};
  std::vector<float> bias(kLarger);
  for (size_t k = 0; k < ids.size(); ++k) bias[static_cast<size_t>(ids[k])] = want.bias[k];
  got.given = LmHead(ConstMatrix(weight.data(), kLarger, kHidden));
  got.given.bias = {bias.data(), kLarger};
  got.given.ids = ids;
  expect_same(got, want, /*d_weight=*/false);
}

// A weight with an entry a column has a gradient with an entry a column.
TEST(Heads, ChosenColumnsHaveTheGradientOfTheirMatrix) {
  constexpr int64_t kLarger = 307;
  const std::vector<int64_t> ids = scattered_ids(kLarger);
  const std::vector<float> weight = normal(kLarger * kHidden, 41);
  std::vector<float> chosen(kVocab * kHidden);
  for (int64_t h = 0; h < kHidden; ++h) {
    for (int64_t k = 0; k < kVocab; ++k) {
      chosen[static_cast<size_t>(h * kVocab + k)] =
          weight[static_cast<size_t>(h * kLarger + ids[static_cast<size_t>(k)])];
    }
  }
  LmHead some(ConstMatrix(weight.data(), kHidden, kLarger), HeadLayout::kHiddenVocab);
  some.ids = ids;
  const LmHead plain(ConstMatrix(chosen.data(), kHidden, kVocab), HeadLayout::kHiddenVocab);
  const FromHidden source;
  const Batch batch;
  const auto run = [&](const LmHead& head, bool accumulate) {
    std::vector<float> d_weight(kVocab * kHidden, accumulate ? 0.5F : std::numeric_limits<float>::quiet_NaN());
    Gradients outputs;
    outputs.d_weight = {d_weight.data(), kHidden, kVocab};
    if (accumulate) outputs.d_weight_mode = WriteMode::kAccumulate;
    cross_entropy(Context(small_tiles(PlanKind::kTwoPass)), source.states(), head, batch.targets(), {}, outputs);
    return d_weight;
  };
  EXPECT_EQ(run(some, false), run(plain, false));
  EXPECT_EQ(run(some, true), run(plain, true));
}

// Plans that read rows of the head besides its tiles.
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

// Slices of the vocabulary are slices of the list.
TEST(Heads, ChosenEntriesMayBeSliced) {
  constexpr int64_t kLarger = 307;
  const std::vector<int64_t> ids = scattered_ids(kLarger);
  const std::vector<float> weight = normal(kLarger * kHidden, 41), bias = normal(kLarger, 42);
  FromHead source;
  source.given = LmHead(ConstMatrix(weight.data(), kLarger, kHidden));
  source.given.bias = {bias.data(), kLarger};
  source.given.ids = ids;
  std::vector<float> chosen, of_chosen;
  for (const int64_t id : ids) {
    chosen.insert(chosen.end(), weight.begin() + id * kHidden, weight.begin() + (id + 1) * kHidden);
    of_chosen.push_back(bias[static_cast<size_t>(id)]);
  }
  LmHead plain(ConstMatrix(chosen.data(), kVocab, kHidden));
  plain.bias = {of_chosen.data(), kVocab};
  ContextOptions options = small_tiles(PlanKind::kTwoPass);
  options.ranks.slices = {40, 61};
  const Batch batch;
  const auto run = [&](const LmHead& head) {
    FromHead::Outputs outputs;
    CrossEntropy smooth;
    smooth.label_smoothing = 0.1;
    cross_entropy(Context(options), source.states(), head, batch.targets(), smooth, outputs.views());
    return outputs.values();
  };
  EXPECT_EQ(run(source.given), run(plain));
}

TEST(Heads, PackedIntegersHaveTheBitsOfTheirMatrix) {
  for (const int64_t group : {int64_t{0}, int64_t{1}, kHidden}) {
    const Int8Head head(kVocab, kHidden, group);
    FromHead want, got;
    want.given = LmHead(ConstMatrix(head.weight.data(), kVocab, kHidden));
    got.given = LmHead(head.packed);
    want.given.bias = got.given.bias = {want.bias.data(), kVocab};
    expect_same(got, want, /*d_weight=*/false);
  }
}

// Its states are wider than those of other tests, so that a row has several groups.
TEST(Heads, CodesOfNf4HaveTheBitsOfTheirMatrix) {
  constexpr int64_t kWide = 36;
  const std::vector<float> hidden = normal(kTokens * kWide, 61);
  std::vector<uint8_t> codes(kVocab * kWide / 2);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(i * 89 + i / 7);
  constexpr float kNumbers[] = {-1.0F,         -0.6961928F, -0.52507305F, -0.3949175F, -0.28444138F, -0.18477343F,
                                -0.091050036F, 0.0F,        0.0795803F,   0.1609302F,  0.2461123F,   0.33791524F,
                                0.44070983F,   0.562617F,   0.72295684F,  1.0F};
  const Batch batch;
  for (const int64_t group : {int64_t{0}, int64_t{4}, int64_t{12}}) {
    const int64_t in_group = group > 0 ? group : kWide;
    std::vector<float> scales, weight;
    for (int64_t g = 0; g < kVocab * kWide / in_group; ++g) scales.push_back(0.3F + 0.01F * static_cast<float>(g % 7));
    for (int64_t i = 0; i < kVocab * kWide; ++i) {
      const uint8_t both = codes[static_cast<size_t>(i / 2)];
      weight.push_back(scales[static_cast<size_t>(i / in_group)] * kNumbers[i % 2 == 0 ? both >> 4 : both & 15]);
    }
    PackedMatrix packed;
    packed.data = codes.data();
    packed.packing = Packing::kNf4;
    packed.rows = kVocab;
    packed.cols = kWide;
    packed.scales = scales.data();
    packed.group = group;
    for (const PlanKind plan : kPlansOfGradients) {
      const auto run = [&](const LmHead& head) {
        std::vector<float> d_hidden(kTokens * kWide);
        Gradients outputs;
        outputs.d_hidden = {d_hidden.data(), kTokens, kWide};
        const HiddenStates states(hidden.data(), kBatch, kTime, kWide);
        d_hidden.push_back(static_cast<float>(
            cross_entropy(Context(small_tiles(plan)), states, head, batch.targets(), {}, outputs).loss));
        return d_hidden;
      };
      EXPECT_EQ(run(LmHead(packed)), run(LmHead(ConstMatrix(weight.data(), kVocab, kWide)))) << name_of(plan) << group;
    }
  }
}

TEST(Heads, PackedOnesMayBeChosenFromToo) {
  constexpr int64_t kLarger = 307;
  const std::vector<int64_t> ids = scattered_ids(kLarger);
  const Int8Head head(kLarger, kHidden, 0);
  std::vector<float> chosen;
  for (const int64_t id : ids) {
    chosen.insert(chosen.end(), head.weight.begin() + id * kHidden, head.weight.begin() + (id + 1) * kHidden);
  }
  const std::vector<float> bias(kLarger, 0.25F);
  FromHead want, got;
  want.given = LmHead(ConstMatrix(chosen.data(), kVocab, kHidden));
  want.given.bias = {bias.data(), kVocab};
  got.given = LmHead(head.packed);
  got.given.bias = {bias.data(), kLarger};
  got.given.ids = ids;
  expect_same(got, want, /*d_weight=*/false);
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
  refused("group = 7 is no multiple of 2, the block of nf4", with([](LmHead& h) {
            h.packed.packing = Packing::kNf4;
            h.packed.cols = 14;
            h.packed.group = 7;
          }));
  refused("weight.data is null", with([](LmHead& h) { h.packed.data = nullptr; }));
  const std::vector<int64_t> outside = {0, kVocab}, below = {-1};
  refused("vocab_ids[1] = 101 is no entry of a vocabulary of 101", with([&](LmHead& h) { h.ids = outside; }));
  refused("vocab_ids[0] = -1 is no entry", with([&](LmHead& h) { h.ids = below; }));
  const std::vector<double> hidden(kTokens * kHidden, 0.5);
  expect_invalid_input({"hidden is float64, but weight is packed"}, [&] {
    cross_entropy(Context(), HiddenStates(hidden.data(), kBatch, kTime, kHidden), LmHead(good.packed), batch.targets());
  });
}

}  // namespace
}  // namespace logitless::testing

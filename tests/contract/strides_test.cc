// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Wrong strides of hidden states, of their gradients and of targets.
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "support/calls.h"
#include "support/refusal.h"
#include "support/views.h"

namespace logitless::testing {
namespace strides_test {

TEST(Strides, NoSequence) {
  const float weight[20] = {};
  const LmHead head({weight, 5, 4}, HeadLayout::kVocabHidden);
  float* none = nullptr;
  Gradients gradients;
  set_d_hidden(gradients, none, 0, 3, 4, 16);
  const auto result = cross_entropy(Context(), HiddenStates(none, 0, 3, 4, 16), head,
                                    Targets(static_cast<const int32_t*>(nullptr), 0, 3, 4), {}, gradients);
  EXPECT_EQ(result.loss, 0);
}

// A good call: 2 sequences of 3 tokens, each followed by an unused row, 5 vocabulary entries, H = 4.
struct Call {
  std::vector<float> states = std::vector<float>(40, 0.5f), weight = std::vector<float>(20, 0.25f);
  std::vector<float> written = std::vector<float>(200, 7.0f);
  std::vector<int64_t> ids = {0, 9, 1, 9, 2, 9, 9, 9, 3, 9, 4, 9, 0, 9, 9, 9};
  std::vector<int64_t> offsets;
  HiddenStates hidden{states.data(), 2, 3, 4, 16};
  LmHead head{{weight.data(), 5, 4}, HeadLayout::kVocabHidden};
  Targets targets{ids.data(), 2, 3, 8, 2};
  Gradients gradients;

  Call() { set_d_hidden(gradients, written.data(), 2, 3, 4, 16); }
};

using BadCase = testing::BadCase<Call>;

void expect_refused(const std::vector<BadCase>& cases) {
  for (const BadCase& bad : cases) {
    SCOPED_TRACE(bad.name);
    Call call;
    bad.spoil(call);
    const std::vector<float> states = call.states, written = call.written;
    expect_invalid_input(bad.parts,
                         [&] { cross_entropy(Context(), call.hidden, call.head, call.targets, {}, call.gradients); });
    EXPECT_TRUE(call.written == written && call.states == states) << "an output was written";
  }
}

TEST(StridesBadInput, TheCallThatTheCasesSpoilIsGood) {
  Call call;
  EXPECT_NO_THROW(cross_entropy(Context(), call.hidden, call.head, call.targets, {}, call.gradients));
  for (const size_t at : {0, 11, 16, 27}) EXPECT_NE(call.written[at], 7.0f) << at;
  for (const size_t at : {12, 15, 28, 199}) EXPECT_EQ(call.written[at], 7.0f) << at;
}

TEST(StridesBadInput, HiddenStates) {
  expect_refused({
      {"short", [](Call& c) { c.hidden.batch_stride = 3; }, {"hidden.batch_stride = 3", "row of 4 elements"}},
      {"rows", [](Call& c) { c.hidden.states.stride = 3; }, {"hidden.stride = 3"}},
      {"sequences", [](Call& c) { c.hidden.sequences = 4; }, {"targets has 6 entries but hidden has 4 rows"}},
      {"packed",
       [](Call& c) {
         c.hidden.offsets = c.offsets = {0, 3, 6};
       },
       {"offsets", "packed", "[B, T, H]"}},
  });
}

TEST(StridesBadInput, Gradients) {
  expect_refused({
      {"short", [](Call& c) { c.gradients.d_hidden_batch_stride = 3; }, {"d_hidden_batch_stride = 3", "4 elements"}},
      {"sequences of one position that overlap",
       [](Call& c) {
         c.hidden.sequences = 6;
         c.hidden.batch_stride.reset();
         c.ids.assign(c.ids.size(), 0);
         c.targets = Targets(c.ids.data(), 6, 1, 2, 2);
         c.gradients.d_hidden_batch_stride = 3;
       },
       {"d_hidden_batch_stride = 3", "4 elements"}},
      {"sequences that overlap",
       [](Call& c) { c.gradients.d_hidden_batch_stride = 11; },
       {"d_hidden_batch_stride = 11", "overlap", "12", "d_hidden.stride = 4"}},
      {"positions that overlap",
       [](Call& c) {
         c.gradients.d_hidden_batch_stride = 4;
         c.gradients.d_hidden.stride = 7;
       },
       {"d_hidden_batch_stride = 4", "overlap", "d_hidden.stride = 7", "8"}},
      {"over hidden's last row",
       [](Call& c) { c.gradients.d_hidden.data = c.states.data() + 27; },
       {"d_hidden", "overlaps", "hidden"}},
      {"between hidden's rows",
       [](Call& c) {
         c.gradients.d_hidden.data = c.states.data() + 12;
         c.gradients.d_hidden_batch_stride.reset();
       },
       {"d_hidden", "overlaps", "hidden"}},
      {"over targets",
       [](Call& c) {
         c.targets.data64 = reinterpret_cast<const int64_t*>(c.written.data());
         for (int64_t i = 0; i < 13; ++i) reinterpret_cast<int64_t*>(c.written.data())[i] = 0;
       },
       {"d_hidden", "overlaps", "targets"}},
  });
}

TEST(StridesBadInput, Targets) {
  expect_refused({
      {"stride", [](Call& c) { c.targets.stride = 0; }, {"targets.stride = 0", "positive"}},
      {"batch stride", [](Call& c) { c.targets.batch_stride = 0; }, {"targets.batch_stride = 0", "positive"}},
      {"negative", [](Call& c) { c.targets.batch_stride = -8; }, {"targets.strides[0] = -8 is negative"}},
      {"time", [](Call& c) { c.targets.time = 4; }, {"targets has 4 entries but hidden has 6 rows"}},
      {"an id", [](Call& c) { c.ids[10] = 5; }, {"targets[4] = 5", "[0, 5)"}},
  });
}

}  // namespace strides_test
}  // namespace logitless::testing

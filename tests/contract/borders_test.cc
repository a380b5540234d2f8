// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Inputs from other languages: strides of any sign, sizes near 2^63, arrays at any address. strides_test has
// the results of slices, refusals_test has wrong values.
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "logitless/logitless.h"
#include "support/calls.h"
#include "support/refusal.h"
#include "support/thread_ranks.h"
#include "support/views.h"

namespace logitless::testing {
namespace borders_test {

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
constexpr PlanKind kPlans[] = {PlanKind::kOnePass, PlanKind::kTwoPass, PlanKind::kExpectedRow};

template <class T>
T* off_by(T* pointer, ptrdiff_t bytes) {
  return reinterpret_cast<T*>(reinterpret_cast<uintptr_t>(pointer) + static_cast<uintptr_t>(bytes));
}

// A good call for a case to spoil, with room before and after each tensor: 2 sequences of 3 tokens, 5
// vocabulary entries, H = 4.
struct Call {
  static constexpr int64_t kBatch = 2, kTime = 3, kVocab = 5, kHidden = 4, kRoom = 100;

  std::vector<float> states = std::vector<float>(300, 0.5f), weight = std::vector<float>(300, 0.25f);
  std::vector<float> logits_memory = std::vector<float>(300, 0.125f), written = std::vector<float>(1000, 7.0f);
  std::vector<int64_t> ids = std::vector<int64_t>(300, 1), offsets = {0, 3, 6, 6};
  std::vector<int32_t> ids32 = std::vector<int32_t>(300, 1);
  std::vector<double> doubles = std::vector<double>(8, 1.0);
  std::vector<float> weights = std::vector<float>(8, 1.0f);

  HiddenStates hidden{states.data() + kRoom, kBatch, kTime, kHidden};
  LmHead head{{weight.data() + kRoom, kVocab, kHidden}, HeadLayout::kVocabHidden};
  FinishedLogits logits{logits_memory.data() + kRoom, kBatch, kTime, kVocab};
  Targets targets{ids.data() + kRoom, kBatch, kTime};
  CrossEntropy options;
  Gradients gradients;
  LogitsGradient dlogits{written.data() + 700, kBatch, kTime, kVocab};

  Call() {
    set_d_hidden(gradients, written.data() + kRoom, kBatch, kTime, kHidden);
    gradients.d_weight = Matrix(written.data() + 400, kVocab, kHidden);
  }
  void run_hidden(PlanKind plan = PlanKind::kAuto) {
    ContextOptions context;
    context.plan = plan;
    cross_entropy(Context(context), hidden, head, targets, options, gradients);
  }
  void run_logits() { cross_entropy(Context(), logits, targets, options, dlogits); }
};

using BadCase = testing::BadCase<Call>;

void expect_refused(const std::vector<BadCase>& cases, const std::function<void(Call&)>& run) {
  for (const BadCase& bad : cases) {
    SCOPED_TRACE(bad.name);
    Call call;
    bad.spoil(call);
    const std::vector<float> written = call.written;
    expect_invalid_input(bad.parts, [&] { run(call); });
    EXPECT_TRUE(call.written == written) << "an output was written";
  }
}
void expect_refused_of_hidden(const std::vector<BadCase>& cases) {
  expect_refused(cases, [](Call& c) { c.run_hidden(); });
}
void expect_refused_of_logits(const std::vector<BadCase>& cases) {
  expect_refused(cases, [](Call& c) { c.run_logits(); });
}

TEST(Borders, TheCallsThatTheCasesSpoilAreGood) {
  Call call;
  EXPECT_NO_THROW(call.run_hidden());
  EXPECT_NO_THROW(call.run_logits());
  EXPECT_NE(call.written[100], 7.0f);
}

// Every constructor once accepted -1 and -H as "the default".
TEST(Borders, ANegativeStrideOfAConstructorIsNeverTheDefault) {
  for (const int64_t stride : {int64_t{-1}, int64_t{-4}, int64_t{-100}, kLeast}) {
    expect_refused_of_hidden({
        {"hidden",
         [=](Call& c) { c.hidden.states = ConstMatrix(c.states.data() + 100, 6, 4, stride); },
         {"hidden.strides[", "is negative"}},
        {"hidden's rows",
         [=](Call& c) { c.hidden = HiddenStates(c.states.data() + 100, 2, 3, 4, {}, stride); },
         {"hidden.strides[", "is negative"}},
        {"weight",
         [=](Call& c) { c.head.weight = ConstMatrix(c.weight.data() + 100, 5, 4, stride); },
         {"weight.strides[", "is negative"}},
        {"d_hidden's rows",
         [=](Call& c) { set_d_hidden(c.gradients, c.written.data() + 100, 2, 3, 4, {}, stride); },
         {"d_hidden.strides[", "is negative"}},
        {"d_weight",
         [=](Call& c) { c.gradients.d_weight = Matrix(c.written.data() + 400, 5, 4, stride); },
         {"d_weight.strides[", "is negative"}},
        {"targets",
         [=](Call& c) { c.targets = Targets(c.ids.data() + 100, 2, 3, {}, stride); },
         {"targets.strides[", "is negative"}},
        {"targets' sequences",
         [=](Call& c) { c.targets = Targets(c.ids32.data() + 100, 2, 3, stride); },
         {"targets.strides[", "is negative"}},
    });
    expect_refused_of_logits({
        {"logits' rows",
         [=](Call& c) { c.logits = FinishedLogits(c.logits_memory.data() + 100, 2, 3, 5, {}, stride); },
         {"logits.strides[", "is negative"}},
        {"d_logits' rows",
         [=](Call& c) { c.dlogits = LogitsGradient(c.written.data() + 700, 2, 3, 5, {}, stride); },
         {"d_logits.strides[", "is negative"}},
    });
  }
}

// Changes a good call and runs it under each plan: with `stride` on axes of size one, and with the default.
// The bytes must be the same.
void expect_same_with_any_stride(const std::function<void(Call&, std::optional<int64_t>)>& change) {
  for (const PlanKind plan : kPlans) {
    Call plain;
    change(plain, {});
    plain.run_hidden(plan);
    for (const int64_t stride : {int64_t{-4}, int64_t{0}, int64_t{1}, kMost, kLeast}) {
      SCOPED_TRACE(std::to_string(stride));
      Call call;
      change(call, stride);
      ASSERT_NO_THROW(call.run_hidden(plan));
      EXPECT_TRUE(call.written == plain.written);
    }
  }
}

TEST(Borders, AStrideWithWhichNoStepIsTakenMayBeAnything) {
  const auto one_row = [](Call& c, std::optional<int64_t> stride) {
    c.hidden = HiddenStates(c.states.data() + 100, 1, 1, 4, stride, stride);
    set_d_hidden(c.gradients, c.written.data() + 100, 1, 1, 4, stride, stride);
    c.targets = Targets(c.ids.data() + 100, 1, 1, stride, stride.value_or(1));
  };
  expect_same_with_any_stride(one_row);
  // [B, 1, H]: each sequence is one row.
  expect_same_with_any_stride([](Call& c, std::optional<int64_t> stride) {
    c.hidden = HiddenStates(c.states.data() + 100, 3, 1, 4, 8, stride.value_or(8));
    set_d_hidden(c.gradients, c.written.data() + 100, 3, 1, 4, 8, stride.value_or(8));
    c.targets = Targets(c.ids.data() + 100, 3, 1, 2, stride.value_or(2));
  });
  expect_same_with_any_stride([](Call& c, std::optional<int64_t> stride) {  // no row at all
    c.hidden = HiddenStates(c.states.data() + 100, 3, 0, 4, stride, stride);
    set_d_hidden(c.gradients, c.written.data() + 100, 3, 0, 4, stride, stride);
    c.targets = Targets(c.ids.data() + 100, 3, 0, stride, stride.value_or(1));
  });
  // The weight has one row: a vocabulary of one entry, and H = 1.
  expect_same_with_any_stride([](Call& c, std::optional<int64_t> stride) {
    c.head.weight = ConstMatrix(c.weight.data() + 100, 1, 4, stride);
    c.gradients.d_weight = Matrix(c.written.data() + 400, 1, 4, stride);
    c.ids.assign(300, 0);
  });
  expect_same_with_any_stride([](Call& c, std::optional<int64_t> stride) {
    c.hidden = HiddenStates(c.states.data() + 100, 2, 3, 1);
    set_d_hidden(c.gradients, c.written.data() + 100, 2, 3, 1);
    c.head.layout = HeadLayout::kHiddenVocab;
    c.head.weight = ConstMatrix(c.weight.data() + 100, 1, 5, stride);
    c.gradients.d_weight = Matrix(c.written.data() + 400, 1, 5, stride);
  });
}

TEST(Borders, AStrideOfLogitsWithWhichNoStepIsTakenMayBeAnything) {
  for (const auto& [batch, time] : {std::pair{1, 1}, {1, 3}, {3, 1}, {2, 0}, {0, 3}}) {
    const auto run = [&, batch = batch, time = time](Call& c, int64_t stride) {
      const int64_t row = time > 1 ? 7 : stride, sequence = batch > 1 ? 20 : stride;
      c.logits = FinishedLogits(c.logits_memory.data() + 100, batch, time, 5, sequence, row);
      c.dlogits = LogitsGradient(c.written.data() + 700, batch, time, 5, sequence, row);
      c.targets = Targets(c.ids.data() + 100, batch * time);
      c.run_logits();
    };
    Call plain;
    run(plain, 20);
    for (const int64_t stride : {int64_t{-4}, int64_t{0}, int64_t{1}, kMost, kLeast}) {
      Call call;
      ASSERT_NO_THROW(run(call, stride)) << stride;
      EXPECT_TRUE(call.written == plain.written) << stride;
    }
  }
}

// A slice [0, 1] of a matrix of one column has the strides of that matrix.
TEST(Borders, ARankWithAnEmptyPartMayHaveAnyStrideAndHOfOne) {
  for (const HeadLayout layout : {HeadLayout::kVocabHidden, HeadLayout::kHiddenVocab}) {
    for (const int64_t stride : {int64_t{-1}, int64_t{0}, int64_t{1}, kMost}) {
      ThreadGroup group(2);
      const auto errors = run_ranks(2, [&](int rank) {
        Call c;
        const int64_t entries = rank == 0 ? 5 : 0;
        const bool hidden_vocab = layout == HeadLayout::kHiddenVocab;
        const int64_t rows = hidden_vocab ? 1 : entries, cols = hidden_vocab ? entries : 1;
        c.hidden = HiddenStates(c.states.data() + 100, 2, 3, 1);
        set_d_hidden(c.gradients, c.written.data() + 100, 2, 3, 1);
        const std::optional<int64_t> given = entries == 0 ? std::optional(stride) : std::nullopt;
        c.head = LmHead(ConstMatrix(c.weight.data() + 100, rows, cols, given), layout);
        c.gradients.d_weight = Matrix(c.written.data() + 400, rows, cols, given);
        ContextOptions options;
        options.ranks.vocab = &group.of(rank);
        cross_entropy(Context(options), c.hidden, c.head, c.targets, c.options, c.gradients);
      });
      for (const auto& error : errors) EXPECT_EQ(message_of(error), "") << stride;
    }
  }
}

TEST(Borders, ProductsOfSizesThatDoNotFit64BitsAreRefused) {
  constexpr int64_t kHalf = int64_t{1} << 32, kQuarter = int64_t{1} << 62;
  expect_refused_of_hidden({
      {"batch and time",
       [](Call& c) { c.hidden = HiddenStates(c.states.data(), kHalf, kHalf, 4); },
       {"hidden has more elements"}},
      {"time and a negative batch",
       [](Call& c) { c.hidden = HiddenStates(c.states.data(), -kHalf, kHalf, 4); },
       {"hidden.sizes[0] = -4294967296 is negative"}},
      {"rows and stride",
       [](Call& c) { c.hidden.states.stride = kQuarter; },
       {"hidden of [1, 6, 4]", "4611686018427387904", "64-bit"}},
      {"rows and stride of the weight",
       [](Call& c) { c.head.weight.stride = kQuarter; },
       {"weight of [1, 5, 4]", "64-bit"}},
      {"columns",
       [](Call& c) { c.hidden = HiddenStates(c.states.data() + 100, 1, 1, kMost); },
       {"hidden has more elements"}},
      {"targets' batch and time",
       [](Call& c) { c.targets = Targets(c.ids.data(), kHalf, kHalf); },
       {"targets has more elements"}},
      {"sequences", [](Call& c) { c.hidden.sequences = kMost; }, {"sequences = 9223372036854775807", "2147483647"}},
      {"sequences without rows",
       [](Call& c) {
         c.hidden = HiddenStates(c.states.data(), std::numeric_limits<int32_t>::max(), 0, 4);
         c.targets.size = 0;
       },
       {"sequences = 2147483647", "16777216", "without rows"}},
      {"the bias", [](Call& c) { c.head.bias = ConstVector(c.weights.data(), kMost); }, {"bias has more elements"}},
      {"a negative bias",
       [](Call& c) { c.head.bias = ConstVector(c.weights.data(), -1); },
       {"bias.sizes[0] = -1 is negative"}},
  });
  expect_refused_of_logits({
      {"batch and time",
       [](Call& c) { c.logits = FinishedLogits(c.logits_memory.data(), 1 << 20, 1 << 20, 5); },
       {"logits of 1048576 times 1048576 rows", "2147483647"}},
      {"time",
       [](Call& c) { c.logits = FinishedLogits(c.logits_memory.data(), 1, kMost, 5); },
       {"logits has more elements"}},
      {"time and stride",
       [=](Call& c) { c.logits = FinishedLogits(c.logits_memory.data(), 2, 3, 5, {}, kQuarter); },
       {"logits of [2, 3, 5]", "64-bit"}},
      {"sequences without rows",
       [](Call& c) { c.logits = FinishedLogits(c.logits_memory.data(), std::numeric_limits<int32_t>::max(), 0, 5); },
       {"logits.batch = 2147483647", "16777216", "without rows"}},
  });
}

TEST(Borders, TheLargestTileOrBlockIsAllThereIsAndNoneIsLarger) {
  for (const bool of_logits : {true, false}) {
    Call plain, large;
    ContextOptions options;
    const auto run = [&](Call& c) {
      const Context context(options);
      return of_logits ? cross_entropy(context, c.logits, c.targets, c.options, c.dlogits).loss
                       : cross_entropy(context, c.hidden, c.head, c.targets, c.options, c.gradients).loss;
    };
    const double loss = run(plain);
    (of_logits ? options.row_block : options.row_tile) = kMostTileEdge;
    options.vocab_tile = kMostTileEdge;
    EXPECT_NEAR(run(large), loss, 1e-6);
    for (size_t i = 0; i < plain.written.size(); ++i) EXPECT_NEAR(large.written[i], plain.written[i], 1e-6) << i;
  }
  for (const int64_t edge : {kMostTileEdge + 1, kMost}) {
    const std::string value = std::to_string(edge);
    expect_invalid_input({"row_tile", value}, [&] { Context({.row_tile = edge}); });
    expect_invalid_input({"vocab_tile", value}, [&] { Context({.vocab_tile = edge}); });
    expect_invalid_input({"row_block", value}, [&] { Context({.row_block = edge}); });
  }
}

TEST(Borders, SlicesWhoseSumDoesNotFit64BitsAreRefused) {
  Call c;
  ContextOptions options;
  options.ranks.slices = {kMost, kMost, 7};  // 5, modulo 2^64
  expect_invalid_input({"ranks.slices[1]", "9223372036854775807", "weight has 5"},
                       [&] { cross_entropy(Context(options), c.hidden, c.head, c.targets); });
}

TEST(Borders, ArraysThatDoNotStandWhereTheirElementsMayAreRefused) {
  const std::vector<BadCase> of_both = {
      {"targets", [](Call& c) { c.targets = Targets(off_by(c.ids.data() + 100, 4), 6); }, {"targets", "int64"}},
      {"targets32", [](Call& c) { c.targets = Targets(off_by(c.ids32.data() + 100, 2), 6); }, {"targets", "int32"}},
      {"temperatures",
       [](Call& c) {
         c.options.token.temperatures = {off_by(c.doubles.data(), 4), 6};
       },
       {"temperatures", "not aligned", "float64"}},
      {"class weights",
       [](Call& c) {
         c.options.label_smoothing = 0.1;
         c.options.class_weights = {off_by(c.weights.data(), 1), 5};
       },
       {"class_weights", "not aligned", "float32"}},
  };
  expect_refused_of_hidden(of_both);
  expect_refused_of_logits(of_both);
  expect_refused_of_hidden({
      {"offsets",
       [](Call& c) {
         c.hidden.offsets = {off_by(c.offsets.data(), 4), 3};
       },
       {"offsets", "int64"}},
      {"hidden", [](Call& c) { c.hidden.states.data = off_by(c.states.data(), 2); }, {"hidden.data", "float32"}},
  });
  Call c;
  c.options.reduction = Reduction::kNone;
  const Forward<CrossEntropy> forward = cross_entropy.forward(Context(), c.logits, c.targets, c.options);
  const std::span<const double> upstream(off_by(c.doubles.data(), 4), 6);
  expect_invalid_input({"upstream", "not aligned"}, [&] {
    cross_entropy.backward(Context(), c.logits, c.targets, c.options, forward, upstream, c.dlogits);
  });
}

}  // namespace borders_test
}  // namespace logitless::testing

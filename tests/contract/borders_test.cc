// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Inputs from other languages: any stride on axes without a step, sizes near 2^63, arrays at any address.
// refusals_test.cc has wrong sizes, strides and addresses of every tensor.
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "logitless/logitless.h"
#include "support/refusal.h"
#include "support/thread_ranks.h"

namespace logitless::testing {
namespace borders_test {

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();

template <class T>
const T* off_by(const T* pointer, uintptr_t bytes) {
  return reinterpret_cast<const T*>(reinterpret_cast<uintptr_t>(pointer) + bytes);
}

// A good call on zeros, which a case changes: 2 sequences of 3 tokens, 5 vocabulary entries, H = 4.
struct Call {
  explicit Call(bool finished = false, int64_t batch = 2, int64_t time = 3, int64_t hidden = 4, int64_t vocab = 5) {
    task.targets = view(ids.data(), {batch, time});
    if (finished) {
      logits = Logits::given(view(numbers.data(), {batch, time, vocab}));
      gradients.d_logits = view(written.data(), {batch, time, vocab});
    } else {
      logits =
          Logits::of(view(numbers.data(), {batch, time, hidden}), {.weight = view(weight.data(), {vocab, hidden})});
      gradients.d_hidden = view(written.data(), {batch, time, hidden});
      gradients.d_weight = view(written.data() + 100, {vocab, hidden});
    }
  }
  /// Sets the strides of all axes without a step.
  void set_idle_strides(int64_t stride) {
    const auto set = [&](auto& tensor) {
      for (size_t axis = 0; axis < static_cast<size_t>(tensor.axes); ++axis) {
        const bool is_row = axis + 1 == static_cast<size_t>(tensor.axes) && tensor.sizes[axis] > 1;
        if (tensor.sizes[axis] <= 1 || (tensor.count() == 0 && !is_row)) tensor.strides[axis] = stride;
      }
    };
    set(task.targets), set(logits.hidden), set(logits.head.weight), set(logits.finished);
    set(gradients.d_hidden), set(gradients.d_weight), set(gradients.d_logits);
  }
  double run(const ContextOptions& options = {}) {
    return logitless::run(Context(options), logits, task, gradients).loss;
  }

  std::vector<float> numbers = std::vector<float>(200, 0.5F), weight = std::vector<float>(100, 0.25F);
  std::vector<float> written = std::vector<float>(200, 7);
  std::vector<int64_t> ids = std::vector<int64_t>(32, 0);
  Logits logits;
  CrossEntropy task;
  logitless::Gradients gradients;
};

TEST(Borders, AStrideWithWhichNoStepIsTakenMayBeAnything) {
  struct Sizes {
    int64_t batch, time, hidden, vocab;
  };
  const PlanKind plans[] = {PlanKind::kAuto, PlanKind::kOnePass, PlanKind::kTwoPass};
  for (const Sizes& s :
       {Sizes{1, 1, 4, 5}, {3, 1, 4, 5}, {1, 3, 4, 5}, {3, 0, 4, 5}, {0, 3, 4, 5}, {2, 3, 4, 1}, {2, 3, 1, 5}}) {
    for (const bool finished : {false, true}) {
      for (const PlanKind plan : plans) {
        Call plain(finished, s.batch, s.time, s.hidden, s.vocab);
        plain.run({.plan = plan});
        for (const int64_t stride : {int64_t{-4}, int64_t{0}, int64_t{1}, kMost, kLeast}) {
          SCOPED_TRACE(::testing::Message() << s.batch << " " << s.time << " " << s.hidden << " " << s.vocab << " "
                                            << finished << " " << stride);
          Call call(finished, s.batch, s.time, s.hidden, s.vocab);
          call.set_idle_strides(stride);
          ASSERT_NO_THROW(call.run({.plan = plan}));
          EXPECT_EQ(call.written, plain.written);
        }
      }
    }
  }
}

// A slice [0, 1] of a matrix of one column has the strides of that matrix.
TEST(Borders, ARankWithAnEmptyPartMayHaveAnyStrideAndHOfOne) {
  for (const int64_t stride : {int64_t{-1}, int64_t{0}, int64_t{1}, kMost}) {
    ThreadGroup group(2);
    const auto errors = run_ranks(2, [&](int rank) {
      Call call(false, 2, 3, 1, rank == 0 ? 5 : 0);
      if (rank == 1) call.set_idle_strides(stride);
      ContextOptions options;
      options.ranks.vocab = &group.of(rank);
      call.run(options);
    });
    for (const auto& error : errors) EXPECT_EQ(message_of(error), "") << stride;
  }
}

void expect_refused(bool finished, const std::vector<std::string>& words, const std::function<void(Call&)>& spoil) {
  Call call(finished);
  spoil(call);
  const std::vector<float> written = call.written;
  expect_invalid_input(words, [&] { call.run(); });
  EXPECT_EQ(call.written, written) << "an output was written";
}

TEST(Borders, ProductsOfSizesThatDoNotFit64BitsAreRefused) {
  constexpr int64_t kHalf = int64_t{1} << 32, kQuarter = int64_t{1} << 62;
  constexpr int64_t kMost32 = std::numeric_limits<int32_t>::max();
  expect_refused(false, {"hidden has more elements"}, [](Call& c) { c.logits.hidden.sizes = {kHalf, kHalf, 4}; });
  expect_refused(false, {"hidden has more elements"}, [](Call& c) { c.logits.hidden.sizes = {1, 1, kMost}; });
  expect_refused(false, {"hidden of [2, 3, 4]", "4611686018427387904", "64-bit"},
                 [](Call& c) { c.logits.hidden.strides[1] = kQuarter; });
  expect_refused(false, {"weight of [1, 5, 4]", "64-bit"}, [](Call& c) { c.logits.head.weight.strides[0] = kQuarter; });
  expect_refused(false, {"targets has more elements"}, [](Call& c) { c.task.targets.sizes = {kHalf, kHalf}; });
  expect_refused(false, {"bias has more elements"},
                 [](Call& c) { c.logits.head.bias = view(c.weight.data(), {kMost}); });
  expect_refused(false, {"sequences = 2147483647", "16777216", "without rows"}, [](Call& c) {
    c.logits.hidden.sizes = {kMost32, 0, 4}, c.task.targets.sizes = {kMost32, 0};
  });
  expect_refused(true, {"logits of 1048576 times 1048576 rows", "2147483647"}, [](Call& c) {
    c.logits.finished.sizes = {1 << 20, 1 << 20, 5};
  });
  expect_refused(true, {"logits of [2, 3, 5]", "64-bit"}, [](Call& c) { c.logits.finished.strides[1] = kQuarter; });
  expect_refused(true, {"logits.batch = 2147483647", "16777216", "without rows"}, [](Call& c) {
    c.logits.finished.sizes = {kMost32, 0, 5};
  });
  ContextOptions options;
  options.ranks.slices = {kMost, kMost, 7};  // 5, modulo 2^64
  Call call;
  expect_invalid_input({"ranks.slices[1]", "9223372036854775807", "weight has 5"}, [&] { call.run(options); });
}

TEST(Borders, TheLargestTileOrBlockIsAllThereIsAndNoneIsLarger) {
  for (const bool finished : {true, false}) {
    Call plain(finished), large(finished);
    const double loss = plain.run();
    EXPECT_NEAR(large.run({.row_tile = kMostTileEdge, .vocab_tile = kMostTileEdge, .row_block = kMostTileEdge}), loss,
                1e-6);
    for (size_t i = 0; i < plain.written.size(); ++i) EXPECT_NEAR(large.written[i], plain.written[i], 1e-6) << i;
  }
  for (const int64_t edge : {kMostTileEdge + 1, kMost}) {
    const std::string value = std::to_string(edge);
    expect_invalid_input({"row_tile", value}, [&] { Context({.row_tile = edge}); });
    expect_invalid_input({"vocab_tile", value}, [&] { Context({.vocab_tile = edge}); });
    expect_invalid_input({"row_block", value}, [&] { Context({.row_block = edge}); });
  }
}

// refusals_test.cc has tensors. These arguments are spans.
TEST(Borders, SpansThatDoNotStandWhereTheirElementsMayAreRefused) {
  const std::vector<double> numbers(8, 1);
  const std::vector<float> weights(8, 1);
  const std::vector<int64_t> offsets = {0, 3, 6, 6};
  for (const bool finished : {true, false}) {
    expect_refused(finished, {"temperatures", "not aligned", "float64"}, [&](Call& c) {
      c.task.token.temperatures = {off_by(numbers.data(), 4), 6};
    });
    expect_refused(finished, {"class_weights", "not aligned", "float32"}, [&](Call& c) {
      c.task.label_smoothing = 0.1;
      c.task.class_weights = {off_by(weights.data(), 1), 5};
    });
  }
  expect_refused(false, {"offsets", "int64"}, [&](Call& c) {
    c.logits.hidden = view(c.numbers.data(), {6, 4});
    c.gradients.d_hidden = view(c.written.data(), {6, 4});
    c.task.targets = view(c.ids.data(), {6});
    c.logits.offsets = {off_by(offsets.data(), 4), 3};
  });
  Call call;
  call.task.reduction = Reduction::kNone;
  const Forward<CrossEntropy> left = forward(Context(), call.logits, call.task);
  const std::span<const double> upstream(off_by(numbers.data(), 4), 6);
  expect_invalid_input({"upstream", "not aligned"},
                       [&] { backward(Context(), call.logits, call.task, left, upstream, call.gradients); });
}

}  // namespace borders_test
}  // namespace logitless::testing

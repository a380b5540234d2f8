// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// A logit has a single value: two pass recomputes the logits of the rows that have a gradient, with the bits
// that the statistics used, whichever rows are dropped. The hidden states have one additional component per
// row, which is 1 only in that row and which no vocabulary entry reads. So d_weight's columns for these
// components are exactly dL/dlogits.
#include <gtest/gtest.h>

#include <functional>
#include <utility>
#include <vector>

#include "logitless/token_stats.h"
#include "support/calls.h"
#include "support/inputs.h"
#include "support/views.h"

namespace logitless::testing {
namespace dropped_rows_test {

constexpr int64_t kWidth = 45;  // components that vocabulary entries read

struct Shape {
  int64_t tokens, vocab, row_tile, vocab_tile;
  DType dtype = DType::kFloat32;
  HeadLayout layout = HeadLayout::kHiddenVocab;
  double temperature = 1;
  double ignored = 0;
};

using Keep = std::function<bool(int64_t row)>;

// The rows that `keep` selects have the gradient of −logp.
class SomeRows final : public TokenLoss {
 public:
  explicit SomeRows(Keep keep) : keep_(std::move(keep)) {}
  StatsRequest needs() const override { return {}; }
  GradsFilled gradients() const override { return {}; }
  void evaluate(std::span<const int64_t> rows, const TokenStats&, TokenGrads& grads) override {
    for (const int64_t row : rows) grads.logp[static_cast<size_t>(row)] = keep_(row) ? -1 : 0;
  }

 private:
  Keep keep_;
};

class Call {
 public:
  explicit Call(const Shape& shape) : shape_(shape), inputs_(spec_of(shape)) {
    for (int64_t i = 0; i < shape_.tokens; ++i) {
      for (int64_t j = 0; j < shape_.tokens; ++j) inputs_.set_hidden(i, kWidth + j, i == j ? 1 : 0);
      for (int64_t v = 0; v < shape_.vocab; ++v) inputs_.set_weight(v, kWidth + i, 0);
    }
  }
  bool takes_part(int64_t row) const { return inputs_.targets_view()[row] != inputs_.spec.ignore_index; }

  // Returns dL/dlogits [N, V] of the rows that `keep` selects, in one call, or from the statistics of an
  // earlier one.
  std::vector<double> logit_gradients(const Keep& keep, bool apart) {
    RunSpec run;
    run.d_hidden = false;
    GradientOutputs outputs(inputs_, run);
    // For bfloat16 gradients the rounding residuals would be corrected along the mean of the rows present.
    const Context context({.threads = 2,
                           .plan = PlanKind::kTwoPass,
                           .row_tile = shape_.row_tile,
                           .vocab_tile = shape_.vocab_tile,
                           .gradient_precision = GradientPrecision::kFloat32});
    const TokenOptions options = {.temperature = shape_.temperature};
    const HiddenStates hidden = inputs_.hidden_view();
    const LmHead head = inputs_.head_view();
    const Targets targets = inputs_.targets_view();
    if (apart) {
      const TokenStats stats = compute_token_stats(context, hidden, head, targets, options);
      TokenGrads grads;
      for (int64_t i = 0; i < shape_.tokens; ++i) grads.logp.push_back(takes_part(i) && keep(i) ? -1 : 0);
      backpropagate_token_grads(context, hidden, head, targets, options, {}, stats, grads, outputs.gradients());
    } else {
      SomeRows loss(keep);
      run_token_loss(context, hidden, head, targets, options, loss, outputs.gradients());
    }
    std::vector<double> out;
    for (int64_t i = kWidth; i < kWidth + shape_.tokens; ++i) {
      for (int64_t v = 0; v < shape_.vocab; ++v) {
        const bool vocab_first = shape_.layout == HeadLayout::kVocabHidden;
        out.push_back(vocab_first ? outputs.d_weight().get(v, i) : outputs.d_weight().get(i, v));
      }
    }
    return out;
  }

 private:
  static InputSpec spec_of(const Shape& shape) {
    InputSpec spec;
    spec.tokens = shape.tokens, spec.vocab = shape.vocab, spec.hidden = kWidth + shape.tokens;
    spec.dtype = shape.dtype, spec.layout = shape.layout;
    spec.ignored = shape.ignored;
    spec.bias = false;
    return spec;
  }

  Shape shape_;
  Inputs inputs_;
};

TEST(DroppedRows, LeaveTheOthersTheirLogits) {
  using enum DType;
  constexpr HeadLayout kHV = HeadLayout::kHiddenVocab, kVH = HeadLayout::kVocabHidden;
  const Shape shapes[] = {{131, 300, 0, 0},
                          {131, 300, 0, 0, kFloat32, kVH},
                          {131, 300, 0, 0, kFloat32, kHV, 0.1},
                          {131, 300, 0, 0, kFloat64},
                          {131, 300, 0, 0, kFloat64, kVH, 0.1},
                          {131, 300, 0, 0, kBFloat16},
                          {131, 300, 0, 0, kBFloat16, kVH, 0.1},
                          {131, 513, 32, 128},
                          {131, 513, 48, 256, kFloat32, kVH},
                          {131, 513, 13, 100, kFloat64},
                          {131, 65, 24, 64, kFloat16},
                          {97, 2049, 60, 512, kFloat32, kVH, 0.1},
                          {131, 300, 0, 0, kFloat32, kHV, 1, 0.3},
                          {131, 300, 16, 64, kFloat32, kVH, 1, 0.3}};
  const std::pair<const char*, Keep> patterns[] = {{"every third", [](int64_t i) { return i % 3 == 0; }},
                                                   {"the first six of twelve", [](int64_t i) { return i % 12 < 6; }},
                                                   {"the last six of twelve", [](int64_t i) { return i % 12 >= 6; }},
                                                   {"a run", [](int64_t i) { return i >= 5 && i < 91; }},
                                                   {"all but one", [](int64_t i) { return i != 17; }},
                                                   {"two in five", [](int64_t i) { return i * 7919 % 5 < 2; }},
                                                   {"the first", [](int64_t i) { return i == 0; }},
                                                   {"the eleventh", [](int64_t i) { return i == 10; }},
                                                   {"the last", [](int64_t i) { return i >= 94; }}};
  for (const Shape& shape : shapes) {
    Call call(shape);
    const std::vector<double> whole = call.logit_gradients([](int64_t) { return true; }, false);
    for (const auto& [name, keep] : patterns) {
      for (const bool apart : {false, true}) {
        const std::vector<double> some = call.logit_gradients(keep, apart);
        int64_t different = 0;
        for (int64_t i = 0; i < shape.tokens * shape.vocab; ++i) {
          const int64_t row = i / shape.vocab;
          const double want = call.takes_part(row) && keep(row) ? whole[static_cast<size_t>(i)] : 0;
          different += some[static_cast<size_t>(i)] != want;
        }
        EXPECT_EQ(different, 0) << name << (apart ? ", apart, " : ", ") << shape.vocab << " entries in tiles of "
                                << shape.row_tile << ", " << name_of(shape.dtype);
      }
    }
  }
}

}  // namespace dropped_rows_test
}  // namespace logitless::testing

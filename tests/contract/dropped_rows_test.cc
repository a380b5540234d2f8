// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// A logit has a single value: two pass recomputes the logits of the rows that have a gradient, with the bits
// that the statistics used, whichever rows are dropped. The hidden states have one additional component per
// row, which is 1 only in that row and which no vocabulary entry reads. So d_weight's columns for these
// components are exactly dL/dlogits.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <ostream>
#include <string>
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

// The rows that `keep` selects have the gradient of −logp.
class SomeRows final : public TokenLoss {
 public:
  explicit SomeRows(std::function<bool(int64_t)> keep) : keep_(std::move(keep)) {}
  StatsRequest needs() const override { return {}; }
  GradsFilled gradients() const override { return {}; }
  void evaluate(std::span<const int64_t> rows, const TokenStats&, TokenGrads& grads) override {
    for (const int64_t row : rows) grads.logp[static_cast<size_t>(row)] = keep_(row) ? -1 : 0;
  }

 private:
  std::function<bool(int64_t)> keep_;
};

// Prints the name of a shape in the list of tests.
void PrintTo(const Shape& s, std::ostream* out) {
  *out << s.tokens << "x" << s.vocab << " in tiles of " << s.row_tile << "x" << s.vocab_tile << " " << name_of(s.dtype)
       << (s.layout == HeadLayout::kVocabHidden ? " vocab_hidden" : " hidden_vocab") << " temperature " << s.temperature
       << " ignored " << s.ignored;
}

class DroppedRows : public ::testing::TestWithParam<Shape> {
 protected:
  static InputSpec spec_of(const Shape& shape) {
    InputSpec spec;
    spec.tokens = shape.tokens;
    spec.vocab = shape.vocab;
    spec.hidden = kWidth + shape.tokens;
    spec.dtype = shape.dtype;
    spec.layout = shape.layout;
    spec.ignored = shape.ignored;
    spec.bias = false;
    return spec;
  }

  DroppedRows() : shape_(GetParam()), inputs_(spec_of(shape_)) {
    for (int64_t i = 0; i < shape_.tokens; ++i) {
      for (int64_t j = 0; j < shape_.tokens; ++j) inputs_.set_hidden(i, kWidth + j, i == j ? 1 : 0);
      for (int64_t v = 0; v < shape_.vocab; ++v) inputs_.set_weight(v, kWidth + i, 0);
    }
    options_.temperature = shape_.temperature;
    in_plan_.plan = PlanKind::kTwoPass;
    in_plan_.row_tile = shape_.row_tile;
    in_plan_.vocab_tile = shape_.vocab_tile;
    in_plan_.threads = 2;
    // For bfloat16 gradients the rounding residuals would be corrected along the mean of the rows present.
    in_plan_.gradient_precision = GradientPrecision::kFloat32;
  }

  bool takes_part(int64_t row) const { return inputs_.targets_view()[row] != inputs_.spec.ignore_index; }

  // Returns dL/dlogits [N, V] of the rows that `keep` selects, in one call, or from the statistics of an
  // earlier one.
  std::vector<double> logit_gradients(const std::function<bool(int64_t)>& keep, bool apart) {
    const bool vocab_first = shape_.layout == HeadLayout::kVocabHidden;
    const int64_t h = kWidth + shape_.tokens, v = shape_.vocab;
    const bool in_double = shape_.dtype == DType::kFloat64;
    std::vector<double> wide(static_cast<size_t>(h * v));
    std::vector<float> narrow(static_cast<size_t>(h * v));
    Gradients outputs;
    const int64_t rows = vocab_first ? v : h, cols = vocab_first ? h : v;
    outputs.d_weight = in_double ? Matrix(wide.data(), rows, cols) : Matrix(narrow.data(), rows, cols);
    const Context context(in_plan_);
    SomeRows loss(keep);
    if (apart) {
      const TokenStats stats = compute_token_stats(context, inputs_.hidden_view(), inputs_.head_view(),
                                                   inputs_.targets_view(), options_, {});
      TokenGrads grads;
      for (int64_t i = 0; i < shape_.tokens; ++i) grads.logp.push_back(takes_part(i) && keep(i) ? -1 : 0);
      backpropagate_token_grads(context, inputs_.hidden_view(), inputs_.head_view(), inputs_.targets_view(), options_,
                                {}, stats, grads, outputs);
    } else {
      run_token_loss(context, inputs_.hidden_view(), inputs_.head_view(), inputs_.targets_view(), options_, loss,
                     outputs);
    }
    std::vector<double> out(static_cast<size_t>(shape_.tokens * v));
    for (int64_t i = 0; i < shape_.tokens; ++i) {
      for (int64_t entry = 0; entry < v; ++entry) {
        const auto at = static_cast<size_t>(vocab_first ? entry * h + kWidth + i : (kWidth + i) * v + entry);
        out[static_cast<size_t>(i * v + entry)] = in_double ? wide[at] : static_cast<double>(narrow[at]);
      }
    }
    return out;
  }

  double largest_sum(const std::vector<double>& gradients, const std::function<bool(int64_t)>& keep) const {
    double largest = 0;
    for (int64_t i = 0; i < shape_.tokens; ++i) {
      if (!takes_part(i) || !keep(i)) continue;
      double sum = 0;
      for (int64_t v = 0; v < shape_.vocab; ++v) sum += gradients[static_cast<size_t>(i * shape_.vocab + v)];
      largest = std::max(largest, std::fabs(sum));
    }
    return largest;
  }

  Shape shape_;
  Inputs inputs_;
  TokenOptions options_;
  ContextOptions in_plan_;
};

TEST_P(DroppedRows, LeaveTheOthersTheirLogits) {
  const auto all = [](int64_t) { return true; };
  const std::vector<double> whole = logit_gradients(all, false);
  const struct {
    const char* name;
    std::function<bool(int64_t)> keep;
  } patterns[] = {
      {"all", all},
      {"every third", [](int64_t i) { return i % 3 == 0; }},
      {"the first six of twelve", [](int64_t i) { return i % 12 < 6; }},
      {"the last six of twelve", [](int64_t i) { return i % 12 >= 6; }},
      {"a run", [](int64_t i) { return i >= 5 && i < 91; }},
      {"all but one", [](int64_t i) { return i != 17; }},
      {"two in five", [](int64_t i) { return i * 7919 % 5 < 2; }},
      {"the first", [](int64_t i) { return i == 0; }},
      {"the eleventh", [](int64_t i) { return i == 10; }},
      {"the last three", [&](int64_t i) { return i >= shape_.tokens - 3; }},
  };
  RecordProperty("largest sum, all rows", std::to_string(largest_sum(whole, all) * 1e9) + "e-9");
  for (const auto& pattern : patterns) {
    for (const bool apart : {false, true}) {
      SCOPED_TRACE(::testing::Message() << pattern.name << (apart ? ", apart" : ""));
      const std::vector<double> some = logit_gradients(pattern.keep, apart);
      int64_t different = 0;
      for (int64_t i = 0; i < shape_.tokens; ++i) {
        for (int64_t v = 0; v < shape_.vocab; ++v) {
          const auto at = static_cast<size_t>(i * shape_.vocab + v);
          different += some[at] != (takes_part(i) && pattern.keep(i) ? whole[at] : 0);
        }
      }
      EXPECT_EQ(different, 0) << "elements of dL/dlogits are not those of the call that drops nothing";
      EXPECT_EQ(largest_sum(some, pattern.keep), largest_sum(whole, pattern.keep));
      RecordProperty(std::string("largest sum, ") + pattern.name,
                     std::to_string(largest_sum(some, pattern.keep) * 1e9) + "e-9");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, DroppedRows,
    ::testing::Values(Shape{131, 300, 0, 0}, Shape{131, 300, 0, 0, DType::kFloat32, HeadLayout::kVocabHidden},
                      Shape{131, 300, 0, 0, DType::kFloat32, HeadLayout::kHiddenVocab, 0.1},
                      Shape{131, 300, 0, 0, DType::kFloat64},
                      Shape{131, 300, 0, 0, DType::kFloat64, HeadLayout::kVocabHidden, 0.1},
                      Shape{131, 300, 0, 0, DType::kBFloat16},
                      Shape{131, 300, 0, 0, DType::kBFloat16, HeadLayout::kVocabHidden, 0.1}, Shape{131, 513, 32, 128},
                      Shape{131, 513, 48, 256, DType::kFloat32, HeadLayout::kVocabHidden},
                      Shape{131, 513, 13, 100, DType::kFloat64}, Shape{131, 65, 24, 64, DType::kFloat16},
                      Shape{97, 2049, 0, 0}, Shape{97, 2049, 60, 512, DType::kFloat32, HeadLayout::kVocabHidden, 0.1},
                      Shape{131, 300, 0, 0, DType::kFloat32, HeadLayout::kHiddenVocab, 1, 0.3},
                      Shape{131, 300, 16, 64, DType::kFloat32, HeadLayout::kVocabHidden, 1, 0.3}));

}  // namespace dropped_rows_test
}  // namespace logitless::testing

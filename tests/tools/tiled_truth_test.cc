// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Compares the oracle in tiles with the oracle with all logits in memory. The formulas are the same, so only
// float64 rounding may differ, because Eigen divides the products differently.
#include "oracle/tiled_truth.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "oracle/oracle.h"
#include "support/inputs.h"
#include "support/problem.h"
#include "support/views.h"

namespace logitless::testing {
namespace tiled_truth_test {

using oracle::MatrixXd;
using oracle::VectorXd;

// A few rows or vocabulary entries per tile; everything in one tile.
const std::vector<size_t> kScratch = {20'000, size_t{1} << 30};
constexpr double kTolerance = 1e-12;

void expect_same(const char* what, const MatrixXd& got, const MatrixXd& want) {
  ASSERT_EQ(got.rows(), want.rows()) << what;
  ASSERT_EQ(got.cols(), want.cols()) << what;
  for (int64_t r = 0; r < want.rows(); ++r) {
    for (int64_t c = 0; c < want.cols(); ++c) {
      if (std::isnan(want(r, c)) ? std::isnan(got(r, c))
                                 : std::abs(got(r, c) - want(r, c)) <= kTolerance * (1 + std::abs(want(r, c))))
        continue;
      ADD_FAILURE() << what << "(" << r << ", " << c << ") is " << got(r, c) << ", not " << want(r, c);
      return;
    }
  }
}

void expect_same(const oracle::TokenStatistics& got, const oracle::TokenStatistics& want) {
  expect_same("max", got.max, want.max);
  expect_same("log_sum", got.log_sum, want.log_sum);
  expect_same("logp", got.logp, want.logp);
  expect_same("lse", got.lse, want.lse);
  expect_same("entropy", got.entropy, want.entropy);
  expect_same("cross", got.cross, want.cross);
  EXPECT_EQ(got.argmax, want.argmax);
}

// Returns all four gradients; they are 0 in about a third of the rows.
oracle::TokenGradients mixed_gradients(int64_t tokens) {
  oracle::TokenGradients grads(tokens);
  const std::vector<double> zeros = random_token_gradients(tokens, 5);
  uint64_t seed = 5;
  for (VectorXd* column : {&grads.logp, &grads.lse, &grads.entropy, &grads.cross}) {
    const std::vector<double> values = random_token_gradients(tokens, ++seed);
    for (int64_t i = 0; i < tokens; ++i) (*column)[i] = zeros[i] == 0 ? 0 : values[i];
  }
  return grads;
}

// Assembles tiles, and records whether they came in order.
class Assembled {
 public:
  Assembled(int64_t rows, int64_t cols) : whole_(MatrixXd::Constant(rows, cols, -1)) {}
  void add_columns(int64_t first, const MatrixXd& tile) {
    EXPECT_EQ(first, next_);
    whole_.middleCols(first, tile.cols()) = tile;
    next_ = first + tile.cols();
  }
  const MatrixXd& whole() const {
    EXPECT_EQ(next_, whole_.cols());
    return whole_;
  }

 private:
  MatrixXd whole_;
  int64_t next_ = 0;
};

void expect_fused_same(const Inputs& inputs, const TokenOptions& options,
                       const std::vector<size_t>& scratch_sizes = kScratch, std::span<const float> cross = {}) {
  const HiddenStates hidden = inputs.hidden_view();
  const LmHead head = inputs.head_view();
  oracle::Tokens tokens =
      oracle::read_tokens(oracle::sequence_offsets(hidden), head.vocab_size(), inputs.targets_view(), options);
  oracle::set_cross(cross, tokens);
  const oracle::Problem problem = oracle::read_problem(hidden, head, tokens);
  const oracle::Statistics stats = oracle::compute_statistics(problem);
  const oracle::TokenGradients grads = mixed_gradients(problem.tokens());
  const MatrixXd d_raw = oracle::compute_logit_gradients(problem, stats, grads).d_raw;
  const oracle::ParameterGradients want = oracle::compute_parameter_gradients(problem, d_raw);
  for (const size_t scratch : scratch_sizes) {
    SCOPED_TRACE(std::to_string(scratch) + " bytes of scratch");
    const oracle::FusedTruth reference(hidden, head, tokens, scratch);
    expect_same(reference.compute_statistics(), stats);
    Assembled logits(d_raw.rows(), d_raw.cols());
    reference.compute_logit_gradients(stats, grads,
                                      [&](int64_t first, const MatrixXd& tile) { logits.add_columns(first, tile); });
    expect_same("d_raw", logits.whole(), d_raw);
    Assembled d_weight(want.d_weight.cols(), want.d_weight.rows()), d_bias(1, want.d_bias.size());
    const MatrixXd d_hidden = reference.compute_parameter_gradients(
        stats, grads, [&](int64_t first, const MatrixXd& weight_tile, const VectorXd& bias_tile) {
          d_weight.add_columns(first, weight_tile.transpose());
          d_bias.add_columns(first, bias_tile.transpose());
        });
    expect_same("d_hidden", d_hidden, want.d_hidden);
    expect_same("d_weight", d_weight.whole().transpose(), want.d_weight);
    expect_same("d_bias", d_bias.whole().transpose(), want.d_bias);
  }
}

TEST(Reference, FusedIsTheOracle) {
  for (const HeadLayout layout : {HeadLayout::kHiddenVocab, HeadLayout::kVocabHidden}) {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64}) {
      SCOPED_TRACE(name_of(dtype));
      InputSpec spec;
      spec.layout = layout;
      spec.dtype = dtype;
      spec.ignored = 0.3;
      spec.padding = 3;
      expect_fused_same(Inputs(spec), TokenOptions());
    }
  }
}

TEST(Reference, FusedWithEveryOptionOfItsTokens) {
  InputSpec spec;
  spec.tokens = 36;
  spec.sequences = 3;
  spec.shift = 1;
  spec.softcap = 20;
  const std::vector<double> temperatures = random_temperatures(spec.tokens, 3);
  const std::vector<float> cross = random_class_weights(spec.vocab, 3);
  TokenOptions options;
  options.shift = 1;
  options.temperatures = temperatures;
  expect_fused_same(Inputs(spec), options, kScratch, cross);
  options.temperature_meaning = TemperatureMeaning::kScaleLogp;
  expect_fused_same(Inputs(spec), options, kScratch, cross);
  spec.offsets = {0, 1, 1, 20, 36};
  expect_fused_same(Inputs(spec), options, kScratch, cross);
}

}  // namespace tiled_truth_test
}  // namespace logitless::testing

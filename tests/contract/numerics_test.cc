// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Hard cases for floating point: common offsets, near certainty, saturation, masks, extreme temperatures.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "support/calls.h"
#include "support/testers.h"

namespace logitless::testing {
namespace numerics_test {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Rows of raw logits that the engine computes without rounding: with H = N, an identity matrix as hidden, and
// weight(v, i) = logits[i][v], all products except one are 0. d_weight(v, i) is then dL/dr_iv itself.
class ExactLogits {
 public:
  explicit ExactLogits(std::vector<std::vector<double>> logits) : logits_(std::move(logits)) {}

  ExactLogits& targets(std::vector<int64_t> ids) { return targets_ = std::move(ids), *this; }
  ExactLogits& dtype(DType type) { return dtype_ = type, *this; }
  ExactLogits& bias(std::vector<double> values) { return bias_ = std::move(values), *this; }
  ExactLogits& round_to(DType type) { return options_.round_logits_to = type, *this; }
  ExactLogits& softcap(double cap) { return softcap_ = cap, *this; }
  ExactLogits& temperature(double value) { return options_.temperature = value, *this; }
  ExactLogits& meaning(TemperatureMeaning value) { return options_.temperature_meaning = value, *this; }
  ExactLogits& cross(std::vector<float> values) { return cross_ = std::move(values), *this; }
  ExactLogits& vocab_tile(int64_t entries) { return vocab_tile_ = entries, *this; }
  ExactLogits& only_logp() { return grads_ = {1, 0, 0, 0}, *this; }

  /// Compares all statistics and gradients with the oracle, on every instruction set, within the bounds for
  /// exact logits.
  void match_oracle() {
    SCOPED_TRACE(::testing::Message() << logits_.size() << " rows of " << logits_[0].size() << " logits from "
                                      << logits_[0][0] << ", " << name_of(dtype_) << ", temperature "
                                      << options_.temperature << ", softcap " << softcap_);
    Inputs inputs = make_inputs();
    Arithmetic arithmetic = arithmetic_for(dtype_, Context());
    arithmetic.exact_logits = true;
    const StatsRequest request = {
        .entropy = true, .cross = true, .argmax = true, .rank = true, .cross_weights = cross_};
    oracle::Problem problem =
        oracle::read_problem(inputs.hidden_view(), inputs.head_view(), inputs.targets_view(), options_);
    oracle::set_cross(cross_, problem);
    Expected expected = expect_statistics(std::move(problem), arithmetic);
    TokenGrads grads;
    grads.logp.assign(logits_.size(), grads_[0]);
    grads.lse.assign(logits_.size(), grads_[1]);
    grads.entropy.assign(logits_.size(), grads_[2]);
    grads.cross.assign(logits_.size(), grads_[3]);
    oracle::TokenGradients token_gradients(rows());
    token_gradients.logp.setConstant(grads_[0]);
    token_gradients.lse.setConstant(grads_[1]);
    token_gradients.entropy.setConstant(grads_[2]);
    token_gradients.cross.setConstant(grads_[3]);
    add_gradients(expected, token_gradients, oracle::TokenGradients(rows()));

    for (const std::string& target : simd_targets()) {
      SCOPED_TRACE(target);
      RunSpec run;
      run.context.simd_target = target;
      run.context.vocab_tile = vocab_tile_;
      run.context.threads = 2;
      const Context context(run.context);
      stats_ = compute_token_stats(context, inputs.hidden_view(), inputs.head_view(), inputs.targets_view(), options_,
                                   request);
      expect_statistics_near(stats_, expected);
      GradientOutputs outputs(inputs, run);
      backpropagate_token_grads(context, inputs.hidden_view(), inputs.head_view(), inputs.targets_view(), options_,
                                request, stats_, grads, outputs.gradients());
      expect_gradients_near(outputs, expected, run, inputs.spec.layout);
      d_weight_ = outputs.d_weight();
    }
    truth_ = expected;
  }

  /// The results of the last instruction set, and the expected ones.
  const TokenStats& stats() const { return stats_; }
  double d_logit(int64_t row, int64_t entry) const { return d_weight_.get(row, entry); }
  const Expected& truth() const { return truth_; }

 private:
  int64_t rows() const { return static_cast<int64_t>(logits_.size()); }

  Inputs make_inputs() const {
    InputSpec spec;
    spec.tokens = spec.hidden = rows();
    spec.vocab = static_cast<int64_t>(logits_[0].size());
    spec.dtype = dtype_;
    spec.softcap = softcap_;
    spec.bias = !bias_.empty();
    spec.targets = targets_;
    Inputs inputs(spec);
    for (int64_t i = 0; i < rows(); ++i) {
      for (int64_t h = 0; h < rows(); ++h) inputs.hidden.set(i, h, h == i ? 1 : 0);
      for (int64_t v = 0; v < spec.vocab; ++v) inputs.set_weight(v, i, logits_[i][v]);
    }
    for (size_t v = 0; v < bias_.size(); ++v) inputs.bias.set(0, static_cast<int64_t>(v), bias_[v]);
    return inputs;
  }

  std::vector<std::vector<double>> logits_;
  std::vector<double> bias_;
  std::vector<int64_t> targets_;
  std::vector<float> cross_;
  DType dtype_ = DType::kFloat32;
  double softcap_ = 0;
  int64_t vocab_tile_ = 0;
  TokenOptions options_;
  std::array<double, 4> grads_{1, 0.5, -0.25, 2};
  TokenStats stats_;
  HostTensor d_weight_;
  Expected truth_;
};

// Whole numbers from 0 down to -30, in an order that does not depend on the offset.
std::vector<double> whole_logits(int64_t vocab, double offset, int64_t seed) {
  std::vector<double> logits;
  for (int64_t v = 0; v < vocab; ++v) logits.push_back(offset - static_cast<double>((v * 37 + seed * 11) % 31));
  return logits;
}

TEST(Numerics, CommonOffsetCostsNoDigits) {
  for (const int64_t vocab : {1, 2, 31, 70, 133}) {
    for (const double temperature : {1.0, 0.7}) {
      std::vector<double> logp;
      for (const double offset : {0.0, 1000.0, -1e6, 0x1p20, 0x1p24, -0x1p24 + 30}) {
        ExactLogits logits({whole_logits(vocab, offset, 0), whole_logits(vocab, offset, 1)});
        logits.targets({vocab / 2, vocab - 1}).temperature(temperature).vocab_tile(32).match_oracle();
        // They must even be equal: the offset is not part of any rounding.
        if (logp.empty()) logp = logits.stats().logp;
        EXPECT_EQ(logits.stats().logp, logp);
        EXPECT_EQ(logits.stats().max_logit[0], offset);
      }
    }
  }
}

TEST(Numerics, CommonOffsetInTheBiasAndInOtherTypes) {
  const int64_t vocab = 70;
  ExactLogits low({whole_logits(vocab, 0, 0), whole_logits(vocab, 0, 1)});
  low.targets({0, 69}).vocab_tile(32);
  low.bias(std::vector<double>(vocab, 0x1p24)).match_oracle();
  low.dtype(DType::kBFloat16).match_oracle();
  low.dtype(DType::kFloat64).bias(std::vector<double>(vocab, 0x1p50)).match_oracle();
}

TEST(Numerics, AllLogitsFarBelowZero) {
  // A padded column of zeros would outweigh all of them.
  for (const int64_t vocab : {1, 2, 15, 16, 17, 63, 64, 65, 100}) {
    ExactLogits logits({std::vector<double>(vocab, -10000.0)});
    logits.targets({vocab - 1}).vocab_tile(64).match_oracle();
    EXPECT_NEAR(logits.stats().logp[0], -std::log(static_cast<double>(vocab)), 1e-5);
    EXPECT_NEAR(logits.stats().lse[0], -10000.0 + std::log(static_cast<double>(vocab)), 1e-5);
  }
}

TEST(Numerics, NearlyCertainTokenKeepsRelativeAccuracy) {
  for (const int64_t target : {0, 40, 99}) {
    for (const double gap : {8.0, 16.0, 20.75, 40.0, 80.0}) {
      // 99 vocabulary entries have e^-gap each: at 20.75, p of the target is 1 - 1e-7.
      std::vector<double> row(100, -gap);
      row[target] = 0;
      for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
        ExactLogits logits({row});
        logits.targets({target}).dtype(dtype).vocab_tile(32).only_logp().match_oracle();
        const double rest = 99 * std::exp(-gap);
        // 99 terms, exp and log1p: at most 128 roundings of fp32.
        EXPECT_NEAR(logits.stats().logp[0] / -std::log1p(rest), 1, 128 * 0x1p-24);
        EXPECT_NEAR(logits.d_logit(0, target) / (rest / (1 + rest)), 1, 128 * 0x1p-24);
      }
    }
  }
}

TEST(Numerics, SoftcapNearSaturation) {
  // r / softcap is up to 20, where tanh is 1 in every type and its derivative, 4 e^-40, is not 0.
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    for (const double sign : {1.0, -1.0}) {
      std::vector<double> row;
      for (int r = 0; r <= 600; r += 8) row.push_back(sign * r);
      ExactLogits logits({row, row, row});
      logits.targets({0, 40, 75}).dtype(dtype).softcap(30).match_oracle();
      logits.temperature(8).match_oracle();
    }
  }
}

TEST(Numerics, Temperatures) {
  for (const double temperature : {0.01, 0.03, 0.1, 10.0, 100.0}) {
    for (const auto meaning : {TemperatureMeaning::kScaleLogits, TemperatureMeaning::kScaleLogp}) {
      ExactLogits logits({whole_logits(70, 5, 0), whole_logits(70, -3, 1)});
      logits.targets({0, 69}).temperature(temperature).meaning(meaning).match_oracle();
    }
  }
}

TEST(Numerics, LogitsOfEveryMagnitude) {
  // The signs of logp, cross and entropy are always right; the comparison checks them in each row.
  for (const double scale : {1e-30, 1e-6, 1e-3, 1.0, 30.0, 1e3, 1e6, 1e30}) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
      std::vector<std::vector<double>> rows;
      for (int64_t i = 0; i < 6; ++i) {
        rows.push_back(whole_logits(67, 15, i));
        for (double& logit : rows.back()) logit = static_cast<float>(logit * scale);
      }
      ExactLogits(rows).targets({0, 1, 30, 31, 32, 66}).dtype(dtype).vocab_tile(32).match_oracle();
    }
  }
}

TEST(Numerics, OneEntryIsCertain) {
  for (const double logit : {0.0, -1e4, 1e30}) {
    ExactLogits logits({std::vector<double>(1, logit)});
    logits.targets({0}).match_oracle();
    EXPECT_EQ(logits.stats().logp[0], 0);
    EXPECT_EQ(logits.stats().entropy[0], 0);
    EXPECT_EQ(logits.stats().cross[0], 0);
    EXPECT_EQ(logits.stats().lse[0], static_cast<float>(logit));
  }
}

TEST(Numerics, LogitsRoundedToANarrowType) {
  // The engine computes these logits exactly, so it rounds the same numbers as the oracle: values that the
  // narrow type lacks, including ties, subnormals, and values that overflow only in float16.
  for (const DType narrow : {DType::kBFloat16, DType::kFloat16}) {
    std::vector<double> row = {1 + 0x1p-9,  1 + 0x1p-8, 1 + 3 * 0x1p-8, 1 + 0x1p-11, 1 + 3 * 0x1p-11, -2.71828125,
                               0x1.8p-24,   0x1p-25,    0x1.4p-20,      -70000,      257.4375,        258.5,
                               -1 / 1024.0, 250.03125,  3.14159179,     -0.0,        -65519,          254.99};
    for (double& logit : row) logit = static_cast<float>(logit);
    for (int64_t k = 0; k < 60; ++k) row.push_back(static_cast<float>(240 + 0.23456789 * static_cast<double>(k)));
    for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
      ExactLogits logits({row, row, row});
      logits.targets({0, 11, 40}).dtype(dtype).round_to(narrow).vocab_tile(32).match_oracle();
      logits.temperature(0.7).match_oracle();
      // The bias is part of the rounded number: adding 1/64 to a bfloat16 above 4 would have no effect, but
      // adding it before rounding has.
      logits.bias(std::vector<double>(row.size(), 0x1p-6)).match_oracle();
      std::vector<double> finite = row;
      finite[9] = -60000;  // the error bound of 1 - tanh² is meaningless at infinity
      ExactLogits({finite, finite}).targets({0, 40}).dtype(dtype).round_to(narrow).softcap(300).match_oracle();
    }
  }
}

std::vector<double> mask(int64_t vocab, int64_t first, int64_t last) {
  std::vector<double> bias(vocab, 0.0);
  for (int64_t v = first; v < last; ++v) bias[v] = -kInfinity;
  return bias;
}

TEST(Numerics, MaskedEntries) {
  const int64_t vocab = 150;
  // One vocabulary entry, a tile's edge, the whole first tile, the whole last tile, all vocabulary entries
  // except one, all tiles except the middle one.
  std::vector<std::vector<double>> masks = {mask(vocab, 10, 11),   mask(vocab, 60, 70), mask(vocab, 0, 64),
                                            mask(vocab, 128, 150), mask(vocab, 0, 149), mask(vocab, 0, 64)};
  for (int64_t v = 128; v < vocab; ++v) masks.back()[v] = -kInfinity;
  for (const std::vector<double>& bias : masks) {
    // Targets in each tile. A masked target has logp -inf, and its gradient is like any other vocabulary
    // entry's.
    ExactLogits logits({whole_logits(vocab, 5, 0), whole_logits(vocab, -20, 1), whole_logits(vocab, 0, 2)});
    logits.targets({10, 100, 149}).bias(bias).vocab_tile(64).match_oracle();
    // A masked vocabulary entry with cross weight 0 adds nothing: 0 · ∞ = 0.
    std::vector<float> cross(vocab, 0.01f);
    for (int64_t v = 0; v < vocab; ++v) {
      if (std::isinf(bias[v])) cross[v] = 0;
    }
    logits.cross(cross).match_oracle();
    EXPECT_TRUE(std::isfinite(logits.stats().cross[0]));
  }
}

TEST(Numerics, MaskedEntriesInALoss) {
  InputSpec spec;
  spec.targets = {70, 80, 149};
  Inputs inputs(spec);
  for (int64_t v = 0; v < 64; ++v) inputs.bias.set(0, v, -kInfinity);
  ContextOptions options;
  options.vocab_tile = 64;
  CrossEntropy loss;
  const auto loss_of = [&] {
    return cross_entropy(Context(options), inputs.hidden_view(), inputs.head_view(), inputs.targets_view(), loss).loss;
  };
  EXPECT_TRUE(std::isfinite(loss_of()));
  loss.label_smoothing = 0.1;  // gives impossible vocabulary entries a share of the target
  EXPECT_EQ(loss_of(), kInfinity);
  for (int64_t v = 0; v < spec.vocab; ++v) inputs.bias.set(0, v, -kInfinity);
  loss.label_smoothing = 0;
  EXPECT_TRUE(std::isnan(loss_of()));
}

}  // namespace numerics_test
}  // namespace logitless::testing

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Compares the oracle with numbers worked out by hand and with its own finite differences.
#include "oracle/oracle.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "support/inputs.h"
#include "support/problem.h"
#include "support/views.h"

namespace logitless::testing {
namespace oracle_test {

using oracle::Problem;
using oracle::Statistics;

constexpr double kLog3 = 1.0986122886681098;

// Returns one token with these logits: H = 1, hidden 1.
Problem one_token(const std::vector<double>& logits, int64_t label) {
  Problem problem;
  problem.hidden = oracle::MatrixXd::Ones(1, 1);
  const auto vocab = static_cast<int64_t>(logits.size());
  problem.weight = Eigen::Map<const oracle::VectorXd>(logits.data(), vocab);
  problem.bias = oracle::VectorXd::Zero(vocab);
  problem.labels = {label};
  problem.temperature = oracle::VectorXd::Ones(1);
  problem.cross = oracle::VectorXd::Constant(vocab, 1.0 / static_cast<double>(vocab));
  return problem;
}

TEST(Oracle, StatisticsOfProbabilitiesOneQuarterAndThreeQuarters) {
  const Statistics stats = oracle::compute_statistics(one_token({5.0, 5.0 + kLog3}, 0));
  EXPECT_DOUBLE_EQ(stats.logp[0], -std::log(4.0));
  EXPECT_DOUBLE_EQ(stats.lse[0], 5.0 + std::log(4.0));
  EXPECT_DOUBLE_EQ(stats.entropy[0], std::log(4.0) - 0.75 * kLog3);
  EXPECT_DOUBLE_EQ(stats.cross[0], 0.5 * kLog3 - std::log(4.0));
  EXPECT_EQ(stats.argmax[0], 1);
}

TEST(Oracle, KeepsTheDigitsOfANearlyCertainToken) {
  // p_other / p_label = e^-30, so logp = -log1p(e^-30) = -e^-30 (1 - e^-30 / 2 + ...).
  const Statistics stats = oracle::compute_statistics(one_token({0, 30}, 1));
  const double rest = std::exp(-30.0);
  EXPECT_NEAR(stats.logp[0], -rest, 1e-13 * rest);
  EXPECT_NEAR(stats.entropy[0], rest * 31, 1e-12 * rest * 31);
  oracle::TokenGradients grads(1);
  grads.logp[0] = 1;
  const auto gradients = oracle::compute_logit_gradients(one_token({0, 30}, 1), stats, grads);
  EXPECT_NEAR(gradients.d_raw(0, 1), rest, 1e-13 * rest);
}

TEST(Oracle, SoftcapAndTemperatures) {
  Problem problem = one_token({30 * std::atanh(0.5), 0}, 0);  // capped: 15 and 0
  problem.softcap = 30;
  problem.temperature[0] = 15 / kLog3;  // final: log 3 and 0
  Statistics stats = oracle::compute_statistics(problem);
  EXPECT_NEAR(stats.logp[0], std::log(0.75), 1e-15);
  oracle::TokenGradients grads(1);
  grads.logp[0] = 1;
  // (1 - p) (1 - tanh²) / temperature.
  EXPECT_NEAR(oracle::compute_logit_gradients(problem, stats, grads).d_raw(0, 0), 0.25 * 0.75 * kLog3 / 15, 1e-16);

  problem.softcap = 0;
  problem.weight(0, 0) = kLog3;
  problem.temperature[0] = 2;
  problem.temperature_meaning = TemperatureMeaning::kScaleLogp;
  stats = oracle::compute_statistics(problem);
  EXPECT_DOUBLE_EQ(stats.logp[0], std::log(0.75) / 2);
  EXPECT_DOUBLE_EQ(stats.lse[0], std::log(4.0));
  EXPECT_DOUBLE_EQ(oracle::compute_logit_gradients(problem, stats, grads).d_raw(0, 0), 0.125);
}

TEST(Oracle, MaskedEntriesAndBadRows) {
  const double inf = std::numeric_limits<double>::infinity();
  Problem problem = one_token({0, 0, 0}, 0);
  problem.bias[1] = -inf;
  Statistics stats = oracle::compute_statistics(problem);
  EXPECT_DOUBLE_EQ(stats.logp[0], -std::log(2.0));
  EXPECT_DOUBLE_EQ(stats.entropy[0], std::log(2.0));
  EXPECT_EQ(stats.cross[0], -inf);
  for (const double bad : {inf, std::numeric_limits<double>::quiet_NaN()}) {
    problem.bias[1] = bad;
    stats = oracle::compute_statistics(problem);
    EXPECT_TRUE(std::isnan(stats.logp[0]) && std::isnan(stats.lse[0]) && std::isnan(stats.entropy[0]));
  }
  problem.bias.setConstant(-inf);
  EXPECT_TRUE(std::isnan(oracle::compute_statistics(problem).lse[0]));
}

// Compares the gradient with central differences of `loss` in every element of `parameter`. Their error, h²
// curvature / 6 + 2^-53 |loss| / h, is about 1e-10.
void expect_derivative(const char* what, oracle::MatrixXd& parameter, const oracle::MatrixXd& gradient,
                       const std::function<double()>& loss) {
  const double h = 1e-5;
  for (int64_t r = 0; r < parameter.rows(); ++r) {
    for (int64_t c = 0; c < parameter.cols(); ++c) {
      const double at = parameter(r, c);
      parameter(r, c) = at + h;
      const double above = loss();
      parameter(r, c) = at - h;
      const double below = loss();
      parameter(r, c) = at;
      const double slope = (above - below) / (2 * h);
      EXPECT_TRUE(std::abs(gradient(r, c) - slope) <= 1e-7 * (1 + std::abs(slope)))
          << what << "(" << r << ", " << c << "): " << gradient(r, c) << ", slope " << slope;
    }
  }
}

void expect_gradients_are_slopes(Problem problem, const std::function<double(const Problem&)>& loss,
                                 const std::function<oracle::TokenGradients(const Statistics&)>& token_grads) {
  const Statistics stats = oracle::compute_statistics(problem);
  const auto d_raw = oracle::compute_logit_gradients(problem, stats, token_grads(stats)).d_raw;
  const auto gradients = oracle::compute_parameter_gradients(problem, d_raw);
  const auto at = [&] { return loss(problem); };
  expect_derivative("d_hidden", problem.hidden, gradients.d_hidden, at);
  expect_derivative("d_weight", problem.weight, gradients.d_weight, at);
  oracle::MatrixXd bias = problem.bias;
  expect_derivative("d_bias", bias, gradients.d_bias, [&] {
    problem.bias = bias;
    return at();
  });
}

InputSpec tiny() {
  InputSpec spec;
  spec.tokens = 4;
  spec.vocab = 5;
  spec.hidden = 3;
  spec.dtype = DType::kFloat64;
  spec.ignored = 0.2;
  spec.peaked = false;
  spec.poison = false;
  return spec;
}

TEST(Oracle, EachTokenGradientIsASlope) {
  for (const double softcap : {0.0, 0.7}) {
    for (const auto meaning : {TemperatureMeaning::kScaleLogits, TemperatureMeaning::kScaleLogp}) {
      InputSpec spec = tiny();
      spec.softcap = softcap;
      const Inputs inputs(spec);
      const std::vector<double> temperatures = random_temperatures(spec.tokens, 3);
      const std::vector<float> cross = random_class_weights(spec.vocab, 3);
      TokenOptions options;
      options.temperatures = temperatures;
      options.temperature_meaning = meaning;
      Problem problem = oracle::read_problem(inputs.hidden_view(), inputs.head_view(), inputs.targets_view(), options);
      oracle::set_cross(cross, problem);
      for (int term = 0; term < 4; ++term) {
        SCOPED_TRACE(::testing::Message() << "term " << term << ", softcap " << softcap);
        oracle::TokenGradients grads(spec.tokens);
        oracle::VectorXd* columns[] = {&grads.logp, &grads.lse, &grads.entropy, &grads.cross};
        *columns[term] << 0.5, -1.5, 2.0, 1.0;
        expect_gradients_are_slopes(
            problem,
            [&](const Problem& at) {
              const Statistics stats = oracle::compute_statistics(at);
              const oracle::VectorXd* statistics[] = {&stats.logp, &stats.lse, &stats.entropy, &stats.cross};
              return columns[term]->dot(*statistics[term]);
            },
            [&](const Statistics&) { return grads; });
      }
    }
  }
}

TEST(Oracle, CrossEntropyGradientsAreSlopes) {
  InputSpec spec = tiny();
  spec.softcap = 2;
  const std::vector<float> weights = random_class_weights(spec.vocab, 5);
  for (const auto reduction : {Reduction::kMean, Reduction::kSum, Reduction::kNone}) {
    const Inputs inputs(spec);
    CrossEntropy options;
    options.reduction = reduction;
    options.class_weights = weights;
    options.label_smoothing = 0.3;
    options.z_loss = 0.2;
    options.token.temperature = 0.8;
    options.loss_scale = 1.5;
    const Problem problem =
        oracle::read_problem(inputs.hidden_view(), inputs.head_view(), inputs.targets_view(), options);
    const std::vector<double> upstream =
        reduction == Reduction::kNone ? std::vector<double>{0.5, 0, -2, 1} : std::vector<double>{-0.25};
    expect_gradients_are_slopes(
        problem,
        [&](const Problem& at) {
          const auto loss = oracle::compute_cross_entropy(at, oracle::compute_statistics(at), options);
          if (reduction != Reduction::kNone) return upstream[0] * loss.loss;
          double sum = 0;
          for (size_t i = 0; i < upstream.size(); ++i) sum += upstream[i] * loss.per_token_loss[i];
          return sum;
        },
        [&](const Statistics& stats) {
          return oracle::compute_cross_entropy(problem, stats, options, upstream).grads;
        });
  }
}

TEST(HostTensor, RoundsToNearestEven) {
  EXPECT_EQ(to_bfloat16(1.0 + 0x1p-8).bits, 0x3f80);            // a tie, to even
  EXPECT_EQ(to_bfloat16(1.0 + 0x1p-8 + 0x1p-40).bits, 0x3f81);  // above the tie by less than float precision
  EXPECT_EQ(to_bfloat16(1.0 + 3 * 0x1p-8).bits, 0x3f82);        // a tie, to even
  EXPECT_TRUE(std::isnan(to_double(to_bfloat16(std::numeric_limits<double>::quiet_NaN()))));
  EXPECT_EQ(to_float16(1.0 + 0x1p-11).bits, 0x3c00);
  EXPECT_EQ(to_float16(1.0 + 0x1p-11 + 0x1p-40).bits, 0x3c01);
  EXPECT_EQ(to_float16(1.0 + 3 * 0x1p-11).bits, 0x3c02);
  EXPECT_EQ(to_float16(-0x1p-24).bits, 0x8001);
  EXPECT_EQ(to_float16(0x1p-25).bits, 0x0000);
  EXPECT_EQ(to_float16(65519.9).bits, 0x7bff);
  EXPECT_EQ(to_float16(-65520).bits, 0xfc00);
  EXPECT_EQ(half_ulp(1.5, DType::kBFloat16), 0x1p-8);
  EXPECT_EQ(half_ulp(1e-6, DType::kFloat16), 0x1p-25);
}

}  // namespace oracle_test
}  // namespace logitless::testing

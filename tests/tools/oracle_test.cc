// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The oracle against numbers worked out by hand and against finite differences of itself.
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
namespace {

using oracle::Problem;
using oracle::Statistics;

constexpr double kLog3 = 1.0986122886681098;

// One token with these logits: H = 1, hidden 1.
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

TEST(Oracle, FirstOfEqualEntriesIsArgmax) {
  EXPECT_EQ(oracle::compute_statistics(one_token({1, 7, 7, 7}, 0)).argmax[0], 1);
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

TEST(Oracle, LossOfTwoTokensWorkedOut) {
  // Logits (log 3, 0) in both rows; targets 0 and 1; class weights 2 and 4; smoothing 0.2.
  InputSpec spec;
  spec.tokens = 2;
  spec.vocab = 2;
  spec.hidden = 1;
  spec.dtype = DType::kFloat64;
  spec.bias = false;
  spec.targets = {0, 1};
  Inputs inputs(spec);
  inputs.hidden.set(0, 0, 1);
  inputs.hidden.set(1, 0, 1);
  inputs.set_weight(0, 0, kLog3);
  inputs.set_weight(1, 0, 0);
  const std::vector<float> weights = {2, 4};
  CrossEntropy options;
  options.class_weights = weights;
  options.label_smoothing = 0.2;
  options.z_loss = 0.5;
  const auto loss_of = [&] {
    const Problem problem =
        oracle::read_problem(inputs.hidden_view(), inputs.head_view(), inputs.targets_view(), options);
    return oracle::compute_cross_entropy(problem, oracle::compute_statistics(problem), options).loss;
  };
  const double nll[] = {-std::log(0.75), -std::log(0.25)};
  const double smooth = (2 * nll[0] + 4 * nll[1]) / 2;  // (1 / V) Σ W_v (-log p_v), the same for both rows
  const double z = 0.5 * std::log(4.0) * std::log(4.0);
  const double sum = 0.8 * (2 * nll[0] + 4 * nll[1]) + 0.2 * 2 * smooth;
  EXPECT_NEAR(loss_of(), sum / 6 + z, 1e-15);
  options.num_items_in_batch = 5;
  EXPECT_NEAR(loss_of(), (sum + 2 * z) / 5, 1e-15);
  options.reduction = Reduction::kSum;
  options.loss_scale = -3;
  EXPECT_NEAR(loss_of(), -3 * (sum + 2 * z), 1e-14);
}

TEST(Oracle, ShiftStaysWithinSequences) {
  InputSpec spec;
  spec.tokens = 6;
  spec.vocab = 9;
  spec.shift = 1;
  spec.targets = {0, 1, -100, 3, 4, 5};
  spec.sequences = 2;
  const auto labels_of = [&] {
    const Inputs inputs(spec);
    TokenOptions options;
    options.shift = 1;
    return oracle::read_problem(inputs.hidden_view(), inputs.head_view(), inputs.targets_view(), options).labels;
  };
  EXPECT_EQ(labels_of(), (std::vector<int64_t>{1, -1, -1, 4, 5, -1}));
  spec.offsets = {0, 0, 1, 5, 6};
  EXPECT_EQ(labels_of(), (std::vector<int64_t>{-1, -1, 3, 4, -1, -1}));
}

// Central differences of `loss` in every element of `parameter`: h² curvature / 6 + 2^-53 |loss| / h is about
// 1e-10.
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

// The rows of an adapted head are linear in a and in b, so that differences are exact but for rounding.
TEST(Oracle, GradientsOfALoraAreSlopes) {
  std::vector<double> a = {1, -2, 3, 0.5, 4, -1}, b = {2, 1, -1, 3, 0.25, 1, 5, -3};
  const std::vector<double> weight = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  const std::vector<int64_t> ids = {3, 0, 3};
  LmHead head(ConstMatrix(weight.data(), 4, 3));
  head.ids = ids;
  head.lora = {ConstMatrix(a.data(), 2, 3), ConstMatrix(b.data(), 4, 2), 1.5};
  EXPECT_DOUBLE_EQ(oracle::read_weight(head, 0, 3)(0, 1), 11 + 1.5 * (5 * -2 + -3 * 4));
  const oracle::MatrixXd upstream = oracle::MatrixXd::NullaryExpr(
      3, 3, [](int64_t v, int64_t h) { return std::sin(static_cast<double>(3 * v + h)); });
  const auto loss = [&] { return upstream.cwiseProduct(oracle::read_weight(head, 0, 3)).sum(); };
  // A step of 1.
  const auto slope = [&](double& parameter) {
    const double before = loss();
    parameter += 1;
    const double after = loss();
    parameter -= 1;
    return after - before;
  };
  oracle::MatrixXd d_a = oracle::MatrixXd::Zero(2, 3), d_b = oracle::MatrixXd::Zero(3, 2);
  d_b.topRows(1) = oracle::lora_gradients(head, 0, upstream.topRows(1), d_a);
  d_b.bottomRows(2) = oracle::lora_gradients(head, 1, upstream.bottomRows(2), d_a);
  for (int64_t i = 0; i < 6; ++i) EXPECT_NEAR(d_a(i / 3, i % 3), slope(a[static_cast<size_t>(i)]), 1e-12);
  for (int64_t k = 0; k < 2; ++k) {
    EXPECT_NEAR(d_b(0, k) + d_b(2, k), slope(b[static_cast<size_t>(3 * 2 + k)]), 1e-12);
    EXPECT_NEAR(d_b(1, k), slope(b[static_cast<size_t>(k)]), 1e-12);
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

TEST(HostTensor, RoundsToBfloat16ToNearestEven) {
  EXPECT_EQ(to_bfloat16(1.0).bits, 0x3f80);
  EXPECT_EQ(to_bfloat16(1.0 + 0x1p-8).bits, 0x3f80);            // a tie, to even
  EXPECT_EQ(to_bfloat16(1.0 + 0x1p-8 + 0x1p-40).bits, 0x3f81);  // above the tie by less than a float shows
  EXPECT_EQ(to_bfloat16(1.0 + 3 * 0x1p-8).bits, 0x3f82);        // a tie, to even
  EXPECT_EQ(to_bfloat16(-1.0 - 0x1p-7).bits, 0xbf81);
  EXPECT_EQ(to_bfloat16(-std::numeric_limits<double>::infinity()).bits, 0xff80);
  EXPECT_TRUE(std::isnan(to_double(to_bfloat16(std::numeric_limits<double>::quiet_NaN()))));
  EXPECT_EQ(half_ulp(1.5, DType::kBFloat16), 0x1p-8);
  EXPECT_EQ(half_ulp(1.0, DType::kFloat32), 0x1p-24);
}

TEST(HostTensor, RoundsToFloat16ToNearestEven) {
  EXPECT_EQ(to_float16(1.0).bits, 0x3c00);
  EXPECT_EQ(to_float16(1.0 + 0x1p-11).bits, 0x3c00);            // a tie, to even
  EXPECT_EQ(to_float16(1.0 + 0x1p-11 + 0x1p-40).bits, 0x3c01);  // above the tie by less than a float shows
  EXPECT_EQ(to_float16(1.0 + 3 * 0x1p-11).bits, 0x3c02);        // a tie, to even
  EXPECT_EQ(to_float16(-0x1p-24).bits, 0x8001);
  EXPECT_EQ(to_float16(0x1p-25).bits, 0x0000);
  EXPECT_EQ(to_float16(65519.9).bits, 0x7bff);
  EXPECT_EQ(to_float16(-65520).bits, 0xfc00);
  EXPECT_EQ(to_double(to_float16(-std::numeric_limits<double>::infinity())), -std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(to_double(to_float16(std::numeric_limits<double>::quiet_NaN()))));
  EXPECT_EQ(half_ulp(1.5, DType::kFloat16), 0x1p-11);
  EXPECT_EQ(half_ulp(1e-6, DType::kFloat16), 0x1p-25);
}

}  // namespace
}  // namespace logitless::testing

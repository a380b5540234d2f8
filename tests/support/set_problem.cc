// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "support/set_problem.h"
#include "support/views.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace logitless::testing {
namespace {

using oracle::MatrixXd;

void fill(HostTensor& tensor, uint64_t seed, double scale, double offset = 0) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> draw;
  for (int64_t r = 0; r < tensor.rows(); ++r) {
    for (int64_t c = 0; c < tensor.cols(); ++c) tensor.set(r, c, scale * draw(random) + offset);
  }
}

MatrixXd read(const HostTensor& tensor) {
  MatrixXd out(tensor.rows(), tensor.cols());
  for (int64_t r = 0; r < out.rows(); ++r) {
    for (int64_t c = 0; c < out.cols(); ++c) out(r, c) = tensor.get(r, c);
  }
  return out;
}

// Expects every element within its bound, plus one rounding to the type of the output; what was there before
// is added to.
void expect_near(const char* name, const HostTensor& got, const HostTensor& before, const MatrixXd& truth,
                 const MatrixXd& bound, WriteMode mode, double unit) {
  ASSERT_TRUE(got.padding_is_intact()) << name;
  for (int64_t r = 0; r < truth.rows(); ++r) {
    for (int64_t c = 0; c < truth.cols(); ++c) {
      const double old = mode == WriteMode::kAccumulate ? before.get(r, c) : 0;
      const double wanted = old + truth(r, c);
      // An accumulating output is added to part by part (tensors.h); these problems have below 32 parts.
      const double parts = mode == WriteMode::kAccumulate ? 33 * unit * (std::abs(old) + std::abs(truth(r, c))) : 0;
      const double allowed = bound(r, c) + parts + half_ulp(std::abs(wanted) + bound(r, c), got.dtype());
      ASSERT_NEAR(got.get(r, c), wanted, allowed) << name << "[" << r << ", " << c << "]";
    }
  }
}

}  // namespace

ContextOptions SetCase::context() const {
  ContextOptions out;
  out.threads = threads;
  out.plan = plan;
  out.workspace_bytes = workspace_bytes;
  if (!finished_logits) {
    out.row_tile = 8;
    out.vocab_tile = 64;
  }
  out.ranks.slices = slices;
  return out;
}

std::string SetCase::name() const {
  std::string out = std::string(name_of(dtype)) + " " + name_of(plan) + " threads " + std::to_string(threads);
  if (layout == HeadLayout::kHiddenVocab) out += " hidden_vocab";
  if (finished_logits) out += " finished logits";
  if (softcap > 0) out += " softcap";
  if (!slices.empty()) out += " slices";
  return out + " temperature " + std::to_string(temperature) + (temperature_per_token ? " per token" : "") +
         " offset " + std::to_string(offset) + " scale " + std::to_string(scale);
}

SetProblem::SetProblem(const SetCase& given) : case_(given) {
  const bool tall = given.layout == HeadLayout::kVocabHidden;
  hidden_ = HostTensor(given.dtype, kTokens, kHidden, 3);
  weight_ = HostTensor(given.dtype, tall ? kVocab : kHidden, tall ? kHidden : kVocab, 1);
  bias_ = HostTensor(given.dtype, 1, kVocab);
  logits_ = HostTensor(given.dtype, kTokens, kVocab);
  fill(hidden_, 11, given.scale);
  fill(weight_, 12, 0.5);
  fill(bias_, 13, 1, given.offset);
  fill(logits_, 14, 3 * given.scale, given.offset);
  for (int64_t row = 0; row < kTokens; ++row) temperatures_.push_back(0.5 + 0.1 * static_cast<double>(row));
  products_ = given.finished_logits ? oracle::read_products(logits()) : oracle::read_products(hidden(), head());
  x_ = read(hidden_);
  w_ = oracle::read_weight(head(), 0, kVocab);
  absolute_ = x_.cwiseAbs() * w_.cwiseAbs().transpose();
  if (given.bias) absolute_.rowwise() += read(bias_).row(0).cwiseAbs();
}

LmHead SetProblem::head() const {
  LmHead out(weight_.view(), case_.layout);
  if (case_.bias) out.bias = bias_.vector_view();
  out.softcap = case_.softcap;
  return out;
}

TokenOptions SetProblem::token() const {
  TokenOptions out;
  out.temperature = case_.temperature;
  if (case_.temperature_per_token) out.temperatures = temperatures_;
  out.temperature_meaning = case_.meaning;
  out.round_logits_to = case_.round_logits_to;
  return out;
}

SetOutputs SetProblem::outputs() const {
  const DType sums = case_.dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
  const DType type = case_.output.value_or(sums);
  SetOutputs out;
  const auto make = [&](int64_t rows, int64_t cols, uint64_t seed) {
    HostTensor tensor(type, rows, cols, rows > 1 ? 2 : 0);
    if (case_.mode == WriteMode::kAccumulate) fill(tensor, seed, 1);
    return tensor;
  };
  const ConstMatrix weight = weight_.view();
  out.d_hidden = make(kTokens, kHidden, 21), out.before_hidden = make(kTokens, kHidden, 21);
  out.d_weight = make(weight.rows, weight.cols, 22), out.before_weight = make(weight.rows, weight.cols, 22);
  out.d_bias = make(1, kVocab, 23), out.before_bias = make(1, kVocab, 23);
  out.d_logits = HostTensor(type, kTokens, kVocab, 2);
  return out;
}

Gradients SetProblem::gradients(SetOutputs& out) const {
  Gradients gradients;
  gradients.d_hidden = out.d_hidden.output();
  gradients.d_weight = out.d_weight.output();
  if (case_.bias) gradients.d_bias = out.d_bias.vector_output();
  gradients.d_hidden_mode = gradients.d_weight_mode = gradients.d_bias_mode = case_.mode;
  return gradients;
}

LogitsGradient SetProblem::dlogits(SetOutputs& out) const {
  const Matrix view = out.d_logits.output();
  return LogitsGradient(view.data, view.dtype, 1, kTokens, kVocab, {}, view.stride);
}

Arithmetic SetProblem::arithmetic(const Context& context) const {
  return case_.finished_logits ? arithmetic_of_logits(case_.dtype) : arithmetic_for(case_.dtype, context);
}

// Of the raw logit: the sum's, that of adding the bias, and where logits are rounded the distance to the next
// value, which a sum near the middle may be rounded to.
double SetProblem::raw_bound(const oracle::SetLogits& logits, int64_t row, int64_t v,
                             const Arithmetic& arithmetic) const {
  double bound = 0;
  if (!case_.finished_logits) bound = arithmetic.sum(kHidden + 1) * absolute_(row, v);
  if (case_.round_logits_to) {
    bound += 2 * half_ulp(std::abs(logits.products(row, v)) + bound, *case_.round_logits_to);
  }
  return bound;
}

// log p = (a - m) - log Σ exp(a - m): a shared offset stands in a and in m. The sum errs relatively by as
// much as its largest exponent does, and by its own additions.
double SetProblem::log_p_bound(const oracle::SetLogits& logits, int64_t row, const std::vector<int64_t>& ids,
                               const Context& context) const {
  const Arithmetic a = arithmetic(context);
  const double temperature = logits.temperature(row);
  const oracle::VectorXd log_p = oracle::log_probabilities(logits, row, ids);
  double worst = 0, range = 0;
  for (int64_t v = 0; v < kVocab; ++v) {
    if (!std::isfinite(log_p[v])) continue;
    worst = std::max(worst, raw_bound(logits, row, v, a) + kFunctionUnits * a.unit * case_.softcap);
    range = std::max(range, std::abs(log_p[v]));
  }
  const double least = std::min(1.0, temperature);
  // Flushing below 1.7e-38 leaves V times that out.
  return 2 * worst / least + a.unit * (kFunctionUnits * 3 * (range / least + 1)) + a.sum(kVocab) / least +
         kVocab * 2e-38;
}

MatrixXd SetProblem::d_raw_bounds(const oracle::SetLogits& logits, const oracle::RowIds& ids, const MatrixXd& gamma,
                                  const MatrixXd& d_raw, const Context& context) const {
  Arithmetic a = arithmetic(context);
  // Over sets, gradients are never rounded.
  if (logits.over_set) a.gradient_unit = 0;
  MatrixXd bound = MatrixXd::Zero(kTokens, kVocab);
  for (int64_t row = 0; row < kTokens; ++row) {
    const double all = gamma.row(row).cwiseAbs().sum();
    if (all == 0) continue;
    const double temperature = logits.temperature(row);
    const double divided = logits.scales_logits() ? 1 : temperature;
    const double of_log_p = log_p_bound(logits, row, ids[static_cast<size_t>(row)], context) * divided;
    const oracle::VectorXd log_p = oracle::log_probabilities(logits, row, ids[static_cast<size_t>(row)]) * divided;
    for (int64_t v = 0; v < kVocab; ++v) {
      const double mass = std::exp(log_p[v]) * all;
      const double own = std::abs(gamma(row, v));
      // p errs by p times the error of log p; what multiplies it by its roundings.
      double here = mass * std::expm1(of_log_p) + kFunctionUnits * 2 * a.unit * (mass + own);
      here *= logits.slope(row, v) / temperature;
      // The slope 1 - tanh² changes by at most 2 |tanh| of it.
      if (logits.softcap > 0) {
        here += std::abs(d_raw(row, v)) * (2 * raw_bound(logits, row, v, a) / logits.softcap + 8 * a.unit);
      }
      bound(row, v) = here + std::abs(d_raw(row, v)) * a.gradient_unit + 2 * a.smallest * (1 + all / temperature);
    }
  }
  return bound;
}

void SetProblem::expect_gradients(const oracle::SetLogits& logits, const oracle::RowIds& ids, const MatrixXd& gamma,
                                  const SetOutputs& out, const Context& context) const {
  const Arithmetic a = arithmetic(context);
  MatrixXd d_raw = MatrixXd::Zero(kTokens, kVocab);
  for (int64_t row = 0; row < kTokens; ++row) {
    if (gamma.row(row).cwiseAbs().sum() == 0) continue;
    d_raw.row(row) = oracle::d_raw_logits(logits, row, ids[static_cast<size_t>(row)], gamma.row(row).transpose());
  }
  const MatrixXd bound = d_raw_bounds(logits, ids, gamma, d_raw, context);
  if (case_.finished_logits) {
    expect_near("dlogits", out.d_logits, out.d_logits, d_raw, bound, WriteMode::kOverwrite, a.unit);
    return;
  }
  const auto summed = [&](const MatrixXd& left, const MatrixXd& left_bound, const MatrixXd& right, double terms) {
    const MatrixXd absolute = right.cwiseAbs();
    return MatrixXd(left_bound * absolute + (a.sum(terms) + 4 * a.unit) * (left.cwiseAbs() * absolute));
  };
  MatrixXd hidden_bound = summed(d_raw, bound, w_, kVocab);
  MatrixXd weight_bound = summed(d_raw.transpose(), bound.transpose(), x_, kTokens);
  if (!logits.over_set && a.gradient_unit == kBfloat16Unit) {
    add_put_back(bound, x_.cwiseAbs(), w_.cwiseAbs(), hidden_bound, weight_bound);
  }
  expect_near("d_hidden", out.d_hidden, out.before_hidden, d_raw * w_, hidden_bound, case_.mode, a.unit);
  MatrixXd d_weight = d_raw.transpose() * x_;
  if (case_.layout == HeadLayout::kHiddenVocab) {
    d_weight = MatrixXd(d_weight.transpose());
    weight_bound = MatrixXd(weight_bound.transpose());
  }
  expect_near("d_weight", out.d_weight, out.before_weight, d_weight, weight_bound, case_.mode, a.unit);
  if (!case_.bias) return;
  const MatrixXd ones = MatrixXd::Ones(1, kTokens);
  const MatrixXd bias_bound = ones * bound + (a.sum(kTokens) + 4 * a.unit) * (ones * d_raw.cwiseAbs());
  expect_near("d_bias", out.d_bias, out.before_bias, ones * d_raw, bias_bound, case_.mode, a.unit);
}

}  // namespace logitless::testing

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "oracle.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace logitless::oracle {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

MatrixXd read_matrix(const ConstMatrix& matrix) {
  MatrixXd copy(matrix.rows, matrix.cols);
  for (int64_t r = 0; r < matrix.rows; ++r) {
    for (int64_t c = 0; c < matrix.cols; ++c) {
      copy(r, c) = read_element(matrix.data, matrix.dtype, r * matrix.stride + c);
    }
  }
  return copy;
}

// Where each row's sequence ends.
std::vector<int64_t> sequence_ends(const HiddenStates& hidden) {
  std::vector<int64_t> ends(hidden.tokens());
  if (hidden.offsets.empty()) {
    // Each matrix holds sequences of a length of its own.
    const int64_t border = hidden.states.rows;
    const int64_t first = border / hidden.sequences, second = hidden.second.rows / hidden.sequences;
    for (int64_t i = 0; i < hidden.tokens(); ++i) {
      ends[i] = i < border ? (i / first + 1) * first : border + ((i - border) / second + 1) * second;
    }
  } else {
    for (size_t s = 0; s + 1 < hidden.offsets.size(); ++s) {
      for (int64_t i = hidden.offsets[s]; i < hidden.offsets[s + 1]; ++i) ends[i] = hidden.offsets[s + 1];
    }
  }
  return ends;
}

std::vector<int64_t> read_labels(const HiddenStates& hidden, const Targets& targets, bool shift, int64_t ignore_index) {
  const std::vector<int64_t> ends = sequence_ends(hidden);
  std::vector<int64_t> labels(hidden.tokens(), kNoLabel);
  for (int64_t i = 0; i < hidden.tokens(); ++i) {
    const int64_t at = shift ? i + 1 : i;
    if (at < ends[i] && targets[at] != ignore_index) labels[i] = targets[at];
  }
  return labels;
}

// The nearest bfloat16 or float16, ties to even: a multiple of the type's last place at this magnitude.
double round_to(double value, DType dtype) {
  const bool half = dtype == DType::kFloat16;
  if (value == 0 || !std::isfinite(value)) return value;
  const int exponent = std::max(std::ilogb(value), half ? -14 : -126);
  const double place = std::ldexp(1.0, exponent - (half ? 10 : 7));
  double multiple = std::floor(std::abs(value) / place);
  const double beyond = std::abs(value) / place - multiple;
  if (beyond > 0.5 || (beyond == 0.5 && std::fmod(multiple, 2) == 1)) multiple += 1;
  const double rounded = multiple * place;
  const double limit = half ? 65536 : 0x1p128;
  return std::copysign(rounded >= limit ? kInfinity : rounded, value);
}

// Fills row i of `stats` from its final logits a.
void softmax_row(const Problem& problem, int64_t i, const VectorXd& a, Statistics& stats) {
  const int64_t vocab = problem.vocab();
  int64_t best = 0;
  bool defined = true;
  for (int64_t v = 0; v < vocab; ++v) {
    if (a[v] > a[best]) best = v;
    if (std::isnan(a[v]) || a[v] == kInfinity) defined = false;
  }
  if (!defined || a[best] == -kInfinity) {
    stats.shifted.row(i).setConstant(kNaN);
    stats.log_p.row(i).setConstant(kNaN);
    for (VectorXd* statistic : {&stats.max, &stats.log_sum, &stats.logp, &stats.lse, &stats.entropy, &stats.prior}) {
      (*statistic)[i] = kNaN;
    }
    return;
  }
  stats.argmax[i] = best;
  stats.rank[i] = 1 + (a.array() > a[problem.labels[i]]).count();
  stats.max[i] = a[best];
  stats.shifted.row(i) = (a.array() - a[best]).matrix().transpose();

  double rest = 0;  // Σ exp without the largest term: log1p keeps its digits when that term is nearly everything
  for (int64_t v = 0; v < vocab; ++v) {
    if (v != best) rest += std::exp(stats.shifted(i, v));
  }
  const double log_sum = std::log1p(rest);
  stats.log_sum[i] = log_sum;
  stats.lse[i] = a[best] + log_sum;
  stats.log_p.row(i) = stats.shifted.row(i).array() - log_sum;
  stats.logp[i] = stats.log_p(i, problem.labels[i]) / problem.logp_divisor(i);

  double mean_shifted = 0, prior = 0;
  for (int64_t v = 0; v < vocab; ++v) {
    const double p = std::exp(stats.log_p(i, v));
    if (p > 0) mean_shifted += p * stats.shifted(i, v);
    if (problem.prior[v] > 0) prior += problem.prior[v] * stats.log_p(i, v);
  }
  stats.entropy[i] = log_sum - mean_shifted;
  stats.prior[i] = prior;
}

}  // namespace

double read_element(const void* data, DType dtype, int64_t at) {
  if (dtype == DType::kFloat64) return static_cast<const double*>(data)[at];
  if (dtype == DType::kFloat32) return static_cast<const float*>(data)[at];
  if (dtype == DType::kFloat16) {
    const int half = static_cast<const float16*>(data)[at].bits;
    const int exponent = half >> 10 & 31, mantissa = half & 1023;
    double magnitude = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
    if (exponent == 31) magnitude = mantissa == 0 ? kInfinity : kNaN;
    return half & 0x8000 ? -magnitude : magnitude;
  }
  const uint32_t bits = static_cast<uint32_t>(static_cast<const bfloat16*>(data)[at].bits) << 16;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

Problem read_problem(const HiddenStates& hidden, const LmHead& head, const Targets& targets,
                     const TokenOptions& options) {
  Problem problem;
  problem.labels = read_labels(hidden, targets, options.shift, options.ignore_index);
  problem.hidden = MatrixXd(hidden.tokens(), hidden.hidden_size());
  problem.hidden.topRows(hidden.states.rows) = read_matrix(hidden.states);
  if (hidden.second.rows > 0) problem.hidden.bottomRows(hidden.second.rows) = read_matrix(hidden.second);
  for (int64_t i = 0; i < hidden.tokens(); ++i) {
    if (!problem.takes_part(i)) problem.hidden.row(i).setZero();
  }
  problem.weight = read_matrix(head.weight);
  if (head.layout == HeadLayout::kHiddenVocab) problem.weight = problem.weight.transpose().eval();
  problem.bias = VectorXd::Zero(head.vocab_size());
  for (int64_t v = 0; v < head.bias.size; ++v) problem.bias[v] = read_element(head.bias.data, head.bias.dtype, v);
  problem.softcap = head.softcap;
  problem.temperature = VectorXd::Constant(hidden.tokens(), options.temperature);
  for (size_t i = 0; i < options.temperatures.size(); ++i) problem.temperature[i] = options.temperatures[i];
  problem.temperature_meaning = options.temperature_meaning;
  problem.round_logits_to = options.round_logits_to;
  problem.prior = VectorXd::Constant(head.vocab_size(), 1.0 / static_cast<double>(head.vocab_size()));
  for (size_t v = 0; v < options.prior.size(); ++v) problem.prior[v] = options.prior[v];
  return problem;
}

Problem read_problem(const HiddenStates& hidden, const LmHead& head, const Targets& targets,
                     const CrossEntropyOptions& options) {
  TokenOptions token_options;
  token_options.ignore_index = options.ignore_index;
  token_options.shift = options.shift;
  token_options.temperature = options.temperature;
  token_options.temperatures = options.temperatures;
  token_options.temperature_meaning = options.temperature_meaning;
  token_options.round_logits_to = options.round_logits_to;
  Problem problem = read_problem(hidden, head, targets, token_options);
  for (size_t v = 0; v < options.class_weights.size(); ++v) {
    problem.prior[v] = options.class_weights[v] / static_cast<double>(head.vocab_size());
  }
  return problem;
}

Statistics compute_statistics(const Problem& problem) {
  const int64_t tokens = problem.tokens();
  const int64_t vocab = problem.vocab();
  Statistics stats;
  stats.raw = problem.hidden * problem.weight.transpose();
  stats.raw.rowwise() += problem.bias.transpose();
  if (problem.round_logits_to) {
    stats.raw = stats.raw.unaryExpr([&](double r) { return round_to(r, *problem.round_logits_to); }).eval();
  }
  stats.shifted = stats.log_p = MatrixXd::Zero(tokens, vocab);
  stats.max = stats.log_sum = stats.logp = stats.lse = stats.entropy = stats.prior = VectorXd::Zero(tokens);
  stats.argmax.assign(tokens, -1);
  stats.rank.assign(tokens, 0);
  for (int64_t i = 0; i < tokens; ++i) {
    if (!problem.takes_part(i)) continue;
    VectorXd a = stats.raw.row(i).transpose();
    if (problem.softcap > 0)
      a = problem.softcap * (a.array() / problem.softcap).unaryExpr([](double x) { return std::tanh(x); });
    a /= problem.logit_divisor(i);
    softmax_row(problem, i, a, stats);
  }
  return stats;
}

LogitGradients compute_logit_gradients(const Problem& problem, const Statistics& stats, const TokenGradients& grads) {
  const int64_t vocab = problem.vocab();
  const double prior_sum = problem.prior.sum();
  LogitGradients result;
  result.d_final = result.d_raw = MatrixXd::Zero(problem.tokens(), vocab);
  result.slope = MatrixXd::Ones(problem.tokens(), vocab);
  for (int64_t i = 0; i < problem.tokens(); ++i) {
    if (!problem.takes_part(i) || grads.all_zero(i)) continue;
    const double g_logp = grads.logp[i] / problem.logp_divisor(i);
    for (int64_t v = 0; v < vocab; ++v) {
      const double log_p = stats.log_p(i, v);
      const double p = std::exp(log_p);
      // 1 - p as -expm1(log p): its digits matter when p is nearly 1.
      double d = g_logp * (v == problem.labels[i] ? -std::expm1(log_p) : -p);
      d += grads.lse[i] * p;
      if (p > 0) d -= grads.entropy[i] * p * (log_p + stats.entropy[i]);
      d += grads.prior[i] * (problem.prior[v] - p * prior_sum);
      if (std::isnan(log_p)) d = kNaN;
      if (problem.softcap > 0) {
        const double e = std::exp(-2 * std::abs(stats.raw(i, v)) / problem.softcap);
        result.slope(i, v) = 4 * e / ((1 + e) * (1 + e));
      }
      result.d_final(i, v) = d;
      result.d_raw(i, v) = d * result.slope(i, v) / problem.logit_divisor(i);
    }
  }
  return result;
}

ParameterGradients compute_parameter_gradients(const Problem& problem, const MatrixXd& d_raw) {
  MatrixXd used = problem.hidden;
  ParameterGradients result;
  result.d_hidden = d_raw * problem.weight;
  for (int64_t i = 0; i < problem.tokens(); ++i) {
    if (!(d_raw.row(i).array() == 0).all()) continue;
    used.row(i).setZero();  // 0 · NaN would be NaN
    result.d_hidden.row(i).setZero();
  }
  result.d_weight = d_raw.transpose() * used;
  result.d_bias = d_raw.colwise().sum().transpose();
  return result;
}

LossWeights loss_weights(const Problem& problem, const CrossEntropyOptions& options) {
  const int64_t tokens = problem.tokens();
  double active = 0, weight_sum = 0;
  for (int64_t i = 0; i < tokens; ++i) {
    if (!problem.takes_part(i)) continue;
    active += 1;
    weight_sum += options.class_weights.empty() ? 1.0 : options.class_weights[problem.labels[i]];
  }
  double nll = options.loss_scale, z = options.loss_scale;
  if (options.reduction == Reduction::kMean) {
    nll /= options.normaliser.value_or(weight_sum);
    z /= options.normaliser.value_or(active);
    // A mean over nothing is 0.
    if (!options.normaliser && weight_sum == 0) nll = 0;
    if (active == 0) nll = z = 0;
  }
  return {VectorXd::Constant(tokens, nll), VectorXd::Constant(tokens, z)};
}

Loss compute_cross_entropy(const Problem& problem, const Statistics& stats, const CrossEntropyOptions& options,
                           std::span<const double> upstream) {
  const double smoothing = options.label_smoothing;
  const LossWeights weights = loss_weights(problem, options);
  Loss result;
  result.grads = TokenGradients(problem.tokens());
  if (options.reduction == Reduction::kNone) result.losses.assign(problem.tokens(), 0.0);
  double correct = 0, entropy = 0;
  for (int64_t i = 0; i < problem.tokens(); ++i) {
    if (!problem.takes_part(i)) continue;
    const double class_weight = options.class_weights.empty() ? 1.0 : options.class_weights[problem.labels[i]];
    // The term of smoothing 0 is left out, not multiplied by 0: with a masked word it would be 0 · ∞.
    double nll = (1 - smoothing) * class_weight * -stats.logp[i];
    if (smoothing > 0) nll += smoothing * -stats.prior[i];
    const double z = options.z_loss > 0 ? options.z_loss * stats.lse[i] * stats.lse[i] : 0.0;
    const double loss = weights.nll[i] * nll + weights.z[i] * z;
    result.loss += loss;
    if (options.reduction == Reduction::kNone) result.losses[i] = loss;

    const double up = upstream.empty() ? 1.0 : upstream.size() == 1 ? upstream[0] : upstream[i];
    result.grads.logp[i] = -up * weights.nll[i] * (1 - smoothing) * class_weight;
    result.grads.prior[i] = -up * weights.nll[i] * smoothing;
    if (options.z_loss > 0) result.grads.lse[i] = up * weights.z[i] * 2 * options.z_loss * stats.lse[i];

    result.metrics.tokens += 1;
    result.metrics.mean_nll += -stats.logp[i];
    result.metrics.z_loss += weights.z[i] * z;
    correct += stats.argmax[i] == problem.labels[i] ? 1 : 0;
    entropy += stats.entropy[i];
  }
  if (result.metrics.tokens > 0) {
    const auto count = static_cast<double>(result.metrics.tokens);
    result.metrics.mean_nll /= count;
    result.metrics.accuracy = correct / count;
    result.metrics.mean_entropy = entropy / count;
  }
  result.metrics.perplexity = std::exp(result.metrics.mean_nll);
  return result;
}

}  // namespace logitless::oracle

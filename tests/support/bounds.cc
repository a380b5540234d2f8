// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "support/bounds.h"
#include "support/views.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

namespace logitless::testing {

using oracle::MatrixXd;
using oracle::VectorXd;

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

double sech_squared(double x) {
  const double e = std::exp(-2 * std::abs(x));
  return 4 * e / ((1 + e) * (1 + e));
}

// Bounds the errors of one row's raw and final logits. A logit of -inf (a masked vocabulary entry) has no
// error.
void bound_row_logits(const oracle::Problem& problem, const oracle::Statistics& stats, const MatrixXd& abs_products,
                      int64_t i, const Arithmetic& arithmetic, StatisticBounds& bounds) {
  const double u = arithmetic.unit;
  const double product = arithmetic.sum(static_cast<double>(problem.hidden.cols() + 1));
  for (int64_t v = 0; v < problem.vocab(); ++v) {
    const double shifted = stats.shifted(i, v);
    if (!std::isfinite(shifted)) continue;
    const double raw = product * (abs_products(i, v) + std::abs(problem.bias[v]));
    double capped = raw;
    if (problem.softcap > 0) {
      // tanh' is largest at the point of [|r| - raw, |r| + raw] closest to 0.
      const double nearest = std::max(0.0, std::abs(stats.raw(i, v)) - raw);
      const double c = (shifted + stats.max[i]) * problem.logit_divisor(i);
      capped = sech_squared(nearest / problem.softcap) * raw + kFunctionUnits * u * std::abs(c);
    }
    bounds.raw(i, v) = raw;
    // Subtracting the maximum, inverting the temperature and multiplying each round once, relative to a - m.
    bounds.shifted(i, v) = capped / problem.logit_divisor(i) + 4 * u * std::abs(shifted);
  }
}

void bound_row_statistics(const oracle::Problem& problem, const oracle::Statistics& stats, int64_t i,
                          const Arithmetic& arithmetic, StatisticBounds& bounds) {
  const int64_t vocab = problem.vocab();
  const double u = arithmetic.unit;
  const double sum = arithmetic.sum(static_cast<double>(vocab));
  const double log_sum = stats.log_sum[i];

  // The growth, Σ p (e^d - 1), bounds the relative change of Σ exp(a - m).
  double growth = 0;
  for (int64_t v = 0; v < vocab; ++v) {
    const double p = std::exp(stats.log_p(i, v));
    if (p > 0) growth += p * std::expm1(bounds.shifted(i, v));
  }
  // Relative error of Σ_w≠best exp(a_w - m), whose share of the whole sum is 1 - p_best = 1 - e^(-l). Terms
  // below the smallest normal number may be lost.
  const double flushed = static_cast<double>(vocab) * arithmetic.smallest;
  const double log_sum_error = (kFunctionUnits * u + sum) * -std::expm1(-log_sum) + 4 * u * log_sum + flushed;

  double entropy = 0, mean = 0, mean_slope = 0, mean_square = 0, sum_terms = 0, cross = 0, cross_terms = 0;
  for (int64_t v = 0; v < vocab; ++v) {
    const double log_p = stats.log_p(i, v);
    if (!std::isfinite(log_p)) continue;
    const double p = std::exp(log_p);
    const double d = bounds.shifted(i, v);
    const double distance = std::abs(stats.shifted(i, v));
    // With logits off by d_w, -log p_v = log Σ_w exp(a_w - a_v) is off by at most log(1 + x) <= x,
    //   x = Σ_w≠v p_w (e^(d_w + d_v) - 1) = e^d_v others + (1 - p_v) (e^d_v - 1),
    //   others = Σ_w≠v p_w (e^d_w - 1).
    // There is no term from v itself, so log p_v of a nearly certain vocabulary entry has a small relative
    // error. For large d_v use log(1 + x) <= d_v + others.
    const double others = std::max(0.0, growth - (p > 0 ? p * std::expm1(d) : 0.0));
    const double from_logits = d < 1 ? std::exp(d) * others + -std::expm1(log_p) * std::expm1(d) : d + others;
    bounds.log_p(i, v) = from_logits + log_sum_error + 2 * u * (distance + std::abs(log_p));
    // d entropy / d a_v = -p_v (log p_v + entropy).
    const double slope = std::abs(log_p + stats.entropy[i]);
    entropy += p * slope * d;
    mean += p * d;
    mean_slope += p * (1 + slope) * d;
    mean_square += p * (1 + slope) * d * d;
    sum_terms += p * distance;
    // d cross / d a_v = q_v - p_v Σq.
    cross += problem.cross[v] * (d + growth);
    cross_terms += problem.cross[v] * (distance + log_sum);
  }
  const double cross_sum = problem.cross.sum();
  bounds.lse[i] = growth + log_sum_error + 2 * u * (std::abs(stats.max[i]) + log_sum);
  bounds.logp[i] = bounds.log_p(i, problem.labels[i]) / problem.logp_divisor(i) + 2 * u * std::abs(stats.logp[i]);
  bounds.entropy[i] = entropy + 2 * (mean_square + mean * mean_slope) + log_sum_error +
                      (kFunctionUnits * u + sum + 4 * u) * sum_terms + 4 * u * stats.entropy[i] +
                      flushed * -std::log(arithmetic.smallest);
  bounds.cross[i] = cross + cross_sum * log_sum_error + (sum + 4 * u) * cross_terms;
}

Arithmetic arithmetic_of_sums(DType inputs) {
  Arithmetic arithmetic;
  if (inputs == DType::kFloat64) {
    arithmetic.unit = 2 * 0x1p-53;
    arithmetic.smallest = 0x1p-1022;
  }
  return arithmetic;
}

}  // namespace

double Arithmetic::sum(double terms) const {
  const double worst = terms * unit;
  return std::min(worst, sigmas * std::sqrt(terms) * unit) / (1 - worst);
}

// Two terms are added: the initial value of an accumulating output, and the sum of partial sums.
double sum_over_vocab(const oracle::Problem& problem, const Arithmetic& arithmetic) {
  return arithmetic.sum(static_cast<double>(problem.vocab() + 2));
}
double sum_over_tokens(const oracle::Problem& problem, const Arithmetic& arithmetic) {
  return arithmetic.sum(static_cast<double>(problem.tokens() + 2));
}

Arithmetic arithmetic_for(DType inputs, const Context& context) {
  Arithmetic arithmetic = arithmetic_of_sums(inputs);
  // A bf16 × bf16 GEMM needs dL/dlogits in bf16 (float16 is always widened). Backends without such a GEMM
  // widen the inputs and keep dL/dlogits in fp32. Backends with one are named here, so that a new backend is
  // tested with the tighter bounds.
  static const std::set<std::string> narrow_gradients = {"amx", "bfmmla", "onednn"};
  if (inputs != DType::kBFloat16 || !narrow_gradients.contains(context.gemm_backend())) return arithmetic;
  // Rounding d in [2^e, 2^(e+1)) to the 8 bits of a bf16 has an error of at most 2^(e-8). A second bf16
  // stores this error, which is below 2^(e-8), with an error of at most 2^(e-17).
  const GradientPrecision precision = context.options().gradient_precision;
  if (precision == GradientPrecision::kNative) arithmetic.gradient_unit = kBfloat16Unit;
  if (precision == GradientPrecision::kSplit) arithmetic.gradient_unit = 0x1p-17;
  return arithmetic;
}

MatrixXd absolute_products(const oracle::Problem& problem) {
  return problem.hidden.cwiseAbs() * problem.weight.cwiseAbs().transpose();
}

oracle::ParameterGradients absolute_gradients(const oracle::Problem& problem, const MatrixXd& d_raw) {
  oracle::Problem absolute;
  absolute.hidden = problem.hidden.cwiseAbs();
  absolute.weight = problem.weight.cwiseAbs();
  absolute.labels = problem.labels;
  return oracle::compute_parameter_gradients(absolute, d_raw.cwiseAbs());
}

StatisticBounds bound_statistics(const oracle::Problem& problem, const oracle::Statistics& stats,
                                 const MatrixXd& abs_products, const Arithmetic& arithmetic) {
  StatisticBounds bounds;
  bounds.raw = bounds.shifted = bounds.log_p = MatrixXd::Zero(problem.tokens(), problem.vocab());
  for (VectorXd* bound : {&bounds.logp, &bounds.lse, &bounds.entropy, &bounds.cross}) {
    *bound = VectorXd::Zero(problem.tokens());
  }
  for (int64_t i = 0; i < problem.tokens(); ++i) {
    if (!problem.is_active(i) || std::isnan(stats.max[i])) continue;
    bound_row_logits(problem, stats, abs_products, i, arithmetic, bounds);
    bound_row_statistics(problem, stats, i, arithmetic, bounds);
  }
  return bounds;
}

MatrixXd bound_logit_gradients(const oracle::Problem& problem, const oracle::Statistics& stats,
                               const StatisticBounds& bounds, const oracle::TokenGradients& grads,
                               const oracle::TokenGradients& token_errors,
                               const oracle::LogitGradients& logit_gradients, const Arithmetic& arithmetic) {
  const double u = arithmetic.unit;
  const double cross_sum = problem.cross.sum();
  MatrixXd result = MatrixXd::Zero(problem.tokens(), problem.vocab());
  for (int64_t i = 0; i < problem.tokens(); ++i) {
    if (!problem.is_active(i) || grads.all_zero(i)) continue;
    if (std::isnan(stats.max[i])) {
      result.row(i).setConstant(kNaN);
      continue;
    }
    const double g_logp = std::abs(grads.logp[i]) / problem.logp_divisor(i);
    const double e_logp = token_errors.logp[i] / problem.logp_divisor(i);
    const double g_lse = std::abs(grads.lse[i]), g_cross = std::abs(grads.cross[i]);
    for (int64_t v = 0; v < problem.vocab(); ++v) {
      const double log_p = stats.log_p(i, v);
      const double p = std::exp(log_p);
      const double q = problem.cross[v];
      // p and 1 - p = -expm1(log p) have the same absolute error from log p, and each has a relative error
      // from exp.
      const double log_p_error = bounds.log_p(i, v);
      const double from_log_p = log_p_error < 1 ? p * std::expm1(log_p_error) : std::exp(log_p + log_p_error) - p;
      const double p_error = from_log_p + kFunctionUnits * u * p + arithmetic.smallest;
      const bool is_label = v == problem.labels[i];
      const double chosen = is_label ? -std::expm1(log_p) : p;
      const double chosen_error = is_label ? from_log_p + kFunctionUnits * u * chosen : p_error;

      double error = g_logp * (chosen_error + 4 * u * chosen) + e_logp * chosen;
      error += g_lse * (p_error + 4 * u * p) + token_errors.lse[i] * p;
      error +=
          g_cross * (cross_sum * p_error + 4 * u * (q + cross_sum * p)) + token_errors.cross[i] * (q + cross_sum * p);
      // d log(1 - tanh²(r / softcap)) / dr is at most 2 / softcap.
      double slope_error = 0;
      if (problem.softcap > 0) {
        slope_error = std::expm1(2 * bounds.raw(i, v) / problem.softcap) +
                      u * (2 * kFunctionUnits + 4 * std::abs(stats.raw(i, v)) / problem.softcap);
      }
      const double scale = logit_gradients.slope(i, v) / problem.logit_divisor(i);
      const double d_final = std::abs(logit_gradients.d_final(i, v));
      result(i, v) = error * scale + (d_final + error) * scale * slope_error +
                     (4 * u + arithmetic.gradient_unit) * (d_final + error) * scale + 4 * arithmetic.smallest;
    }
  }
  return result;
}

oracle::ParameterGradients bound_parameter_gradients(const oracle::Problem& problem,
                                                     const oracle::ParameterGradients& abs_gradients,
                                                     const MatrixXd& d_raw_bound, const Arithmetic& arithmetic) {
  oracle::ParameterGradients result = absolute_gradients(problem, d_raw_bound);
  result.d_hidden += sum_over_vocab(problem, arithmetic) * abs_gradients.d_hidden;
  result.d_weight += sum_over_tokens(problem, arithmetic) * abs_gradients.d_weight;
  result.d_bias += sum_over_tokens(problem, arithmetic) * abs_gradients.d_bias;
  if (arithmetic.gradient_unit == kBfloat16Unit) {
    add_put_back(d_raw_bound, problem.hidden.cwiseAbs(), problem.weight.cwiseAbs(), result.d_hidden, result.d_weight);
  }
  return result;
}

void add_put_back(const MatrixXd& d_bound, const MatrixXd& abs_hidden, const MatrixXd& abs_weight, MatrixXd& d_hidden,
                  MatrixXd& d_weight) {
  if (abs_hidden.rows() == 0 || abs_weight.rows() == 0) return;  // and no column has a largest element
  d_hidden += d_bound.rowwise().sum() * abs_weight.colwise().maxCoeff();
  d_weight += d_bound.colwise().sum().transpose() * abs_hidden.colwise().maxCoeff();
}

oracle::Loss bound_loss(const oracle::Problem& problem, const oracle::Statistics& stats, const StatisticBounds& bounds,
                        const CrossEntropy& options, const oracle::Loss& loss, const Arithmetic& arithmetic) {
  const oracle::LossWeights weights = oracle::loss_weights(problem, options);
  const double u = arithmetic.unit;
  oracle::Loss result;
  result.metrics.mean_entropy = result.metrics.accuracy = 0;
  result.per_token_loss.assign(loss.per_token_loss.size(), 0.0);
  result.grads = oracle::TokenGradients(problem.tokens());
  for (int64_t i = 0; i < problem.tokens(); ++i) {
    if (!problem.is_active(i)) continue;
    const double class_weight = options.class_weights.empty() ? 1.0 : options.class_weights[problem.labels[i]];
    // With dft everything has the factor p, whose relative error comes from logp.
    const double p = options.dft ? std::exp(stats.logp[i]) : 1, p_error = options.dft ? std::expm1(bounds.logp[i]) : 0;
    const double z = options.z_loss * stats.lse[i] * stats.lse[i];
    double lse_error =
        options.z_loss > 0 ? options.z_loss * bounds.lse[i] * (2 * std::abs(stats.lse[i]) + bounds.lse[i]) : 0.0;
    double nll_error = (1 - options.label_smoothing) * class_weight * bounds.logp[i];
    if (options.label_smoothing > 0) nll_error += options.label_smoothing * bounds.cross[i];
    if (options.dft) {
      lse_error = p * (1 + p_error) * lse_error + p * p_error * z;
      nll_error = p * (1 + p_error) * nll_error +
                  p_error * std::abs(options.loss_scale == 0 ? 0 : loss.per_token_loss[i] / options.loss_scale - p * z);
    }
    const double error = std::abs(weights.nll[i]) * nll_error + std::abs(weights.z[i]) * lse_error;
    result.loss += error;
    result.metrics.z_loss += std::abs(weights.z[i]) * lse_error;
    result.per_token_loss[i] = std::abs(options.loss_scale * weights.token[i]) * (nll_error + lse_error) +
                               4 * u * std::abs(loss.per_token_loss[i]);
    result.metrics.mean_nll += bounds.logp[i];
    result.metrics.mean_entropy += bounds.entropy[i];
    // Gradients with respect to logp and cross are constants except for p; z-loss's follows lse.
    result.grads.logp[i] = (2 * u + (options.dft ? p_error : 0)) * std::abs(loss.grads.logp[i]);
    result.grads.cross[i] = (2 * u + (options.dft ? p_error : 0)) * std::abs(loss.grads.cross[i]);
    result.grads.lse[i] = stats.lse[i] == 0 ? 0.0 : std::abs(loss.grads.lse[i] / stats.lse[i]) * bounds.lse[i];
    if (options.dft) {
      result.grads.lse[i] = (1 + p_error) * result.grads.lse[i] + p_error * std::abs(loss.grads.lse[i]);
    }
  }
  // The library adds losses in fp64, so the sums themselves are as accurate as the oracle's.
  const double tokens = std::max<double>(1, static_cast<double>(loss.metrics.tokens));
  result.loss += 4 * u * std::abs(loss.loss);
  result.metrics.z_loss += 4 * u * std::abs(loss.metrics.z_loss);
  result.metrics.mean_nll = result.metrics.mean_nll / tokens + 4 * u * loss.metrics.mean_nll;
  result.metrics.mean_entropy = result.metrics.mean_entropy / tokens + 4 * u * std::abs(loss.metrics.mean_entropy);
  return result;
}

}  // namespace logitless::testing

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "oracle/distillation_oracle.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "oracle/token_mean.h"

namespace logitless::oracle {
namespace {

// weight · value, where 0 · ∞ is 0.
double times(double weight, double value) { return weight == 0 ? 0 : weight * value; }

double log_add(double a, double b) {
  const double high = std::max(a, b);
  if (std::isinf(high)) return high;
  return high + std::log1p(std::exp(std::min(a, b) - high));
}

// log(w exp(a) + (1 − w) exp(b)).
double log_mix(double w, double a, double b) { return log_add(std::log(w) + a, std::log1p(-w) + b); }

// exp(a) (a − b), one term of a KL divergence.
double kl_term(double a, double b) { return a == b ? 0 : times(std::exp(a), a - b); }

// −1, 0 or 1.
double sign(double x) { return x > 0 ? 1 : x < 0 ? -1 : 0; }

MatrixXd rounded(MatrixXd raw, const std::optional<DType>& round_logits_to) {
  if (round_logits_to) {
    for (int64_t i = 0; i < raw.size(); ++i) raw.data()[i] = round_to(raw.data()[i], *round_logits_to);
  }
  return raw;
}

MatrixXd capped_logits(const MatrixXd& raw, double softcap) {
  if (softcap == 0) return raw;
  return softcap * (raw / softcap).array().tanh().matrix();
}

std::vector<int64_t> labels_of(const DistillationInputs& in) {
  const int64_t n = in.hidden.tokens();
  if (in.targets.size == 0 && n > 0) return std::vector<int64_t>(static_cast<size_t>(n), 0);
  return read_tokens(sequence_offsets(in.hidden), in.head.vocab_size(), in.targets, in.options.token).labels;
}

Tokens rows_only(const std::vector<int64_t>& labels) {
  Tokens tokens;
  tokens.labels = labels;
  return tokens;
}

double student_temperature(const Distillation& options, size_t row) {
  return options.token.temperatures.empty() ? options.token.temperature : options.token.temperatures[row];
}

}  // namespace

DivergenceFormula::DivergenceFormula(const Distillation& options) : kind(options.loss_type) {
  if (kind == Divergence::kJsd) parameter = options.beta;
  if (kind == Divergence::kSkewKl || kind == Divergence::kSkewReverseKl) parameter = options.skew;
  if (kind == Divergence::kMixedKl) parameter = options.forward_weight;
  if (kind == Divergence::kLkHybrid) parameter = options.acceptance_decay;
  *this = DivergenceFormula(kind, parameter);
}

DivergenceFormula::DivergenceFormula(Divergence kind_, double parameter_) : kind(kind_), parameter(parameter_) {
  if (kind == Divergence::kJsd && parameter == 0) kind = Divergence::kForwardKl;
  if (kind == Divergence::kJsd && parameter == 1) kind = Divergence::kReverseKl;
}

double DivergenceFormula::term(double log_s, double log_t, double overlap) const {
  const double s = std::exp(log_s), t = std::exp(log_t), x = parameter;
  switch (kind) {
    case Divergence::kForwardKl:
      return kl_term(log_t, log_s);
    case Divergence::kReverseKl:
      return kl_term(log_s, log_t);
    case Divergence::kJsd: {
      const double log_m = log_mix(x, log_t, log_s);
      return x * kl_term(log_t, log_m) + (1 - x) * kl_term(log_s, log_m);
    }
    case Divergence::kSkewKl:
      return kl_term(log_t, log_mix(x, log_t, log_s));
    case Divergence::kSkewReverseKl:
      return kl_term(log_s, log_mix(x, log_s, log_t));
    case Divergence::kTotalVariation:
      return std::abs(s - t) / 2;
    case Divergence::kMixedKl:
      return times(x, kl_term(log_t, log_s)) + times(1 - x, kl_term(log_s, log_t));
    case Divergence::kAcceptance:
      return std::min(s, t);
    case Divergence::kLkHybrid: {
      const double kl = std::exp(-x * overlap);
      return kl * kl_term(log_t, log_s) + (1 - kl) * std::abs(s - t) / 2;
    }
  }
  return 0;
}

double DivergenceFormula::slope(double log_s, double log_t, double overlap) const {
  const double s = std::exp(log_s), t = std::exp(log_t), x = parameter;
  const double reverse = times(s, log_s - log_t + 1), variation = s * sign(log_s - log_t) / 2;
  switch (kind) {
    case Divergence::kForwardKl:
      return -t;
    case Divergence::kReverseKl:
      return reverse;
    case Divergence::kJsd:
      return (1 - x) * times(s, log_s - log_mix(x, log_t, log_s));
    case Divergence::kSkewKl:
      return -(1 - x) * times(t, std::exp(log_s - log_mix(x, log_t, log_s)));
    case Divergence::kSkewReverseKl: {
      const double log_m = log_mix(x, log_s, log_t);
      return times(s, log_s - log_m + 1 - times(x, std::exp(log_s - log_m)));
    }
    case Divergence::kTotalVariation:
      return variation;
    case Divergence::kMixedKl:
      return -x * t + times(1 - x, reverse);
    case Divergence::kAcceptance:
      return log_s < log_t ? s : 0;
    case Divergence::kLkHybrid: {
      const double kl = std::exp(-x * overlap);
      return -kl * t + (1 - kl) * variation;
    }
  }
  return 0;
}

VectorXd log_softmax(const VectorXd& logits, double temperature) {
  const VectorXd shifted = (logits.array() - logits.maxCoeff()) / temperature;
  double rest = -1;
  for (int64_t v = 0; v < shifted.size(); ++v) rest += std::exp(shifted[v]);
  return shifted.array() - std::log1p(rest);
}

DivergenceRow divergence_row(const DivergenceFormula& formula, const VectorXd& log_s, const VectorXd& log_t) {
  DivergenceRow out;
  const int64_t v_count = log_s.size();
  out.gradient = VectorXd::Zero(v_count);
  out.log_overlap = -std::numeric_limits<double>::infinity();
  for (int64_t v = 0; v < v_count; ++v) {
    out.overlap += std::exp(std::min(log_s[v], log_t[v]));
    out.log_overlap = log_add(out.log_overlap, std::min(log_s[v], log_t[v]));
  }
  if (formula.kind == Divergence::kAcceptance) {
    // As shares of Σ min(s, t), which may underflow.
    double below = 0;
    for (int64_t v = 0; v < v_count; ++v) {
      if (log_s[v] < log_t[v]) below += std::exp(log_s[v] - out.log_overlap);
    }
    for (int64_t v = 0; v < v_count; ++v) {
      const double share = log_s[v] < log_t[v] ? std::exp(log_s[v] - out.log_overlap) : 0;
      out.gradient[v] = std::exp(log_s[v]) * below - share;
    }
    double distance = 0;
    for (int64_t v = 0; v < v_count; ++v) distance += std::abs(std::exp(log_s[v]) - std::exp(log_t[v])) / 2;
    out.value = out.overlap > 0.9 ? -std::log1p(-distance) : -out.log_overlap;
    return out;
  }
  double slopes = 0;
  for (int64_t v = 0; v < v_count; ++v) {
    out.value += formula.term(log_s[v], log_t[v], out.overlap);
    slopes += formula.slope(log_s[v], log_t[v], out.overlap);
  }
  for (int64_t v = 0; v < v_count; ++v) {
    out.gradient[v] = formula.slope(log_s[v], log_t[v], out.overlap) - times(std::exp(log_s[v]), slopes);
  }
  return out;
}

namespace {

struct FinishedLogits {
  MatrixXd raw, capped, teacher_capped;
  std::vector<int64_t> labels;
};

// `products` are the student's x · w + b.
FinishedLogits logits_of(const DistillationInputs& in, MatrixXd products) {
  FinishedLogits out;
  out.labels = labels_of(in);
  out.raw = rounded(std::move(products), in.options.token.round_logits_to);
  out.capped = capped_logits(out.raw, in.head.softcap);
  const HeadMatrices& head = in.teacher.head;
  const MatrixXd of_teacher = read_products(read_hidden(in.teacher.hidden, rows_only(out.labels)), head);
  out.teacher_capped = capped_logits(rounded(of_teacher, in.teacher.round_logits_to), head.softcap);
  return out;
}

double entropy_of(const VectorXd& log_p) {
  double out = 0;
  for (int64_t v = 0; v < log_p.size(); ++v) out -= times(std::exp(log_p[v]), log_p[v]);
  return out;
}

int64_t argmax_of(const VectorXd& values) {
  int64_t at = 0;
  values.maxCoeff(&at);
  return at;
}

// Fills row i, which is not ignored, from its logits. `token_weight` multiplies its loss.
void add_row(const DistillationInputs& in, const FinishedLogits& logits, size_t i, double token_weight,
             double normaliser, DistillationTruth& out) {
  const Distillation& o = in.options;
  const double t = student_temperature(o, i);
  const VectorXd capped = logits.capped.row(static_cast<int64_t>(i)).transpose();
  const VectorXd teacher = logits.teacher_capped.row(static_cast<int64_t>(i)).transpose();
  const VectorXd log_s = log_softmax(capped, t), log_t = log_softmax(teacher, o.teacher_temperature.value_or(t));
  const DivergenceRow row = divergence_row(DivergenceFormula(o), log_s, log_t);
  const double weight = o.divergence_weight * (o.temperature_squared ? t * t : 1);
  out.divergence[i] = row.value;
  out.acceptance[i] = row.overlap;
  out.entropy[i] = entropy_of(log_s);
  out.teacher_entropy[i] = entropy_of(log_t);
  out.agreement[i] = argmax_of(capped) == argmax_of(teacher);
  const double scale = o.loss_scale * token_weight;
  out.per_token_loss[i] = times(scale * weight, row.value);
  out.scale[i] = scale * weight / normaliser;
  const double of_row = out.scale[i] / t;
  VectorXd d_capped = row.gradient.unaryExpr([&](double slope) { return times(of_row, slope); });
  if (o.hard_weight != 0) {
    const VectorXd hard = log_softmax(capped, o.hard_temperature);
    out.nll_scale[i] = scale * o.hard_weight / normaliser;
    out.logps[i] = hard[logits.labels[i]];
    out.per_token_loss[i] -= times(scale * o.hard_weight, out.logps[i]);
    for (int64_t v = 0; v < hard.size(); ++v) {
      const double d = v == logits.labels[i] ? std::expm1(hard[v]) : std::exp(hard[v]);
      d_capped[v] += out.nll_scale[i] / o.hard_temperature * d;
    }
  }
  for (int64_t v = 0; v < d_capped.size(); ++v) {
    const double raw = logits.raw(static_cast<int64_t>(i), v);
    const double slope = in.head.softcap == 0 ? 1 : std::pow(std::cosh(raw / in.head.softcap), -2);
    out.d_raw(static_cast<int64_t>(i), v) = d_capped[v] * slope;
  }
}

}  // namespace

DistillationTruth distillation_rows(const DistillationInputs& in) {
  const FinishedLogits logits = logits_of(in, read_products(read_hidden(in.hidden, rows_only(labels_of(in))), in.head));
  const size_t n = logits.labels.size();
  DistillationTruth out;
  for (auto* column : {&out.per_token_loss, &out.divergence, &out.acceptance, &out.logps, &out.entropy,
                       &out.teacher_entropy, &out.agreement, &out.scale, &out.nll_scale}) {
    column->assign(n, 0);
  }
  out.d_raw = MatrixXd::Zero(logits.raw.rows(), logits.raw.cols());
  const Distillation& o = in.options;
  const TokenMean mean = token_mean(o, logits.labels);
  const std::vector<double> normaliser = mean_divisors(mean, logits.labels, sequence_offsets(in.hidden));
  for (size_t i = 0; i < n; ++i) out.is_active.push_back(logits.labels[i] != kNoLabel);
#pragma omp parallel for schedule(dynamic)
  for (size_t i = 0; i < n; ++i) {
    if (out.is_active[i]) add_row(in, logits, i, mean.weights[i], normaliser[i], out);
  }
  for (size_t i = 0; i < n; ++i) out.loss += out.is_active[i] ? out.per_token_loss[i] / normaliser[i] : 0;
  out.labels = logits.labels;
  out.raw = logits.raw;
  out.capped = logits.capped;
  out.teacher_capped = logits.teacher_capped;
  return out;
}

}  // namespace logitless::oracle

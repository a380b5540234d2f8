// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "oracle/set_distillation_oracle.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "oracle/distillation_oracle.h"
#include "oracle/token_mean.h"

namespace logitless::oracle {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double log_sum_exp(const std::vector<double>& values) {
  double max = -kInfinity, sum = 0;
  for (const double value : values) max = std::max(max, value);
  if (max == -kInfinity) return max;
  for (const double value : values) sum += std::exp(value - max);
  return max + std::log(sum);
}

DivergenceFormula formula_of(const SetDistillation& options) {
  switch (options.loss_type) {
    case Divergence::kJsd:
      return {options.loss_type, options.beta};
    case Divergence::kSkewKl:
    case Divergence::kSkewReverseKl:
      return {options.loss_type, options.skew};
    case Divergence::kMixedKl:
      return {options.loss_type, options.forward_weight};
    default:
      return {options.loss_type, 0};
  }
}

// Returns the factor of s - t in the term that generalised KL adds to a divergence.
double mass_weight(const DivergenceFormula& formula) {
  switch (formula.kind) {
    case Divergence::kForwardKl:
      return 1;
    case Divergence::kReverseKl:
      return -1;
    case Divergence::kSkewKl:
      return 1 - formula.parameter;
    case Divergence::kSkewReverseKl:
      return formula.parameter - 1;
    case Divergence::kMixedKl:
      return 2 * formula.parameter - 1;
    default:
      return 0;
  }
}

// The masses to compare, in logarithms. value() also returns the slope of the divergence with respect to each
// of the student's masses.
struct Cells {
  std::vector<double> log_s, log_t;

  double value(const SetDistillation& options, std::vector<double>& slopes) const {
    const DivergenceFormula formula = formula_of(options);
    // With a tail the added terms sum to 0, unless the teacher's masses do not sum to 1.
    const bool generalised = options.outside == OutsideSet::kGeneralised || options.outside == OutsideSet::kTail;
    const double weight = generalised ? mass_weight(formula) : 0;
    double sum = 0;
    for (size_t k = 0; k < log_s.size(); ++k) {
      const double s = std::exp(log_s[k]), t = std::exp(log_t[k]);
      sum += formula.term(log_s[k], log_t[k], 0) + weight * (s - t);
      slopes.push_back(formula.slope(log_s[k], log_t[k], 0) + weight * s);
    }
    return sum;
  }
};

// Returns the divergence of one row, and its gradient with respect to the final logits.
double divergence_of(const SetLogits& logits, int64_t row, const std::vector<int64_t>& ids, std::vector<double> log_t,
                     const SetDistillation& options, double log_outside, VectorXd& gradient) {
  const bool within = options.outside == OutsideSet::kRenormalised;
  SetLogits over = logits;
  over.over_set = within;
  const VectorXd log_p = log_probabilities(over, row, ids);
  if (within || options.outside == OutsideSet::kTeacherRenormalised) {
    const double log_mass = log_sum_exp(log_t);
    for (double& value : log_t) value -= log_mass;
  }
  Cells cells;
  for (const int64_t id : ids) cells.log_s.push_back(log_p[id]);
  cells.log_t = log_t;
  const bool tail = options.outside == OutsideSet::kTail;
  std::vector<bool> inside(static_cast<size_t>(log_p.size()));
  for (const int64_t id : ids) inside[static_cast<size_t>(id)] = true;
  if (tail) {
    std::vector<double> others;
    for (int64_t v = 0; v < log_p.size(); ++v) {
      if (!inside[static_cast<size_t>(v)]) others.push_back(log_p[v]);
    }
    cells.log_s.push_back(log_sum_exp(others));
    cells.log_t.push_back(log_outside);
  }
  std::vector<double> slopes;
  const double value = cells.value(options, slopes);
  double sum = 0;
  for (const double slope : slopes) sum += slope;
  for (int64_t v = 0; v < log_p.size(); ++v) {
    gradient[v] = sum == 0 ? 0 : -std::exp(log_p[v]) * sum;
    if (tail && !inside[static_cast<size_t>(v)]) gradient[v] += slopes.back() * std::exp(log_p[v] - cells.log_s.back());
  }
  for (size_t k = 0; k < ids.size(); ++k) gradient[ids[k]] += slopes[k];
  return value;
}

}  // namespace

SetDistillationTruth set_distillation_truth(const SetLogits& logits, const SetTeacher& teacher,
                                            const std::vector<int64_t>& labels, std::span<const int64_t> offsets,
                                            const SetDistillation& options) {
  const int64_t tokens = logits.products.rows(), vocab = logits.products.cols();
  const RowIds sets = read_sets(teacher.sets, tokens);
  std::vector<int64_t> counted = labels;
  for (size_t row = 0; row < sets.size(); ++row) {
    if (sets[row].empty()) counted[row] = kNoLabel;
  }
  const TokenMean mean = token_mean(options, counted);
  const std::vector<double> divisors = mean_divisors(mean, counted, offsets);
  SetDistillationTruth out;
  for (auto* column : {&out.per_token_loss, &out.divergence, &out.teacher_mass, &out.student_mass, &out.nll}) {
    column->assign(counted.size(), 0);
  }
  out.d_raw = MatrixXd::Zero(tokens, vocab);
  for (int64_t row = 0; row < tokens; ++row) {
    const auto r = static_cast<size_t>(row);
    if (counted[r] == kNoLabel) continue;
    std::vector<double> log_t;
    double mass = 0;
    for (size_t k = 0; k < sets[r].size(); ++k) {
      const int64_t entry = first_entry(teacher.sets, tokens, row) + static_cast<int64_t>(k);
      log_t.push_back(read_element(teacher.logps.data, teacher.logps.dtype, entry));
      mass += std::exp(log_t.back());
    }
    const bool given = teacher.outside_logps.given();
    double log_outside =
        given ? read_element(teacher.outside_logps.data, teacher.outside_logps.dtype, row) : std::log1p(-mass);
    const bool is_whole = static_cast<int64_t>(sets[r].size()) == vocab;
    if (!is_whole) log_outside = std::fmax(log_outside, std::log(options.tail_floor));
    const double temperature = logits.temperature(row);
    const double weight = options.divergence_weight * (options.temperature_squared ? temperature * temperature : 1);
    VectorXd gradient = VectorXd::Zero(vocab);
    const double value = divergence_of(logits, row, sets[r], log_t, options, log_outside, gradient);
    const double weighted = options.loss_scale * mean.weights[r];
    const double scale = weighted / divisors[r];
    out.per_token_loss[r] = weighted * weight * value;
    out.divergence[r] = value;
    out.teacher_mass[r] = mass;
    ++out.rows;
    const VectorXd log_p = log_probabilities(logits, row, {});
    for (const int64_t id : sets[r]) out.student_mass[r] += std::exp(log_p[id]);
    gradient *= weight;
    if (options.hard_weight > 0) {
      out.nll[r] = -log_p[counted[r]];
      out.per_token_loss[r] -= weighted * options.hard_weight * log_p[counted[r]];
      for (int64_t v = 0; v < vocab; ++v) {
        gradient[v] += options.hard_weight * (v == counted[r] ? std::expm1(log_p[v]) : std::exp(log_p[v]));
      }
    }
    out.loss += out.per_token_loss[r] / divisors[r];
    for (int64_t v = 0; v < vocab; ++v) {
      out.d_raw(row, v) = scale * gradient[v] / temperature * logits.slope(row, v);
    }
  }
  return out;
}

}  // namespace logitless::oracle

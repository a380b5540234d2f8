// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "support/distillation_case.h"
#include "support/calls.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "support/bounds.h"
#include "support/views.h"

namespace logitless::testing {
namespace {

using oracle::MatrixXd;
using oracle::VectorXd;

HostTensor normal_tensor(DType dtype, int64_t rows, int64_t cols, double scale, std::mt19937_64& random) {
  HostTensor out(dtype, rows, cols, 1);
  std::normal_distribution<double> normal(0, scale);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) out.set(r, c, normal(random));
  }
  return out;
}

// The error of a sum of `terms` in any order (support/bounds.h), in units of u.
double sum_units(double terms) { return std::min(terms, 8 * std::sqrt(terms)); }

}  // namespace

Model::Model(const ModelSpec& spec_, const DistillationSpec& of, std::mt19937_64& random)
    : spec(spec_),
      sequences(spec.sequences.value_or(of.sequences)),
      hidden(spec.dtype, of.tokens, spec.hidden, 1, spec.rows, sequences, heap_memory) {
  std::normal_distribution<double> normal;
  for (int64_t r = 0; r < of.tokens; ++r) {
    for (int64_t c = 0; c < spec.hidden; ++c) hidden.set(r, c, normal(random));
  }
  const double scale = spec.scale / std::sqrt(static_cast<double>(spec.hidden));
  const bool vocab_hidden = spec.layout == HeadLayout::kVocabHidden;
  weight = normal_tensor(spec.dtype, vocab_hidden ? of.vocab : spec.hidden, vocab_hidden ? spec.hidden : of.vocab,
                         scale, random);
  bias = normal_tensor(spec.dtype, 1, of.vocab, 0.3, random);
}

HiddenStates Model::states() const {
  HiddenStates out(hidden.view(), sequences);
  out.batch_stride = hidden.batch_stride();
  return out;
}

LmHead Model::head() const {
  LmHead out(weight.view(), spec.layout);
  if (spec.bias) out.bias = bias.vector_view();
  out.softcap = spec.softcap;
  return out;
}

StudentGradients::StudentGradients(const Model& student)
    : d_hidden(student.spec.dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32, student.hidden.rows(),
               student.hidden.cols()),
      d_weight(d_hidden.dtype(), student.weight.rows(), student.weight.cols()),
      d_bias(d_hidden.dtype(), 1, student.bias.cols()),
      sequences(student.sequences),
      bias(student.spec.bias) {}

Gradients StudentGradients::views() {
  Gradients out;
  out.d_hidden = d_hidden.output();
  out.d_weight = d_weight.output();
  if (bias) out.d_bias = d_bias.vector_output();
  return out;
}

std::vector<std::byte> StudentGradients::bytes() const {
  std::vector<std::byte> out;
  for (const HostTensor* tensor : {&d_hidden, &d_weight, &d_bias}) {
    const auto bytes = tensor->bytes();
    out.insert(out.end(), bytes.begin(), bytes.end());
  }
  return out;
}

DistillationCase::DistillationCase(const DistillationSpec& spec_)
    : spec(spec_), random(spec.seed), student(spec.student, spec, random), teacher(spec.teacher, spec, random) {
  std::uniform_int_distribution<int64_t> id(0, spec.vocab - 1);
  for (int64_t i = 0; i < spec.tokens && spec.targets; ++i) ids.push_back(i % 5 == 4 ? -100 : id(random));
}

Targets DistillationCase::targets_view() const { return Targets(std::span<const int64_t>(ids)); }

oracle::DistillationInputs DistillationCase::inputs() const {
  return {student.states(), student.head(), teacher_view(), targets_view(), options};
}

void DistillationCase::set_temperatures() {
  std::uniform_real_distribution<double> uniform(0.5, 2.5);
  for (int64_t i = 0; i < spec.tokens; ++i) temperatures.push_back(uniform(random));
  options.token.temperatures = temperatures;
}

DistillationResult DistillationCase::run(const Context& context, const Gradients& gradients) const {
  return distillation_loss(context, student.states(), student.head(), teacher_view(), targets_view(), options,
                           gradients);
}

namespace {

// One row of a model, and the errors of its log-probabilities.
//
// A logit is a sum of K products, rounded at each step, plus the bias; the softcap is a contraction whose
// tanh errs by 4 ulp. The log-sum-exp errs by no more than the worst logit. What is computed of them
// afterwards (differences, times 1 / T, minus the log-sum-exp) errs by a few u of the numbers in it.
struct RowModel {
  const Model& model;
  VectorXd log_p;
  VectorXd capped;
  double temperature;
  VectorXd products;  // Σ_h |x_h| |w_vh| + |b_v|
};

VectorXd log_errors(const RowModel& row, double u) {
  const double k = static_cast<double>(row.model.spec.hidden) + 2;
  const double logit = sum_units(k) * u * row.products.maxCoeff() + 8 * u * row.model.spec.softcap;
  const double log_v = std::log(static_cast<double>(row.log_p.size()));
  VectorXd out(row.log_p.size());
  for (int64_t v = 0; v < out.size(); ++v) {
    out[v] = 2 * logit / row.temperature + 10 * u * (std::abs(row.log_p[v]) + 1 + log_v);
  }
  return out;
}

// How far f(log s, log t) can move when its arguments do by no more than ds and dt: it is monotonous or
// convex between the corners, but for kinks, which a corner sees, too.
template <class F>
double moved(const F& f, double log_s, double log_t, double ds, double dt) {
  const double at = f(log_s, log_t);
  double most = 0;
  for (const double s : {log_s - ds, log_s, log_s + ds}) {
    for (const double t : {log_t - dt, log_t, log_t + dt}) most = std::max(most, std::abs(f(s, t) - at));
  }
  return 1.1 * most;
}

struct RowBounds {
  double value = 0, overlap = 0;
  VectorXd gradient;
};

// Probabilities below the least normal number may count as 0, so that what they weigh is lost.
RowBounds divergence_bounds(const oracle::DivergenceFormula& formula, const oracle::DivergenceRow& truth,
                            const VectorXd& log_s, const VectorXd& log_t, const VectorXd& ds, const VectorXd& dt,
                            double u, double smallest) {
  RowBounds out;
  const int64_t count = log_s.size();
  out.gradient = VectorXd::Zero(count);
  double slopes = 0, slope_errors = 0;
  const auto overlap = [](double a, double b) { return std::exp(std::min(a, b)); };
  const auto term = [&](double a, double b) { return formula.term(a, b, truth.overlap); };
  const auto slope = [&](double a, double b) { return formula.slope(a, b, truth.overlap); };
  VectorXd moved_slopes(count);
  for (int64_t v = 0; v < count; ++v) {
    const double mass = std::exp(log_s[v]) + std::exp(log_t[v]);
    const double lost = smallest * (4 + std::abs(log_s[v]) + std::abs(log_t[v]));
    out.overlap += moved(overlap, log_s[v], log_t[v], ds[v], dt[v]) + 16 * u * mass + lost;
    out.value += moved(term, log_s[v], log_t[v], ds[v], dt[v]) + 64 * u * std::abs(term(log_s[v], log_t[v])) +
                 std::exp(log_s[v]) * ds[v] + std::exp(log_t[v]) * dt[v] + 16 * u * mass + lost;
    moved_slopes[v] =
        moved(slope, log_s[v], log_t[v], ds[v], dt[v]) + 64 * u * (std::abs(slope(log_s[v], log_t[v])) + mass) + lost;
    slopes += slope(log_s[v], log_t[v]);
    slope_errors += moved_slopes[v];
  }
  for (int64_t v = 0; v < count; ++v) {
    const double s = std::exp(log_s[v]);
    out.gradient[v] = moved_slopes[v] + s * slope_errors + 1.1 * s * (ds[v] + 64 * u) * (std::abs(slopes) + 1);
  }
  return out;
}

// −log Σ min(s, t) errs by no more than the worst of its log-probabilities; shares of the sum by twice that.
RowBounds acceptance_bounds(const oracle::DivergenceRow& truth, const VectorXd& log_s, const VectorXd& log_t,
                            const VectorXd& ds, const VectorXd& dt, double u) {
  RowBounds out;
  const int64_t count = log_s.size();
  out.gradient = VectorXd::Zero(count);
  double worst = 0, share_errors = 0, shares = 0;
  VectorXd errors(count);
  for (int64_t v = 0; v < count; ++v) {
    const double share = std::exp(std::min(log_s[v], log_t[v]) - truth.log_overlap);
    // What has no share moves nothing.
    if (share > 1e-3 * u) worst = std::max({worst, ds[v], dt[v]});
  }
  const double relative = std::expm1(3 * worst + 64 * u);
  for (int64_t v = 0; v < count; ++v) {
    const bool below = log_s[v] < log_t[v];
    const double share = std::exp(std::min(log_s[v], log_t[v]) - truth.log_overlap);
    const bool near = std::abs(log_s[v] - log_t[v]) <= ds[v] + dt[v];
    errors[v] = share * (std::expm1(std::max(ds[v], dt[v])) + relative) + (near ? share : 0) + 1e-37;
    share_errors += errors[v];
    if (below) shares += share;
  }
  for (int64_t v = 0; v < count; ++v) {
    const double s = std::exp(log_s[v]);
    out.gradient[v] = errors[v] + s * share_errors + 1.1 * s * shares * (ds[v] + 64 * u);
  }
  out.overlap = truth.overlap * relative + 16 * u;
  out.value = relative + 16 * u * std::abs(truth.value);
  return out;
}

double entropy_bound(const VectorXd& log_p, const VectorXd& errors, double u, double smallest) {
  double out = 0;
  for (int64_t v = 0; v < log_p.size(); ++v) {
    const double p = std::exp(log_p[v]);
    out += p * errors[v] * (std::abs(log_p[v]) + 2) + 64 * u * p * (std::abs(log_p[v]) + 1) +
           smallest * (std::abs(log_p[v]) + 2);
  }
  return out;
}

MatrixXd absolute(const MatrixXd& m) { return m.cwiseAbs(); }

oracle::Tokens rows_of(const oracle::DistillationTruth& truth) {
  oracle::Tokens tokens;
  for (const bool part : truth.takes_part) tokens.labels.push_back(part ? 0 : oracle::kNoLabel);
  return tokens;
}

// Adds the cross-entropy's error to that of dL/dc.
void add_hard(const DistillationCase& call, const oracle::DistillationTruth& truth, size_t i, RowModel& student,
              double u, VectorXd& d_capped, DistillationBounds& out) {
  const Distillation& o = call.options;
  student.temperature = o.hard_temperature;
  student.log_p = oracle::log_softmax(student.capped, o.hard_temperature);
  const VectorXd errors = log_errors(student, u);
  const int64_t label = truth.labels[i];
  out.logps[i] = errors[label] + 16 * u * std::abs(student.log_p[label]);
  for (int64_t v = 0; v < d_capped.size(); ++v) {
    const double p = std::exp(student.log_p[v]);
    d_capped[v] +=
        std::abs(truth.nll_scale[i]) / o.hard_temperature * (1.1 * p * errors[v] + 16 * u * (v == label ? 1 : p));
  }
}

// The row's part of the bounds of dL/dr.
void add_row(const DistillationCase& call, const oracle::DistillationTruth& truth, size_t i, const MatrixXd& products,
             const MatrixXd& teacher_products, DistillationBounds& out, MatrixXd& d_raw) {
  const auto row = static_cast<int64_t>(i);
  const bool in_double = call.spec.student.dtype == DType::kFloat64;
  const double u = in_double ? 0x1p-52 : 0x1p-24, smallest = in_double ? 0x1p-1000 : 0x1p-125;
  const Distillation& o = call.options;
  const double t = o.token.temperatures.empty() ? o.token.temperature : o.token.temperatures[i];
  const double teacher_t = o.teacher_temperature.value_or(t);
  const VectorXd capped = truth.capped.row(row).transpose();
  const VectorXd teacher_capped = truth.teacher_capped.row(row).transpose();
  RowModel student = {call.student, oracle::log_softmax(capped, t), capped, t, products.row(row).transpose()};
  const RowModel teacher = {call.teacher, oracle::log_softmax(teacher_capped, teacher_t), teacher_capped, teacher_t,
                            teacher_products.row(row).transpose()};
  const VectorXd ds = log_errors(student, u), dt = log_errors(teacher, u);
  const oracle::DivergenceFormula formula(o);
  const oracle::DivergenceRow at = oracle::divergence_row(formula, student.log_p, teacher.log_p);
  const RowBounds bounds = formula.kind == Divergence::kAcceptance
                               ? acceptance_bounds(at, student.log_p, teacher.log_p, ds, dt, u)
                               : divergence_bounds(formula, at, student.log_p, teacher.log_p, ds, dt, u, smallest);
  out.divergence[i] = bounds.value;
  out.acceptance[i] = bounds.overlap;
  out.entropy[i] = entropy_bound(student.log_p, ds, u, smallest);
  out.teacher_entropy[i] = entropy_bound(teacher.log_p, dt, u, smallest);
  VectorXd d_capped = std::abs(truth.scale[i]) / t * bounds.gradient;
  // η times the error of the overlap moves κ, and with it the shares of the two gradients.
  if (formula.kind == Divergence::kLkHybrid) {
    d_capped.array() += std::abs(truth.scale[i]) / t * formula.parameter * bounds.overlap *
                        (student.log_p.array().exp() + teacher.log_p.array().exp());
    out.divergence[i] += formula.parameter * bounds.overlap * (1 + at.value);
  }
  if (o.hard_weight != 0) add_hard(call, truth, i, student, u, d_capped, out);
  const double cap = call.student.spec.softcap;
  const double logit = sum_units(static_cast<double>(call.student.spec.hidden) + 2) * u * student.products.maxCoeff();
  for (int64_t v = 0; v < d_capped.size(); ++v) {
    const double d = std::abs(truth.d_raw(row, v));
    d_raw(row, v) = d_capped[v] + 32 * u * d;
    if (cap > 0)
      d_raw(row, v) += 2 * (logit / cap + 8 * u) * (std::abs(truth.scale[i]) / t * std::abs(at.gradient[v]) + d);
  }
  const double weight = o.divergence_weight * (o.temperature_squared ? t * t : 1);
  out.per_token_loss[i] = std::abs(o.loss_scale) * (weight * out.divergence[i] + o.hard_weight * out.logps[i]) +
                          4 * 0x1p-52 * std::abs(truth.per_token_loss[i]);
}

}  // namespace

DistillationBounds distillation_bounds(const DistillationCase& call, const oracle::DistillationTruth& truth,
                                       double gradient_unit) {
  const bool in_double = call.spec.student.dtype == DType::kFloat64;
  const double u = in_double ? 0x1p-52 : 0x1p-24;
  const oracle::Tokens rows = rows_of(truth);
  const LmHead head = call.student.head(), teacher_head = call.teacher.head();
  const MatrixXd hidden = absolute(oracle::read_hidden(call.student.states(), rows));
  const MatrixXd weight = absolute(oracle::read_weight(head, 0, call.spec.vocab));
  MatrixXd products = hidden * weight.transpose();
  products.rowwise() += oracle::read_bias(head).cwiseAbs().transpose();
  MatrixXd teacher_products = absolute(oracle::read_hidden(call.teacher.states(), rows)) *
                              absolute(oracle::read_weight(teacher_head, 0, call.spec.vocab)).transpose();
  teacher_products.rowwise() += oracle::read_bias(teacher_head).cwiseAbs().transpose();
  const size_t n = truth.takes_part.size();
  DistillationBounds out;
  for (auto* column :
       {&out.divergence, &out.acceptance, &out.logps, &out.entropy, &out.teacher_entropy, &out.per_token_loss}) {
    column->assign(n, 0);
  }
  MatrixXd d_raw = MatrixXd::Zero(truth.d_raw.rows(), truth.d_raw.cols());
  for (size_t i = 0; i < n; ++i) {
    if (!truth.takes_part[i]) continue;
    add_row(call, truth, i, products, teacher_products, out, d_raw);
  }
  const MatrixXd d = absolute(truth.d_raw);
  const MatrixXd read = d_raw + gradient_unit * d;
  out.d_hidden = read * weight + sum_units(static_cast<double>(call.spec.vocab) + 8) * 2 * u * (d * weight);
  out.d_weight = read.transpose() * hidden + sum_units(static_cast<double>(n) + 8) * 2 * u * (d.transpose() * hidden);
  if (gradient_unit == kBfloat16Unit) add_put_back(read, hidden, weight, out.d_hidden, out.d_weight);
  out.d_bias = (read.colwise().sum() + sum_units(static_cast<double>(n) + 8) * 2 * u * d.colwise().sum()).transpose();
  return out;
}

namespace {

void expect_near(const std::vector<double>& got, const std::vector<double>& want, const std::vector<double>& bound,
                 const char* what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    if (got[i] == want[i]) continue;
    EXPECT_LE(std::abs(got[i] - want[i]), bound[i]) << what << "[" << i << "] is " << got[i] << ", not " << want[i];
  }
}

template <class Want, class Bound>
void expect_near(const HostTensor& got, bool transposed, const Want& want, const Bound& bound, const char* what) {
  for (int64_t r = 0; r < got.rows(); ++r) {
    for (int64_t c = 0; c < got.cols(); ++c) {
      const int64_t i = transposed ? c : r, j = transposed ? r : c;
      EXPECT_LE(std::abs(got.get(r, c) - want(i, j)), bound(i, j))
          << what << "[" << i << ", " << j << "] is " << got.get(r, c) << ", not " << want(i, j);
      if (::testing::Test::HasFailure()) return;
    }
  }
}

}  // namespace

void expect_distilled(const DistillationCase& call, const DistillationResult& got, const StudentGradients* gradients,
                      double gradient_unit) {
  const oracle::DistillationTruth truth = oracle::distillation_truth(call.inputs());
  const DistillationBounds bounds = distillation_bounds(call, truth, gradient_unit);
  expect_near(got.per_token_divergence, truth.divergence, bounds.divergence, "divergence");
  expect_near(got.per_token_acceptance, truth.acceptance, bounds.acceptance, "acceptance");
  expect_near(got.per_token_loss, truth.per_token_loss, bounds.per_token_loss, "per_token_loss");
  if (call.options.hard_weight != 0) expect_near(got.per_token_logps, truth.logps, bounds.logps, "logps");
  if (call.options.want_entropy) {
    expect_near(got.per_token_entropy, truth.entropy, bounds.entropy, "entropy");
    expect_near(got.per_token_teacher_entropy, truth.teacher_entropy, bounds.teacher_entropy, "teacher_entropy");
  }
  if (call.options.want_agreement) {
    EXPECT_EQ(got.per_token_agreement, truth.agreement);
  }
  double bound = 1e-300;
  for (size_t i = 0; i < truth.takes_part.size(); ++i) {
    if (!truth.takes_part[i]) continue;
    bound += (bounds.per_token_loss[i] + 1e-14 * std::abs(truth.per_token_loss[i])) / truth.normaliser[i];
  }
  EXPECT_LE(std::abs(got.loss - truth.loss), bound);
  for (const double value : got.per_token_divergence) EXPECT_GE(value, 0);
  if (!gradients) return;
  const bool transposed = call.student.spec.layout == HeadLayout::kHiddenVocab;
  expect_near(gradients->d_hidden, false, truth.d_hidden, bounds.d_hidden, "d_hidden");
  expect_near(gradients->d_weight, transposed, truth.d_weight, bounds.d_weight, "d_weight");
  if (!call.student.spec.bias) return;
  const auto at = [](const VectorXd& of) { return [&of](int64_t, int64_t v) { return of[v]; }; };
  expect_near(gradients->d_bias, false, at(truth.d_bias), at(bounds.d_bias), "d_bias");
}

}  // namespace logitless::testing

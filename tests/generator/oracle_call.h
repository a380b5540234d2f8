// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Runs the oracle on a drawn call, with the float64 logits of its reference.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/tensors.h"
#include "generator/oracle_of.h"
#include "generator/reference_call.h"
#include "oracle/distillation_oracle.h"
#include "oracle/set_distillation_oracle.h"
#include "oracle/set_oracle.h"
#include "oracle/tiled_truth.h"
#include "oracle/token_mean.h"

namespace logitless::testing {

template <Task T>
double temperature_of(const T& task, size_t row) {
  return task.token.temperatures.empty() ? task.token.temperature : task.token.temperatures[row];
}

// Bounds the slopes of a set's cells by their logarithms.
template <Task T>
void ReferenceCall<T>::add_terms_of_sets(std::vector<int64_t> labels, std::span<const int64_t> offsets) {
  if constexpr (std::is_same_v<T, SetDistillation>) {
    const oracle::RowIds sets = oracle::read_sets(task_.teacher.sets, capped_.rows());
    for (size_t row = 0; row < sets.size(); ++row) {
      if (sets[row].empty()) labels[row] = oracle::kNoLabel;
    }
    const oracle::TokenMean mean = oracle::token_mean(task_, labels);
    const std::vector<double> divisors = oracle::mean_divisors(mean, labels, offsets);
    terms = oracle::VectorXd::Zero(capped_.rows());
    for (int64_t i = 0; i < capped_.rows(); ++i) {
      const auto row = static_cast<size_t>(i);
      const double own = temperature_of(task_, row);
      const oracle::VectorXd log_s = oracle::log_softmax(capped_.row(i).transpose(), own);
      double most = 4;
      for (const int64_t id : sets[row]) most = std::max(most, 4 - log_s[id]);
      const double squared = task_.temperature_squared ? own * own : 1;
      const double weight = mean.weights[row] * (task_.divergence_weight * squared + task_.hard_weight);
      terms[i] = std::fabs(task_.loss_scale) * weight * most / own / divisors[row];
    }
  }
}

template <class M>
HiddenStates states_view(M& matrix, const DrawnCall& call, const std::vector<int64_t>& offsets) {
  const ConstMatrix states(matrix.data(), matrix.rows(), matrix.cols());
  return call.packed ? HiddenStates(states, offsets) : HiddenStates(states, call.sequences);
}

// Bounds the terms of a divergence's gradients. The engine's slopes contain constants that cancel.
template <Task T>
void ReferenceCall<T>::add_terms_of_divergence(const oracle::DistillationTruth& truth) {
  if constexpr (std::is_same_v<T, Distillation>) {
    terms = oracle::VectorXd::Zero(capped_.rows());
    const oracle::DivergenceFormula formula(task_);
    for (int64_t i = 0; i < capped_.rows(); ++i) {
      const auto row = static_cast<size_t>(i);
      if (!truth.is_active[row]) continue;
      const double own = temperature_of(task_, row);
      const oracle::VectorXd log_s = oracle::log_softmax(truth.capped.row(i).transpose(), own);
      const oracle::VectorXd log_t =
          oracle::log_softmax(truth.teacher_capped.row(i).transpose(), task_.teacher_temperature.value_or(own));
      for (int64_t v = 0; v < capped_.cols(); ++v) {
        const double slope_of = formula.slope(log_s[v], log_t[v], truth.acceptance[row]);
        if (std::isfinite(slope_of)) terms[i] += std::fabs(slope_of * truth.scale[row] / own);
      }
      terms[i] += 2 * truth.scale[row] / own;
    }
  }
}

// The gradient of a cross term is a difference of larger terms.
template <Task T>
void ReferenceCall<T>::add_terms_of_cross() {
  if constexpr (std::is_same_v<T, TokenStatistics>) {
    double weight = task_.request.cross_weights.empty() ? 1 : 0;
    for (const float q : task_.request.cross_weights) weight += static_cast<double>(q);
    terms = oracle::VectorXd::Zero(capped_.rows());
    for (int64_t i = 0; i < terms.size() && weight > 0 && task_.request.cross; ++i) {
      const auto row = static_cast<size_t>(i);
      const double own = temperature_of(task_, row);
      terms[i] = std::fabs(upstream_.grads.cross[row]) * weight / own;
    }
  }
}

// Losses that use statistics of targets or of chosen ids.
template <Task T>
template <class Loss>
OracleNumbers ReferenceCall<T>::oracle_of_tokens(Loss task) {
  const std::vector<int64_t> offsets = offsets_of(call_);
  const int64_t vocab = capped_.cols();
  oracle::Tokens tokens;
  if constexpr (std::is_same_v<Loss, PolicyLoss>) {
    tokens = oracle::read_tokens(offsets, vocab, task);
  } else {
    const Targets targets = core::targets_of("targets", task.targets);
    if constexpr (std::is_same_v<Loss, CrossEntropy>) tokens = oracle::read_tokens(offsets, vocab, targets, task);
    if constexpr (!std::is_same_v<Loss, CrossEntropy>) {
      tokens = oracle::read_tokens(offsets, vocab, targets, task.token);
    }
  }
  if constexpr (std::is_same_v<Loss, PreferenceLoss>) oracle::drop_half_pairs(offsets, tokens);
  std::vector<double> ref_logps;
  if constexpr (requires { task.reference; }) {
    if (other_) {
      oracle::MatrixXd logits = other_capped_;
      logits.rowwise() += masks_.transpose();
      const oracle::VectorXd logps = truth_of(logits, tokens).compute_statistics().logp;
      ref_logps.assign(logps.begin(), logps.end());
      task.reference = {};
      task.ref_logps = ref_logps;
      task.ref_logps_per = EntriesPer::kToken;
    }
  }
  const oracle::LogitsTruth truth = truth_of(capped_, tokens);
  const oracle::TokenStatistics stats = truth.compute_statistics();
  OracleNumbers out;
  out.add("per_token_logps", stats.logp);
  out.d_capped = logit_gradients(truth, stats, add_loss(task, offsets, truth.tokens(), stats, out));
  return out;
}

template <Task T>
OracleNumbers ReferenceCall<T>::oracle_numbers() {
  const std::vector<int64_t> offsets = offsets_of(call_);
  const int64_t vocab = capped_.cols();
  OracleNumbers out;
  if constexpr (std::is_same_v<T, IdLogps>) {
    return oracle_of(task_, capped_, upstream_.each);
  } else if constexpr (std::is_same_v<T, TokenStatistics>) {
    add_terms_of_cross();
    return oracle_of(task_, capped_, offsets, upstream_.grads);
  } else if constexpr (std::is_same_v<T, CustomLoss>) {
    return oracle_of(task_, capped_, offsets);
  } else if constexpr (std::is_same_v<T, SoftCrossEntropy>) {
    const oracle::SetLogits logits{capped_, 0, task_.token};
    const oracle::SoftTruth soft = oracle::compute_soft_cross_entropy(logits, offsets, task_);
    out.add("loss", std::vector{soft.loss});
    out.add("per_token_loss", soft.per_token_loss);
    out.add_metrics(soft.metrics);
    terms = soft.gamma.cwiseAbs().rowwise().sum();
    out.d_capped.resize(capped_.rows(), vocab);
    for (int64_t i = 0; i < capped_.rows(); ++i) {
      out.d_capped.row(i) = oracle::d_raw_logits(logits, i, {}, soft.gamma.row(i).transpose()).transpose();
    }
  } else if constexpr (std::is_same_v<T, SetDistillation>) {
    const Targets targets = core::targets_of("targets", task_.targets);
    const std::vector<int64_t> labels = targets.size > 0
                                            ? oracle::read_tokens(offsets, vocab, targets, task_.token).labels
                                            : std::vector<int64_t>(static_cast<size_t>(capped_.rows()), 0);
    const auto truth = oracle::set_distillation_truth({capped_, 0, task_.token}, task_.teacher, labels, offsets, task_);
    add_terms_of_sets(labels, offsets);
    out.add("loss", std::vector{truth.loss});
    out.add("per_token_loss", truth.per_token_loss);
    out.add("per_token_divergence", truth.divergence);
    const auto rows = static_cast<double>(truth.rows);
    out.add("tokens", std::vector{rows});
    out.add_mean("mean_divergence", truth.divergence, rows),
        out.add_mean("mean_teacher_mass", truth.teacher_mass, rows);
    if (task_.outside != OutsideSet::kRenormalised) out.add_mean("mean_student_mass", truth.student_mass, rows);
    if (task_.hard_weight != 0) out.add_mean("mean_nll", truth.nll, rows);
    out.d_capped = truth.d_raw;
  } else if constexpr (std::is_same_v<T, Distillation>) {
    oracle::MatrixXd student = capped_, teacher = other_capped_;
    oracle::VectorXd masks, teacher_masks;
    const HeadMatrices head = masked_head(student, masks), teacher_head = masked_head(teacher, teacher_masks);
    const auto truth =
        oracle::distillation_rows({states_view(student, call_, student_.offsets), head,
                                   TeacherMatrices(states_view(teacher, call_, student_.offsets), teacher_head, {}),
                                   core::targets_of("targets", task_.targets), task_});
    add_terms_of_divergence(truth);
    out.add("loss", std::vector{truth.loss});
    out.add("per_token_loss", truth.per_token_loss);
    out.add("per_token_divergence", truth.divergence);
    out.add("per_token_acceptance", truth.acceptance);
    const auto rows = static_cast<double>(std::ranges::count(truth.is_active, true));
    out.add("tokens", std::vector{rows});
    out.add_mean("mean_divergence", truth.divergence, rows), out.add_mean("mean_acceptance", truth.acceptance, rows);
    if (task_.hard_weight != 0) {
      std::vector<double> nll = truth.logps;
      for (double& value : nll) value = -value;
      out.add("per_token_logps", truth.logps), out.add_mean("mean_nll", nll, rows);
    }
    if (task_.want_entropy) {
      out.add("per_token_entropy", truth.entropy), out.add("per_token_teacher_entropy", truth.teacher_entropy);
      out.add_mean("mean_entropy", truth.entropy, rows);
      out.add_mean("mean_teacher_entropy", truth.teacher_entropy, rows);
    }
    if (task_.want_agreement) {
      out.add("per_token_agreement", truth.agreement), out.add_mean("agreement", truth.agreement, rows);
    }
    out.d_capped = truth.d_raw;
  } else if constexpr (std::is_same_v<T, PolicyLoss>) {
    if (!task_.kept.ids.given()) return oracle_of_tokens(task_);
    out = oracle_of_kept(task_, capped_, offsets);
  } else {
    return oracle_of_tokens(task_);
  }
  return out;
}

// Both may also be infinite, or NaN.
inline bool near(double value, double want, double tolerance) {
  return value == want || (std::isnan(value) && std::isnan(want)) || std::fabs(value - want) <= tolerance;
}

template <Task T>
std::string ReferenceCall<T>::difference_from_oracle(const ReferenceResult& got) {
  if (capped_.size() == 0) return "";
  OracleNumbers truth = oracle_numbers();
  if constexpr (kRuns<T>) upstream_.scale_rows(truth.d_capped);
  const auto says = [](const std::string& what, double value, double want) {
    return what + " is " + std::to_string(value) + ", the oracle says " + std::to_string(want);
  };
  const double scale = capped_.unaryExpr([](double v) { return std::isfinite(v) ? std::fabs(v) : 0; }).maxCoeff();
  const double relative = 1e-9 * (1 + scale);
  for (const Column& want : truth.columns) {
    const auto found = std::ranges::find(got.columns, want.name, &Column::name);
    if (found == got.columns.end() || found->values.size() != want.values.size()) {
      return want.name + " does not have " + std::to_string(want.values.size()) + " values";
    }
    for (size_t i = 0; i < want.values.size(); ++i) {
      const double tolerance = want.whole ? 0 : relative * (1 + std::fabs(want.values[i]));
      if (near(found->values[i], want.values[i], tolerance)) continue;
      return says(want.name + '[' + std::to_string(i) + ']', found->values[i], want.values[i]);
    }
  }
  const oracle::MatrixXd& d = truth.d_capped;
  const double most = d.cwiseAbs().maxCoeff();
  for (int64_t k = 0; k < d.size(); ++k) {
    const double want = d.data()[k], value = got.d_capped.data()[k];
    if (near(value, want, relative * (1 + std::fabs(want) + most))) continue;
    return says("the gradient of logit " + std::to_string(k), value, want);
  }
  return "";
}

}  // namespace logitless::testing

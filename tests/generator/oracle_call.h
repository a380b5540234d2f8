// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// What the oracle says of a drawn call, on the float64 logits of its reference.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/fields.h"
#include "core/tensors.h"
#include "generator/reference_call.h"
#include "oracle/distillation_oracle.h"
#include "oracle/policy_oracle.h"
#include "oracle/preference_oracle.h"
#include "oracle/set_distillation_oracle.h"
#include "oracle/set_oracle.h"
#include "oracle/tiled_truth.h"

namespace logitless::testing {

/// Some of the columns of the result, and dL/dc of the capped logits.
struct OracleNumbers {
  std::vector<Column> columns;
  oracle::MatrixXd d_capped;

  void add(const char* name, std::vector<double> values) { columns.push_back({name, false, false, std::move(values)}); }
  void add(const char* name, const oracle::VectorXd& values) {
    add(name, std::vector<double>(values.begin(), values.end()));
  }
  void add(const char* name, const std::vector<int64_t>& values) {
    add(name, std::vector<double>(values.begin(), values.end()));
    columns.back().whole = true;
  }
  /// The mean over the rows that take part, of values that are 0 elsewhere.
  void add_mean(const char* name, const std::vector<double>& values, double rows) {
    const double sum = std::accumulate(values.begin(), values.end(), 0.0);
    add(name, std::vector{rows > 0 ? sum / rows : 0});
  }
  void add_metrics(const auto& metrics) {
    visit_fields(
        FieldsOf<std::remove_cvref_t<decltype(metrics)>>(),
        [&](const Field& field, const auto& value) { add(field.name, std::vector{static_cast<double>(value)}); },
        metrics);
  }
};

inline oracle::LogitsTruth truth_of(const oracle::MatrixXd& capped, const oracle::Tokens& tokens) {
  return {FinishedLogits(capped.data(), 1, capped.rows(), capped.cols()), tokens, size_t{1} << 12};
}

inline oracle::MatrixXd logit_gradients(const oracle::LogitsTruth& truth, const oracle::TokenStatistics& stats,
                                        const oracle::TokenGradients& grads) {
  oracle::MatrixXd d = oracle::MatrixXd::Zero(truth.tokens().tokens(), truth.tokens().vocab());
  truth.compute_logit_gradients(
      stats, grads, [&](int64_t first, const oracle::MatrixXd& tile) { d.middleCols(first, tile.cols()) = tile; });
  return d;
}

/// `upstream`: one number per entry.
inline OracleNumbers oracle_of(const IdLogps& task, const oracle::MatrixXd& capped,
                               const std::vector<double>& upstream) {
  const oracle::SetLogits logits{capped, 0, task.token, task.normalise_over == NormaliseOver::kSet};
  const oracle::RowIds sets = oracle::read_sets(task.sets, capped.rows());
  std::vector<double> logps(static_cast<size_t>(task.sets.entries()));
  OracleNumbers out;
  out.d_capped = oracle::MatrixXd::Zero(capped.rows(), capped.cols());
  for (int64_t i = 0; i < capped.rows(); ++i) {
    const std::vector<int64_t>& ids = sets[static_cast<size_t>(i)];
    if (ids.empty()) continue;
    const oracle::VectorXd log_p = oracle::log_probabilities(logits, i, ids);
    oracle::VectorXd gamma = oracle::VectorXd::Zero(capped.cols());
    auto entry = static_cast<size_t>(oracle::first_entry(task.sets, capped.rows(), i));
    for (const int64_t id : ids) {
      logps[entry] = log_p[id];
      gamma[id] += upstream[entry++];
    }
    out.d_capped.row(i) = oracle::d_raw_logits(logits, i, ids, gamma).transpose();
  }
  out.add("logps", std::move(logps));
  return out;
}

/// The lists of the largest logits, which have place for `top_k` entries per row.
inline void add_lists(const oracle::TokenStatistics& stats, const oracle::Tokens& tokens, OracleNumbers& out) {
  std::vector<int64_t> ids;
  std::vector<double> logps;
  for (int64_t i = 0; i < tokens.tokens(); ++i) {
    const auto row = static_cast<size_t>(i);
    const auto held = static_cast<int64_t>(tokens.takes_part(i) ? stats.top_ids[row].size() : 0);
    for (int64_t k = 0; k < tokens.top_k; ++k) {
      const bool is_held = k < held;
      ids.push_back(is_held ? stats.top_ids[row][static_cast<size_t>(k)] : -1);
      logps.push_back(is_held                ? stats.top_logps[row][static_cast<size_t>(k)]
                      : tokens.takes_part(i) ? -std::numeric_limits<double>::infinity()
                                             : 0);
    }
  }
  out.add("top_ids", ids);
  out.add("top_logps", std::move(logps));
}

inline oracle::Tokens tokens_of(const TokenStatistics& task, const oracle::MatrixXd& capped,
                                const std::vector<int64_t>& offsets) {
  const Targets given = core::targets_of("targets", task.targets);
  // Without targets every row takes part, and no log-probability is wanted of it.
  const std::vector<int64_t> none(static_cast<size_t>(capped.rows()), 0);
  const Targets targets = given.size > 0 ? given : Targets(std::span<const int64_t>(none));
  oracle::Tokens tokens = oracle::read_tokens(offsets, capped.cols(), targets, task.token);
  tokens.top_k = task.request.top_k;
  for (size_t v = 0; v < task.request.cross_weights.size(); ++v) {
    tokens.cross[static_cast<int64_t>(v)] = task.request.cross_weights[v];
  }
  return tokens;
}

/// `upstream`: as backward() takes it.
inline OracleNumbers oracle_of(const TokenStatistics& task, const oracle::MatrixXd& capped,
                               const std::vector<int64_t>& offsets, const TokenGrads& upstream) {
  const bool has_targets = task.targets.given();
  const oracle::Tokens tokens = tokens_of(task, capped, offsets);
  const oracle::LogitsTruth truth = truth_of(capped, tokens);
  const oracle::TokenStatistics stats = truth.compute_statistics();
  OracleNumbers out;
  out.add("logp", has_targets ? stats.logp : oracle::VectorXd::Zero(capped.rows()));
  out.add("lse", stats.lse);
  if (task.request.entropy) out.add("entropy", stats.entropy);
  if (task.request.cross) out.add("cross", stats.cross);
  if (task.request.outside) out.add("outside", stats.outside);
  if (task.request.square_sum) out.add("square_sum", stats.square_sum);
  if (task.request.argmax) out.add("argmax", stats.argmax);
  if (task.request.rank) out.add("rank", stats.rank);
  if (tokens.top_k > 0) add_lists(stats, tokens, out);
  oracle::TokenGradients grads(capped.rows());
  const auto set = [](oracle::VectorXd& to, const std::vector<double>& from) {
    if (!from.empty()) to = oracle::to_eigen(from);
  };
  if (has_targets) set(grads.logp, upstream.logp);
  set(grads.lse, upstream.lse), set(grads.entropy, upstream.entropy);
  set(grads.cross, upstream.cross), set(grads.outside, upstream.outside);
  out.d_capped = logit_gradients(truth, stats, grads);
  return out;
}

/// A caller's own loss, on the oracle's statistics.
inline OracleNumbers oracle_of(const CustomLoss& task, const oracle::MatrixXd& capped,
                               const std::vector<int64_t>& offsets) {
  TokenStatistics as_statistics{task.targets, task.token, task.loss->needs()};
  TokenStats read;
  const auto to_vector = [](const oracle::VectorXd& values) {
    return std::vector<double>(values.begin(), values.end());
  };
  const oracle::Tokens tokens = tokens_of(as_statistics, capped, offsets);
  const oracle::TokenStatistics stats = truth_of(capped, tokens).compute_statistics();
  read.logp = to_vector(stats.logp), read.lse = to_vector(stats.lse), read.entropy = to_vector(stats.entropy);
  read.cross = to_vector(stats.cross), read.outside = to_vector(stats.outside);
  TokenGrads grads;
  for (auto* column : {&grads.logp, &grads.lse, &grads.entropy, &grads.cross, &grads.outside}) {
    column->assign(static_cast<size_t>(capped.rows()), 0);
  }
  std::vector<int64_t> rows;
  for (int64_t i = 0; i < capped.rows(); ++i) {
    if (tokens.takes_part(i)) rows.push_back(i);
  }
  task.loss->evaluate(rows, read, grads);
  return oracle_of(as_statistics, capped, offsets, grads);
}

// What the oracle says of a loss, by name; returns its gradients.
inline oracle::TokenGradients add_loss(const CrossEntropy& task, const std::vector<int64_t>&,
                                       const oracle::Tokens& tokens, const oracle::TokenStatistics& stats,
                                       OracleNumbers& out) {
  oracle::Loss loss = oracle::compute_cross_entropy(tokens, stats, task);
  if (!task.want_accuracy) loss.metrics.accuracy = CrossEntropyMetrics().accuracy;
  if (!task.want_entropy) loss.metrics.mean_entropy = CrossEntropyMetrics().mean_entropy;
  out.add("loss", std::vector{loss.loss}), out.add("per_token_loss", loss.per_token_loss);
  out.add("per_token_lse", stats.lse);
  if (task.want_accuracy) out.add("per_token_argmax", stats.argmax);
  out.add_metrics(loss.metrics);
  return loss.grads;
}
inline oracle::TokenGradients add_loss(const PolicyLoss& task, const std::vector<int64_t>& offsets,
                                       const oracle::Tokens&, const oracle::TokenStatistics& stats,
                                       OracleNumbers& out) {
  const auto to_vector = [](const oracle::VectorXd& values) {
    return std::vector<double>(values.begin(), values.end());
  };
  const oracle::PolicyValue loss = oracle::compute_policy_loss(oracle::read_policy_batch(task, offsets), task,
                                                               {to_vector(stats.logp), to_vector(stats.entropy)});
  oracle::TokenGradients grads(stats.logp.size());
  std::vector<double> losses;
  for (int64_t i = 0; i < stats.logp.size(); ++i) {
    losses.push_back(loss.per_token_loss[static_cast<size_t>(i)].value);
    grads.logp[i] = loss.d_logp(i), grads.entropy[i] = loss.d_entropy(i);
  }
  PolicyMetrics metrics;
  metrics.tokens = loss.tokens, metrics.mean_ratio = loss.mean_ratio.value, metrics.mean_kl = loss.mean_kl.value;
  metrics.mean_logp = loss.mean_logp.value, metrics.mean_entropy = loss.mean_entropy.value;
  metrics.mean_teacher_kl = loss.mean_teacher_kl.value, metrics.clip_fraction = loss.clip_fraction;
  metrics.clip_fraction_low = loss.clip_fraction_low, metrics.clip_fraction_high = loss.clip_fraction_high;
  out.add("loss", std::vector{loss.loss.value}), out.add("per_token_loss", losses);
  out.add_metrics(metrics);
  return grads;
}
inline oracle::TokenGradients add_loss(const PreferenceLoss& task, const std::vector<int64_t>& offsets,
                                       const oracle::Tokens& tokens, const oracle::TokenStatistics& stats,
                                       OracleNumbers& out) {
  const oracle::PreferenceTruth loss = oracle::preference_result(offsets, tokens, stats, task);
  out.add("loss", std::vector{loss.loss}), out.add("sequence_logps", loss.sequence_logps);
  out.add_metrics(loss.metrics);
  oracle::TokenGradients grads(stats.logp.size());
  grads.logp = oracle::to_eigen(loss.d_logp);
  return grads;
}
inline oracle::TokenGradients add_loss(const KtoLoss& task, const std::vector<int64_t>& offsets,
                                       const oracle::Tokens& tokens, const oracle::TokenStatistics& stats,
                                       OracleNumbers& out) {
  const oracle::KtoTruth loss = oracle::kto_result(offsets, tokens, stats, task);
  out.add("loss", std::vector{loss.loss}), out.add("sequence_logps", loss.sequence_logps);
  out.add("sequence_losses", loss.sequence_losses);
  out.add_metrics(loss.metrics);
  oracle::TokenGradients grads(stats.logp.size());
  grads.logp = oracle::to_eigen(loss.d_logp);
  return grads;
}

/// Policy losses whose log-probabilities are over the ids that the sampler kept.
inline OracleNumbers oracle_of_kept(const PolicyLoss& task, const oracle::MatrixXd& capped,
                                    const std::vector<int64_t>& offsets) {
  const oracle::Tokens tokens = oracle::read_tokens(offsets, capped.cols(), task);
  const oracle::SetLogits logits{capped, 0, task.token, true};
  const oracle::RowIds sets = oracle::read_sets(task.kept, capped.rows(), task.mask);
  oracle::TokenStatistics stats(capped.rows());
  for (int64_t i = 0; i < capped.rows(); ++i) {
    if (!tokens.takes_part(i)) continue;
    const int64_t chosen = tokens.labels[static_cast<size_t>(i)];
    stats.logp[i] = oracle::log_probabilities(logits, i, sets[static_cast<size_t>(i)])[chosen];
  }
  OracleNumbers out;
  const oracle::TokenGradients grads = add_loss(task, offsets, tokens, stats, out);
  out.d_capped = oracle::MatrixXd::Zero(capped.rows(), capped.cols());
  for (int64_t i = 0; i < capped.rows(); ++i) {
    if (!tokens.takes_part(i)) continue;
    oracle::VectorXd gamma = oracle::VectorXd::Zero(capped.cols());
    gamma[tokens.labels[static_cast<size_t>(i)]] = grads.logp[i];
    out.d_capped.row(i) = oracle::d_raw_logits(logits, i, sets[static_cast<size_t>(i)], gamma).transpose();
  }
  return out;
}

// Bounds the slopes of a set's cells by their logarithms.
template <Task T>
void ReferenceCall<T>::add_terms_of_sets(const std::vector<int64_t>& labels, std::span<const int64_t> offsets) {
  if constexpr (std::is_same_v<T, SetDistillation>) {
    const std::vector<double> divisors =
        oracle::mean_divisors({task_.reduction, task_.mean_over, task_.num_items_in_batch}, labels, offsets);
    const oracle::RowIds sets = oracle::read_sets(task_.teacher.sets, capped_.rows());
    terms = oracle::VectorXd::Zero(capped_.rows());
    for (int64_t i = 0; i < capped_.rows(); ++i) {
      const auto row = static_cast<size_t>(i);
      const double own = task_.token.temperatures.empty() ? task_.token.temperature : task_.token.temperatures[row];
      const oracle::VectorXd log_s = oracle::log_softmax(capped_.row(i).transpose(), own);
      double most = 4;
      for (const int64_t id : sets[row]) most = std::max(most, 4 - log_s[id]);
      const double squared = task_.temperature_squared ? own * own : 1;
      const double weight = task_.divergence_weight * squared + task_.hard_weight;
      if (divisors[row] > 0) terms[i] = std::fabs(task_.loss_scale) * weight * most / own / divisors[row];
    }
  }
}

template <class M>
HiddenStates states_view(M& matrix, const DrawnCall& call, const std::vector<int64_t>& offsets) {
  const ConstMatrix states(matrix.data(), matrix.rows(), matrix.cols());
  return call.packed ? HiddenStates(states, offsets) : HiddenStates(states, call.sequences);
}

// Bounds the terms of a divergence's gradients. The engine's slopes have constants that cancel.
template <Task T>
void ReferenceCall<T>::add_terms_of_divergence(const oracle::DistillationTruth& truth) {
  if constexpr (std::is_same_v<T, Distillation>) {
    terms = oracle::VectorXd::Zero(capped_.rows());
    const oracle::DivergenceFormula formula(task_);
    for (int64_t i = 0; i < capped_.rows(); ++i) {
      const auto row = static_cast<size_t>(i);
      if (!truth.takes_part[row]) continue;
      const double own = task_.token.temperatures.empty() ? task_.token.temperature : task_.token.temperatures[row];
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

// The gradient of a cross whose weights do not sum to 1 is a difference of larger terms.
template <Task T>
void ReferenceCall<T>::add_terms_of_cross() {
  if constexpr (std::is_same_v<T, TokenStatistics>) {
    double weight = 0;
    for (const float q : task_.request.cross_weights) weight += static_cast<double>(q);
    terms = oracle::VectorXd::Zero(capped_.rows());
    for (int64_t i = 0; i < terms.size() && weight > 0 && task_.request.cross; ++i) {
      const auto row = static_cast<size_t>(i);
      const double own = task_.token.temperatures.empty() ? task_.token.temperature : task_.token.temperatures[row];
      terms[i] = std::fabs(upstream_.grads.cross[row]) * weight / own;
    }
  }
}

// Losses of the statistics of targets, or of chosen ids.
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
    const oracle::SoftTruth soft = oracle::compute_soft_cross_entropy(logits, task_.targets, task_);
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
    const auto rows = static_cast<double>(std::ranges::count(truth.takes_part, true));
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

// Both may be infinite, or no numbers.
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

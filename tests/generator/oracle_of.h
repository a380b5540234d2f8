// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Runs the oracle for a task on given float64 logits.
#pragma once

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
#include "generator/result_numbers.h"
#include "logitless/run.h"
#include "oracle/policy_oracle.h"
#include "oracle/preference_oracle.h"
#include "oracle/set_oracle.h"
#include "oracle/tiled_truth.h"

namespace logitless::testing {

/// Some columns of the result, and dL/dc of the capped logits.
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
  /// Adds the mean over the rows that count, of values that are 0 elsewhere.
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

/// `upstream` has one number per entry.
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

/// Adds the lists of the largest logits, which hold `top_k` entries per row.
inline void add_lists(const oracle::TokenStatistics& stats, const oracle::Tokens& tokens, OracleNumbers& out) {
  std::vector<int64_t> ids;
  std::vector<double> logps;
  for (int64_t i = 0; i < tokens.tokens(); ++i) {
    const auto row = static_cast<size_t>(i);
    const auto held = static_cast<int64_t>(tokens.is_active(i) ? stats.top_ids[row].size() : 0);
    for (int64_t k = 0; k < tokens.top_k; ++k) {
      const bool is_held = k < held;
      ids.push_back(is_held ? stats.top_ids[row][static_cast<size_t>(k)] : -1);
      logps.push_back(is_held               ? stats.top_logps[row][static_cast<size_t>(k)]
                      : tokens.is_active(i) ? -std::numeric_limits<double>::infinity()
                                            : 0);
    }
  }
  out.add("top_ids", ids);
  out.add("top_logps", std::move(logps));
}

/// Adds the drawn ids and their log-probabilities.
inline void add_draws(const oracle::TokenStatistics& stats, const oracle::Tokens& tokens, OracleNumbers& out) {
  std::vector<int64_t> ids;
  std::vector<double> logps;
  for (int64_t i = 0; i < tokens.tokens(); ++i) {
    const auto row = static_cast<size_t>(i);
    std::vector<int64_t> of_row = stats.drawn_ids[row];
    std::vector<double> logps_of_row = stats.drawn_logps[row];
    of_row.resize(static_cast<size_t>(tokens.draws.draws), -1);
    logps_of_row.resize(of_row.size(), tokens.is_active(i) ? std::numeric_limits<double>::quiet_NaN() : 0);
    ids.insert(ids.end(), of_row.begin(), of_row.end());
    logps.insert(logps.end(), logps_of_row.begin(), logps_of_row.end());
  }
  out.add("drawn_ids", ids);
  out.add("drawn_logps", std::move(logps));
}

inline oracle::Tokens tokens_of(const TokenStatistics& task, const oracle::MatrixXd& capped,
                                const std::vector<int64_t>& offsets) {
  const Targets given = core::targets_of("targets", task.targets);
  // Without targets every row counts, and its log-probability is not requested.
  const std::vector<int64_t> none(static_cast<size_t>(capped.rows()), 0);
  const Targets targets = given.size > 0 ? given : Targets(std::span<const int64_t>(none));
  oracle::Tokens tokens = oracle::read_tokens(offsets, capped.cols(), targets, task.token);
  tokens.top_k = task.request.top_k;
  tokens.draws = task.request;
  for (size_t v = 0; v < task.request.cross_weights.size(); ++v) {
    tokens.cross[static_cast<int64_t>(v)] = task.request.cross_weights[v];
  }
  return tokens;
}

/// `upstream` is the argument of backward().
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
  if (tokens.draws.draws > 0) add_draws(stats, tokens, out);
  oracle::TokenGradients grads(capped.rows());
  const auto set = [](oracle::VectorXd& to, const std::vector<double>& from) {
    if (!from.empty()) to = oracle::to_eigen(from);
  };
  if (has_targets) set(grads.logp, upstream.logp);
  set(grads.lse, upstream.lse), set(grads.entropy, upstream.entropy);
  set(grads.cross, upstream.cross), set(grads.outside, upstream.outside);
  set(grads.square_sum, upstream.square_sum);
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
  read.square_sum = to_vector(stats.square_sum);
  TokenGrads grads;
  for (auto* column : {&grads.logp, &grads.lse, &grads.entropy, &grads.cross, &grads.outside, &grads.square_sum}) {
    column->assign(static_cast<size_t>(capped.rows()), 0);
  }
  std::vector<int64_t> rows;
  for (int64_t i = 0; i < capped.rows(); ++i) {
    if (tokens.is_active(i)) rows.push_back(i);
  }
  task.loss->evaluate(rows, read, grads);
  return oracle_of(as_statistics, capped, offsets, grads);
}

// Adds a loss's results by name, and returns its gradients.
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

/// Policy losses with log-probabilities over the ids that the sampler kept.
inline OracleNumbers oracle_of_kept(const PolicyLoss& task, const oracle::MatrixXd& capped,
                                    const std::vector<int64_t>& offsets) {
  const oracle::Tokens tokens = oracle::read_tokens(offsets, capped.cols(), task);
  const oracle::SetLogits logits{capped, 0, task.token, true};
  const oracle::RowIds sets = oracle::read_sets(task.kept, capped.rows(), task.mask);
  oracle::TokenStatistics stats(capped.rows());
  for (int64_t i = 0; i < capped.rows(); ++i) {
    if (!tokens.is_active(i)) continue;
    const int64_t chosen = tokens.labels[static_cast<size_t>(i)];
    stats.logp[i] = oracle::log_probabilities(logits, i, sets[static_cast<size_t>(i)])[chosen];
  }
  OracleNumbers out;
  const oracle::TokenGradients grads = add_loss(task, offsets, tokens, stats, out);
  out.d_capped = oracle::MatrixXd::Zero(capped.rows(), capped.cols());
  for (int64_t i = 0; i < capped.rows(); ++i) {
    if (!tokens.is_active(i)) continue;
    oracle::VectorXd gamma = oracle::VectorXd::Zero(capped.cols());
    gamma[tokens.labels[static_cast<size_t>(i)]] = grads.logp[i];
    out.d_capped.row(i) = oracle::d_raw_logits(logits, i, sets[static_cast<size_t>(i)], gamma).transpose();
  }
  return out;
}

}  // namespace logitless::testing

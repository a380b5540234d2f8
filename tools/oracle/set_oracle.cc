// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "oracle/set_oracle.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "oracle/token_mean.h"

namespace logitless::oracle {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double x_log_x(double x) { return x > 0 ? x * std::log(x) : 0; }

// Returns the columns over which a row's probabilities sum to 1.
std::vector<int64_t> columns_of(const SetLogits& logits, const std::vector<int64_t>& ids) {
  std::vector<int64_t> columns = ids;
  if (!logits.over_set) {
    columns.resize(static_cast<size_t>(logits.products.cols()));
    for (size_t v = 0; v < columns.size(); ++v) columns[v] = static_cast<int64_t>(v);
  }
  std::sort(columns.begin(), columns.end());
  columns.erase(std::unique(columns.begin(), columns.end()), columns.end());
  return columns;
}

int64_t padded_size(const IdSets& sets, int64_t tokens) { return tokens == 0 ? 0 : sets.entries() / tokens; }

}  // namespace

int64_t first_entry(const IdSets& sets, int64_t tokens, int64_t row) {
  return sets.offsets.empty() ? row * padded_size(sets, tokens) : sets.offsets[static_cast<size_t>(row)];
}

RowIds read_sets(const IdSets& sets, int64_t tokens, std::span<const uint8_t> mask) {
  RowIds rows(static_cast<size_t>(tokens));
  for (int64_t row = 0; row < tokens; ++row) {
    const auto r = static_cast<size_t>(row);
    if (!mask.empty() && !mask[r]) continue;
    const int64_t begin = first_entry(sets, tokens, row);
    int64_t count = padded_size(sets, tokens);
    if (!sets.offsets.empty()) count = sets.offsets[r + 1] - begin;
    if (!sets.counts.empty()) count = sets.counts[r];
    for (int64_t e = begin; e < begin + count; ++e) rows[r].push_back(read_id(sets.ids, e));
  }
  return rows;
}

MatrixXd read_products(const HiddenStates& hidden, const HeadMatrices& head) {
  MatrixXd x(hidden.tokens(), hidden.hidden_size());
  const ConstMatrix& states = hidden.states;
  for (int64_t i = 0; i < x.rows(); ++i) {
    for (int64_t h = 0; h < x.cols(); ++h) x(i, h) = read_element(states.data, states.dtype, i * states.stride + h);
  }
  return read_products(x, head);
}

MatrixXd read_products(const FinishedLogits& logits) {
  MatrixXd out(logits.tokens(), logits.vocab);
  for (int64_t i = 0; i < out.rows(); ++i) {
    const int64_t at = i / logits.time * logits.batch_stride + i % logits.time * logits.row_stride;
    for (int64_t v = 0; v < out.cols(); ++v) out(i, v) = read_element(logits.data, logits.dtype, at + v);
  }
  return out;
}

double SetLogits::raw(int64_t row, int64_t v) const {
  const double product = products(row, v);
  return options.round_logits_to ? round_to(product, *options.round_logits_to) : product;
}

double SetLogits::capped(int64_t row, int64_t v) const {
  return softcap > 0 ? softcap * std::tanh(raw(row, v) / softcap) : raw(row, v);
}

double SetLogits::slope(int64_t row, int64_t v) const {
  if (softcap == 0) return 1;
  const double cosh = std::cosh(raw(row, v) / softcap);
  return 1 / (cosh * cosh);
}

VectorXd log_probabilities(const SetLogits& logits, int64_t row, const std::vector<int64_t>& ids) {
  const double divisor = logits.scales_logits() ? logits.temperature(row) : 1;
  const std::vector<int64_t> columns = columns_of(logits, ids);
  VectorXd a = VectorXd::Constant(logits.products.cols(), -kInfinity);
  for (const int64_t v : columns) a[v] = logits.capped(row, v) / divisor;
  const double max = a.maxCoeff();
  double rest = 0;  // Σ exp(a - max) - 1
  bool seen = false;
  for (const int64_t v : columns) {
    if (a[v] == max && !seen) {
      seen = true;
    } else {
      rest += std::exp(a[v] - max);
    }
  }
  a.array() -= max;
  a.array() -= std::log1p(rest);
  return logits.scales_logits() ? a : VectorXd(a / logits.temperature(row));
}

VectorXd d_raw_logits(const SetLogits& logits, int64_t row, const std::vector<int64_t>& ids, const VectorXd& gamma) {
  const double temperature = logits.temperature(row);
  const VectorXd log_p = log_probabilities(logits, row, ids) * (logits.scales_logits() ? 1 : temperature);
  VectorXd out = VectorXd::Zero(gamma.size());
  std::vector<int64_t> weighted;
  for (int64_t u = 0; u < gamma.size(); ++u) {
    if (gamma[u] != 0) weighted.push_back(u);
  }
  for (const int64_t v : columns_of(logits, ids)) {
    double others = 0;
    for (const int64_t u : weighted) others += u == v ? 0 : gamma[u];
    // 1 - p without cancellation.
    const double d_final = -gamma[v] * std::expm1(log_p[v]) - std::exp(log_p[v]) * others;
    out[v] = d_final / temperature * logits.slope(row, v);
  }
  return out;
}

std::vector<bool> rows_of(const SoftTargets& targets, int64_t tokens) {
  std::vector<bool> out(static_cast<size_t>(tokens), true);
  const bool dense = !targets.weights.given();
  const RowIds ids = read_sets(targets.sets, tokens, targets.mask);
  for (size_t row = 0; row < out.size(); ++row) {
    out[row] = dense ? targets.mask.empty() || targets.mask[row] != 0 : !ids[row].empty();
  }
  return out;
}

MatrixXd read_soft_targets(const SoftTargets& targets, int64_t tokens, int64_t vocab) {
  MatrixXd q = MatrixXd::Zero(tokens, vocab);
  const RowIds ids = read_sets(targets.sets, tokens, targets.mask);
  const std::vector<bool> is_active = rows_of(targets, tokens);
  for (int64_t row = 0; row < tokens; ++row) {
    if (!is_active[static_cast<size_t>(row)]) continue;
    if (!targets.weights.given()) {
      const ConstTensor& rows = targets.rows;
      for (int64_t v = 0; v < vocab; ++v) q(row, v) = read_element(rows.data, rows.dtype, row * rows.strides[0] + v);
      continue;
    }
    int64_t entry = first_entry(targets.sets, tokens, row);
    for (const int64_t id : ids[static_cast<size_t>(row)]) {
      q(row, id) += read_element(targets.weights.data, targets.weights.dtype, entry++);
    }
  }
  return q;
}

SoftTruth compute_soft_cross_entropy(const SetLogits& logits, std::span<const int64_t> offsets,
                                     const SoftCrossEntropy& task) {
  const int64_t tokens = logits.products.rows(), vocab = logits.products.cols();
  const MatrixXd q = read_soft_targets(task.targets, tokens, vocab);
  std::vector<int64_t> labels;
  for (const bool is_active : rows_of(task.targets, tokens)) labels.push_back(is_active ? 0 : kNoLabel);
  const auto count = static_cast<double>(std::count(labels.begin(), labels.end(), 0));
  const TokenMean mean = token_mean(task, labels);
  const std::vector<double> divisors = mean_divisors(mean, labels, offsets);
  SoftTruth out;
  out.gamma = MatrixXd::Zero(tokens, vocab);
  out.per_token_loss.assign(static_cast<size_t>(tokens), 0);
  out.metrics.tokens = static_cast<int64_t>(count);
  if (task.subtract_entropy) out.metrics.mean_target_entropy = out.metrics.mean_kl = 0;
  for (int64_t row = 0; row < tokens; ++row) {
    const auto r = static_cast<size_t>(row);
    if (labels[r] == kNoLabel) continue;
    const VectorXd log_p = log_probabilities(logits, row, {});
    double cross = 0, entropy = 0;
    for (int64_t v = 0; v < vocab; ++v) {
      if (q(row, v) > 0) cross -= q(row, v) * log_p[v];
      entropy -= x_log_x(q(row, v));
    }
    const double loss = task.subtract_entropy ? cross - entropy : cross;
    const double scale = task.loss_scale * mean.weights[r];
    out.per_token_loss[r] = scale * loss;
    out.loss += out.per_token_loss[r] / divisors[r];
    out.metrics.mean_cross_entropy += cross / count;
    if (task.subtract_entropy) {
      out.metrics.mean_target_entropy += entropy / count;
      out.metrics.mean_kl += (cross - entropy) / count;
    }
    out.gamma.row(row) = -scale / divisors[r] * q.row(row);
  }
  return out;
}

}  // namespace logitless::oracle

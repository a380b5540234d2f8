// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The float64 oracle of log-probabilities on sets of token ids, and of soft targets. The losses are Σ_i Σ_v
// γ_iv log p_iv, where a row's p sums to 1 over the vocabulary or over a set.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "logitless/id_sets.h"
#include "logitless/logits.h"
#include "logitless/soft_targets.h"
#include "oracle/oracle.h"

namespace logitless::oracle {

/// The token ids of each row, in the order of its entries; empty for ignored rows.
using RowIds = std::vector<std::vector<int64_t>>;
RowIds read_sets(const IdSets& sets, int64_t tokens, std::span<const uint8_t> mask = {});
/// Returns the index of a row's first entry.
int64_t first_entry(const IdSets& sets, int64_t tokens, int64_t row);

/// Returns x · w + b, or finished logits: [N, V].
MatrixXd read_products(const HiddenStates& hidden, const HeadMatrices& head);
MatrixXd read_products(const FinishedLogits& logits);

/// Products, and how they become final logits.
struct SetLogits {
  MatrixXd products;  ///< [N, V]
  double softcap = 0;
  const TokenOptions& options;
  bool over_set = false;  ///< p sums to 1 over the distinct ids of a row

  double temperature(int64_t row) const {
    return options.temperatures.empty() ? options.temperature : options.temperatures[static_cast<size_t>(row)];
  }
  bool scales_logits() const { return options.temperature_meaning == TemperatureMeaning::kScaleLogits; }
  double raw(int64_t row, int64_t v) const;
  double capped(int64_t row, int64_t v) const;
  /// dc/dr
  double slope(int64_t row, int64_t v) const;
};

/// Returns log p of a row, [V]; -inf for entries outside its set. Under kScaleLogp it is divided by the
/// temperature.
VectorXd log_probabilities(const SetLogits& logits, int64_t row, const std::vector<int64_t>& ids);
/// Returns d(Σ_v gamma_v log p_v)/dr of a row, [V].
VectorXd d_raw_logits(const SetLogits& logits, int64_t row, const std::vector<int64_t>& ids, const VectorXd& gamma);

/// Returns q of each row, [N, V]. Weights of the same id add up; ignored rows are 0.
MatrixXd read_soft_targets(const SoftTargets& targets, int64_t tokens, int64_t vocab);
/// Returns false for ignored rows.
std::vector<bool> rows_of(const SoftTargets& targets, int64_t tokens);

/// The loss of soft targets, and γ.
struct SoftTruth {
  double loss = 0;
  std::vector<double> per_token_loss;  ///< [N]
  SoftCrossEntropyMetrics metrics;
  MatrixXd gamma;  ///< [N, V]: dL/d log p of upstream · loss
};
/// `offsets`: the bounds of the sequences.
SoftTruth compute_soft_cross_entropy(const SetLogits& logits, std::span<const int64_t> offsets,
                                     const SoftCrossEntropy& task);

}  // namespace logitless::oracle

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The fp64 oracle of log-probabilities at sets of token ids, and of soft targets: losses
// Σ_i Σ_v γ_iv log p_iv, where a row's p sums to 1 over the vocabulary or over a set.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "logitless/id_sets.h"
#include "logitless/logits.h"
#include "logitless/soft_targets.h"
#include "oracle/oracle.h"

namespace logitless::oracle {

/// The token ids of each row, in the order of its entries; none for rows that take no part.
using RowIds = std::vector<std::vector<int64_t>>;
RowIds read_sets(const IdSets& sets, int64_t tokens, std::span<const uint8_t> mask = {});
/// Where the entries of a row begin.
int64_t first_entry(const IdSets& sets, int64_t tokens, int64_t row);

/// x · w + b, or finished logits: [N, V].
MatrixXd read_products(const HiddenStates& hidden, const HeadMatrices& head);
MatrixXd read_products(const FinishedLogits& logits);

/// How a product becomes a final logit.
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

/// log p of a row, [V]; -inf where an entry of the vocabulary is not in its set. It is divided by the
/// temperature under kScaleLogp.
VectorXd log_probabilities(const SetLogits& logits, int64_t row, const std::vector<int64_t>& ids);
/// d(Σ_v gamma_v log p_v)/dr of a row, [V].
VectorXd d_raw_logits(const SetLogits& logits, int64_t row, const std::vector<int64_t>& ids, const VectorXd& gamma);

/// q of each row, [N, V]: weights of one id add up. Rows that take no part are 0.
MatrixXd read_soft_targets(const SoftTargets& targets, int64_t tokens, int64_t vocab);
/// Which rows take part.
std::vector<bool> rows_of(const SoftTargets& targets, int64_t tokens);

/// The loss of soft targets, and γ.
struct SoftTruth {
  double loss = 0;
  std::vector<double> per_token_loss;  ///< [N]
  SoftCrossEntropyMetrics metrics;
  MatrixXd gamma;  ///< [N, V]: dL/d log p, of upstream · loss
};
SoftTruth compute_soft_cross_entropy(const SetLogits& logits, const SoftTargets& targets,
                                     const SoftCrossEntropy& options, std::span<const double> upstream = {});

}  // namespace logitless::oracle

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
/// @file
/// Cross-entropy of an LM head against a target distribution per token (soft targets, class probabilities, a
/// teacher's top-k), fused. docs/losses-distillation.md, "Soft targets", has the formulas and the names in
/// other projects.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "logitless/context.h"
#include "logitless/cross_entropy.h"
#include "logitless/id_sets.h"
#include "logitless/plan.h"
#include "logitless/tensor.h"
#include "logitless/token_stats.h"

namespace logitless {

/// The target distribution q_i of each row, in one of two forms:
///
///     sparse   weights[e] for entry e of `sets`; weights of one id add up, all other q_iv are 0
///     dense    rows[i, v]
///
/// Weights are probabilities, not logarithms, finite and at least 0; if not, the error names the row, the
/// entry and the value. They may have any sum Q_i. Rows under a false mask, rows whose set is empty, and
/// entries after a row's count are not read.
struct SoftTargets {
  IdSets sets;          ///< sparse: the ids
  ConstTensor weights;  ///< sparse: [E] or [N, K] like `sets`, of any float type; absent: the targets are dense
  /// Dense: [N, V]; float32, or float64 for float64 hidden states. Rows are contiguous.
  ConstTensor rows;
  std::span<const uint8_t> mask;  ///< [N], 0: the token is ignored; empty: all are active

  SoftTargets() = default;
  /// Sparse targets.
  SoftTargets(IdSets sets_, ConstTensor weights_) : sets(sets_), weights(weights_) {}
  /// Dense targets.
  explicit SoftTargets(ConstTensor rows_) : rows(rows_) {}
};

/// Metrics worth logging, without loss_scale. NaN: not requested.
struct SoftCrossEntropyMetrics {
  int64_t tokens = 0;             ///< active tokens
  double mean_cross_entropy = 0;  ///< mean of ce_i, in nats
  /// With subtract_entropy: mean of −Σ_v q_iv log q_iv, in nats.
  double mean_target_entropy = std::numeric_limits<double>::quiet_NaN();
  /// With subtract_entropy: mean of KL(q_i ‖ p_i), in nats.
  double mean_kl = std::numeric_limits<double>::quiet_NaN();
};

/// The loss, and per-token values.
struct SoftCrossEntropyResult {
  double loss = 0;  ///< reduced as the options say; under kNone the sum of per_token_loss
  /// [N], loss_scale · w_i · loss_i, before reduction; 0 for ignored rows.
  std::vector<double> per_token_loss;
  SoftCrossEntropyMetrics metrics;  ///< over the active tokens
  Plan plan;                        ///< what ran
};

/// The loss of token i, with log p as in token_stats.h:
///
///     ce_i = −Σ_v q_iv log p_iv
///     loss_i = ce_i + Σ_v q_iv log q_iv = KL(q_i ‖ p_i)      with subtract_entropy
///     kMean: loss = Σ w_i loss_i / divisor                   with token_weights w; else w_i = 1
///     dL/da_iv ∝ w_i (Q_i p_iv − q_iv)                       with and without subtract_entropy
///
/// where 0 log 0 = 0; mean_over or num_items_in_batch sets the divisor. The sums over i run over the active
/// tokens, whatever their Q_i. An empty mean is 0. KL is at least Q_i log Q_i, so never negative for Q_i = 1;
/// returned values respect that bound. Under kNone, run() computes the gradients of the sum of all losses.
struct LOGITLESS_API SoftCrossEntropy {
  using Result = SoftCrossEntropyResult;                      ///< result type of the verbs
  static constexpr const char* kName = "soft_cross_entropy";  ///< on every surface
  SoftTargets targets = {};                                   ///< the q_i
  /// As CrossEntropy::token_weights; the tokens whose targets are given are active.
  ConstTensor token_weights = {};
  /// How log-probabilities are taken. The targets say which rows are active and belong to the positions that
  /// predict them, so ignore_index and shift are not used. Under kScaleLogp every log p is divided.
  TokenOptions token = {};
  Reduction reduction = Reduction::kMean;  ///< how the per-token losses are reduced
  MeanOver mean_over = MeanOver::kTokens;  ///< what kMean divides by
  bool subtract_entropy = false;           ///< return KL(q ‖ p); the gradients are the same
  double loss_scale = 1.0;                 ///< multiplies loss and gradients; finite
  /// Divides the sum, in place of the number of tokens or of sequences, or the sum of weights, e.g. by the
  /// tokens of all micro-batches. Positive and finite; only with kMean.
  std::optional<double> num_items_in_batch = {};
};

}  // namespace logitless

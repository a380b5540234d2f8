// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
/// @file
/// The cross-entropy of an LM head against a distribution a token (soft targets, class probabilities, a
/// teacher's top-k), fused. Formulas, and what other projects call them, stand in docs/losses.md, section 5.
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
/// Weights are probabilities, not logarithms: they are finite and at least 0, or the error names the row, the
/// entry and the value. They may have any sum Q_i. What takes no part is not read: rows under a false mask,
/// rows whose set is empty, and entries behind a row's count.
struct SoftTargets {
  IdSets sets;          ///< sparse
  ConstTensor weights;  ///< [E] or [N, K], as `sets` has it, of any float type; none: the targets are dense
  /// [N, V] that the caller holds, dense; float32, or float64 for float64 hidden states (as the sums are).
  /// Its rows are contiguous.
  ConstTensor rows;
  std::span<const uint8_t> mask;  ///< [N], 0 = the token takes no part; empty: all do

  SoftTargets() = default;
  /// Takes sparse targets.
  SoftTargets(IdSets sets_, ConstTensor weights_) : sets(sets_), weights(weights_) {}
  /// Takes dense targets.
  explicit SoftTargets(ConstTensor rows_) : rows(rows_) {}
};

/// What is worth logging besides the loss, without loss_scale; NaN stands for what was not asked for.
struct SoftCrossEntropyMetrics {
  int64_t tokens = 0;             ///< tokens that took part
  double mean_cross_entropy = 0;  ///< mean of ce_i, in nats
  /// With subtract_entropy: mean of −Σ_v q_iv log q_iv, in nats.
  double mean_target_entropy = std::numeric_limits<double>::quiet_NaN();
  /// With subtract_entropy: mean of KL(q_i ‖ p_i), in nats.
  double mean_kl = std::numeric_limits<double>::quiet_NaN();
};

/// What a cross-entropy against distributions is.
struct SoftCrossEntropyResult {
  double loss = 0;  ///< reduced as the options say; under kNone the sum of per_token_loss
  /// [N]: each entry is loss_scale · loss_i, whatever the reduction; it is 0 where a row takes no part.
  std::vector<double> per_token_loss;
  SoftCrossEntropyMetrics metrics;  ///< over the tokens that take part
  Plan plan;                        ///< what ran
};

/// The loss of token i is as follows, where log p is that of token_stats.h:
///
///     ce_i = −Σ_v q_iv log p_iv
///     loss_i = ce_i + Σ_v q_iv log q_iv = KL(q_i ‖ p_i)      with subtract_entropy
///     kMean: loss = Σ loss_i / tokens, or Σ loss_i / num_items_in_batch
///     dL/da_iv ∝ Q_i p_iv − q_iv                             with and without subtract_entropy
///
/// where 0 log 0 = 0. The sums over i run over the tokens that take part, whatever their Q_i. A mean over
/// nothing is 0. KL is at least Q_i log Q_i, so never below 0 for Q_i = 1; no value below that bound is
/// returned. Under kNone, run() makes the gradients of the sum of all losses.
struct LOGITLESS_API SoftCrossEntropy {
  using Result = SoftCrossEntropyResult;                      ///< what its verbs return
  static constexpr const char* kName = "soft_cross_entropy";  ///< on every surface
  SoftTargets targets = {};                                   ///< the q_i
  /// How log-probabilities are taken. The targets say which rows take part and stand where they are
  /// predicted: ignore_index and shift have no use here. Under kScaleLogp every log p is divided.
  TokenOptions token = {};
  Reduction reduction = Reduction::kMean;  ///< how the tokens' losses become one
  bool subtract_entropy = false;           ///< the value is KL(q ‖ p); the gradients are the same
  double loss_scale = 1.0;                 ///< multiplies loss and gradients; finite
  /// The sum is divided by this, e.g. the tokens of all micro-batches. It is positive and finite, and goes
  /// with kMean only.
  std::optional<double> num_items_in_batch = {};
};

}  // namespace logitless

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
#include "logitless/tensors.h"
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
  ConstVector weights;  ///< [E] or [N, K], as `sets` has it, of any type; empty: the targets are dense
  /// [N, V] that the caller holds, dense; float32, or float64 for float64 hidden states (as the sums are).
  ConstMatrix rows;
  std::span<const uint8_t> mask;  ///< [N], 0 = the token takes no part; empty: all do

  SoftTargets() = default;
  /// Takes sparse targets.
  SoftTargets(IdSets sets_, ConstVector weights_) : sets(sets_), weights(weights_) {}
  /// Takes dense targets.
  explicit SoftTargets(ConstMatrix rows_) : rows(rows_) {}
};

/// The loss of token i is as follows, where log p is that of token_stats.h:
///
///     ce_i = −Σ_v q_iv log p_iv
///     loss_i = ce_i + Σ_v q_iv log q_iv = KL(q_i ‖ p_i)      with subtract_entropy
///     kMean: loss = Σ loss_i / tokens, or Σ loss_i / normaliser
///     dL/da_iv ∝ Q_i p_iv − q_iv                             with and without subtract_entropy
///
/// where 0 log 0 = 0. The sums over i run over the tokens that take part, whatever their Q_i. A mean over
/// nothing is 0. KL is at least Q_i log Q_i, so never below 0 for Q_i = 1; no value below that bound is
/// returned.
struct SoftCrossEntropyOptions {
  /// How log-probabilities are taken. The targets say which rows take part and stand where they are
  /// predicted: ignore_index and shift have no use here. Under kScaleLogp every log p is divided.
  TokenOptions token = {};
  Reduction reduction = Reduction::kMean;  ///< how the tokens' losses become one
  bool subtract_entropy = false;           ///< the value is KL(q ‖ p); the gradients are the same
  double loss_scale = 1.0;                 ///< multiplies loss and gradients; finite
  /// The sum is divided by this, e.g. num_items_in_batch under gradient accumulation. It is positive and
  /// finite, and goes with kMean only.
  std::optional<double> normaliser = {};
};

/// What is worth logging besides the loss, without loss_scale.
struct SoftCrossEntropyMetrics {
  int64_t tokens = 0;              ///< tokens that took part
  double mean_cross_entropy = 0;   ///< mean of ce_i, in nats
  double mean_target_entropy = 0;  ///< mean of −Σ_v q_iv log q_iv, in nats
  double mean_kl = 0;              ///< mean of KL(q_i ‖ p_i), in nats
};

/// What soft_cross_entropy() returns.
struct SoftCrossEntropyResult {
  double loss = 0;  ///< reduced as the options say; under kNone the sum of per_token_loss
  /// [N]: each entry is loss_scale · loss_i, whatever the reduction; it is 0 where a row takes no part.
  std::vector<double> per_token_loss;
  SoftCrossEntropyMetrics metrics;  ///< over the tokens that take part
  Plan plan;                        ///< what ran
};

/// What a forward leaves for its backward: a few numbers a token, and one an entry of sparse targets.
struct SoftCrossEntropyForward {
  SoftCrossEntropyResult result;  ///< as soft_cross_entropy() returns it
  TokenStats stats;               ///< of all tokens
};

/// Computes the loss, and those gradients that `gradients` asks for (none: forward only), in one call. Under
/// kNone the gradients are those of the sum of all losses. Throws InvalidInput before anything is written.
LOGITLESS_API SoftCrossEntropyResult soft_cross_entropy(const Context& context, const HiddenStates& hidden,
                                                        const LmHead& head, const SoftTargets& targets,
                                                        const SoftCrossEntropyOptions& options = {},
                                                        const Gradients& gradients = {});

/// Does the same in two steps, for an autograd. The spans and tensors must be the same in both.
LOGITLESS_API SoftCrossEntropyForward soft_cross_entropy_forward(const Context& context, const HiddenStates& hidden,
                                                                 const LmHead& head, const SoftTargets& targets,
                                                                 const SoftCrossEntropyOptions& options = {});

/// Here `upstream` is ∂L/∂loss: one value, or under kNone one value a token ([N]; entries of rows that take no
/// part are not read). It must be finite. Returns the plan that ran.
LOGITLESS_API Plan soft_cross_entropy_backward(const Context& context, const HiddenStates& hidden, const LmHead& head,
                                               const SoftTargets& targets, const SoftCrossEntropyOptions& options,
                                               const SoftCrossEntropyForward& forward, std::span<const double> upstream,
                                               const Gradients& gradients);
/// Does the same for one value; under kNone it is that of every token.
LOGITLESS_API Plan soft_cross_entropy_backward(const Context& context, const HiddenStates& hidden, const LmHead& head,
                                               const SoftTargets& targets, const SoftCrossEntropyOptions& options,
                                               const SoftCrossEntropyForward& forward, double upstream,
                                               const Gradients& gradients);

/// Returns the plan that soft_cross_entropy() would run. It reads targets and writes nothing.
LOGITLESS_API Plan plan_soft_cross_entropy(const Context& context, const HiddenStates& hidden, const LmHead& head,
                                           const SoftTargets& targets, const SoftCrossEntropyOptions& options = {},
                                           const Gradients& gradients = {});

}  // namespace logitless

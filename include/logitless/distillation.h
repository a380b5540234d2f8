// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
/// @file
/// Distillation from a teacher's full distribution: two models over one vocabulary, fused. A call stores no
/// more of the two heads' logits than fit in its workspace, and the teacher gets no gradients.
/// docs/losses-distillation.md has the formulas.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "logitless/context.h"
#include "logitless/cross_entropy.h"
#include "logitless/divergence.h"
#include "logitless/logits.h"
#include "logitless/names.h"
#include "logitless/plan.h"
#include "logitless/tensor.h"
#include "logitless/token_stats.h"

namespace logitless {

/// Means over the active tokens. NaN: not requested.
struct DistillationMetrics {
  int64_t tokens = 0;          ///< active tokens
  double mean_divergence = 0;  ///< without weight, T² and loss_scale
  /// Mean of Σ_v min(s_v, t_v), the share of tokens that speculative decoding accepts.
  double mean_acceptance = 0;
  double mean_nll = std::numeric_limits<double>::quiet_NaN();              ///< of the hard targets, with hard_weight
  double agreement = std::numeric_limits<double>::quiet_NaN();             ///< share of tokens with the same argmax
  double mean_entropy = std::numeric_limits<double>::quiet_NaN();          ///< of the student, in nats
  double mean_teacher_entropy = std::numeric_limits<double>::quiet_NaN();  ///< of the teacher, in nats
};

/// The loss, and per-token values. Vectors are [N] and hold 0 for ignored rows.
struct DistillationResult {
  double loss = 0;                                ///< reduced as the options say; under kNone the sum of per_token_loss
  std::vector<double> per_token_loss;             ///< loss_scale · w_i · loss_i, before reduction
  std::vector<double> per_token_divergence;       ///< without weight, T² and loss_scale
  std::vector<double> per_token_acceptance;       ///< Σ_v min(s_v, t_v)
  std::vector<double> per_token_logps;            ///< log softmax(c / hard_temperature) of the target; with hard_weight
  std::vector<double> per_token_agreement;        ///< 1 if both have the same argmax, else 0; with want_agreement
  std::vector<double> per_token_entropy;          ///< of the student, with want_entropy
  std::vector<double> per_token_teacher_entropy;  ///< with want_entropy
  DistillationMetrics metrics;                    ///< over the active tokens
  Plan plan;                                      ///< what ran
};

/// The loss of token i with target y, student s and teacher t, each at its own temperature, is
///
///     loss_i = divergence_weight · (T_i², if temperature_squared) · divergence(s_i, t_i)
///              + hard_weight · (−log softmax(c_i / hard_temperature)_y)
///
/// where c are the student's capped logits and T_i is the student's temperature. token_weights multiply the
/// loss_i. `reduction` says whether their mean, their sum or each of them is returned; loss_scale multiplies
/// loss and gradients. Only the student has gradients.
///
/// Student and teacher must have the same vocabulary size; if not, the InvalidInput names both. A first pass
/// over the logits computes the statistics of both heads, a second one the divergence: plan one pass stores
/// the logits of both in between, other plans recompute them. If the student's logits are finished, so must
/// be the teacher's.
struct LOGITLESS_API Distillation {
  using Result = DistillationResult;                         ///< result type of the verbs
  static constexpr const char* kName = "distillation_loss";  ///< on every surface
  /// The second model, over the same vocabulary; it is only read. It has either hidden states and a head,
  /// whose width, types, bias and softcap are its own, or finished logits. Row i of the teacher belongs to
  /// row i of the student; the layout in sequences may differ. Finished logits may have another type, but
  /// float64 does not mix with the other types. With a vocabulary cut among ranks, these are the columns of
  /// the rank's slice. The student's own head may be passed here too; it is not copied, but its product
  /// with the teacher's hidden states is a product of its own.
  Logits teacher = {};
  /// [N] or [B, T], int32 or int64: which rows are active, and the labels of the hard cross-entropy. Absent:
  /// all rows are active.
  ConstTensor targets = {};
  /// As CrossEntropy::token_weights.
  ConstTensor token_weights = {};
  Divergence loss_type = Divergence::kForwardKl;  ///< between student and teacher
  /// Which rows are active, and the student's temperature, which scales logits here.
  TokenOptions token = {};
  /// The teacher's temperature; unset: the student's, token by token.
  std::optional<double> teacher_temperature = {};
  /// Rounds the teacher's raw logits to this type, as TokenOptions::round_logits_to does for the student.
  std::optional<DType> teacher_round_logits_to = {};
  double beta = 0.5;                 ///< β of jsd in [0, 1]; 0 and 1 are exactly the two KL divergences
  double skew = 0.1;                 ///< λ of skew_kl and skew_reverse_kl in [0, 1]: the weight of the first argument
  double forward_weight = 0.5;       ///< w of mixed_kl in [0, 1]: the weight of the forward KL
  double acceptance_decay = 3;       ///< η of lk_hybrid, >= 0
  double divergence_weight = 1;      ///< weight of the divergence, >= 0
  bool temperature_squared = false;  ///< multiply the divergence by the student's temperature squared
  double hard_weight = 0;            ///< weight of the cross-entropy against the targets, >= 0; needs targets
  double hard_temperature = 1;       ///< temperature of the hard cross-entropy, positive
  Reduction reduction = Reduction::kMean;  ///< how the per-token losses are reduced
  MeanOver mean_over = MeanOver::kTokens;  ///< what kMean averages over
  /// Replaces the number of tokens or of sequences, or the sum of weights, that the mean divides by, e.g. to
  /// add up the losses of micro-batches. Positive; only with kMean.
  std::optional<double> num_items_in_batch = {};
  double loss_scale = 1.0;      ///< finite
  bool want_entropy = false;    ///< fill the entropies of student and teacher
  bool want_agreement = false;  ///< fill metrics.agreement and per_token_agreement
};

}  // namespace logitless

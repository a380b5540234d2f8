// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
/// @file
/// Distillation from the whole distribution of a teacher: two models over one vocabulary, fused. Logits of a
/// head, the student's or the teacher's, are never in memory, and the teacher has no gradients;
/// logits.h has a student of finished ones. docs/losses.md, "Distillation", has the formulas.
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

/// What a mean is over.
enum class MeanOver {
  kTokens,         ///< Σ_i loss_i / tokens that take part
  kSequences,      ///< Σ_i loss_i / sequences, those without a token included ("batchmean")
  kSequenceMeans,  ///< the mean over sequences of the mean over their tokens
};

/// The names of means.
template <>
inline constexpr std::array kNamesOf<MeanOver> = {"tokens", "sequences", "sequence_means"};

/// Means over the tokens that take part; NaN stands for what was not asked for.
struct DistillationMetrics {
  int64_t tokens = 0;          ///< tokens that took part
  double mean_divergence = 0;  ///< without weight, T² and loss_scale
  /// Of Σ_v min(s_v, t_v), the share of tokens that speculative decoding accepts.
  double mean_acceptance = 0;
  double mean_nll = std::numeric_limits<double>::quiet_NaN();              ///< of the hard targets, with hard_weight
  double agreement = std::numeric_limits<double>::quiet_NaN();             ///< share of tokens with the same argmax
  double mean_entropy = std::numeric_limits<double>::quiet_NaN();          ///< of the student, in nats
  double mean_teacher_entropy = std::numeric_limits<double>::quiet_NaN();  ///< of the teacher, in nats
};

/// What a distillation is, and what is known of its tokens. Vectors are [N] and hold 0 where a row takes no
/// part.
struct DistillationResult {
  double loss = 0;                                ///< reduced as the options say; under kNone the sum of per_token_loss
  std::vector<double> per_token_loss;             ///< loss_scale · loss_i, whatever the reduction
  std::vector<double> per_token_divergence;       ///< without weight, T² and loss_scale
  std::vector<double> per_token_acceptance;       ///< Σ_v min(s_v, t_v)
  std::vector<double> per_token_logps;            ///< log softmax(c / hard_temperature) of the target; with hard_weight
  std::vector<double> per_token_agreement;        ///< 1 where both have the same argmax, with want_agreement
  std::vector<double> per_token_entropy;          ///< of the student, with want_entropy
  std::vector<double> per_token_teacher_entropy;  ///< with want_entropy
  DistillationMetrics metrics;                    ///< over the tokens that take part
  Plan plan;                                      ///< what ran
};

/// The loss of token i with target y, a student s and a teacher t, each at its own temperature, is
///
///     loss_i = divergence_weight · (T_i², if temperature_squared) · divergence(s_i, t_i)
///              + hard_weight · (−log softmax(c_i / hard_temperature)_y)
///
/// where c are the student's capped logits and T_i is the student's temperature. The loss is their mean or
/// their sum; loss_scale multiplies loss and gradients. Gradients are the student's.
///
/// A vocabulary of another size than the student's is an InvalidInput that names both. Statistics of both
/// heads are folded in one walk over the logits, the divergence in a second one: one pass has kept the logits
/// of both, other plans compute them again. Beside finished logits the teacher's are finished too.
struct LOGITLESS_API Distillation {
  using Result = DistillationResult;                         ///< what its verbs return
  static constexpr const char* kName = "distillation_loss";  ///< on every surface
  /// A second model over the same vocabulary, which is read and never differentiated: hidden states and a
  /// head, whose width, types, bias and softcap are its own, or logits that the caller holds. Its row i
  /// stands beside row i of the student; sequences may differ, and finished logits may have another type, but
  /// float64 mixes with no other. Where ranks cut the vocabulary these are the columns of the rank's slice. A
  /// head that the student has too is read where it stands, and its product with the teacher's states is one
  /// more product.
  Logits teacher = {};
  /// [N] or [B, T], int32 or int64: they say which rows take part, and what the hard cross-entropy is
  /// against; with none all rows take part.
  ConstTensor targets = {};
  Divergence loss_type = Divergence::kForwardKl;  ///< between student and teacher
  /// Which rows take part, and the student's temperature. A temperature scales logits here.
  TokenOptions token = {};
  /// The teacher's temperature; unset, it is that of the student, token by token.
  std::optional<double> teacher_temperature = {};
  /// Raw logits of the teacher are rounded to this type, as TokenOptions::round_logits_to says.
  std::optional<DType> teacher_round_logits_to = {};
  double beta = 0.5;                 ///< β of jsd in [0, 1]; its two ends are the two KL, exactly
  double skew = 0.1;                 ///< λ of skew_kl and skew_reverse_kl in [0, 1]: the weight of the first argument
  double forward_weight = 0.5;       ///< w of mixed_kl in [0, 1]: the weight of the forward KL
  double acceptance_decay = 3;       ///< η of lk_hybrid, >= 0
  double divergence_weight = 1;      ///< of the divergence, >= 0
  bool temperature_squared = false;  ///< the divergence is multiplied with the student's temperature squared
  double hard_weight = 0;            ///< of the cross-entropy against the targets, >= 0; it needs targets
  double hard_temperature = 1;       ///< of the cross-entropy, positive
  Reduction reduction = Reduction::kMean;  ///< how the tokens' losses become one
  MeanOver mean_over = MeanOver::kTokens;  ///< of kMean
  /// Takes the place of the number of tokens or of sequences that the mean divides by, e.g. to add up the
  /// losses of micro-batches. It is positive and goes with kMean only.
  std::optional<double> num_items_in_batch = {};
  double loss_scale = 1.0;      ///< finite
  bool want_entropy = false;    ///< fill the entropies of student and teacher
  bool want_agreement = false;  ///< fill what says whether student and teacher have the same most likely token
};

}  // namespace logitless

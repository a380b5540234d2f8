// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
/// @file
/// Distillation from a teacher's log-probabilities at a set of token ids per row, such as its top-k. The
/// treatment of the probability outside the set makes five different losses, all called "top-k KL" by other
/// projects: docs/losses-distillation.md has the formulas, and which project computes which.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "logitless/context.h"
#include "logitless/distillation.h"
#include "logitless/divergence.h"
#include "logitless/id_sets.h"
#include "logitless/names.h"
#include "logitless/plan.h"
#include "logitless/tensor.h"
#include "logitless/token_stats.h"

namespace logitless {

/// How the probability outside a row's set K is treated. The student has s over the whole vocabulary, the
/// teacher's t is given in K; S and T are their sums over K.
enum class OutsideSet {
  /// One more cell: the student's mass outside, from a log-sum-exp of its own, and the teacher's 1 − T.
  kTail,
  kTruncated,            ///< the outside is dropped: sum over K of whole-vocabulary s and t
  kRenormalised,         ///< s / S and t / T in K: no pass over the vocabulary
  kTeacherRenormalised,  ///< t / T in K against whole-vocabulary s
  /// Generalised KL of the masses in K, which need not sum to 1: Σ t log(t / s) − t + s.
  kGeneralised,
};

/// The names of OutsideSet.
template <>
inline constexpr std::array kNamesOf<OutsideSet> = {"tail", "truncated", "renormalised", "teacher_renormalised",
                                                    "generalised"};

/// A teacher's log-probabilities at the token ids of each row.
struct SetTeacher {
  /// A row may list an id only once. A row without ids is ignored.
  IdSets sets = {};
  /// log t, [E] or [N, K] like `sets`, of any float type; never above 0, -inf for probability 0. The
  /// student's temperature does not change them: compute them at the temperature that the loss should have.
  ConstTensor logps = {};
  /// log(1 − T) of each row, [N], optional and only with kTail. It replaces 1 − T computed from `logps`,
  /// which loses digits if T is nearly 1.
  ConstTensor outside_logps = {};
};

/// Means over the active tokens. NaN: not computed.
struct SetDistillationMetrics {
  int64_t tokens = 0;                                                   ///< active tokens
  double mean_divergence = 0;                                           ///< without weight, T² and loss_scale
  double mean_teacher_mass = 0;                                         ///< mean of T
  double mean_student_mass = std::numeric_limits<double>::quiet_NaN();  ///< mean of S; not under kRenormalised
  double mean_nll = std::numeric_limits<double>::quiet_NaN();           ///< of the targets, with hard_weight
};

/// The loss, and per-token values. Vectors are [N] and hold 0 for ignored rows.
struct SetDistillationResult {
  double loss = 0;                           ///< reduced as the options say; under kNone the sum of per_token_loss
  std::vector<double> per_token_loss;        ///< loss_scale · w_i · loss_i, before reduction
  std::vector<double> per_token_divergence;  ///< without weight, T² and loss_scale
  SetDistillationMetrics metrics;            ///< over the active tokens
  Plan plan;                                 ///< what ran
};

/// The loss of token i, with a divergence of divergence.h over K, or over K and the tail, is
///
///     loss_i = divergence_weight · (T_i², if temperature_squared) · divergence(s_i, t_i)
///              + hard_weight · (−log s_iy)
///
/// weighted and reduced as in Distillation. kAcceptance and kLkHybrid are not defined over K and are refused.
///
/// Throws InvalidInput for an id outside the vocabulary or repeated in its row, a log-probability that is
/// above 0 or NaN, probabilities of a row that sum to more than 1, and a reverse KL with a tail if the
/// teacher has no mass outside and tail_floor is 0.
struct LOGITLESS_API SetDistillation {
  using Result = SetDistillationResult;                          ///< result type of the verbs
  static constexpr const char* kName = "set_distillation_loss";  ///< on every surface
  SetTeacher teacher = {};                                       ///< at the ids of each row
  /// [N] or [B, T], optional: which rows are active, in addition to the sets, and the labels of the hard
  /// cross-entropy.
  ConstTensor targets = {};
  /// As Distillation::token_weights.
  ConstTensor token_weights = {};
  Divergence loss_type = Divergence::kForwardKl;  ///< between student and teacher
  OutsideSet outside = OutsideSet::kTail;         ///< how the probability outside the set is treated
  /// The student's temperature, which scales logits; with targets, also which rows are active.
  TokenOptions token = {};
  double beta = 0.5;                 ///< β of jsd in [0, 1]; 0 and 1 are exactly the two KL divergences
  double skew = 0.1;                 ///< λ of skew_kl and skew_reverse_kl in [0, 1]: the weight of the first argument
  double forward_weight = 0.5;       ///< w of mixed_kl in [0, 1]: the weight of the forward KL
  double divergence_weight = 1;      ///< weight of the divergence, >= 0
  bool temperature_squared = false;  ///< multiply the divergence by the student's temperature squared
  /// The weight of the cross-entropy against the targets, >= 0. It shares the student's softmax, so it needs
  /// targets, a temperature of 1, and an `outside` other than kRenormalised. A target need not be in its
  /// row's set.
  double hard_weight = 0;
  Reduction reduction = Reduction::kMean;  ///< how the per-token losses are reduced
  MeanOver mean_over = MeanOver::kTokens;  ///< what kMean averages over
  /// Replaces the number of tokens or of sequences, or the sum of weights, that the mean divides by.
  /// Positive; only with kMean.
  std::optional<double> num_items_in_batch = {};
  double loss_scale = 1.0;  ///< finite
  /// kTail: lower bound of the teacher's mass outside the set, in [0, 1). With 0, a row whose
  /// probabilities round to a sum of 1 has no tail, and a reverse KL is refused because it would be infinite.
  double tail_floor = 0;
};

}  // namespace logitless

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
/// @file
/// Distillation from a teacher's log-probabilities at a set of token ids a row, such as its top-k. What
/// becomes of the probability outside of the set makes five different losses, which other projects all call
/// "top-k KL": docs/losses.md, section 7, has the formulas, and who computes which.
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

/// What becomes of the probability outside of a row's set K. The student has s over the whole vocabulary, the
/// teacher has given t in K; S and T are their sums over K.
enum class OutsideSet {
  /// One more cell, with the student's mass outside, a log-sum-exp of its own, and the teacher's 1 − T.
  kTail,
  kTruncated,            ///< what is outside is left out: the sum over K of whole-vocabulary s and t
  kRenormalised,         ///< s / S and t / T in K: no walk over the vocabulary
  kTeacherRenormalised,  ///< t / T in K against whole-vocabulary s
  /// Generalised KL of the masses in K, which need not sum to 1: Σ t log(t / s) − t + s.
  kGeneralised,
};

/// The names of what becomes of it.
template <>
inline constexpr std::array kNamesOf<OutsideSet> = {"tail", "truncated", "renormalised", "teacher_renormalised",
                                                    "generalised"};

/// A teacher's log-probabilities at the token ids of each row.
struct SetTeacher {
  /// Each row has an id at most once. A row without ids takes no part.
  IdSets sets;
  /// log t, [E] or [N, K] as `sets` has it, of any float type: never above 0, and -inf for a probability of
  /// 0. The student's temperature does not change them: take them at the temperature that the loss is to
  /// have.
  ConstTensor logps;
  /// log(1 − T) of each row, [N], which is then not taken from `logps`; it goes with kTail only. It keeps the
  /// digits that 1 − T does not have where T is nearly 1.
  ConstTensor outside_logps;
};

/// Means over the tokens that take part; NaN stands for what was not computed.
struct SetDistillationMetrics {
  int64_t tokens = 0;                                                   ///< tokens that took part
  double mean_divergence = 0;                                           ///< without weight, T² and loss_scale
  double mean_teacher_mass = 0;                                         ///< of T
  double mean_student_mass = std::numeric_limits<double>::quiet_NaN();  ///< of S; not under kRenormalised
  double mean_nll = std::numeric_limits<double>::quiet_NaN();           ///< of the targets, with hard_weight
};

/// What a distillation at sets of ids is. Vectors are [N] and hold 0 where a row takes no part.
struct SetDistillationResult {
  double loss = 0;                           ///< reduced as the options say; under kNone the sum of per_token_loss
  std::vector<double> per_token_loss;        ///< loss_scale · loss_i, whatever the reduction
  std::vector<double> per_token_divergence;  ///< without weight, T² and loss_scale
  SetDistillationMetrics metrics;            ///< over the tokens that take part
  Plan plan;                                 ///< what ran
};

/// The loss of token i, where the divergence is one of divergence.h over K or over K and the tail, is
///
///     loss_i = divergence_weight · (T_i², if temperature_squared) · divergence(s_i, t_i)
///              + hard_weight · (−log s_iy)
///
/// reduced as Distillation says. kAcceptance and kLkHybrid are not of sums over K, and are refused.
///
/// The call throws InvalidInput for an id outside of the vocabulary or twice in its row, a log-probability
/// above 0 or NaN, probabilities of a row that sum to more than 1, and a reverse KL with a tail where the
/// teacher has no mass outside and tail_floor is 0.
struct LOGITLESS_API SetDistillation {
  using Result = SetDistillationResult;                          ///< what its verbs return
  static constexpr const char* kName = "set_distillation_loss";  ///< on every surface
  SetTeacher teacher = {};                                       ///< at the ids of each row
  /// [N] or [B, T], or none: they say which rows take part besides the sets, and what the hard cross-entropy
  /// is against.
  ConstTensor targets = {};
  Divergence loss_type = Divergence::kForwardKl;  ///< between student and teacher
  OutsideSet outside = OutsideSet::kTail;         ///< see there
  /// The student's temperature, which scales logits. With targets, it says which rows take part.
  TokenOptions token = {};
  double beta = 0.5;                 ///< β of jsd in [0, 1]; its two ends are the two KL, exactly
  double skew = 0.1;                 ///< λ of skew_kl and skew_reverse_kl in [0, 1]: the weight of the first argument
  double forward_weight = 0.5;       ///< w of mixed_kl in [0, 1]: the weight of the forward KL
  double divergence_weight = 1;      ///< of the divergence, >= 0
  bool temperature_squared = false;  ///< the divergence is multiplied with the student's temperature squared
  /// Of the cross-entropy against the targets, >= 0. It shares the student's softmax: it needs targets, a
  /// temperature of 1, and another `outside` than kRenormalised. A target need not be in its row's set.
  double hard_weight = 0;
  Reduction reduction = Reduction::kMean;  ///< how the tokens' losses become one
  MeanOver mean_over = MeanOver::kTokens;  ///< of kMean
  /// Takes the place of the number of tokens or of sequences that the mean divides by. It is positive and
  /// goes with kMean only.
  std::optional<double> num_items_in_batch = {};
  double loss_scale = 1.0;  ///< finite
  /// kTail: the teacher's mass outside of the set is at least this, in [0, 1). With 0, probabilities that
  /// round to a sum of 1 leave no tail, and a reverse KL, which is infinite then, is refused.
  double tail_floor = 0;
};

}  // namespace logitless

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
/// @file
/// How far two distributions over one vocabulary are apart: a student's, s = softmax(a), and a teacher's,
/// t = softmax(b), of final logits a and b. Sums run over the vocabulary; docs/losses.md, "Distillation",
/// has the gradients, and what these names mean elsewhere.
#pragma once

#include <cstdint>
#include <optional>

#include "logitless/names.h"
#include "logitless/tensors.h"

namespace logitless {

/// What is computed of a student and a teacher.
enum class Divergence {
  kForwardKl,  ///< KL(t ‖ s) = Σ t (log t − log s)
  kReverseKl,  ///< KL(s ‖ t) = Σ s (log s − log t)
  kJsd,  ///< β KL(t ‖ m) + (1 − β) KL(s ‖ m), m = β t + (1 − β) s; β = 0: KL(t ‖ s), β = 1: KL(s ‖ t)
  kSkewKl,          ///< KL(t ‖ λ t + (1 − λ) s): λ weighs the first argument
  kSkewReverseKl,   ///< KL(s ‖ λ s + (1 − λ) t): λ weighs the first argument
  kTotalVariation,  ///< ½ Σ |s − t|
  kMixedKl,         ///< w KL(t ‖ s) + (1 − w) KL(s ‖ t)
  kAcceptance,      ///< −log Σ min(s, t): that of the share of a draft's tokens which speculative decoding accepts
  kLkHybrid,        ///< κ KL(t ‖ s) + (1 − κ) ½ Σ |s − t|, κ = exp(−η Σ min(s, t)) without gradient
};

/// The names of divergences.
template <>
inline constexpr std::array kNamesOf<Divergence> = {"forward_kl", "reverse_kl",      "jsd",
                                                    "skew_kl",    "skew_reverse_kl", "total_variation",
                                                    "mixed_kl",   "acceptance",      "lk_hybrid"};

/// A second model over the same vocabulary, which is read and never differentiated: hidden states and a head,
/// whose width, types, layout, bias and softcap are its own, or logits that the caller holds. A head that the
/// student has too is read where it stands, and its product with the teacher's states is one more product.
struct Teacher {
  HiddenStates hidden;  ///< [N, H of the teacher]: row i stands beside row i of the student; sequences may differ
  LmHead head;          ///< as many vocabulary entries as the student's
  /// Raw logits of the teacher are rounded to this type, as TokenOptions::round_logits_to says.
  std::optional<DType> round_logits_to = {};
  /// In place of hidden and head: final raw logits, whose rows in order are those of the student. Their type
  /// may be another than the student's, but float64 mixes with no other. Where ranks cut the vocabulary they
  /// are the columns of the rank's slice.
  FinishedLogits logits = {};

  Teacher() = default;
  /// Takes a teacher of states and a head.
  Teacher(HiddenStates hidden_, LmHead head_, std::optional<DType> round_logits_to_ = {})
      : hidden(hidden_), head(head_), round_logits_to(round_logits_to_) {}
  /// Takes a teacher of finished logits.
  Teacher(FinishedLogits logits_) : logits(logits_) {}

  /// Tells whether it has logits in place of hidden and head.
  bool has_logits() const { return logits.data || logits.batch != 0 || logits.time != 0 || logits.vocab != 0; }
};

}  // namespace logitless

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
/// @file
/// Divergences between two distributions over one vocabulary: a student's s = softmax(a) and a teacher's t =
/// softmax(b), with final logits a and b. Sums run over the vocabulary. docs/losses-distillation.md has
/// the gradients, and what other projects call these.
#pragma once

#include <cstdint>
#include <optional>

#include "logitless/names.h"

namespace logitless {

/// The divergence between student and teacher.
enum class Divergence {
  kForwardKl,  ///< KL(t ‖ s) = Σ t (log t − log s)
  kReverseKl,  ///< KL(s ‖ t) = Σ s (log s − log t)
  kJsd,  ///< β KL(t ‖ m) + (1 − β) KL(s ‖ m), m = β t + (1 − β) s; β = 0: KL(t ‖ s), β = 1: KL(s ‖ t)
  kSkewKl,          ///< KL(t ‖ λ t + (1 − λ) s): λ weighs the first argument
  kSkewReverseKl,   ///< KL(s ‖ λ s + (1 − λ) t): λ weighs the first argument
  kTotalVariation,  ///< ½ Σ |s − t|
  kMixedKl,         ///< w KL(t ‖ s) + (1 − w) KL(s ‖ t)
  kAcceptance,      ///< −log Σ min(s, t), where Σ min(s, t) is the acceptance rate of speculative decoding
  kLkHybrid,        ///< κ KL(t ‖ s) + (1 − κ) ½ Σ |s − t|, κ = exp(−η Σ min(s, t)) without gradient
};

/// The names of Divergence.
template <>
inline constexpr std::array kNamesOf<Divergence> = {"forward_kl", "reverse_kl",      "jsd",
                                                    "skew_kl",    "skew_reverse_kl", "total_variation",
                                                    "mixed_kl",   "acceptance",      "lk_hybrid"};

}  // namespace logitless

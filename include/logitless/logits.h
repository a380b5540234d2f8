// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
/// @file
/// What a task is of: logits that are the product of hidden states and a head, or finished ones.
#pragma once

#include "logitless/tensors.h"

namespace logitless {

/// The final raw logits of N tokens. Those of hidden states and a head are never in memory (but under plan
/// kDense). Finished ones the caller holds, [B, T, V]; row b * T + t is token i of targets and of all
/// results. They have no head: Gradients::d_logits is their only gradient, and they are not cut among ranks
/// of a vocabulary.
struct Logits {
  HiddenStates hidden = {};      ///< [N, H]
  LmHead head = {};              ///< of them
  FinishedLogits finished = {};  ///< in place of the two
  bool is_given = false;         ///< whether it is `finished` that counts

  /// Makes those of hidden states and a head.
  static Logits of(const HiddenStates& hidden, const LmHead& head) { return {hidden, head, {}, false}; }
  /// Takes finished ones.
  static Logits given(const FinishedLogits& logits) { return {{}, {}, logits, true}; }
};

}  // namespace logitless

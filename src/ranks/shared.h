// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "core/matrices.h"
#include "logitless/ranks.h"
#include "ranks/cut.h"
#include "ranks/meeting.h"
#include "ranks/totals.h"

namespace logitless::ranks {

/// What a call shares with other ranks. The default shares nothing: the rank has the whole vocabulary and
/// batch.
struct Shared {
  std::optional<Cut> cut;         // of the vocabulary; empty: not divided
  Group* weight_ranks = nullptr;  // gradients of the head are summed over these ranks; null: not summed
  Totals totals;                  // sums over the whole batch

  /// Returns whether some gradient is requested: on this rank (`here`) or on a rank that shares the
  /// vocabulary.
  bool wants_gradients(bool here) const { return here || (cut && cut->wants_gradients); }
};

/// Returns what a call on finished logits shares.
Shared share(Meeting& meeting);
/// Returns what a call on hidden states shares, after all ranks have exchanged how the vocabulary is divided.
/// Throws InvalidInput if the ranks' slices are invalid.
Shared share(Meeting& meeting, const Ranks& ranks, const Heads& heads, const GradientMatrices& outputs);

}  // namespace logitless::ranks

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "core/matrices.h"
#include "logitless/ranks.h"
#include "ranks/cut.h"
#include "ranks/meeting.h"
#include "ranks/totals.h"

namespace logitless::ranks {

/// What a call shares with other ranks. One that shares nothing has the vocabulary and the batch to itself.
struct Shared {
  std::optional<Cut> cut;         // of the whole vocabulary
  Group* weight_ranks = nullptr;  // gradients of the head are summed over them; null: they are not
  Totals totals;                  // over the whole batch

  /// Tells whether some gradient is wanted: `here`, or on a rank that shares the vocabulary.
  bool wants_gradients(bool here) const { return here || (cut && cut->wants_gradients); }
};

/// Returns what a call on finished logits shares.
Shared share(Meeting& meeting);
/// Returns what a call on hidden states shares, once all ranks have agreed on how the vocabulary is cut.
/// Throws InvalidInput where the ranks' slices are wrong.
Shared share(Meeting& meeting, const Ranks& ranks, const Heads& heads, const GradientMatrices& outputs);

}  // namespace logitless::ranks

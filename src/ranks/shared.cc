// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "ranks/shared.h"

namespace logitless::ranks {

Shared share(Meeting& meeting) {
  Shared shared;
  shared.totals = Totals(&meeting.data);
  return shared;
}

Shared share(Meeting& meeting, const Ranks& ranks, const Heads& heads, const GradientMatrices& outputs) {
  Shared shared = share(meeting);
  if (ranks.data && ranks.sum_d_weight) shared.weight_ranks = &meeting.data;
  if (!ranks.cuts_vocab()) return shared;
  const HeadTypes types = head_types(heads, outputs);
  shared.cut = ranks.slice ? cut_of_slice(meeting.vocab, ranks, types) : agree_on_cut(meeting.vocab, ranks, types);
  return shared;
}

}  // namespace logitless::ranks

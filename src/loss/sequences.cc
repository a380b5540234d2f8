// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "loss/sequences.h"

#include <utility>

#include "core/checks.h"
#include "core/store.h"
#include "loss/batch.h"

namespace logitless::loss {

void SequenceTokens::drop(int64_t s) {
  for (size_t i = 0; i < targets.size(); ++i) {
    if (sequence[i] == s) targets[i] = kNoTarget;
  }
  counts[static_cast<size_t>(s)] = 0;
}

SequenceTokens read_sequences(std::span<const int64_t> offsets, core::Array<int64_t> ids) {
  SequenceTokens out;
  out.targets = std::move(ids);
  out.sequence = sequence_of_rows(offsets);
  out.counts.assign(offsets.size() - 1, 0);
  for (size_t i = 0; i < out.targets.size(); ++i) {
    if (out.targets[i] != kNoTarget) ++out.counts[static_cast<size_t>(out.sequence[i])];
  }
  return out;
}

}  // namespace logitless::loss

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "core/matrices.h"
#include "core/store.h"
#include "ranks/meeting.h"

namespace logitless::ranks {

/// The heads of a call. `teacher` is null without a teacher, or if it has finished logits.
struct Heads {
  const HeadMatrices& head;
  const HeadMatrices* teacher = nullptr;
};

/// The properties of a rank's head and gradients that planning depends on. Enumerations are integers; -1:
/// absent.
struct HeadTypes {
  int64_t entries = 0;  // on this rank
  struct Of {
    int64_t weight = -1, layout = -1, bias = -1, packing = -1, group = -1, ids = -1;
    int64_t lora_a = -1, lora_states = -1, lora_b = -1, lora_rank = 0;
  };
  Of head, teacher;
  int64_t d_weight = -1, weight_sink = -1, d_bias = -1, d_lora_b = -1;
  int64_t wants_gradients = 0;  // 1: some gradient is requested, of the head or of hidden states
};

/// How a vocabulary is divided into slices, and which rank holds which slices.
struct Cut {
  Group* group = nullptr;
  int64_t vocab_size = 0;        // entries of the whole vocabulary
  int64_t first_entry = 0;       // number of vocabulary entries before this rank's
  core::Array<int64_t> entries;  // per slice, in vocabulary order
  core::Array<int64_t> slices;   // per rank, in rank order: its number of slices
  bool own_d_hidden = false;     // d_hidden is not summed over all ranks
  HeadTypes types;               // of the first rank that has entries; ranks without entries plan with these
  bool wants_gradients = false;  // on some rank
  // If the caller does the exchange: `own_partials` receives this slice's partials, or `gathered` holds the
  // rows of every slice.
  std::byte* own_partials = nullptr;
  std::span<const std::byte> gathered = {};

  int64_t most_entries() const { return *std::max_element(entries.begin(), entries.end()); }
  int64_t most_slices() const { return *std::max_element(slices.begin(), slices.end()); }
  /// Returns the number of slices on the ranks before `rank`.
  size_t first_slice(int rank) const {
    size_t first = 0;
    for (int r = 0; r < rank; ++r) first += static_cast<size_t>(slices[static_cast<size_t>(r)]);
    return first;
  }
  /// Returns the number of vocabulary entries in each of this rank's slices.
  std::span<const int64_t> own() const {
    return std::span(entries).subspan(first_slice(group->rank()),
                                      static_cast<size_t>(slices[static_cast<size_t>(group->rank())]));
  }
};

HeadTypes head_types(const Heads& heads, const GradientMatrices& outputs);

/// Returns the cut for `ranks.slice`, whose other slices are exchanged by the caller. Throws InvalidInput if
/// the slice is not within its vocabulary, or if other ranks or slices are set too.
Cut cut_of_slice(Group& group, const Ranks& ranks, const HeadTypes& types);

/// Exchanges with all ranks how each divides its `types.entries` vocabulary entries: into `ranks.slices`, or
/// into one slice if that is empty. Throws InvalidInput if a slice is negative, if slices do not add up to
/// `types.entries`, or if no rank has a vocabulary entry.
Cut agree_on_cut(Group& group, const Ranks& ranks, const HeadTypes& types);

}  // namespace logitless::ranks

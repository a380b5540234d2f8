// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "core/matrices.h"
#include "core/store.h"
#include "ranks/meeting.h"

namespace logitless::ranks {

/// The heads of a call: the teacher's is null where there is none.
struct Heads {
  const HeadMatrices& head;
  const HeadMatrices* teacher = nullptr;
};

/// What planning needs to know of a rank's head and its gradients: types, as numbers, or -1 for
/// what is not there.
struct HeadTypes {
  int64_t entries = 0;  // of this rank
  struct Of {
    int64_t weight = -1, layout = -1, bias = -1, packing = -1, group = -1, ids = -1;
    int64_t lora_a = -1, lora_states = -1, lora_b = -1, lora_rank = 0;
  };
  Of head, teacher;
  int64_t d_weight = -1, weight_sink = -1, d_bias = -1, d_lora_b = -1;
  int64_t wants_gradients = 0;  // some gradient, that of hidden states included
};

/// How a vocabulary is cut into slices, and which rank holds which of them.
struct Cut {
  Group* group = nullptr;
  int64_t vocab_size = 0;        // of the whole vocabulary
  int64_t first_entry = 0;       // vocabulary entries before this rank's
  core::Array<int64_t> entries;  // of each slice, in the order of the vocabulary
  core::Array<int64_t> slices;   // of each rank, in the order of the ranks: how many it holds
  bool own_d_hidden = false;     // not summed over all ranks
  HeadTypes types;               // of the first rank that has entries; a rank without any plans as it does
  bool wants_gradients = false;  // on some rank
  // A slice that meets nobody leaves its statistics here, or is given those of all: rows of each slice.
  std::byte* left = nullptr;
  std::span<const std::byte> gathered = {};

  int64_t most_entries() const { return *std::max_element(entries.begin(), entries.end()); }
  int64_t most_slices() const { return *std::max_element(slices.begin(), slices.end()); }
  /// Returns the number of slices before those of `rank`.
  size_t first_slice(int rank) const {
    size_t first = 0;
    for (int r = 0; r < rank; ++r) first += static_cast<size_t>(slices[static_cast<size_t>(r)]);
    return first;
  }
  /// Returns the vocabulary entries of each of this rank's slices.
  std::span<const int64_t> own() const {
    return std::span(entries).subspan(first_slice(group->rank()),
                                      static_cast<size_t>(slices[static_cast<size_t>(group->rank())]));
  }
};

HeadTypes head_types(const Heads& heads, const GradientMatrices& outputs);

/// Returns the cut of `ranks.slice`, a slice that meets nobody. Throws InvalidInput where it is no part of
/// its vocabulary, and where there are ranks to meet.
Cut cut_of_slice(Group& group, const Ranks& ranks, const HeadTypes& types);

/// Tells all ranks how the vocabulary entries of each are cut: `types.entries` vocabulary entries into
/// `slices`, or into one where there are none. Throws InvalidInput where slices are negative or do not fill
/// the vocabulary entries, or where no rank has a vocabulary entry.
Cut agree_on_cut(Group& group, const Ranks& ranks, const HeadTypes& types);

}  // namespace logitless::ranks

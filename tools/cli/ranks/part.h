// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// A rank's part of a job.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/common/inputs.h"
#include "cli/ranks/grid.h"

namespace logitless::cli {

struct RankPart {
  int64_t first_entry = 0, entries = 0;
  std::vector<int64_t> tokens;     ///< rows of the whole job, in this rank's order
  std::vector<int64_t> sequences;  ///< sequences of the whole job
  std::vector<int64_t> offsets;    ///< of packed sequences, else empty
  std::vector<int64_t> kl;         ///< mismatched completions of KTO
};

/// Splits the vocabulary and the batch into parts of nearly equal size. The batch is split by tokens if
/// nothing couples them (each part is one sequence then), by pairs for preference_loss, and otherwise by
/// sequences. Throws io::Error if there are fewer of these than ranks.
RankPart part_of(const io::Config& config, const Job& whole, const GridPlace& place);

/// Returns the rank's tensors, in memory of their own. Throws io::Error if a tensor does not have one entry
/// for each item that ranks share.
Inputs inputs_of(const Job& whole, const RankPart& part);

/// Copies a rank's part of an output to its place in the whole job's output.
void put_output(const std::string& name, const RankPart& part, std::span<const std::byte> from, const Job& whole);

}  // namespace logitless::cli

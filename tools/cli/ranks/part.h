// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The part of a job that a rank of a grid has.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/common/inputs.h"
#include "cli/ranks/grid.h"

namespace logitless::cli {

struct RankPart {
  int64_t first_entry = 0, entries = 0;
  std::vector<int64_t> tokens;     ///< rows of the whole job, in their order here
  std::vector<int64_t> sequences;  ///< the same of sequences
  std::vector<int64_t> offsets;    ///< of packed sequences, else empty
  std::vector<int64_t> kl;         ///< of KTO's mismatched completions
};

/// Words are cut into parts of nearly equal size. Tokens are where nothing couples them, and stand in one
/// sequence then; else whole sequences are, and of preference_loss whole pairs. Throws io::Error where there
/// are fewer than ranks to share them.
RankPart part_of(const io::Config& config, const Job& whole, const GridPlace& place);

/// Returns the rank's tensors, in memory of their own. Throws io::Error where one has not an entry for each
/// of what ranks share.
Inputs inputs_of(const Job& whole, const RankPart& part);

/// Puts what a rank has computed of an output into its place in that of the whole job.
void put_output(const std::string& name, const RankPart& part, std::span<const std::byte> from, const Job& whole);

}  // namespace logitless::cli

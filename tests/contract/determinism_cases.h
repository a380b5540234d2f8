// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Calls whose bits must not depend on threads, and hashes of these bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "logitless/plan.h"

namespace logitless::testing {

/// One call, which runs with the given ContextOptions::threads. Copies may run at the same time.
struct DeterminismCase {
  std::string name;
  std::function<std::vector<std::byte>(int threads)> bytes;  ///< all results of the call
  std::function<Plan(int threads)> plan;
};

/// Returns every loss, plan and form, with few and many row blocks, and sizes that are multiples of no tile
/// or vector.
std::vector<DeterminismCase> determinism_cases();

/// Returns the FNV-1a hash.
uint64_t hash_of(const std::vector<std::byte>& bytes);

/// Hashes the results of all cases, run with this ContextOptions::threads.
uint64_t hash_of_all_cases(int threads);

}  // namespace logitless::testing

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Lists calls whose bits must not depend on threads, and hashes those bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "logitless/plan.h"

namespace logitless::testing {

/// One call, which runs with the ContextOptions::threads that it is given. Copies may run at the same time.
struct DeterminismCase {
  std::string name;
  std::function<std::vector<std::byte>(int threads)> bytes;  ///< everything that the call leaves
  std::function<Plan(int threads)> plan;
};

/// Returns every loss, plan and form, with few and many row blocks and sizes that are no multiple of
/// anything.
std::vector<DeterminismCase> determinism_cases();

/// Returns the FNV-1a hash.
uint64_t hash_of(const std::vector<std::byte>& bytes);

/// Hashes everything that all cases leave when they run with this ContextOptions::threads.
uint64_t hash_of_all_cases(int threads);

}  // namespace logitless::testing

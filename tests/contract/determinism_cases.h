// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Calls whose bits must not depend on threads, and a hash of those bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "logitless/plan.h"

namespace logitless::testing {

/// A call with this ContextOptions::threads. Copies may run at the same time.
struct DeterminismCase {
  std::string name;
  std::function<std::vector<std::byte>(int threads)> bytes;  ///< everything that the call leaves
  std::function<Plan(int threads)> plan;                     ///< empty: calls on finished logits have none
};

/// Every loss and plan and form, few and many row blocks, sizes that are no multiple of anything.
std::vector<DeterminismCase> determinism_cases();

/// FNV-1a.
uint64_t hash_of(const std::vector<std::byte>& bytes);

/// Of everything that all cases leave, with this ContextOptions::threads.
uint64_t hash_of_all_cases(int threads);

}  // namespace logitless::testing

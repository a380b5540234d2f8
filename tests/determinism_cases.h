// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Calls whose bits must not depend on threads, and a hash of those bits.
#pragma once

#include <cstdint>
#include <vector>

#include "testers.h"

namespace logitless::testing {

/// Every plan and form, few and many row blocks, sizes that are no multiple of anything.
std::vector<CrossEntropyTester> determinism_cases();

/// FNV-1a.
uint64_t hash_of(const std::vector<std::byte>& bytes);

/// Of everything that all cases leave, with this ContextOptions::threads.
uint64_t hash_of_all_cases(int threads);

}  // namespace logitless::testing

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// This hands results over in arrays of the caller's.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "c_api/structs.h"

namespace logitless::c_api {

/// Throws InvalidInput where the caller's arrays have another size than the results.
inline void check_entries(const char* name, int64_t given, int64_t wanted) {
  if (given != wanted) core::fail(name, " = ", given, ", but there are ", wanted, " entries");
}

/// Throws InvalidInput where a plan is wanted in what is no plan.
inline void check_plan(const logitless_plan* plan) {
  if (plan) check_size(*plan, "plan");
}

/// Copies a result, if the caller wants it and there is one.
template <class T>
void copy(const std::vector<T>& from, T* to) {
  if (to) std::copy(from.begin(), from.end(), to);
}

}  // namespace logitless::c_api

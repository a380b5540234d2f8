// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// This hands results over in arrays of the caller's.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "c_api/inputs.h"
#include "c_api/structs.h"
#include "logitless/slices.h"

namespace logitless::c_api {

/// Throws InvalidInput where the caller's arrays have another size than the results.
inline void check_entries(const char* name, int64_t given, int64_t wanted) {
  if (given != wanted) core::fail(name, " = ", given, ", but there are ", wanted, " entries");
}

/// Throws InvalidInput where a plan is wanted in what is no plan.
inline void check_plan(const logitless_plan* plan) {
  if (plan) check_size(plan, "plan");
}

/// Copies a result, if the caller wants it and there is one.
template <class T>
void copy(const std::vector<T>& from, T* to) {
  if (to) std::copy(from.begin(), from.end(), to);
}

/// Folds a slice by fold(hidden, head), and hands over its bytes, whose number follows from `task`.
template <class Task, class Fold>
void fold_slice(const CallTensors& call, const Task& task, void* slice, size_t slice_bytes, const Fold& fold) {
  call.with([&](const auto&, const auto& rows, const auto&... head) {
    if constexpr (sizeof...(head) == 0) {
      core::fail("source has logits: finished logits are not split");
    } else {
      const size_t wanted = slice_bytes_per_token(rows.states.dtype, task) * static_cast<size_t>(call.tokens());
      if (slice_bytes != wanted) core::fail("slice_bytes = ", slice_bytes, ", but the slice leaves ", wanted);
      if (!slice && wanted > 0) core::fail("slice is NULL");
      const std::vector<std::byte> bytes = fold(rows, head...);
      std::copy(bytes.begin(), bytes.end(), static_cast<std::byte*>(slice));
    }
  });
}

}  // namespace logitless::c_api

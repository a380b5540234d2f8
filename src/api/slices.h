// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// fold_slice() (run.h), for the tasks that support it.
#pragma once

#include <cstddef>
#include <vector>

#include "api/verbs.h"
#include "fold/call_partials.h"

namespace logitless {
namespace api {

/// Returns the bytes per row.
inline size_t slice_row_bytes(DType hidden, const StatsRequest& request) {
  const problem::TokenProblem problem = problem::resolve(
      {.tokens = 1, .dtype = hidden}, {.options = {}, .request = request, .picks = problem::target_picks({0})});
  return fold::CallPartials(problem).wire_bytes(fold::Walk::kFirst, 0);
}

}  // namespace api

template <SlicedTask T>
std::vector<std::byte> fold_slice(const Context& context, const Logits& logits, const T& task) {
  const api::Steps<T> steps{task};
  api::Call whole(context, logits, nullptr, api::kNoGradients);
  return whole.complete([&](api::Call& call) {
    api::check_task_tensors(TensorsOf<T>(), task, logits);
    steps.make_loss(call);
    return call.fold_slice();
  });
}

/// Instantiates fold_slice() and slice_bytes_per_token() for a task that requests the statistics `request`.
#define LOGITLESS_SLICES(Task, request)                                                         \
  template std::vector<std::byte> fold_slice(const Context&, const Logits&, const Task&);       \
  template <>                                                                                   \
  LOGITLESS_API size_t slice_bytes_per_token(DType hidden, [[maybe_unused]] const Task& task) { \
    return api::slice_row_bytes(hidden, request);                                               \
  }                                                                                             \
  static_assert(true)

}  // namespace logitless

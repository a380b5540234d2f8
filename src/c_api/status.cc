// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "c_api/status.h"

#include <algorithm>
#include <string_view>

namespace logitless::c_api {
namespace {

// A fixed buffer, because memory may have run out when a message is stored.
thread_local char last_error[1024];

}  // namespace

logitless_status fail_with(logitless_status status, const char* text) noexcept {
  // In C++ these are members of `targets`; the keys have no prefix.
  constexpr std::string_view kMembers[] = {"targets.weights", "targets.rows", "targets.sets"};
  std::string_view left = text;
  size_t size = 0;
  while (!left.empty() && size + 1 < sizeof last_error) {
    const bool is_member = std::ranges::any_of(kMembers, [&](auto name) { return left.starts_with(name); });
    if (is_member) left.remove_prefix(sizeof "targets." - 1);
    last_error[size++] = left.front();
    left.remove_prefix(1);
  }
  last_error[size] = '\0';
  return status;
}

}  // namespace logitless::c_api

const char* logitless_last_error(void) { return logitless::c_api::last_error; }

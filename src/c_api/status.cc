// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "c_api/status.h"

#include <string_view>

namespace logitless::c_api {
namespace {

// A fixed buffer, because memory may have run out when a message is stored.
thread_local char last_error[1024];

// Tells whether the text begins with a C++ member of soft targets. Its key lacks the prefix `targets.`.
bool begins_with_member(std::string_view text) {
  return text.starts_with("targets.weights") || text.starts_with("targets.rows") || text.starts_with("targets.sets");
}

}  // namespace

logitless_status fail_with(logitless_status status, const char* text) noexcept {
  size_t size = 0;
  for (std::string_view left = text; !left.empty() && size + 1 < sizeof last_error; left.remove_prefix(1)) {
    if (begins_with_member(left)) left.remove_prefix(sizeof "targets." - 1);
    last_error[size++] = left.front();
  }
  last_error[size] = '\0';
  return status;
}

}  // namespace logitless::c_api

const char* logitless_last_error(void) { return logitless::c_api::last_error; }

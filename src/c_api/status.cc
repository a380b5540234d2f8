// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "c_api/status.h"

#include <cstdio>

namespace logitless::c_api {
namespace {

// A fixed buffer, because memory may have run out when a message is stored.
thread_local char last_error[1024];

}  // namespace

logitless_status fail_with(logitless_status status, const char* text) noexcept {
  std::snprintf(last_error, sizeof last_error, "%s", text);
  return status;
}

}  // namespace logitless::c_api

const char* logitless_last_error(void) { return logitless::c_api::last_error; }

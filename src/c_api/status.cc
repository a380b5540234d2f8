// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "c_api/status.h"

#include <cstring>

namespace logitless::c_api {
namespace {

// A fixed buffer, because memory may have run out when a message is stored.
thread_local char last_error[1024];

}  // namespace

logitless_status fail_with(logitless_status status, const char* text) noexcept {
  // In C++ weights, rows and sets are members of `targets`; the keys have no prefix.
  constexpr char kPrefix[] = "targets.";
  constexpr size_t kLength = sizeof kPrefix - 1;
  size_t size = 0;
  while (*text != '\0' && size + 1 < sizeof last_error) {
    const bool is_member = std::strncmp(text, kPrefix, kLength) == 0 && 'a' <= text[kLength] && text[kLength] <= 'z';
    if (is_member) text += kLength;
    last_error[size++] = *text++;
  }
  last_error[size] = '\0';
  return status;
}

}  // namespace logitless::c_api

const char* logitless_last_error(void) { return logitless::c_api::last_error; }

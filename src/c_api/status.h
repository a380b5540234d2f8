// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// This turns exceptions into a status and a text of the calling thread.
#pragma once

#include <new>
#include <stdexcept>
#include <string>

#include "core/checks.h"
#include "logitless/c_api.h"
#include "logitless/error.h"
#include "logitless/ranks.h"

namespace logitless::c_api {

/// A callback of the caller's has asked for the end of the call.
class CallbackFailed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Keeps the text for logitless_last_error(), as far as it fits, and returns `status`.
logitless_status fail_with(logitless_status status, const char* text) noexcept;

/// Runs `body`, out of which no exception comes.
template <class Body>
logitless_status guarded(const Body& body) noexcept {
  try {
    body();
    return LOGITLESS_OK;
  } catch (const InvalidInput& error) {
    return fail_with(LOGITLESS_INVALID_INPUT, error.what());
  } catch (const CallbackFailed& error) {
    return fail_with(LOGITLESS_CALLBACK_FAILED, error.what());
  } catch (const RankError& error) {
    return fail_with(LOGITLESS_RANK_FAILED, error.what());
  } catch (const std::bad_alloc&) {
    return fail_with(LOGITLESS_OUT_OF_MEMORY, "out of memory");
  } catch (const std::exception& error) {
    return fail_with(LOGITLESS_INTERNAL_ERROR, error.what());
  } catch (...) {
    return fail_with(LOGITLESS_INTERNAL_ERROR, "an exception of an unknown type");
  }
}

/// Returns what `pointer` points to; throws InvalidInput where that is nothing.
template <class T>
T& there(T* pointer, const char* name) {
  if (!pointer) core::fail(name, " is NULL");
  return *pointer;
}

}  // namespace logitless::c_api

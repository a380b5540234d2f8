// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Turns exceptions into a status and a message per thread.
#pragma once

#include <cstdint>
#include <new>
#include <stdexcept>
#include <string>

#include "core/checks.h"
#include "logitless/c_api.h"
#include "logitless/error.h"
#include "logitless/ranks.h"

namespace logitless::c_api {

/// Thrown if a callback of the caller ends the call.
class CallbackFailed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Stores the text for logitless_last_error(), with keys in place of names of C++ members and truncated if
/// necessary, and returns `status`. Allocates no memory.
logitless_status fail_with(logitless_status status, const char* text) noexcept;

/// Runs `body` and turns every exception into a status.
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

/// Returns *pointer; throws InvalidInput if it is NULL or not aligned.
template <class T>
T& deref(T* pointer, const char* name) {
  if (!pointer) core::fail(name, " is NULL");
  const void* at = pointer;
  if (reinterpret_cast<uintptr_t>(at) % alignof(T) != 0) core::fail(name, " = ", at, " is not aligned");
  return *pointer;
}

/// Calls a function of the caller. Throws CallbackFailed if it returns a nonzero value or, written in C++,
/// throws; std::bad_alloc and RankError pass through.
template <class Function>
void call_back(const char* name, const Function& function) {
  const auto thrown = [name](const char* text) { throw CallbackFailed(std::string(name) + " threw: " + text); };
  int result = 0;
  try {
    result = function();
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const RankError&) {
    throw;
  } catch (const std::exception& error) {
    thrown(error.what());
  } catch (const std::string& text) {
    thrown(text.c_str());
  } catch (const char* text) {
    thrown(text ? text : "a null pointer");
  } catch (...) {
    thrown("an exception without a text");
  }
  if (result != 0) throw CallbackFailed(std::string(name) + " returned " + std::to_string(result));
}

}  // namespace logitless::c_api

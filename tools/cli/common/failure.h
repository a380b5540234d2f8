// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <new>
#include <string>

#include "io/error.h"
#include "logitless/error.h"

namespace logitless::cli {

/// The message of an exception, and whether bad input caused it.
struct Failure {
  std::string what;
  bool bad_input = false;
};

/// Describes the exception that is being handled. Call it in a handler of std::exception.
inline Failure current_failure() {
  try {
    throw;
  } catch (const io::Error& e) {
    return {e.what(), true};
  } catch (const InvalidInput& e) {
    return {e.what(), true};
  } catch (const std::bad_alloc&) {
    return {"out of memory (an allocation failed)"};
  } catch (const std::exception& e) {
    return {e.what()};
  }
}

}  // namespace logitless::cli

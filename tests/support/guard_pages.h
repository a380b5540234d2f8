// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Memory between protected pages: an access beyond it ends the program.
#pragma once

#include <cstddef>
#include <memory>

namespace logitless::testing {

enum class Flush {
  kEnd,    ///< a protected page follows the last byte
  kBegin,  ///< a protected page precedes the first byte
};

std::shared_ptr<void> guarded_memory(size_t bytes, Flush flush);

}  // namespace logitless::testing

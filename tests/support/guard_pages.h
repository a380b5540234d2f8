// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Memory between pages that nobody may touch: an access beyond it ends the program.
#pragma once

#include <cstddef>
#include <memory>

namespace logitless::testing {

enum class Flush {
  kEnd,    ///< the last byte is followed by a forbidden page
  kBegin,  ///< the first byte follows a forbidden page
};

std::shared_ptr<void> guarded_memory(size_t bytes, Flush flush);

}  // namespace logitless::testing

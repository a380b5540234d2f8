// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The names that Python's callers know arguments by.
#pragma once

#include <string>

namespace logitless::python {

/// Returns a message of the library with the names of Python's arguments in place of those of the C++ structures:
/// "lm_head.ids[3] = 9" becomes "vocab_ids[3] = 9", and "teacher: bias has ..." becomes "teacher_bias has ...".
std::string with_caller_names(const std::string& message);

}  // namespace logitless::python

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Translates the library's names for arguments into Python's.
#pragma once

#include <string>

namespace logitless::python {

/// Replaces the names of C++ members in an error message by the names of Python's arguments: "sets.ids[3] =
/// 9" becomes "ids[3] = 9", and "teacher: bias has ..." becomes "teacher_bias has ...".
std::string with_caller_names(const std::string& message);

}  // namespace logitless::python

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Files that an option such as --json names.
#pragma once

#include <string>

namespace logitless::cli {

/// Throws io::Error, with option and path, at once where write_output() would only find out after the work. Empty and
/// "-" always pass.
void check_output_path(const std::string& option, const std::string& path);

/// Whether two paths lead to one file, through links or not, and also where it is not there yet. Empty and "-" are
/// none.
bool is_same_file(const std::string& a, const std::string& b);

/// Writes `text` to `path` ("-": standard output). Throws io::Error where that fails.
void write_output(const std::string& option, const std::string& path, const std::string& text);

}  // namespace logitless::cli

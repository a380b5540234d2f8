// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Files that an option such as --json names.
#pragma once

#include <string>
#include <vector>

namespace logitless::cli {

struct OutputFile {
  std::string option;  ///< "--json"
  std::string path;    ///< empty: not asked for; "-": standard output
};

struct InputFile {
  std::string what;  ///< "the config"
  std::string path;  ///< empty: none
};

/// Throws io::Error, with option and path, at once where write_output() would only find out after the work, and where
/// an output would replace an input or two outputs share a file.
void check_output_files(const std::vector<OutputFile>& outputs, const std::vector<InputFile>& inputs);

/// Writes `text` to standard output, at once. Throws io::Error where that fails, now or at an earlier attempt.
void print(const std::string& text);

/// Writes `text` to `path` ("-": standard output). Throws io::Error where that fails; the file is as it was then.
void write_output(const std::string& option, const std::string& path, const std::string& text);

}  // namespace logitless::cli

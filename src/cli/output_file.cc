// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/output_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "io/error.h"

namespace logitless::cli {

void check_output_path(const std::string& option, const std::string& path) {
  if (path.empty() || path == "-") return;
  const std::filesystem::path file(path);
  if (std::filesystem::is_directory(file)) throw io::Error(option + " " + path + ": is a directory, not a file");
  const std::filesystem::path folder = file.has_parent_path() ? file.parent_path() : std::filesystem::path(".");
  const bool exists = std::filesystem::exists(file);
  if (access(exists ? file.c_str() : folder.c_str(), W_OK) != 0) {
    throw io::Error(option + " " + path + ": cannot be written: " + std::strerror(errno));
  }
}

bool is_same_file(const std::string& a, const std::string& b) {
  const auto resolved = [](const std::string& path) {
    std::error_code unresolved;
    const std::filesystem::path absolute = std::filesystem::absolute(path);
    const std::filesystem::path target = std::filesystem::weakly_canonical(absolute, unresolved);
    return unresolved ? absolute : target;
  };
  const auto is_file = [](const std::string& path) { return !path.empty() && path != "-"; };
  return is_file(a) && is_file(b) && resolved(a) == resolved(b);
}

void write_output(const std::string& option, const std::string& path, const std::string& text) {
  if (path == "-") {
    std::cout << text << std::flush;
    if (!std::cout) throw io::Error(option + " -: standard output cannot be written");
    return;
  }
  std::ofstream out(path, std::ios::trunc);
  out << text << std::flush;
  if (!out) throw io::Error(option + " " + path + ": cannot be written: " + std::strerror(errno));
}

}  // namespace logitless::cli

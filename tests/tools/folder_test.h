// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// A fixture with its own folder, which is deleted at the end.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace logitless::testing {

inline ::testing::AssertionResult has(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "\"" << text << "\" does not hold \"" << part << "\"";
}

class FolderTest : public ::testing::Test {
 protected:
  FolderTest() : folder_(make()) {}
  ~FolderTest() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  std::string read(const std::string& name) const {
    std::ostringstream text;
    text << std::ifstream(path(name), std::ios::binary).rdbuf();
    return text.str();
  }
  /// Writes a file and returns its path.
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(path(name), std::ios::binary) << text;
    return path(name);
  }
  /// Returns an error message without the folder: "c.yaml:3: ...".
  std::string without_folder(const std::string& message) const {
    const std::string prefix = folder_.string() + "/";
    return message.starts_with(prefix) ? message.substr(prefix.size()) : message;
  }

  const std::filesystem::path folder_;

 private:
  static std::filesystem::path make() {
    std::string pattern = (std::filesystem::temp_directory_path() / "logitless-test-XXXXXX").string();
    return mkdtemp(pattern.data());
  }
};

}  // namespace logitless::testing

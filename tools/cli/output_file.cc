// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/output_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "io/error.h"
#include "io/replaced_file.h"

namespace logitless::cli {
namespace {

namespace fs = std::filesystem;

void check_writable(const OutputFile& output) {
  if (output.path.empty() || output.path == "-") return;
  const std::string name = output.option + " " + output.path;
  const fs::path file = io::resolved(output.path);
  std::error_code error;
  const fs::file_status status = fs::status(file, error);
  if (!fs::status_known(status)) throw io::Error(name + ": cannot be written: " + error.message());
  if (fs::is_directory(status)) throw io::Error(name + ": is a directory, not a file");
  const fs::path touched = fs::exists(status) ? file : file.parent_path();
  if (access(touched.c_str(), W_OK) != 0) throw io::Error(name + ": cannot be written: " + std::strerror(errno));
}

// Through links or not, and also where nothing is there yet.
bool is_same_file(const std::string& a, const std::string& b) {
  if (a.empty() || b.empty()) return false;
  if (a == "-" || b == "-") return a == b;
  std::error_code not_there;
  return io::resolved(a) == io::resolved(b) || fs::equivalent(a, b, not_there);
}

}  // namespace

void check_output_files(const std::vector<OutputFile>& outputs, const std::vector<InputFile>& inputs) {
  std::vector<InputFile> taken = inputs;
  for (const OutputFile& output : outputs) {
    check_writable(output);
    for (const InputFile& other : taken) {
      if (is_same_file(output.path, other.path)) {
        throw io::Error(output.option + " " + output.path + ": is " + other.what);
      }
    }
    taken.push_back({"the file that " + output.option + " names", output.path});
  }
}

void print(const std::string& text) {
  errno = 0;
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (written && std::fflush(stdout) == 0 && !std::ferror(stdout)) return;
  const std::string reason = errno != 0 ? std::string(": ") + std::strerror(errno) : "";
  throw io::Error("standard output cannot be written" + reason);
}

void write_output(const std::string& option, const std::string& path, const std::string& text) {
  if (path == "-") {
    try {
      return print(text);
    } catch (const io::Error& e) {
      throw io::Error(option + " -: " + e.what());
    }
  }
  try {
    io::ReplacedFile file(path);
    file.out() << text;
    file.commit();
  } catch (const io::Error& e) {
    throw io::Error(option + " " + e.what());
  }
}

}  // namespace logitless::cli

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/bench/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "cli/bench/against.h"
#include "io/bench_run.h"
#include "io/error.h"

namespace logitless::cli {
namespace {

constexpr const char* kChooseAnother = "choose another file, or --overwrite to replace it";

std::string read_all(int descriptor) {
  std::string text;
  char bytes[65536];
  for (ssize_t count = 1; (count = read(descriptor, bytes, sizeof(bytes))) > 0;) {
    text.append(bytes, static_cast<size_t>(count));
  }
  return text;
}

}  // namespace

BenchFile::BenchFile(const std::string& path, const Json& header, bool overwrite) : path_(path) {
  const std::string line = line_of(header) + "\n";
  io::parse_line("this run", 1, line, run_);
  if (path.empty()) return;
  if (path == "-") {
    descriptor_ = STDOUT_FILENO;
    write_line(line);
  } else {
    open_file(overwrite, line);
  }
}

BenchFile::~BenchFile() {
  if (descriptor_ > STDOUT_FILENO) close(descriptor_);
}

void BenchFile::open_file(bool overwrite, const std::string& header) {
  descriptor_ = open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (descriptor_ < 0) throw io::Error("-o " + path_ + ": cannot be opened: " + std::strerror(errno));
  struct stat status {};
  regular_ = fstat(descriptor_, &status) == 0 && S_ISREG(status.st_mode);
  if (regular_) {
    if (flock(descriptor_, LOCK_EX | LOCK_NB) != 0) throw io::Error("-o " + path_ + ": another bench is writing to it");
    if (!overwrite && resume(read_all(descriptor_))) return;
    if (ftruncate(descriptor_, 0) != 0)
      throw io::Error("-o " + path_ + ": cannot be truncated: " + std::strerror(errno));
  }
  write_line(header);
}

// Returns false if there is nothing to resume.
bool BenchFile::resume(const std::string& text) {
  const size_t whole = text.rfind('\n') + 1;  // npos + 1 = 0
  if (text.empty()) return false;
  if (whole == 0) throw io::Error("-o " + path_ + ": is not a file of bench: " + kChooseAnother);
  io::BenchRun before;
  try {
    before = io::parse_run(path_, text);
  } catch (const io::Error& e) {
    throw io::Error(std::string("-o ") + e.what() + ": " + kChooseAnother);
  }
  const std::string differences = differences_of(before, run_);
  if (!differences.empty()) {
    throw io::Error("-o " + path_ + ": holds another benchmark (" + differences + "): " + kChooseAnother);
  }
  if (ftruncate(descriptor_, static_cast<off_t>(whole)) != 0) {
    throw io::Error("-o " + path_ + ": cannot be truncated: " + std::strerror(errno));
  }
  bytes_ = whole;
  run_ = std::move(before);
  return true;
}

const io::Point* BenchFile::find(const io::Point& outline) const {
  const auto it = std::ranges::find(run_.points, outline.at, &io::Point::at);
  return it == run_.points.end() ? nullptr : &*it;
}

const io::Point& BenchFile::append(const Json& point) {
  const std::string line = line_of(point) + "\n";
  io::parse_line("this run", static_cast<int64_t>(run_.points.size()) + 2, line, run_);
  if (descriptor_ >= 0) write_line(line);
  return run_.points.back();
}

void BenchFile::write_line(const std::string& line) {
  for (size_t done = 0; done < line.size();) {
    const ssize_t written = write(descriptor_, line.data() + done, line.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      const std::string why = std::strerror(errno);
      // Cut off half a line if possible; if not, the next run does it.
      [[maybe_unused]] const int cut = regular_ ? ftruncate(descriptor_, static_cast<off_t>(bytes_)) : 0;
      throw io::Error("-o " + path_ + ": cannot be written: " + why);
    }
    done += static_cast<size_t>(written);
  }
  bytes_ += line.size();
}

}  // namespace logitless::cli

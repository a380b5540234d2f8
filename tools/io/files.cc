// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "io/files.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "io/error.h"

namespace logitless::io {
namespace {

namespace fs = std::filesystem;

constexpr int kMostLinks = 40;  // as Linux follows

fs::path name_to_write(const fs::path& target) {
  std::error_code not_there;
  const fs::file_status status = fs::status(target, not_there);
  if (fs::exists(status) && !fs::is_regular_file(status)) return target;
  if (access(target.parent_path().c_str(), W_OK) != 0) return target;
  return target.string() + "." + std::to_string(getpid()) + ".tmp";
}

constexpr auto kWaitForWriter = std::chrono::seconds(2);  // A shell starts both ends of a pipe within it.
constexpr auto kLookForWriter = std::chrono::milliseconds(10);

class TextReader {
 public:
  TextReader(const std::string& path, size_t most_bytes) : path_(path), most_bytes_(most_bytes) {
    // Opening a named pipe would wait for a writer; reading can tell whether there is one.
    descriptor_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor_ < 0) fail_with_reason("cannot be opened");
  }
  ~TextReader() { close(descriptor_); }
  TextReader(const TextReader&) = delete;
  TextReader& operator=(const TextReader&) = delete;

  std::string read_all() {
    struct stat status {};
    if (fstat(descriptor_, &status) != 0) fail_with_reason("cannot be examined");
    if (S_ISDIR(status.st_mode)) fail("is a directory, not a file");
    is_pipe_ = S_ISFIFO(status.st_mode);
    if (!is_pipe_ && !S_ISREG(status.st_mode)) fail("is neither a regular file nor a pipe");
    const auto start = std::chrono::steady_clock::now();
    std::string text;
    char bytes[1 << 16];
    while (true) {
      const ssize_t count = read(descriptor_, bytes, sizeof(bytes));
      if (count > 0) {
        text.append(bytes, static_cast<size_t>(count));
        if (text.size() > most_bytes_) fail("holds more than " + std::to_string(most_bytes_ >> 20) + " MiB");
      } else if (count < 0 && errno == EAGAIN) {
        wait_for_text();  // A pipe's writer has nothing to say yet.
      } else if (count < 0 && errno != EINTR) {
        fail_with_reason("cannot be read");
      } else if (count == 0) {
        if (!text.empty() || !is_pipe_ || had_writer()) return text;
        if (std::chrono::steady_clock::now() - start > kWaitForWriter) fail("is a pipe that nobody writes to");
        std::this_thread::sleep_for(kLookForWriter);
      }
    }
  }

 private:
  [[noreturn]] void fail(const std::string& reason) const { throw Error(path_ + ": " + reason); }
  [[noreturn]] void fail_with_reason(const std::string& what) const { fail(what + ": " + std::strerror(errno)); }

  void wait_for_text() const {
    pollfd ready{descriptor_, POLLIN, 0};
    poll(&ready, 1, -1);
  }
  // Whether the end of the text is there because the last writer has gone, and not because none has come yet.
  bool had_writer() const {
    pollfd ready{descriptor_, POLLIN, 0};
    return poll(&ready, 1, 0) == 1 && (ready.revents & POLLHUP) != 0;
  }

  const std::string& path_;
  const size_t most_bytes_;
  int descriptor_ = -1;
  bool is_pipe_ = false;
};

}  // namespace

std::string read_text_file(const std::string& path, size_t most_bytes) {
  return TextReader(path, most_bytes).read_all();
}

size_t json_depth(std::string_view text) {
  size_t depth = 0, deepest = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      deepest = std::max(deepest, ++depth);
    } else if ((c == ']' || c == '}') && depth > 0) {
      --depth;
    }
  }
  return deepest;
}

fs::path resolved(const fs::path& path) {
  std::error_code error;
  fs::path target = fs::absolute(path);
  for (int i = 0; i < kMostLinks && fs::is_symlink(target, error); ++i) {
    target = target.parent_path() / fs::read_symlink(target, error);
  }
  const fs::path canonical = fs::weakly_canonical(target, error);
  return error ? target : canonical;
}

ReplacedFile::ReplacedFile(const std::string& path)
    : path_(path),
      target_(resolved(path)),
      written_(name_to_write(target_)),
      out_(written_, std::ios::binary | std::ios::trunc) {
  if (!out_) fail();
  std::error_code none;
  const fs::file_status status = fs::status(target_, none);
  if (written_ != target_ && fs::exists(status)) fs::permissions(written_, status.permissions(), none);
}

ReplacedFile::~ReplacedFile() {
  std::error_code none;
  if (written_ != target_) fs::remove(written_, none);
}

void ReplacedFile::commit() {
  out_.close();
  if (!out_) fail();
  if (written_ == target_) return;
  if (std::rename(written_.c_str(), target_.c_str()) != 0) fail();
  written_ = target_;
}

void ReplacedFile::fail() { throw Error(path_ + ": cannot be written: " + std::strerror(errno)); }

}  // namespace logitless::io

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "io/text_file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "io/error.h"

namespace logitless::io {
namespace {

constexpr auto kWaitForWriter = std::chrono::seconds(2);  // A shell starts both ends of a named pipe within it.
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

}  // namespace logitless::io

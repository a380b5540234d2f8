// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "io/files.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <optional>
#include <random>
#include <thread>
#include <utility>

#include "io/error.h"

namespace logitless::io {
namespace {

namespace fs = std::filesystem;

constexpr int kMostLinks = 40;  // the limit of Linux

[[noreturn]] void fail_to_write(const std::string& path) {
  throw Error(path + ": cannot be written: " + std::strerror(errno));
}

class Output {
 public:
  Output(const std::string& path, const fs::path& opened, int flags)
      : path_(path), descriptor_(open(opened.c_str(), O_WRONLY | O_CLOEXEC | flags, 0666)) {}
  ~Output() {
    if (is_open()) ::close(descriptor_);
  }
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  bool is_open() const { return descriptor_ >= 0; }
  int descriptor() const { return descriptor_; }
  void write(std::span<const std::string_view> parts) {
    for (std::string_view part : parts) {
      while (!part.empty()) {
        const ssize_t count = ::write(descriptor_, part.data(), part.size());
        if (count < 0 && errno != EINTR) fail_to_write(path_);
        if (count > 0) part.remove_prefix(static_cast<size_t>(count));
      }
    }
  }
  // Some file systems report a full disk only here.
  void close() {
    if (::close(std::exchange(descriptor_, -1)) != 0) fail_to_write(path_);
  }

 private:
  const std::string& path_;
  int descriptor_;
};

// Returns an unpredictable name in the folder of `target`.
std::string new_name(const fs::path& target) {
  std::string name = (target.parent_path() / ".logitless-").string();
  std::random_device random;
  for (int i = 0; i < 4; ++i) name += std::to_string(random());
  return name;
}

// Where the file system supports it, the file has no name until it is complete, so that nothing remains
// however the process ends. Elsewhere a signal that cannot be caught leaves a file with a temporary name.
void replace_file(const std::string& path, const fs::path& target, const struct stat* status,
                  std::span<const std::string_view> parts) {
  const std::string name = new_name(target), links = "/proc/self/fd/";
  std::optional<Output> file;
  if (access(links.c_str(), X_OK) == 0) file.emplace(path, target.parent_path(), O_TMPFILE);
  const bool unnamed = file && file->is_open();
  if (!unnamed) file.emplace(path, name, O_CREAT | O_EXCL | O_NOFOLLOW);
  if (!file->is_open()) fail_to_write(path);
  try {
    if (status && fchmod(file->descriptor(), status->st_mode & 07777) != 0) fail_to_write(path);
    file->write(parts);
    const std::string link = links + std::to_string(file->descriptor());
    if (unnamed && linkat(AT_FDCWD, link.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) != 0) fail_to_write(path);
    file->close();
    if (std::rename(name.c_str(), target.c_str()) != 0) fail_to_write(path);
  } catch (const Error&) {
    unlink(name.c_str());
    throw;
  }
}

constexpr auto kWaitForWriter = std::chrono::seconds(2);  // shells start both ends faster
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
        wait_for_text();  // the pipe has a writer but no text yet
      } else if (count < 0 && errno != EINTR) {
        fail_with_reason("cannot be read");
      } else if (count == 0) {
        if (!text.empty() || !is_pipe_ || had_writer()) return text;
        if (std::chrono::steady_clock::now() - start > kWaitForWriter) fail("is a pipe without a writer");
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
  // Returns true if the text ended because the last writer left, false if no writer has come yet.
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

fs::path resolved(const fs::path& path) {
  std::error_code error;
  fs::path target = fs::absolute(path);
  for (int i = 0; i < kMostLinks && fs::is_symlink(target, error); ++i) {
    target = target.parent_path() / fs::read_symlink(target, error);
  }
  const fs::path canonical = fs::weakly_canonical(target, error);
  return error ? target : canonical;
}

void write_file(const std::string& path, std::span<const std::string_view> parts) {
  const fs::path target = resolved(path);
  struct stat status {};
  const bool exists = stat(target.c_str(), &status) == 0;
  if ((!exists || S_ISREG(status.st_mode)) && access(target.parent_path().c_str(), W_OK) == 0) {
    return replace_file(path, target, exists ? &status : nullptr, parts);
  }
  Output file(path, target, O_CREAT | O_TRUNC);
  if (!file.is_open()) fail_to_write(path);
  file.write(parts);
  file.close();
}

}  // namespace logitless::io

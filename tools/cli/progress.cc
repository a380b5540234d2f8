// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/progress.h"

#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "cli/output_file.h"
#include "cli/report_text.h"

namespace logitless::cli {
namespace {

constexpr auto kRedraw = std::chrono::milliseconds(200);

// A line that wraps cannot be taken away again.
std::string fitted(std::string line) {
  winsize window{};
  const bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 1;
  if (known && line.size() >= window.ws_col) line.resize(window.ws_col - 1u);
  return line;
}

std::string time_left(double seconds) {
  if (seconds < 90) return format("about %.0f s left", seconds);
  if (seconds < 90 * 60) return format("about %.0f min left", seconds / 60);
  return format("about %.1f h left", seconds / 3600);
}

}  // namespace

Progress::Progress(bool wanted) : wanted_(wanted) {
  if (!wanted || !isatty(STDERR_FILENO)) return;
  // Signals are for the thread that waits for the children: it wakes up from them.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  drawer_ = std::thread([this] { draw(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Progress::~Progress() { stop(); }

void Progress::phase(std::string name, std::optional<double> left_s) {
  const std::lock_guard lock(mutex_);
  name_ = std::move(name);
  left_s_ = left_s;
  start_ = Clock::now();
}

void Progress::log(const std::string& line) {
  if (wanted_ && !drawer_.joinable()) std::fprintf(stderr, "%s\n", line.c_str());
}

void Progress::note(const std::string& line) {
  if (!wanted_ || line.empty()) return;
  const std::lock_guard lock(mutex_);
  erase();
  std::fprintf(stderr, "%s\n", line.c_str());
}

void Progress::print(const std::string& text) {
  const std::lock_guard lock(mutex_);
  erase();
  cli::print(text);
}

void Progress::stop() {
  if (!drawer_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_one();
  }
  drawer_.join();
}

void Progress::erase() {
  if (std::exchange(drawn_, false)) std::fputs("\r\033[K", stderr);
  std::fflush(stderr);
}

std::string Progress::line() const {
  const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  std::string text = name_ + format(", %.1f s", seconds);
  if (left_s_) text += ", " + time_left(std::max(0.0, *left_s_ - seconds));
  return fitted(std::move(text));
}

void Progress::draw() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    changed_.wait_for(lock, kRedraw);
    if (stopping_ || name_.empty()) continue;
    std::fprintf(stderr, "\r\033[K%s", line().c_str());
    std::fflush(stderr);
    drawn_ = true;
  }
  erase();
}

}  // namespace logitless::cli

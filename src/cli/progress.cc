// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/progress.h"

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

namespace logitless::cli {

namespace {
constexpr auto kRedraw = std::chrono::milliseconds(200);
}

Progress::Progress(bool wanted) {
  if (!wanted || !isatty(STDERR_FILENO)) return;
  // Signals are for the thread that waits for the children: it wakes up from them.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  drawer_ = std::thread([this] { draw(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Progress::~Progress() { stop(); }

void Progress::phase(std::string name) {
  const std::lock_guard lock(mutex_);
  name_ = std::move(name);
  start_ = std::chrono::steady_clock::now();
  changed_.notify_one();
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

void Progress::draw() {
  std::unique_lock lock(mutex_);
  bool drawn = false;
  while (!stopping_) {
    changed_.wait_for(lock, kRedraw);
    if (stopping_ || name_.empty()) continue;
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    std::fprintf(stderr, "\r\033[K%s, %.1f s", name_.c_str(), seconds);
    std::fflush(stderr);
    drawn = true;
  }
  if (drawn) std::fputs("\r\033[K", stderr);
  std::fflush(stderr);
}

}  // namespace logitless::cli

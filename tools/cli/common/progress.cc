// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/common/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

#include "cli/common/output.h"

namespace logitless::cli {
namespace {

constexpr auto kRedraw = std::chrono::milliseconds(100);  // Turns of a millisecond are not worth a line each.

// A line that wraps cannot be taken away again.
std::string fitted(std::string line) {
  winsize window{};
  const bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 1;
  if (known && line.size() >= window.ws_col) line.resize(window.ws_col - 1u);
  return line;
}

std::string time_left(double seconds) {
  if (seconds < 90) return format(", about %.0f s left", seconds);
  if (seconds < 90 * 60) return format(", about %.0f min left", seconds / 60);
  return format(", about %.1f h left", seconds / 3600);
}

}  // namespace

Progress::Progress(bool wanted) : wanted_(wanted), drawing_(wanted && isatty(STDERR_FILENO)) {}

void Progress::phase(const std::string& name, std::optional<double> left_s) {
  const auto now = std::chrono::steady_clock::now();
  if (!drawing_ || (drawn_ && now - drawn_at_ < kRedraw)) return;
  std::fprintf(stderr, "\r\033[K%s", fitted(name + (left_s ? time_left(*left_s) : "")).c_str());
  std::fflush(stderr);
  drawn_ = true;
  drawn_at_ = now;
}

void Progress::log(const std::string& line) {
  if (wanted_ && !drawing_) std::fprintf(stderr, "%s\n", line.c_str());
}

void Progress::note(const std::string& line) {
  if (!wanted_ || line.empty()) return;
  erase();
  std::fprintf(stderr, "%s\n", line.c_str());
}

void Progress::print(const std::string& text) {
  erase();
  cli::print(text);
}

void Progress::erase() {
  if (std::exchange(drawn_, false)) std::fputs("\r\033[K", stderr);
  std::fflush(stderr);
}

}  // namespace logitless::cli

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace logitless::cli {

/// One line on standard error that says what runs and for how long, only where standard error is a terminal. A thread
/// of its own draws it: most of the work is a wait or one long call.
class Progress {
 public:
  explicit Progress(bool wanted);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Names what runs from here on; `left_s`: seconds until all is done, where that is known.
  void phase(std::string name, std::optional<double> left_s = std::nullopt);
  /// A line that stays on standard error: where that is no terminal, in place of the drawn one.
  void log(const std::string& line);
  /// A line that stays on standard error in any case; none where it is empty.
  void note(const std::string& line);
  /// `text` to standard output, apart from the drawn line. Throws io::Error where it cannot be written.
  void print(const std::string& text);
  /// Takes the line away for good.
  void stop();

 private:
  using Clock = std::chrono::steady_clock;

  void draw();
  void erase();
  std::string line() const;

  const bool wanted_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  bool drawn_ = false;
  std::string name_;
  std::optional<double> left_s_;
  Clock::time_point start_;
  std::thread drawer_;
};

}  // namespace logitless::cli

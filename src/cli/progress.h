// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
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

  /// Names what runs from here on.
  void phase(std::string name);
  /// Takes the line away for good.
  void stop();

 private:
  void draw();

  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  std::string name_;
  std::chrono::steady_clock::time_point start_;
  std::thread drawer_;
};

}  // namespace logitless::cli

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace logitless::cli {

/// One line on standard error that says what runs, only where standard error is a terminal.
class Progress {
 public:
  explicit Progress(bool wanted);
  ~Progress() { erase(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Names what runs from here on; `left_s`: seconds until all is done, where that is known.
  void phase(const std::string& name, std::optional<double> left_s = std::nullopt);
  /// A line that stays on standard error: where that is no terminal, in place of the drawn one.
  void log(const std::string& line);
  /// A line that stays on standard error in any case; none where it is empty.
  void note(const std::string& line);
  /// `text` to standard output, apart from the drawn line. Throws io::Error where it cannot be written.
  void print(const std::string& text);
  /// Takes the line away.
  void erase();

 private:
  const bool wanted_, drawing_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point drawn_at_{};
};

}  // namespace logitless::cli

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <stdexcept>
#include <string>

namespace logitless::io {

/// A file, a config or a tensor in a file breaks a rule. what() is one line that names the place and the
/// rule.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Returns read(). An Error about the file that `option` names then begins with the option: "--hidden states:
/// cannot be opened: ...".
template <class Read>
auto of_option(const std::string& option, const Read& read) try {
  return read();
} catch (const Error& e) {
  throw Error(option + " " + e.what());
}

/// Returns text from a file in a form that fits a one-line message: without control characters, and cut to
/// `most` bytes.
inline std::string one_line(std::string text, size_t most = 200) {
  if (text.size() > most) text = text.substr(0, most - 3) + "...";
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, ' ');
  return text;
}

}  // namespace logitless::io

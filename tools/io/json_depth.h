// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace logitless::io {

/// No file that this project reads nests deeper than four levels. A JSON value is copied, printed and freed by
/// recursion, so what a stranger's file nests a hundred thousand levels deep would overflow the stack.
inline constexpr size_t kMostJsonDepth = 32;

/// How deep brackets and braces nest outside of strings. Of a text that is not JSON it says nothing.
inline size_t json_depth(std::string_view text) {
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

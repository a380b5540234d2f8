// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace logitless::io {

/// The whole text of a file or a pipe (`<(command)`, /dev/stdin). It waits for a pipe as long as somebody has it open
/// for writing; a named pipe that nobody opens within two seconds is an error, as are a folder, a device and a text
/// of more than `most_bytes`. Throws Error that names the path.
std::string read_text_file(const std::string& path, size_t most_bytes);

/// No file that this project reads nests deeper than four levels. A JSON value is copied, printed and freed by
/// recursion, so what a stranger's file nests a hundred thousand levels deep would overflow the stack.
inline constexpr size_t kMostJsonDepth = 32;

/// How deep brackets and braces nest outside of strings. Of a text that is not JSON it says nothing.
size_t json_depth(std::string_view text);

}  // namespace logitless::io

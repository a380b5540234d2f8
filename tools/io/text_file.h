// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

namespace logitless::io {

/// The whole text of a file or a pipe (`<(command)`, /dev/stdin). It waits for a pipe as long as somebody has it open
/// for writing; a named pipe that nobody opens within two seconds is an error, as are a folder, a device and a text
/// of more than `most_bytes`. Throws Error that names the path.
std::string read_text_file(const std::string& path, size_t most_bytes);

}  // namespace logitless::io

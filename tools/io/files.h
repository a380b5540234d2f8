// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Reads and writes whole files.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace logitless::io {

/// Returns the whole text of a file or a pipe (`<(command)`, /dev/stdin). Waits for a pipe as long as it is
/// open for writing. It is an error if a named pipe gets no writer within two seconds, for a folder, for a
/// device, and for a text of more than `most_bytes`. Throws Error that names the path.
std::string read_text_file(const std::string& path, size_t most_bytes);

/// Writes the parts, one after another. The file keeps its old content until the new one is complete. That is
/// first written to another file in the same folder, unnamed or with an unpredictable name, so that a full
/// disk or a process that ends early loses nothing and leaves nothing there. Links stay links, and the file
/// keeps its permissions. A device, a pipe, and a file in a folder that takes no new file are written
/// directly. Throws Error: "<path>: cannot be written: <reason>". Exceeding RLIMIT_FSIZE is such a reason if
/// the process ignores SIGXFSZ; otherwise it ends the process.
void write_file(const std::string& path, std::span<const std::string_view> parts);

/// Returns the path with its links followed. The file need not exist.
std::filesystem::path resolved(const std::filesystem::path& path);

}  // namespace logitless::io

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// How files are read and written.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace logitless::io {

/// The whole text of a file or a pipe (`<(command)`, /dev/stdin). It waits for a pipe as long as somebody has
/// it open for writing; a named pipe that nobody opens within two seconds is an error, as are a folder, a
/// device and a text of more than `most_bytes`. Throws Error that names the path.
std::string read_text_file(const std::string& path, size_t most_bytes);

/// Writes the parts, one after another. The file holds its old content until the new one is complete, which
/// grows beside it in a file that has no name or one that nobody can foresee, so that a full disk and a
/// process that ends early lose nothing and leave nothing behind. Links stay links, and the file keeps its
/// permissions. A device, a pipe, and a file in a folder that takes no other are written directly. Throws
/// Error: "<path>: cannot be written: <reason>"; a limit of RLIMIT_FSIZE is such a reason where the process
/// ignores SIGXFSZ, and ends it where not.
void write_file(const std::string& path, std::span<const std::string_view> parts);

/// Where a path leads through links, also where nothing is there yet.
std::filesystem::path resolved(const std::filesystem::path& path);

}  // namespace logitless::io

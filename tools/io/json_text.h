// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Parses JSON from untrusted files.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace logitless::io {

/// Throws Error if brackets and braces nest deeper than 32 levels; the files of this project have at most
/// four. A JSON value is copied, printed and freed by recursion, so a file with a hundred thousand levels
/// would overflow the stack. Messages begin with `place`: "run.jsonl:3: ".
void check_json_depth(std::string_view text, const std::string& place);

/// Parses one value; objects keep the order of their members. Throws Error.
nlohmann::ordered_json parse_json(std::string_view text, const std::string& place);

}  // namespace logitless::io

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// JSON from strangers.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace logitless::io {

/// Throws Error if brackets and braces nest deeper than 32 levels; no file that this project reads has more
/// than four. A JSON value is copied, printed and freed by recursion, so a file with a hundred thousand
/// levels would overflow the stack. Messages begin with `place`: "run.jsonl:3: ".
void check_json_depth(std::string_view text, const std::string& place);

/// Parses one value, whose objects keep their order. Throws Error.
nlohmann::ordered_json parse_json(std::string_view text, const std::string& place);

}  // namespace logitless::io

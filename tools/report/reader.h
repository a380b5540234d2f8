// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "report/bench_run.h"

namespace logitless::report {

/// Reads the JSON Lines that `logitless bench` writes (schema 1). A last line without its newline was torn by an
/// interruption: it is left out, with a note. Throws io::Error, one line that names file and line, for anything else
/// that breaks the schema.
BenchRun read_run(const std::string& path);

/// The same for a text at hand; `path` serves messages and the run's name.
BenchRun parse_run(const std::string& path, std::string_view text);

/// The same for one line, without its newline; number 1 is the header. A run needs no point here.
void parse_line(const std::string& path, int64_t number, std::string_view line, BenchRun& run);

/// One contender of a point, as the file holds it. `place` serves messages.
Measurement measurement_of(const nlohmann::ordered_json& contender, const std::string& place);

}  // namespace logitless::report

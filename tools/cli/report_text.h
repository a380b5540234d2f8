// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// What the commands' reports have in common.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/job.h"
#include "logitless/environment.h"
#include "report/units.h"

namespace logitless::cli {

/// printf into a string, cut at 1 KiB.
__attribute__((format(printf, 1, 2))) std::string format(const char* pattern, ...);

using report::human_bytes;

/// "cross_entropy, tiny: 134 tokens, hidden 96, vocab 2049, float32, hidden_vocab"
std::string shape_text(const std::string& what, const std::string& model, const Job& job);
/// The same as an object.
nlohmann::ordered_json shape_json(const Job& job);

/// "AMD EPYC, 2 threads, AVX3_DL, openblas Zen"
std::string machine_text(const Environment& environment);
/// A line for each warning.
std::string warnings_text(const Environment& environment);

/// null for a NaN or an infinity, which JSON has not.
nlohmann::ordered_json number(double value);

/// Indented, with a newline at the end. Texts from the machine or a config need not be UTF-8: a replaced letter is
/// better than no report.
std::string dump(const nlohmann::ordered_json& json);

}  // namespace logitless::cli

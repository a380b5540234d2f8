// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Statistics of training runs, and the JSON file for scripts.
#pragma once

#include <chrono>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

/// Returns the time since `start` in seconds.
double seconds_since(std::chrono::steady_clock::time_point start);

/// Returns the middle value, or the larger of the two middle ones; 0 if empty.
double median(std::vector<double> values);

/// Returns the largest |difference| over the steps that both runs have; NaN if one is NaN.
double largest_difference(const std::vector<double>& first, const std::vector<double>& second);

/// Writes the object to a file, or to stdout if `path` is "-". Throws std::runtime_error.
void write_json_file(const std::string& path, const nlohmann::json& object);

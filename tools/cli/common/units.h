// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Figures as people read them: plain ASCII but for "µ×∞", the same in every locale.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace logitless::cli {

/// "512 B", "9.3 MiB", "1.16 GiB"
std::string human_bytes(int64_t bytes);
/// Three digits: "85.7 ms", "7.64 s", "123 s"
std::string human_seconds(double seconds);
/// "1.01×", "0.98×", "0.012×": hundredths, far below 1 thousandths
std::string time_ratio(double ratio);
/// `digits` after the point.
std::string fixed(double value, int digits);
/// "a, b"
std::string joined(const std::vector<std::string>& words, const std::string& separator = ", ");

}  // namespace logitless::cli

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// What is said of a measurement, and figures as people read them. All are plain ASCII but for "µ×∞", the same
// in every locale.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "report/bench_run.h"

namespace logitless::report {

/// "512 B", "9.3 MiB", "1.16 GiB"
std::string human_bytes(int64_t bytes);
/// Three digits: "85.7 ms", "7.64 s", "123 s"
std::string human_seconds(double seconds);
/// "151,936"
std::string grouped(int64_t value);
/// "1,024×", "82×", "4.9×", "0.31×": tenths above 1, for quotients of memory
std::string memory_ratio(double ratio);
/// "1.01×", "0.98×", "0.012×": hundredths, far below 1 thousandths, for quotients of time
std::string time_ratio(double ratio);

/// `digits` after the point.
std::string fixed(double value, int digits);
/// At most `digits` after the point, no trailing zeros: "1.5", "2", "0"
std::string trimmed(double value, int digits);

/// What a contender is measured by: peak memory, time, dense's memory ÷ its own, its time ÷ dense's.
enum class Unit { kBytes, kSeconds, kMemoryRatio, kTimeRatio };

/// What values like this one are counted in on an axis: {1048576, " MiB"}
struct Magnitude {
  double size;
  const char* suffix;
};
Magnitude magnitude(double value, Unit unit);

/// What the page says of a contender at a point: its extra peak memory, its time, dense's memory ÷ its own,
/// or its time ÷ dense's. NaN where the contender failed, or where dense, which it is divided by, did.
double value_of(const Point& point, const Measurement& measurement, Unit unit);

/// The same in words; "–" where there is nothing to say.
std::string text_of(const Point& point, const Measurement& measurement, Unit unit);

/// Half the distance between the quartiles; that of a quotient is the contender's own. 0 for memory.
double spread_of(const Point& point, const Measurement& measurement, Unit unit);

/// "a, b"
std::string joined(const std::vector<std::string>& words, const std::string& separator = ", ");

/// "± 1.2 %"
std::string spread_text(double value, double spread);

/// What all of these points share: "1,024 tokens, hidden size 1,536, float32, hidden_vocab"
std::string common_shape(const std::vector<const Point*>& points);

}  // namespace logitless::report

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Values that config keys take in turn.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "report/bench_run.h"

namespace logitless::cli {

using report::SweptKey;

/// "kernel.time_block=8,16": at least one value, as the user wrote it. A comma between brackets, braces or quotes
/// belongs to a value. Throws io::Error.
SweptKey parse_sweep(const std::string& text);

/// Throws io::Error where a key stands twice, once by itself and once in its section, or also among the `assignments`
/// of --set.
void check_sweep(std::span<const SweptKey> sweep, std::span<const std::string> assignments);

/// "kernel.time_block=8" for each key: the Cartesian product, in which the last key changes fastest. One empty list
/// where there are no keys. Throws io::Error where it is larger than any run could be.
std::vector<std::vector<std::string>> assignments_of(std::span<const SweptKey> sweep);

}  // namespace logitless::cli

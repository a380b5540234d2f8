// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// What two benchmarks differ in, other than their results.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "report/bench_run.h"

namespace logitless::cli {

/// Values by name.
using Facts = std::map<std::string, std::string>;

/// Each such as "seq_len is 256 there and 512 here".
std::vector<std::string> differences(const Facts& there, const Facts& here);

/// Of settings and options.
std::vector<std::string> option_differences(const report::BenchRun& there, const report::BenchRun& here);

/// Of machine, BLAS and version.
std::vector<std::string> machine_differences(const report::BenchRun& there, const report::BenchRun& here);

/// "a; b; c", cut short where there are many.
std::string joined(const std::vector<std::string>& differences);

/// Every setting of a point by key, swept or not, but for those that no figure depends on.
Facts settings_of(const report::BenchRun& run, const std::vector<std::string>& at);

}  // namespace logitless::cli

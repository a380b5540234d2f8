// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Which charts a run gets.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "report/bench_run.h"

namespace logitless::report {

/// A chapter against each swept key of numbers; where there is none, against each key of names, and one chapter where
/// nothing is swept. It has a row for each combination of the other keys' values; the rows have a chart of memory, one
/// of time, and where dense ran beside another contender one of quotients of time:
///
///     [{heading, caption, rows: [{charts: [CHART]}]}]
///
///     CHART = {title, subtitle, description,  // in words what it shows, for those who cannot see it
///              unit: {size, suffix},          // of the axis of values: {1048576, " MiB"}
///              log, range: [low, high],       // the charts of one chapter and metric share them
///              x: {label, log, joined, ticks: [[x, label]]},
///              series: [{name, marks: [{x, value, spread, note, failed}]}]}  // in the order of the contenders
nlohmann::ordered_json chapters(const BenchRun& run);

}  // namespace logitless::report

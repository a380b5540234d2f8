// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Which drawings a run gets.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "report/bench_run.h"

namespace logitless::report {

/// Charts against every swept key that changes the shape; against any other key of numbers where it is the only one;
/// heat maps of the first two keys of numbers where there are more; bars where there is none. Keys of names, and
/// further keys of a heat map, get a drawing for each value. At least one chapter, each with at least one row of memory
/// and time:
///
///     [{heading, caption, rows: [{drawings: [CHART or HEAT MAP]}]}]
///
/// A chart has, of `series` in the order of the contenders, values in bytes, in seconds or as quotients:
///
///     {is_chart: true, title, subtitle, description,  // in words what it shows, for those who cannot see it
///      unit: {size, suffix},                          // of the axis of values: {1048576, " MiB"}
///      log, range: [low, high],                       // the charts of one chapter and metric share them
///      x: {label, log, ticks: [[x, label]]},          // null: bars
///      series: [{name, marks: [{value, spread, text, note, failed, x}]}]}
///
/// and a heat map, whose tones follow the logarithm of the value:
///
///     {is_heat_map: true, title, subtitle, row_key, column_key, columns,
///      lines: [{value, cells: [{text, note, tone, share}]}]}
nlohmann::ordered_json chapters(const BenchRun& run);

}  // namespace logitless::report

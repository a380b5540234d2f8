// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The page of `logitless report`, and the parts that its charts and claims are made of.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "report/bench_run.h"

namespace logitless::report {

/// One HTML page about the runs, a section each: page.html filled in, with page.css, page.js and Chart.js. It
/// needs nothing but itself: it loads nothing, and runs no script but these two. The same runs give the same
/// bytes.
std::string page(const std::vector<BenchRun>& runs);

/// What each contender saves and costs against dense, at the largest shape (tokens · hidden · vocabulary) at
/// which dense and another contender ran. Where several points have it, each quotient is the range over these
/// points.
///
///     {lead,     // where the claims were measured, or why there are none
///      claims: [{contender, remark, figures: [{figure, words, detail}]}],
///      remarks}  // what failed, and what is missing
///
/// A claim has a figure of memory, such as {"4.9×", "extra peak memory of dense ÷ its own", "245.0 MiB, not
/// 1.16 GiB"}, and one of time. A quotient that is not finite is left out.
nlohmann::ordered_json headline(const BenchRun& run);

/// A chapter against each swept key of numbers; where there is none, against each key of names, and one
/// chapter where nothing is swept. It has a row for each combination of the other keys' values; the rows have
/// a chart of memory, one of time, and where dense ran beside another contender one of quotients of time:
///
///     [{heading, caption, rows: [{charts: [CHART]}]}]
///
///     CHART = {title, subtitle, description,  // in words what it shows, for those who cannot see it
///              unit: {size, suffix},          // of the axis of values: {1048576, " MiB"}
///              log, range: [low, high],       // the charts of one chapter and metric share them
///              x: {label, log, joined, ticks: [[x, label]]},
///              series: [{name, marks: [{x, value, spread, note, failed}]}]}  // in the contenders' order
nlohmann::ordered_json chapters(const BenchRun& run);

}  // namespace logitless::report

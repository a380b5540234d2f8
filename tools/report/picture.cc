// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "report/chapters.h"
#include "report/machine.h"
#include "report/markup.h"
#include "report/page.h"
#include "report/style.h"

namespace logitless::report {
namespace {

constexpr double kMargin = 18, kGutter = 36, kCaptionHeight = 26, kRowGap = 16, kLineHeight = 18;

// Memory beside time.
struct Row {
  std::string caption;
  Panel memory, time;

  double height() const { return std::max(memory.height, time.height) + kCaptionHeight + kRowGap; }
};

Row first_row(const Chapter& chapter) { return {chapter.caption, chapter.rows.front()[0], chapter.rows.front()[1]}; }

std::vector<Row> rows_of(const std::vector<BenchRun>& runs) {
  std::vector<Row> rows;
  for (const BenchRun& run : runs) {
    for (const Chapter& chapter : chapters(run)) {
      if (chapter.against_shape) rows.push_back(first_row(chapter));
    }
  }
  if (rows.empty()) rows.push_back(first_row(chapters(runs.front()).front()));
  return rows;
}

std::vector<std::string> machines_of(const std::vector<BenchRun>& runs) {
  std::vector<std::string> lines;
  for (const BenchRun& run : runs) {
    const std::string line = machine_line(run);
    if (std::find(lines.begin(), lines.end(), line) == lines.end()) lines.push_back(line);
  }
  return lines;
}

void place(Markup& svg, const Panel& panel, double x, double y) {
  svg.open("g", {{"transform", translate(x, y)}}).line_break();
  svg.raw(panel.body).close().line_break();
}

}  // namespace

std::string picture(const std::vector<BenchRun>& runs) {
  const std::vector<Row> rows = rows_of(runs);
  const std::vector<std::string> machines = machines_of(runs);
  double width = 0, height = 2 * kMargin - kRowGap + kLineHeight * static_cast<double>(machines.size());
  std::string description;
  for (const Row& row : rows) {
    width = std::max(width, 2 * kMargin + row.memory.width + kGutter + row.time.width);
    height += row.height();
    for (const Panel* panel : {&row.memory, &row.time}) description += panel->title + ": " + panel->description + " ";
  }
  Markup svg;
  open_svg(svg, "logitless", width, height, "logitless: memory and time of dense and fused", description);
  svg.open("style").raw(chart_css()).close().line_break();
  svg.empty("rect", {{"class", "paper"}, {"width", width}, {"height", height}, {"rx", 6.0}}).line_break();
  double y = kMargin;
  for (const Row& row : rows) {
    svg.element("text", {{"class", "small"}, {"x", kMargin}, {"y", y + 8}}, row.caption).line_break();
    place(svg, row.memory, kMargin, y + kCaptionHeight);
    place(svg, row.time, kMargin + row.memory.width + kGutter, y + kCaptionHeight);
    y += row.height();
  }
  y -= kRowGap;
  for (const std::string& machine : machines) {
    y += kLineHeight;
    svg.element("text", {{"class", "small"}, {"x", kMargin}, {"y", y}}, machine).line_break();
  }
  svg.close().line_break();
  return svg.str();
}

}  // namespace logitless::report

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "report/panel.h"

namespace logitless::report {

void draw_heading(Markup& svg, const std::string& title, const std::string& subtitle) {
  svg.element("text", {{"class", "title"}, {"x", 0.0}, {"y", 13.0}}, title);
  svg.element("text", {{"class", "small"}, {"x", 0.0}, {"y", 29.0}}, subtitle).line_break();
}

}  // namespace logitless::report

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "report/markup.h"

namespace logitless::report {

inline constexpr double kPanelWidth = 380;  // On a phone of 360 pixels its 12 pixel letters shrink to 10 at the least.

/// A finished drawing around its own origin. The page and the lone SVG only place it.
struct Panel {
  double width = kPanelWidth;
  double height = 0;
  std::string title;
  std::string description;  ///< says in words what the drawing shows, for those who cannot see it
  std::string body;         ///< SVG
};

/// The two lines at a panel's top; the drawing starts below y = 34.
void draw_heading(Markup& svg, const std::string& title, const std::string& subtitle);

}  // namespace logitless::report

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// How drawings look: colours that the colour-blind can tell apart, on white and on dark, and never colour alone: each
// contender has a marker and a dash pattern of its own as well.
#pragma once

#include <string>
#include <string_view>

#include "report/markup.h"

namespace logitless::report {

inline constexpr int kHeatSteps = 9;

/// The rules that drawings need, for the page's or a lone SVG's <style>. On screen they follow the reader's colour
/// scheme; paper is white.
std::string chart_css();

/// The class of everything that belongs to a contender; it sets `color`.
std::string series_class(const std::string& contender);
/// Its stroke-dasharray, "none" for a solid line.
std::string series_dash(const std::string& contender);
/// Draws its marker; `note` shows when a mouse rests on it. A hollow one stands for a value that the axis cannot hold.
void draw_marker(Markup& markup, const std::string& contender, double x, double y, const std::string& note,
                 bool hollow = false);

/// The class of a cell in a heat map: step 0 to kHeatSteps - 1.
std::string heat_class(bool diverging, int step);

/// How wide a text is likely to come out, in pixels, for a wide font; the reader's font is not known.
double text_width(std::string_view text, double font_size, bool bold = false);

}  // namespace logitless::report

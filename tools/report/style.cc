// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "report/style.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "report/units.h"

namespace logitless::report {
namespace {

struct SeriesStyle {
  const char* contender;
  const char* light;  // At least 4.5 : 1 on white, since labels have these colours too;
  const char* dark;   // the same on #0d1117.
  const char* dash;
  const char* marker;  // A path around the origin.
};

constexpr const char* kCircle = "M-4 0A4 4 0 1 1 4 0A4 4 0 1 1 -4 0Z";
constexpr const char* kSquare = "M-3.6-3.6H3.6V3.6H-3.6Z";
constexpr const char* kTriangle = "M0-4.8L4.6 3.4H-4.6Z";
constexpr const char* kDiamond = "M0-5L5 0L0 5L-5 0Z";
constexpr const char* kStar = "M-1.5-4.5H1.5V-1.5H4.5V1.5H1.5V4.5H-1.5V1.5H-4.5V-1.5H-1.5Z";
constexpr const char* kDart = "M0 4.8L4.6-3.4H-4.6Z";

// Okabe and Ito's colours, darkened for white and lightened for dark. The two levels never meet in one drawing, so
// their contenders share three of them. The last entry is for a name that is not known here.
constexpr std::array<SeriesStyle, 8> kSeries = {{{"dense", "#57606a", "#b1bac4", "none", kSquare},
                                                 {"one_pass", "#0067a5", "#56b4e9", "none", kCircle},
                                                 {"two_pass", "#b84c00", "#ff9a4d", "none", kTriangle},
                                                 {"forward", "#00765a", "#2cc295", "6 3", kDiamond},
                                                 {"auto", "#a2317e", "#e897c6", "2 3", kStar},
                                                 {"in_place", "#0067a5", "#56b4e9", "none", kCircle},
                                                 {"apart", "#b84c00", "#ff9a4d", "none", kTriangle},
                                                 {"", "#7a6200", "#e0c341", "8 3 2 3", kDart}}};

constexpr std::array<const char*, kHeatSteps> kSequentialLight = {"#f1f6fb", "#dce9f5", "#c2d9ee", "#a0c4e3", "#78aad5",
                                                                  "#508dc4", "#306fae", "#1a5292", "#0b3a70"};
constexpr std::array<const char*, kHeatSteps> kSequentialDark = {"#14243a", "#173454", "#1a4570", "#1f588c", "#2c6da6",
                                                                 "#4285bd", "#63a0d1", "#8cbce2", "#bcd9f0"};
// Blue below, orange above: safe for red-green blindness.
constexpr std::array<const char*, kHeatSteps> kDivergingLight = {"#2166a5", "#5a95c8", "#97bedf", "#cfe1ef", "#f4f4f2",
                                                                 "#fbdcc0", "#f3b47f", "#d98540", "#a85612"};
constexpr std::array<const char*, kHeatSteps> kDivergingDark = {"#8cc4f2", "#559bd3", "#34709f", "#27496a", "#2b3038",
                                                                "#5a3f28", "#8a5825", "#c07b34", "#f2b06c"};
std::string numbered(const char* prefix, size_t number) { return std::string(prefix) + std::to_string(number); }

size_t style_index(std::string_view contender) {
  const auto known = [&](const SeriesStyle& style) { return style.contender == contender; };
  return std::min<size_t>(std::find_if(kSeries.begin(), kSeries.end(), known) - kSeries.begin(), kSeries.size() - 1);
}

// Relative luminance of "#rrggbb", as WCAG 2 defines it.
double luminance(std::string_view colour) {
  const std::array<double, 3> weights = {0.2126, 0.7152, 0.0722};
  double sum = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    const double channel = std::stoi(std::string(colour.substr(1 + 2 * i, 2)), nullptr, 16) / 255.0;
    sum += weights[i] * (channel <= 0.04045 ? channel / 12.92 : std::pow((channel + 0.055) / 1.055, 2.4));
  }
  return sum;
}

// Black or white, whichever stands out more.
const char* ink_on(std::string_view colour) {
  const double light = luminance(colour);
  return (light + 0.05) / 0.05 > 1.05 / (light + 0.05) ? "#000" : "#fff";
}

constexpr const char* kShapesCss =
    R"(.chart{font:12px system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
.chart .title{font-size:13px;font-weight:600}
.chart .small{font-size:11px}
.chart .end{text-anchor:end}
.chart .middle{text-anchor:middle}
.chart .line{fill:none;stroke:currentColor;stroke-width:1.8;stroke-linejoin:round}
.chart .spread{fill:none;stroke:currentColor;stroke-width:1.2}
.chart .cross{fill:none;stroke:currentColor;stroke-width:2}
.chart .bar{fill-opacity:.75}
.chart .leader{fill:none;stroke:currentColor;stroke-width:1;stroke-dasharray:1 3}
.chart .mark,.chart .bar{fill:currentColor}
)";

std::string heat_css(const char* prefix, const std::array<const char*, kHeatSteps>& colours) {
  std::string css;
  for (size_t step = 0; step < colours.size(); ++step) {
    const std::string name = std::string(".chart .") + numbered(prefix, step);
    css += name + " rect{fill:" + colours[step] + "}" + name + " text{fill:" + ink_on(colours[step]) + "}\n";
  }
  return css;
}

std::string colour_css(bool dark) {
  const auto pick = [&](const char* on_white, const char* on_dark) { return std::string(dark ? on_dark : on_white); };
  const std::string paper = pick("#ffffff", "#0d1117"), faint = pick("#9aa2ab", "#6b7480");
  std::string css = ".chart text{fill:" + pick("#4a525a", "#aeb6bf") + "}\n" +
                    ".chart .title{fill:" + pick("#1f2328", "#e6edf3") + "}\n" +
                    ".chart .grid{stroke:" + pick("#e6e8eb", "#262c35") + "}\n" +
                    ".chart .whisker{stroke-width:1.5;stroke:" + pick("#1f2328", "#e6edf3") + "}\n" +
                    ".chart .axis{stroke:" + faint + "}\n" + ".chart .absent{fill:none;stroke:" + faint + "}\n" +
                    ".chart .paper{fill:" + paper + "}\n" + ".chart .mark{stroke:" + paper + "}\n" +
                    ".chart .hollow{fill:" + paper + ";stroke:currentColor;stroke-width:1.5}\n";
  for (size_t i = 0; i < kSeries.size(); ++i) {
    css += numbered(".s", i) + "{color:" + pick(kSeries[i].light, kSeries[i].dark) + "}\n";
  }
  return css + ".chart .label{fill:currentColor;font-weight:600}\n" +
         heat_css("seq", dark ? kSequentialDark : kSequentialLight) +
         heat_css("div", dark ? kDivergingDark : kDivergingLight);
}

}  // namespace

std::string chart_css() {
  return kShapesCss + colour_css(false) + "@media screen and (prefers-color-scheme:dark){\n" + colour_css(true) + "}\n";
}

std::string series_class(const std::string& contender) { return numbered("s", style_index(contender)); }

std::string series_dash(const std::string& contender) { return kSeries[style_index(contender)].dash; }

void draw_marker(Markup& markup, const std::string& contender, double x, double y, const std::string& note,
                 bool hollow) {
  markup.open("path", {{"class", hollow ? "mark hollow" : "mark"},
                       {"d", kSeries[style_index(contender)].marker},
                       {"transform", translate(x, y)}});
  markup.element("title", note).close();
}

std::string heat_class(bool diverging, int step) {
  return numbered(diverging ? "div" : "seq", static_cast<size_t>(step));
}

double text_width(std::string_view text, double font_size, bool bold) {
  const auto letters = std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; });  // UTF-8
  return (bold ? 0.69 : 0.62) * font_size * static_cast<double>(letters);
}

}  // namespace logitless::report

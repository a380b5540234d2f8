// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The parts of a report: figures, scales, markup, how a sweep is cut, and what the headline claims.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <regex>

#include "report/chapters.h"
#include "report/headline.h"
#include "report/heat_map.h"
#include "report/markup.h"
#include "report/scale.h"
#include "report/style.h"
#include "report/sweep.h"
#include "report/units.h"
#include "report_fixture.h"

namespace logitless::testing {
namespace {

using namespace report;
using Numbers = std::vector<double>;

TEST(Units, FiguresReadAsPeopleWriteThem) {
  EXPECT_EQ(human_bytes(512), "512 B");
  EXPECT_EQ(human_bytes(9751757), "9.3 MiB");
  EXPECT_EQ(human_bytes(1245540516), "1.16 GiB");
  EXPECT_EQ(human_bytes(int64_t{1} << 62), "4194304.00 TiB");
  EXPECT_EQ(human_seconds(0), "0.00 µs");
  EXPECT_EQ(human_seconds(0.0857), "85.7 ms");
  EXPECT_EQ(human_seconds(0.0009999), "1.00 ms");
  EXPECT_EQ(human_seconds(0.9999), "1.00 s");
  EXPECT_EQ(human_seconds(9.999), "10.0 s");
  EXPECT_EQ(human_seconds(123.4), "123 s");
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(151936), "151,936");
  EXPECT_EQ(grouped(-1000), "-1,000");
  EXPECT_EQ(grouped(-100), "-100");
  EXPECT_EQ(memory_ratio(81.6), "82×");
  EXPECT_EQ(memory_ratio(151936.4), "151,936×");
  EXPECT_EQ(memory_ratio(4.86), "4.9×");
  EXPECT_EQ(memory_ratio(0.31), "0.31×");
  EXPECT_EQ(time_ratio(1.006), "1.01×");
  EXPECT_EQ(time_ratio(0.0123), "0.012×");
  EXPECT_EQ(fixed(std::numeric_limits<double>::infinity(), 2), "∞");
  EXPECT_EQ(fixed(std::nan(""), 2), "NaN");
  EXPECT_EQ(fixed(std::numeric_limits<double>::max(), 2).size(), 312u);
  EXPECT_EQ(trimmed(1.50, 3), "1.5");
  EXPECT_EQ(trimmed(-0.0001, 2), "0");
  EXPECT_EQ(trimmed(100, 2), "100");
}

TEST(Units, TickLabelsAreExactAndShort) {
  EXPECT_EQ(tick_label(0x1p24, Unit::kBytes, 0x1p24), "16 MiB");
  EXPECT_EQ(tick_label(0x1p28, Unit::kBytes, 0x1p30), "0.25 GiB");
  EXPECT_EQ(tick_label(0, Unit::kBytes, 0x1p30), "0");
  EXPECT_EQ(tick_label(0.0025, Unit::kSeconds, 0.0025), "2.5 ms");
  EXPECT_EQ(tick_label(0.5, Unit::kSeconds, 2), "0.5 s");
  EXPECT_EQ(tick_label(1.5, Unit::kTimeRatio, 2), "1.5×");
  EXPECT_EQ(tick_label(151936, Unit::kNone, 0), "151,936");
}

TEST(Ticks, LinearOnesAreMultiplesOfOneTwoOrFive) {
  EXPECT_EQ(linear_ticks(1, 5, Unit::kNone), (Numbers{0, 0.2, 0.4, 0.6000000000000001, 0.8, 1}));
  EXPECT_EQ(linear_ticks(17, 5, Unit::kSeconds), (Numbers{0, 5, 10, 15, 20}));
  EXPECT_EQ(linear_ticks(0.0123, 5, Unit::kSeconds), (Numbers{0, 0.005, 0.01, 0.015}));
  EXPECT_EQ(linear_ticks(0, 5, Unit::kSeconds).front(), 0);
  EXPECT_GT(linear_ticks(0, 5, Unit::kSeconds).size(), 1u);
}

TEST(Ticks, BytesGoByPowersOfTwo) {
  EXPECT_EQ(linear_ticks(1000, 5, Unit::kBytes), (Numbers{0, 256, 512, 768, 1024}));
  EXPECT_EQ(log_ticks(5e6, 9e8, 7, Unit::kBytes), (Numbers{0x1p22, 0x1p24, 0x1p26, 0x1p28, 0x1p30}));
  EXPECT_EQ(log_ticks(0x1p20, 0x1p26, 7, Unit::kBytes),
            (Numbers{0x1p20, 0x1p21, 0x1p22, 0x1p23, 0x1p24, 0x1p25, 0x1p26}));
}

TEST(Ticks, LogarithmicOnesThinOutWithTheSpan) {
  EXPECT_EQ(log_ticks(0.3, 4, 7, Unit::kSeconds), (Numbers{0.2, 0.5, 1, 2, 5}));
  EXPECT_EQ(log_ticks(1, 1000, 7, Unit::kNone), (Numbers{1, 10, 100, 1000}));
  EXPECT_EQ(log_ticks(3, 2e9, 7, Unit::kNone), (Numbers{1, 1e2, 1e4, 1e6, 1e8, 1e10}));
}

TEST(Ticks, CoverTheirRangeAndStayFew) {
  for (const Unit unit : {Unit::kNone, Unit::kBytes, Unit::kSeconds}) {
    for (double low = 1e-7; low < 1e12; low *= 3.7) {
      for (const double span : {11.0, 150.0, 1e5, 1e9}) {
        const Numbers ticks = log_ticks(low, low * span, 7, unit);
        EXPECT_LE(ticks.size(), 7u);
        EXPECT_GE(ticks.size(), 2u);
        EXPECT_LE(ticks.front(), low * (1 + 1e-8)) << low << " " << span;
        EXPECT_GE(ticks.back(), low * span * (1 - 1e-8)) << low << " " << span;
        EXPECT_TRUE(std::is_sorted(ticks.begin(), ticks.end()));
      }
      const Numbers ticks = linear_ticks(low, 5, unit);
      EXPECT_LE(ticks.size(), 6u) << low;
      EXPECT_GE(ticks.back(), low * (1 - 1e-8));
    }
  }
}

TEST(Scales, MapEndsAndMiddlesAndHoldOutsidersAtTheEdge) {
  const Scale linear(0, 10, 100, 0, false);
  EXPECT_EQ(linear(0), 100);
  EXPECT_EQ(linear(2.5), 75);
  EXPECT_EQ(linear(-1), 100);
  EXPECT_EQ(linear(11), 0);
  const Scale logarithmic(1, 100, 0, 50, true);
  EXPECT_DOUBLE_EQ(logarithmic(10), 25);
  EXPECT_EQ(logarithmic(0), 0);
  EXPECT_EQ(Scale(7, 7, 0, 50, false)(7), 25);
}

TEST(MarkupText, NothingThatComesInTurnsIntoMarkup) {
  EXPECT_EQ(escape("a<b>&\"c'd"), "a&lt;b&gt;&amp;&quot;c&#39;d");
  EXPECT_EQ(escape(std::string("x\0y\x1bz\n", 6)), "x\uFFFDy\uFFFDz\n");
  EXPECT_EQ(escape("µ ÷"), "µ ÷");
  Markup markup;
  markup.open("g", {{"class", "a\"><script>"}, {"x", 1.005}}).text("</g>").close();
  EXPECT_EQ(markup.str(), "<g class=\"a&quot;&gt;&lt;script&gt;\" x=\"1\">&lt;/g&gt;</g>");
}

double luminance(const std::string& hex) {
  double sum = 0;
  for (const auto& [at, weight] : {std::pair(0, 0.2126), std::pair(1, 0.7152), std::pair(2, 0.0722)}) {
    const double c = std::stoi(hex.substr(static_cast<size_t>(2 * at), 2), nullptr, 16) / 255.0;
    sum += weight * (c <= 0.04045 ? c / 12.92 : std::pow((c + 0.055) / 1.055, 2.4));
  }
  return sum;
}

double contrast(const std::string& a, const std::string& b) {
  const double x = luminance(a), y = luminance(b);
  return (std::max(x, y) + 0.05) / (std::min(x, y) + 0.05);
}

// Every "<selector>{<property>:#rrggbb}" of the rules that `pattern` catches, as its groups.
std::vector<std::smatch> rules_in(const std::string& css, const char* pattern) {
  const std::regex regex(pattern);
  return {std::sregex_iterator(css.begin(), css.end(), regex), std::sregex_iterator()};
}

TEST(Style, LettersStandOutOnBothGrounds) {
  const std::string css = chart_css();
  const size_t dark = css.find("@media screen and (prefers-color-scheme:dark)");
  ASSERT_NE(dark, std::string::npos);
  for (const auto& [part, ground] :
       {std::pair(css.substr(0, dark), std::string("ffffff")), std::pair(css.substr(dark), std::string("0d1117"))}) {
    const auto letters = rules_in(part, "(?:\\.s\\d\\{color|\\.chart text\\{fill|\\.title\\{fill):#([0-9a-f]{6})");
    EXPECT_EQ(letters.size(), 10u);
    for (const std::smatch& rule : letters) EXPECT_GE(contrast(rule[1], ground), 4.5) << rule.str();
    const auto cells = rules_in(part, "rect\\{fill:#([0-9a-f]{6})\\}[^{]*text\\{fill:#([0-9a-f]{3})\\}");
    EXPECT_EQ(cells.size(), 2u * kHeatSteps);
    for (const std::smatch& rule : cells) {
      EXPECT_GE(contrast(rule[1], rule[2] == "000" ? "000000" : "ffffff"), 4.5) << rule.str();
    }
  }
}

TEST(Sweep, KeysOfNumbersLieAlongAxesAndNamesMakeFacets) {
  BenchFile file;
  file.sweep("seq_len", {"128", "256"})
      .sweep("model.dtype", {"float32", "bfloat16"})
      .sweep("kernel.block_size", {"auto", "512", "1024"})
      .sweep("kernel.workspace", {"16MiB", "64MiB"})
      .sweep("seed", {"1"});
  file.point({{"seq_len", "128"},
              {"model.dtype", "float32"},
              {"kernel.block_size", "auto"},
              {"kernel.workspace", "16MiB"},
              {"seed", "1"}},
             {});
  const VaryingKeys keys = varying_keys(file.run());
  EXPECT_EQ(keys.axes, (std::vector<size_t>{0, 2, 3}));
  EXPECT_EQ(keys.facets, (std::vector<size_t>{1}));
}

TEST(Sweep, OfRivalsTheFullestSliceStaysThenTheLast) {
  BenchFile file;
  file.sweep("seq_len", {"128", "256"}).sweep("model.vocab_size", {"1000", "2000", "3000"});
  for (const auto& [tokens, vocab] : std::vector<std::pair<const char*, const char*>>{
           {"128", "1000"}, {"256", "1000"}, {"128", "2000"}, {"256", "2000"}, {"128", "3000"}}) {
    file.point({{"seq_len", tokens}, {"model.vocab_size", vocab}}, {ran("dense", 1, 1)});
  }
  const BenchRun run = file.run();
  const std::vector<Slice> slices = cut(run, {0}, {0, 1});
  ASSERT_EQ(slices.size(), 1u);
  EXPECT_EQ(slices[0].title, "vocab_size = 2000");
  EXPECT_EQ(slices[0].points.size(), 2u);
  EXPECT_EQ(cut(run, {0}).size(), 3u);
  EXPECT_EQ(cut(run, {0, 1}).size(), 1u);
}

TEST(Sweep, KeysLoseTheirSectionUnlessTwoWouldLookAlike) {
  BenchFile file;
  file.sweep("model.dtype", {"float32"}).sweep("seed", {"1"});
  file.point({{"model.dtype", "float32"}, {"seed", "1"}}, {});
  EXPECT_EQ(short_key(file.run(), 0), "dtype");
  BenchFile alike;
  alike.sweep("model.dtype", {"float32"}).sweep("gradients.dtype", {"float32"});
  alike.point({{"model.dtype", "float32"}, {"gradients.dtype", "float32"}}, {});
  EXPECT_EQ(short_key(alike.run(), 0), "model.dtype");
}

TEST(HeadlineClaims, DivideAtTheLargestShapeWhereDenseRan) {
  const Headline top = headline(read_run(kTokensFile));
  EXPECT_NE(top.lead.find("1,024 tokens, 151,936 vocabulary entries, hidden size 1,536, float32"), std::string::npos);
  ASSERT_EQ(top.claims.size(), 3u);
  const Claim& two_pass = top.claims[1];
  EXPECT_EQ(two_pass.contender, "two_pass");
  EXPECT_EQ(two_pass.memory, "45×");
  EXPECT_EQ(two_pass.memory_words, "less extra peak memory than dense");
  EXPECT_EQ(two_pass.memory_figures, "13.2 MiB, not 596.0 MiB");
  EXPECT_EQ(two_pass.time, "1.25×");
  EXPECT_EQ(two_pass.time_figures, "5.00 s, not 4.00 s");
  EXPECT_EQ(top.claims[2].remark, "the loss alone, no gradients");
  ASSERT_EQ(top.remarks.size(), 2u);
  EXPECT_NE(top.remarks[0].find("At 4,096 tokens"), std::string::npos);
  EXPECT_NE(top.remarks[0].find("dense failed (cannot allocate"), std::string::npos);
  EXPECT_NE(top.remarks[0].find("one_pass took 16.2 s and 257.0 MiB"), std::string::npos);
  EXPECT_EQ(top.remarks[1], "1 measurement failed; the table says why.");
}

TEST(HeadlineClaims, GiveTheRangeWhereSeveralPointsHaveTheLargestShape) {
  BenchFile file;
  file.sweep("kernel.block_size", {"256", "512", "1024"});
  file.point({{"kernel.block_size", "256"}}, {ran("dense", 1, 8000), ran("one_pass", 0.9, 1000)});
  file.point({{"kernel.block_size", "512"}}, {ran("dense", 1, 8000), ran("one_pass", 1.2, 2000)});
  const Headline top = headline(file.run());
  ASSERT_EQ(top.claims.size(), 1u);
  EXPECT_EQ(top.claims[0].memory, "4.0× to 8.0×");
  EXPECT_EQ(top.claims[0].time, "0.90× to 1.20×");
  EXPECT_EQ(top.claims[0].time_figures, "over 2 points");
  EXPECT_EQ(top.remarks,
            (std::vector<std::string>{"The run is not complete: 2 of 3 points of the sweep are in the file."}));
}

TEST(HeadlineClaims, MoreMemoryIsCalledMoreAndNoneMakesNoQuotient) {
  const auto claim = [](int64_t dense, int64_t own) {
    return headline(BenchFile().point(Json::object(), {ran("dense", 1, dense), ran("one_pass", 1, own)}).run())
        .claims.at(0);
  };
  EXPECT_EQ(claim(1000, 3000).memory, "3.0×");
  EXPECT_EQ(claim(1000, 3000).memory_words, "more extra peak memory than dense");
  EXPECT_EQ(claim(1000, 1000).memory_words, "the extra peak memory of dense");
  EXPECT_EQ(claim(1000, 0).memory + " " + claim(1000, 0).memory_words, "0 B of extra peak memory");
  EXPECT_EQ(claim(0, 0).memory, "");
}

TEST(HeadlineClaims, SayWhatAutoChose) {
  BenchFile file;
  file.sweep("kernel.workspace", {"16MiB", "256MiB"});
  Json tight = ran("auto", 1, 1000), roomy = ran("auto", 1, 2000);
  tight["plan"] = "two_pass";
  roomy["plan"] = "one_pass";
  file.point({{"kernel.workspace", "16MiB"}}, {ran("dense", 1, 8000), tight});
  EXPECT_EQ(headline(file.run()).claims.at(0).remark, "chose two_pass");
  file.point({{"kernel.workspace", "256MiB"}}, {ran("dense", 1, 8000), roomy});
  EXPECT_EQ(headline(file.run()).claims.at(0).remark, "chose two_pass or one_pass");
}

TEST(HeadlineClaims, AreAbsentWithoutDense) {
  BenchFile file;
  file.point(Json::object(), {failed("dense", "no"), ran("one_pass", 1, 1)});
  const Headline top = headline(file.run());
  EXPECT_TRUE(top.claims.empty());
  EXPECT_NE(top.lead.find("no quotients"), std::string::npos);
}

TEST(HeatScales, DivergeOnlyAroundOne) {
  const auto scale = [](Numbers values, Unit unit) {
    HeatMap map;
    for (const double value : values) map.cells.push_back({value, "", ""});
    return scale_of({map}, unit);
  };
  const HeatScale around = scale({0.8, 1.1}, Unit::kTimeRatio);
  EXPECT_TRUE(around.diverging);
  EXPECT_DOUBLE_EQ(around.low, 0.8);
  EXPECT_DOUBLE_EQ(around.high, 1.25);
  const HeatScale above = scale({1.2, 1.5}, Unit::kTimeRatio);
  EXPECT_FALSE(above.diverging);
  EXPECT_DOUBLE_EQ(above.low, 1.2);
  EXPECT_DOUBLE_EQ(above.high, 1.5);
  EXPECT_NEAR(scale({2, 2}, Unit::kBytes).high / scale({2, 2}, Unit::kBytes).low, 1.1, 1e-12);
  const HeatScale odd = scale({0, std::numeric_limits<double>::infinity(), 3, 30}, Unit::kMemoryRatio);
  EXPECT_DOUBLE_EQ(odd.low, 3);
  EXPECT_DOUBLE_EQ(odd.high, 30);
}

}  // namespace
}  // namespace logitless::testing

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The parts of a report: figures, colours, and what the headline claims.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <regex>

#include "report/page.h"
#include "report/units.h"
#include "report_fixture.h"

namespace logitless::testing {
namespace {

using namespace report;

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

TEST(Units, AnAxisCountsInWhatSuitsIt) {
  EXPECT_EQ(magnitude(1000, Unit::kBytes).suffix, std::string(" B"));
  EXPECT_EQ(magnitude(0x1p20, Unit::kBytes).suffix, std::string(" MiB"));
  EXPECT_EQ(magnitude(0x1p20, Unit::kBytes).size, 0x1p20);
  EXPECT_EQ(magnitude(0x1p60, Unit::kBytes).suffix, std::string(" TiB"));
  EXPECT_EQ(magnitude(0.0025, Unit::kSeconds).suffix, std::string(" ms"));
  EXPECT_EQ(magnitude(0.0025, Unit::kSeconds).size, 1e-3);
  EXPECT_EQ(magnitude(7, Unit::kTimeRatio).suffix, std::string("×"));
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

std::string text_of_file(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The colours that a part of the style sheet gives to names such as "--ink" or "[data-contender="dense"]".
std::multimap<std::string, std::string> colours_in(const std::string& css) {
  const std::regex regex("(--[a-z-]+:|\\[data-contender[^{]*\\{ color:) (#[0-9a-f]{3,6});");
  std::multimap<std::string, std::string> colours;
  for (std::sregex_iterator match(css.begin(), css.end(), regex), end; match != end; ++match) {
    const std::string hex = (*match)[2];
    colours.emplace((*match)[1],
                    hex.size() == 4 ? std::string{hex[1], hex[1], hex[2], hex[2], hex[3], hex[3]} : hex.substr(1));
  }
  return colours;
}

TEST(Style, LettersStandOutOnBothGrounds) {
  const std::string css = text_of_file(std::filesystem::path(SOURCE_FOLDER) / "tools" / "report" / "page.css");
  const size_t dark = css.find("@media screen and (prefers-color-scheme: dark)");
  ASSERT_NE(dark, std::string::npos);
  for (const auto& part : {css.substr(0, dark), css.substr(dark)}) {
    const std::multimap<std::string, std::string> colours = colours_in(part);
    const auto colour = [&](const std::string& name) { return colours.find(name + ":")->second; };
    for (const char* name : {"--ink", "--quiet", "--error", "--paper", "--band"}) {
      ASSERT_EQ(colours.count(name + std::string(":")), 1u) << name;
    }
    for (const char* letters : {"--ink", "--quiet", "--error"}) {
      EXPECT_GE(contrast(colour(letters), colour("--paper")), 4.5) << letters;
    }
    EXPECT_GE(contrast(colour("--ink"), colour("--band")), 4.5);
    size_t contenders = 0;
    for (const auto& [name, hex] : colours) {
      if (!name.starts_with("[")) continue;
      EXPECT_GE(contrast(hex, colour("--paper")), 4.5) << name;
      ++contenders;
    }
    EXPECT_EQ(contenders, 9u);
  }
}

TEST(HeadlineClaims, DivideAtTheLargestShapeWhereDenseRan) {
  const Json top = headline(read_run(kTokensFile));
  EXPECT_NE(top["lead"].get<std::string>().find("1,024 tokens, 151,936 vocabulary entries, hidden size 1,536, float32"),
            std::string::npos);
  ASSERT_EQ(top["claims"].size(), 3u);
  const Json& two_pass = top["claims"][1];
  EXPECT_EQ(two_pass["contender"], "two_pass");
  ASSERT_EQ(two_pass["figures"].size(), 2u);
  EXPECT_EQ(two_pass["figures"][0]["figure"], "45×");
  EXPECT_EQ(two_pass["figures"][0]["words"], "extra peak memory of dense ÷ its own");
  EXPECT_EQ(two_pass["figures"][0]["detail"], "13.2 MiB, not 596.0 MiB");
  EXPECT_EQ(two_pass["figures"][1]["figure"], "1.25×");
  EXPECT_EQ(two_pass["figures"][1]["words"], "the time of dense");
  EXPECT_EQ(two_pass["figures"][1]["detail"], "5.00 s, not 4.00 s");
  EXPECT_EQ(top["claims"][2]["remark"], "the loss alone, no gradients");
  ASSERT_EQ(top["remarks"].size(), 2u);
  EXPECT_NE(top["remarks"][0].get<std::string>().find("At 4,096 tokens"), std::string::npos);
  EXPECT_NE(top["remarks"][0].get<std::string>().find("dense failed (cannot allocate"), std::string::npos);
  EXPECT_NE(top["remarks"][0].get<std::string>().find("one_pass took 16.2 s and 257.0 MiB"), std::string::npos);
  EXPECT_EQ(top["remarks"][1], "1 measurement failed; the table says why.");
}

TEST(HeadlineClaims, GiveTheRangeWhereSeveralPointsHaveTheLargestShape) {
  BenchFile file;
  file.sweep("kernel.block_size", {"256", "512", "1024"});
  file.point({{"kernel.block_size", "256"}}, {ran("dense", 1, 8000), ran("one_pass", 0.9, 1000)});
  file.point({{"kernel.block_size", "512"}}, {ran("dense", 1, 8000), ran("one_pass", 1.2, 2000)});
  const Json top = headline(file.run());
  ASSERT_EQ(top["claims"].size(), 1u);
  ASSERT_EQ(top["claims"][0]["figures"].size(), 2u);
  EXPECT_EQ(top["claims"][0]["figures"][0]["figure"], "4.0× to 8.0×");
  EXPECT_EQ(top["claims"][0]["figures"][1]["figure"], "0.90× to 1.20×");
  EXPECT_EQ(top["claims"][0]["figures"][1]["detail"], "over 2 points");
  EXPECT_EQ(top["remarks"],
            (std::vector<std::string>{"The run is not complete: 2 of 3 points of the sweep are in the file."}));
}

TEST(HeadlineClaims, AQuotientThatIsNotFiniteIsLeftOut) {
  const auto figures = [](int64_t dense, int64_t own) {
    return headline(
               BenchFile().point(Json::object(), {ran("dense", 1, dense), ran("one_pass", 1, own)}).run())["claims"]
        .at(0)["figures"];
  };
  EXPECT_EQ(figures(1000, 3000)[0]["figure"], "0.33×");
  EXPECT_EQ(figures(1000, 1000)[0]["figure"], "1.0×");
  for (const int64_t dense : {1000, 0}) {
    ASSERT_EQ(figures(dense, 0).size(), 1u);
    EXPECT_EQ(figures(dense, 0)[0]["words"], "the time of dense");
  }
}

TEST(HeadlineClaims, SayWhatAutoChose) {
  BenchFile file;
  file.sweep("kernel.workspace", {"16MiB", "256MiB"});
  Json tight = ran("auto", 1, 1000), roomy = ran("auto", 1, 2000);
  tight["plan"] = "two_pass";
  roomy["plan"] = "one_pass";
  file.point({{"kernel.workspace", "16MiB"}}, {ran("dense", 1, 8000), tight});
  EXPECT_EQ(headline(file.run())["claims"][0]["remark"], "chose two_pass");
  file.point({{"kernel.workspace", "256MiB"}}, {ran("dense", 1, 8000), roomy});
  EXPECT_EQ(headline(file.run())["claims"][0]["remark"], "chose two_pass or one_pass");
}

TEST(HeadlineClaims, AreAbsentWithoutDense) {
  BenchFile file;
  file.point(Json::object(), {failed("dense", "no"), ran("one_pass", 1, 1)});
  const Json top = headline(file.run());
  EXPECT_TRUE(top["claims"].empty());
  EXPECT_NE(top["lead"].get<std::string>().find("no quotients"), std::string::npos);
}

}  // namespace
}  // namespace logitless::testing

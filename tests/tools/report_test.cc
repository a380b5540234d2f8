// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Figures of reports, and the page as a file: it holds the runs' lines and needs nothing but itself. What its
// script makes of them is tested in report_page_test.js.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

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
  EXPECT_EQ(time_ratio(1.006), "1.01×");
  EXPECT_EQ(time_ratio(0.0123), "0.012×");
  EXPECT_EQ(fixed(std::numeric_limits<double>::infinity(), 2), "∞");
  EXPECT_EQ(fixed(std::nan(""), 2), "NaN");
  EXPECT_EQ(fixed(std::numeric_limits<double>::max(), 2).size(), 312u);
}

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++found;
  return found;
}

const std::string kDataBegin = "<script type=\"application/json\" id=\"runs\">";

// What the page's script reads.
Json data_in(const std::string& html) {
  const size_t begin = html.find(kDataBegin) + kDataBegin.size();
  return Json::parse(html.substr(begin, html.find("</script>", begin) - begin));
}

TEST(Page, HoldsTheLinesOfEveryFileInOrder) {
  const BenchRun tokens = read_run(kTokensFile);
  const BenchFile other = BenchFile().point(Json::object(), {ran("dense", 1, 4096)});
  const Json data = data_in(page({tokens, parse_run("folder/other.jsonl", other.text() + "{")}));
  ASSERT_EQ(data.size(), 2u);
  EXPECT_EQ(data[0]["name"], "tokens.jsonl");
  EXPECT_EQ(data[0]["lines"].size(), 4u);
  EXPECT_EQ(data[0]["lines"][3]["contenders"][0]["message"], tokens.points[2].find("dense")->error);
  EXPECT_EQ(data[0]["notes"], Json::array());
  EXPECT_EQ(data[1]["name"], "other.jsonl");
  EXPECT_EQ(data[1]["lines"], Json({other.header, other.points[0]}));
  EXPECT_EQ(data[1]["notes"], Json({"other.jsonl:3: the last line is torn and was left out"}));
}

TEST(Page, NoTextOfAFileBecomesMarkup) {
  const std::string nasty = "@runs@</script></style><!--<script>alert('&amp;\"')</script>\u0001";
  BenchFile file;
  file.header["contenders"] = {"dense", nasty};
  file.header["environment"][nasty] = {nasty, 1};
  file.sweep("model.name", {nasty});
  file.point({{"model.name", nasty}}, {ran("dense", 1, 4096), failed(nasty, nasty)});
  for (const std::string& name : {nasty, std::string("\xff\xfe.jsonl")}) {
    const std::string html = page({parse_run(name, file.text())});
    // One holds the data, one is ours.
    EXPECT_EQ(count(html, "<script"), 2u);
    EXPECT_EQ(count(html, "</script"), 2u);
    EXPECT_EQ(count(html, "<!--"), 0u);
    EXPECT_EQ(data_in(html)[0]["lines"][1]["contenders"][1]["message"], nasty);
  }
}

TEST(Page, NeedsNothingButItself) {
  const std::string html = page({read_run(kTokensFile)});
  EXPECT_EQ(count(html, "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "), 1u);
  // Chart.js names its home in a comment; the policy forbids to load anything.
  const std::string ours = html.substr(0, html.rfind("<script>"));
  for (const char* part : {"http:", "https:", "//", "url(", "@import", "<link", "<img", "src=", "href="}) {
    EXPECT_EQ(ours.find(part), std::string::npos) << part;
  }
  const std::string script = html.substr(html.rfind("<script>"));
  for (const char* part : {"Copyright (c) 2014-2022 Chart.js Contributors",
                           "Permission is hereby granted, free of charge", "Chart.js v", "getElementById(\"runs\")"}) {
    EXPECT_NE(script.find(part), std::string::npos) << part;
  }
}

}  // namespace
}  // namespace logitless::testing

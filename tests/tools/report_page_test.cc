// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The page as a reader gets it: all of the run is there, nothing else is, and it is well-formed.
#include "report/page.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <regex>
#include <string_view>

#include "report/chapters.h"
#include "report_fixture.h"

namespace logitless::testing {
namespace {

using namespace report;

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++found;
  return found;
}

::testing::AssertionResult has(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "\"" << part << "\" is missing";
}

// Takes the length of what `pattern` matches at the start of `text` off it. std::regex recurses: only short texts go
// there.
std::string take(std::string_view& text, const char* pattern) {
  std::cmatch match;
  const std::regex regex(pattern);
  if (!std::regex_search(text.data(), text.data() + std::min<size_t>(text.size(), 40), match, regex,
                         std::regex_constants::match_continuous)) {
    return "";
  }
  text.remove_prefix(static_cast<size_t>(match.length()));
  return match.str();
}

// The name of the tag at the start of `text`, which it takes off; empty where the tag is not well-formed.
std::string take_tag(std::string_view& text, bool& closes, bool& is_empty) {
  closes = !take(text, "</").empty();
  if (!closes) take(text, "<");
  const std::string name = take(text, "[a-z0-9]+");
  while (!closes && !take(text, " [a-zA-Z0-9:-]+=\"").empty()) {
    const size_t end = text.find_first_of("\"<>");
    if (end == std::string_view::npos || text[end] != '"') return "";
    text.remove_prefix(end + 1);
  }
  is_empty = !take(text, "/>").empty();
  return is_empty || !take(text, ">").empty() ? name : "";
}

// As XML, apart from a doctype and from what stands in script and style elements: tags nest, attributes are quoted, &
// begins an entity.
::testing::AssertionResult is_well_formed(std::string_view text) {
  std::vector<std::string> open;
  take(text, "<!DOCTYPE html>");
  for (size_t at = text.find_first_of("<>&"); at != std::string_view::npos; at = text.find_first_of("<>&")) {
    text.remove_prefix(at);
    const std::string here(text.substr(0, 60));
    if (!take(text, "&(amp|lt|gt|quot|apos);").empty()) continue;
    bool closes = false, is_empty = false;
    const std::string name = here.starts_with('<') ? take_tag(text, closes, is_empty) : "";
    if (name.empty()) return ::testing::AssertionFailure() << "not markup: " << here;
    if (is_empty) continue;
    if (!closes) {
      open.push_back(name);
      if (name == "script" || name == "style") text.remove_prefix(std::min(text.find("</" + name + ">"), text.size()));
    } else if (open.empty() || open.back() != name) {
      return ::testing::AssertionFailure() << "closes nothing: " << here;
    } else {
      open.pop_back();
    }
  }
  if (!open.empty()) return ::testing::AssertionFailure() << open.back() << " stays open";
  return ::testing::AssertionSuccess();
}

const std::string kChartsBegin = "<script type=\"application/json\" id=\"charts\">";

// What the page's script draws.
Json charts_in(const std::string& html) {
  const size_t begin = html.find(kChartsBegin) + kChartsBegin.size();
  return Json::parse(html.substr(begin, html.find("</script>", begin) - begin));
}

std::vector<Json> marks_in(const Json& charts) {
  std::vector<Json> marks;
  for (const Json& chart : charts) {
    for (const Json& series : chart["series"])
      marks.insert(marks.end(), series["marks"].begin(), series["marks"].end());
  }
  return marks;
}

// Two keys of numbers and one of names, with a failure, and with one point missing.
BenchFile two_keys() {
  BenchFile file;
  file.header["contenders"] = {"dense", "one_pass", "two_pass"};
  file.sweep("kernel.time_block", {"128", "256"})
      .sweep("kernel.block_size", {"512", "1024"})
      .sweep("model.dtype", {"float32", "bfloat16"});
  for (const char* rows : {"128", "256"}) {
    for (const char* columns : {"512", "1024"}) {
      for (const char* dtype : {"float32", "bfloat16"}) {
        if (file.points.size() == 7) break;
        const Json at = {{"kernel.time_block", rows}, {"kernel.block_size", columns}, {"model.dtype", dtype}};
        const auto nth = static_cast<double>(file.points.size());
        file.point(at, {ran("dense", 1, 80000), ran("one_pass", 1 + nth / 100, 8000),
                        file.points.empty() ? failed("two_pass", "it broke") : ran("two_pass", 1.25, 4000)});
      }
    }
  }
  return file;
}

TEST(Page, EveryPointAndContenderStandsInTheTable) {
  const std::string html = page({read_run(kTokensFile)});
  for (const char* tokens : {"256", "1024", "4096"}) EXPECT_TRUE(has(html, std::string("seq_len = ") + tokens + " · "));
  for (const char* name : {"dense", "one_pass", "two_pass", "forward"}) {
    EXPECT_EQ(count(html, std::string("<th scope=\"row\">") + name + "</th>"), 3u) << name;
  }
  for (const char* figure :
       {"1.01 s ± 1.0 %", "6.03 s", "94 %", "76.0 MiB", "1.25×", "12.250000", "forward_only", "GEMM 190 GFLOP/s"}) {
    EXPECT_TRUE(has(html, std::string(figure)));
  }
  EXPECT_TRUE(has(html, "error: cannot allocate the logits &lt;[4096, 151936]&gt; &amp; &quot;more&quot;</td>"));
}

TEST(Page, LinesMarkEveryMeasurementAndFailure) {
  const Json charts = charts_in(page({read_run(kTokensFile)}));
  ASSERT_EQ(charts.size(), 3u);
  // 11 of memory, 11 of time, and 8 quotients of time: none where dense failed.
  const std::vector<Json> marks = marks_in(charts);
  EXPECT_EQ(std::count_if(marks.begin(), marks.end(), [](const Json& mark) { return !mark["failed"]; }), 30);
  EXPECT_EQ(std::count_if(marks.begin(), marks.end(), [](const Json& mark) { return mark["failed"]; }), 3);
  EXPECT_EQ(std::count_if(marks.begin(), marks.end(), [](const Json& mark) { return mark["spread"] > 0; }), 19);
  const Json& memory = charts[0];
  EXPECT_EQ(memory["title"], "Extra peak memory");
  EXPECT_EQ(memory["subtitle"], "log scale");
  EXPECT_EQ(memory["unit"], (Json{{"size", 0x1p20}, {"suffix", " MiB"}}));
  EXPECT_EQ(memory["range"], (Json{4194304.0, 624951296.0}));
  EXPECT_EQ(memory["x"]["log"], true);
  EXPECT_EQ(memory["x"]["ticks"], (Json{{256.0, "256"}, {1024.0, "1,024"}, {4096.0, "4,096"}}));
  EXPECT_EQ(memory["series"][2]["name"], "two_pass");
  EXPECT_EQ(memory["series"][2]["marks"][1]["note"], "two_pass: 13.2 MiB at 1,024 tokens");
  EXPECT_EQ(charts[1]["series"][2]["marks"][1], (Json{{"value", 5.0},
                                                      {"spread", 0.05},
                                                      {"text", "5.00 s"},
                                                      {"note", "two_pass: 5.00 s ± 1.0 % at 1,024 tokens"},
                                                      {"failed", false},
                                                      {"x", 1024.0}}));
  EXPECT_EQ(charts[2]["log"], false);
  EXPECT_EQ(charts[2]["range"][0], 0);
}

TEST(Page, ASinglePointMakesBars) {
  const Json charts = charts_in(
      page({BenchFile().point(Json::object(), {ran("dense", 1, 8192), failed("one_pass", "it broke")}).run()}));
  ASSERT_EQ(charts.size(), 2u);
  EXPECT_TRUE(charts[0]["x"].is_null());
  EXPECT_EQ(charts[0]["range"], (Json{0, 8192.0}));
  EXPECT_EQ(charts[0]["series"][0]["marks"][0]["text"], "8.0 KiB");
  EXPECT_EQ(charts[1]["series"][1]["marks"][0]["text"], "failed");
  EXPECT_EQ(charts[1]["series"][1]["marks"][0]["note"], "one_pass failed: it broke");
}

TEST(Page, ChartsOfOneMetricShareTheirRange) {
  BenchFile file = BenchFile().sweep("seq_len", {"128", "256"}).sweep("model.dtype", {"float32", "bfloat16"});
  int64_t peak = 1000;
  for (const char* tokens : {"128", "256"}) {
    for (const char* dtype : {"float32", "bfloat16"}) {
      file.point({{"seq_len", tokens}, {"model.dtype", dtype}}, {ran("dense", 1, peak *= 10)});
    }
  }
  const Json charts = charts_in(page({file.run()}));
  ASSERT_EQ(charts.size(), 4u);
  EXPECT_EQ(charts[0]["subtitle"], "model.dtype = float32, log scale");
  EXPECT_EQ(charts[2]["subtitle"], "model.dtype = bfloat16, log scale");
  EXPECT_EQ(charts[0]["range"], (Json{1e4, 1e7}));
  EXPECT_EQ(charts[2]["range"], charts[0]["range"]);
}

TEST(Page, MachineSettingsAndWarningsAreThere) {
  const std::string html = page({read_run(kTokensFile)});
  for (const char* part :
       {"Example &lt;CPU&gt; &amp; &quot;Co&quot;", "<dt>blas_core</dt><dd>Haswell</dd>",
        "<dt>l2_bytes</dt><dd>1.0 MiB</dd>", "<dt>l3_bytes</dt><dd>unknown</dd>",
        "<dt>simd_targets</dt><dd>AVX2, plain</dd>", "Warning: the BLAS core is narrower than the CPU",
        "<li>model.vocab_size=151936</li>", "<dt>timed calls</dt><dd>5</dd>", "<dt>warm-up calls</dt><dd>1</dd>",
        "<dd>2026-11-21T15:00:00Z</dd>", "<dd>seq_len = 256, 1024, 4096</dd>", "<dt>inputs</dt><dd>random</dd>"}) {
    EXPECT_TRUE(has(html, part));
  }
}

TEST(Page, TwoKeysOfNumbersMakeHeatMapsWithAValueInEachCell) {
  const std::string html = page({two_keys().run()});
  // Two contenders, two dtypes, memory and time.
  EXPECT_EQ(count(html, "<table class=\"heat\">"), 8u);
  EXPECT_TRUE(has(html, "The sweep: kernel.time_block × kernel.block_size"));
  EXPECT_TRUE(has(html, "Extra peak memory, dense ÷ two_pass"));
  EXPECT_EQ(count(html, ">model.dtype = bfloat16; colours from "), 4u);
  EXPECT_EQ(count(html, "\">10×</td>"), 7u);
  EXPECT_EQ(count(html, "\">20×</td>"), 6u);
  EXPECT_EQ(count(html, "title=\"one_pass: 1.05× ± 1.6 %\">1.05×</td>"), 1u);
  EXPECT_EQ(count(html, ">failed</td>"), 2u);
  EXPECT_EQ(count(html, "title=\"two_pass failed: it broke\""), 2u);
  EXPECT_TRUE(has(html, "7 of 8 points"));
}

TEST(Page, ColoursOfHeatMapsFollowTheLogarithm) {
  // The tones and shares of time quotients, as "low 0.500".
  const auto tones = [](std::vector<double> quotients) {
    BenchFile file = BenchFile().sweep("kernel.time_block", {"1", "2", "3"}).sweep("kernel.block_size", {"8", "9"});
    for (size_t i = 0; i < quotients.size(); ++i) {
      file.point({{"kernel.time_block", std::to_string(i + 1)}, {"kernel.block_size", "8"}},
                 {ran("dense", 1, 1024), ran("one_pass", quotients[i], 1024)});
    }
    std::vector<std::string> list;
    const Json list_of_chapters = chapters(file.run());
    for (const Json& line : list_of_chapters[0]["rows"][0]["drawings"][1]["lines"]) {
      const Json& cell = line["cells"][0];
      list.push_back(cell["tone"].get<std::string>() + " " + cell["share"].get<std::string>());
    }
    return list;
  };
  using Texts = std::vector<std::string>;
  // On both sides of 1 two tones meet there, and the further end sets the scale.
  EXPECT_EQ(tones({0.25, 1, 2}), (Texts{"low 1.000", "low 0.000", "high 0.500"}));
  EXPECT_EQ(tones({2, 4, 8}), (Texts{"low 0.000", "low 0.500", "low 1.000"}));
  // Ten percent at least span the scale: less would paint noise.
  EXPECT_EQ(tones({2, 2, 2}), (Texts{"low 0.500", "low 0.500", "low 0.500"}));
  // Sizes without a logarithm get a tone at an end.
  EXPECT_EQ(tones({0, 2, 8}), (Texts{"low 0.000", "low 0.000", "low 1.000"}));
}

TEST(Page, EverySweepGetsItsDrawings) {
  const auto headings = [](const BenchFile& file) {
    std::vector<std::string> list;
    for (const Json& chapter : chapters(file.run())) list.push_back(chapter["heading"]);
    return list;
  };
  const std::vector<Json> both = {ran("dense", 1, 4096), ran("one_pass", 1, 512)};
  EXPECT_EQ(headings(BenchFile().point(Json::object(), both)), (std::vector<std::string>{"Memory and time"}));
  EXPECT_EQ(
      headings(BenchFile().sweep("model.dtype", {"float32", "float64"}).point({{"model.dtype", "float32"}}, both)),
      (std::vector<std::string>{"Memory and time"}));
  EXPECT_EQ(
      headings(
          BenchFile().sweep("kernel.block_size", {"auto", "512", "1024"}).point({{"kernel.block_size", "auto"}}, both)),
      (std::vector<std::string>{"Against kernel.block_size"}));
  BenchFile shapes;
  shapes.sweep("seq_len", {"128", "256"}).sweep("model.vocab_size", {"1000", "2000"});
  shapes.point({{"seq_len", "128"}, {"model.vocab_size", "1000"}}, both);
  EXPECT_EQ(headings(shapes), (std::vector<std::string>{"Against tokens", "Against vocabulary entries",
                                                        "The sweep: seq_len × model.vocab_size"}));
  EXPECT_EQ(chapters(shapes.run())[0]["rows"].at(0)["drawings"].size(), 3u);
}

TEST(Page, TheCheckOfMarkupSeesWhatIsWrong) {
  EXPECT_TRUE(is_well_formed("<!DOCTYPE html><a b=\"c &amp; d\">x &lt; y<br/></a><script>a < b && c</script>"));
  for (const char* text : {"<a>", "</a>", "<a><b></a></b>", "<script>a & b", "a & b", "a > b", "< a></a>",
                           "<a b=c></a>", "<a b=\"<\"></a>", "<a b=\"c"}) {
    EXPECT_FALSE(is_well_formed(text)) << text;
  }
}

TEST(Page, IsWellFormedWhateverTheTextsHold) {
  const std::string nasty = "{{title}}{{{script}}}</style><!--<script>alert('&amp;\"')</script>\u0001";
  BenchFile file;
  file.header["contenders"] = {"dense", nasty};
  file.header["settings"] = {nasty};
  file.header["inputs"] = nasty;
  file.header["environment"]["cpu"] = nasty;
  file.header["environment"][nasty] = {nasty, 1};
  file.header["environment"]["warnings"] = {nasty};
  file.sweep("seq_len", {"128", "256"}).sweep("model.name", {nasty, "plain"});
  file.point({{"seq_len", "128"}, {"model.name", nasty}}, {ran("dense", 1, 4096), ran(nasty, 1, 512)});
  file.point({{"seq_len", "256"}, {"model.name", nasty}}, {failed("dense", nasty), failed(nasty, nasty)});
  const BenchRun run = parse_run(nasty, file.text());
  const std::string html = page({run, run});
  EXPECT_TRUE(is_well_formed(html));
  // One holds the charts, one is ours.
  EXPECT_EQ(count(html, "<script"), 2u);
  EXPECT_EQ(count(html, "</script"), 2u);
  EXPECT_EQ(count(html, "<!--"), 0u);
  EXPECT_TRUE(
      has(html, "<li>{{title}}{{{script}}}&lt;/style&gt;&lt;!--&lt;script&gt;alert(&apos;&amp;amp;&quot;&apos;)"));
  EXPECT_EQ(charts_in(html)[0]["series"][1]["name"], nasty);
  const BenchRun of_another_encoding = parse_run("\xff\xfe.jsonl", file.text());
  EXPECT_TRUE(is_well_formed(page({of_another_encoding, of_another_encoding})));
}

TEST(Page, IsWellFormedForExtremeFigures) {
  const auto at = [](const char* tokens) { return Json{{"seq_len", tokens}}; };
  BenchFile file;
  file.sweep("seq_len", {"128", "256", "512"});
  file.point(at("128"), {ran("dense", 0, 0), ran("one_pass", 0, 0)});
  file.point(at("256"), {ran("dense", 1e9, int64_t{1} << 60), ran("one_pass", 1e-9, 0)});
  file.point(at("512"), {failed("dense", ""), failed("one_pass", std::string(5000, 'x'))});
  for (BenchFile each :
       {file, BenchFile().sweep("seq_len", {"128", "256"}).point(at("128"), {failed("dense", "no")})}) {
    each.points[0]["contenders"][0]["loss"] = nullptr;
    const std::string html = page({each.run()});
    EXPECT_TRUE(is_well_formed(html));
    for (const Json& chart : charts_in(html)) {
      EXPECT_LT(chart["range"][0], chart["range"][1]);
      EXPECT_EQ(chart["range"][0] > 0, chart["log"].get<bool>());
    }
    for (const Json& mark : marks_in(charts_in(html))) EXPECT_EQ(mark["value"].is_null(), mark["failed"].get<bool>());
    const std::string visible = html.substr(0, html.find(kChartsBegin));
    EXPECT_EQ(visible.find("NaN"), std::string::npos);
    EXPECT_EQ(visible.find(">∞"), std::string::npos);
  }
  EXPECT_TRUE(has(page({file.run()}), ">log scale, 0 at its foot</span>"));
}

TEST(Page, NeedsNothingButItself) {
  const std::string html = page({read_run(kTokensFile), two_keys().run()});
  EXPECT_EQ(count(html, "Content-Security-Policy"), 1u);
  EXPECT_TRUE(
      std::regex_search(html.substr(0, 1000), std::regex("content=\"default-src 'none'; style-src 'unsafe-inline'; "
                                                         "script-src 'sha256-[A-Za-z0-9+/]{43}='\"")));
  // Chart.js names its home in a comment; the policy forbids to load anything.
  const std::string ours = html.substr(0, html.rfind("<script>"));
  for (const char* part : {"http:", "https:", "//", "url(", "@import", "<link", "<img", "src=", "href="}) {
    EXPECT_EQ(ours.find(part), std::string::npos) << part;
  }
}

TEST(Page, CarriesChartJsAndItsLicence) {
  const std::string html = page({read_run(kTokensFile)});
  const std::string script = html.substr(html.rfind("<script>"));
  EXPECT_TRUE(has(script, "Copyright (c) 2014-2022 Chart.js Contributors"));
  EXPECT_TRUE(has(script, "Permission is hereby granted, free of charge"));
  EXPECT_TRUE(has(script, "Chart.js v"));
  EXPECT_TRUE(has(script, "getElementById(\"charts\")"));
}

TEST(Page, EachChartHasACanvasThatSaysItInWords) {
  const std::string html = page({read_run(kTokensFile), two_keys().run(), read_run(kTokensFile)});
  const Json charts = charts_in(html);
  EXPECT_EQ(charts.size(), 6u);
  EXPECT_EQ(count(html, "<canvas "), charts.size());
  size_t at = 0;
  for (const Json& chart : charts) {
    at = html.find("<canvas role=\"img\" aria-label=\"" + chart["title"].get<std::string>(), at + 1);
    ASSERT_NE(at, std::string::npos) << chart["title"];
  }
  EXPECT_TRUE(
      has(html, "dense: 148.0 MiB at 256 tokens; dense: 596.0 MiB at 1,024 tokens; dense failed: cannot allocate"));
}

TEST(Page, SectionsFollowTheFiles) {
  const BenchRun tokens = read_run(kTokensFile), blocks = two_keys().run();
  const std::string html = page({tokens, blocks});
  EXPECT_LT(html.find(">tokens.jsonl</h2>"), html.find(">run.jsonl</h2>"));
  EXPECT_EQ(page({tokens}).find("<h3"), std::string::npos);
}

}  // namespace
}  // namespace logitless::testing

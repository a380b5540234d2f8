// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The page as a reader gets it: all of the run is there, nothing else is, and it is well-formed.
#include "report/page.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <regex>
#include <string_view>

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

// Takes the length of what `pattern` matches at the start of `text` off it. std::regex recurses: only short
// texts go there.
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

// As XML, apart from a doctype and from what stands in script and style elements: tags nest, attributes are
// quoted, & begins an entity.
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

TEST(Page, AnotherProgramsContenderHasNeitherPlanNorWorkspace) {
  BenchFile file;
  Json peer = ran("torch_dense", 2, 8000);
  peer["plan"] = "";
  peer["workspace_bytes"] = 0;
  file.point(Json::object(), {ran("dense", 1, 8000), peer});
  const std::string html = page({file.run()});
  EXPECT_TRUE(has(html, "<td>–</td><td>2.500000</td><td>–</td>"));
  EXPECT_FALSE(has(html, "<td>0 B</td>"));
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
  EXPECT_EQ(charts[1]["series"][2]["marks"][1], (Json{{"x", 1024.0},
                                                      {"value", 5.0},
                                                      {"spread", 0.05},
                                                      {"note", "two_pass: 5.00 s ± 1.0 % at 1,024 tokens"},
                                                      {"failed", false}}));
  EXPECT_EQ(charts[2]["log"], false);
  EXPECT_EQ(charts[2]["range"][0], 0);
}

TEST(Page, ASinglePointLiesInOnePlace) {
  const Json charts = charts_in(
      page({BenchFile().point(Json::object(), {ran("dense", 1, 8192), failed("one_pass", "it broke")}).run()}));
  ASSERT_EQ(charts.size(), 2u);
  EXPECT_EQ(charts[0]["x"]["ticks"], (Json::array({Json::array({0.0, ""})})));
  EXPECT_EQ(charts[0]["x"]["joined"], false);
  EXPECT_EQ(charts[0]["range"], (Json{0, 8192.0}));
  EXPECT_EQ(charts[0]["series"][0]["marks"][0]["note"], "dense: 8.0 KiB");
  EXPECT_EQ(charts[1]["series"][1]["marks"][0]["note"], "one_pass failed: it broke");
  EXPECT_EQ(charts[1]["series"][1]["marks"][0]["failed"], true);
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

TEST(Page, TheValuesOfOtherKeysMakeRows) {
  const std::string html = page({two_keys().run()});
  const Json charts = charts_in(html);
  ASSERT_EQ(charts.size(), 2 * 4 * 3u);  // two keys, four slices of each, and memory, time and quotients
  EXPECT_EQ(charts[0]["subtitle"], "kernel.block_size = 512, model.dtype = float32, log scale");
  EXPECT_EQ(charts[3]["subtitle"], "kernel.block_size = 512, model.dtype = bfloat16, log scale");
  EXPECT_EQ(charts[6]["subtitle"], "kernel.block_size = 1024, model.dtype = float32, log scale");
  EXPECT_EQ(charts[2]["title"], "Time ÷ time of dense");
  EXPECT_EQ(charts[11]["series"][1]["marks"][0]["note"], "one_pass: 1.03× ± 1.6 % at 128 kernel.time_block");
  EXPECT_EQ(charts[11]["series"][1]["marks"].size(), 1u);  // the point that is missing
  EXPECT_EQ(charts[2]["series"][2]["marks"][0]["failed"], true);
  EXPECT_TRUE(has(html, "7 of 8 points"));
}

TEST(Page, NumbersAreJoinedAndNamesLieSideBySide) {
  const auto x_of = [](const std::string& key, const std::vector<std::string>& values) {
    BenchFile file = BenchFile().sweep(key, values);
    for (const std::string& value : values) file.point({{key, value}}, {ran("dense", 1, 4096)});
    return charts_in(page({file.run()})).at(0)["x"];
  };
  const auto expected = [](bool log, bool joined, const Json& ticks) {
    return Json{{"log", log}, {"joined", joined}, {"ticks", ticks}};
  };
  const auto without_label = [](Json x) {
    x.erase("label");
    return x;
  };
  EXPECT_EQ(without_label(x_of("seq_len", {"1024", "128"})), expected(true, true, {{128.0, "128"}, {1024.0, "1,024"}}));
  EXPECT_EQ(without_label(x_of("temperature", {"0.5", "1"})), expected(false, true, {{0.5, "0.5"}, {1.0, "1"}}));
  EXPECT_EQ(without_label(x_of("kernel.block_size", {"auto", "512", "1024"})),
            expected(false, true, {{0.0, "auto"}, {1.0, "512"}, {2.0, "1024"}}));
  EXPECT_EQ(without_label(x_of("model.dtype", {"float32", "float64"})),
            expected(false, false, {{0.0, "float32"}, {1.0, "float64"}}));
}

TEST(Page, EverySweptKeyOfNumbersGetsAChapter) {
  const auto headings = [](const BenchFile& file) {
    std::vector<std::string> list;
    for (const Json& chapter : chapters(file.run())) list.push_back(chapter["heading"]);
    return list;
  };
  const std::vector<Json> both = {ran("dense", 1, 4096), ran("one_pass", 1, 512)};
  EXPECT_EQ(headings(BenchFile().point(Json::object(), both)), (std::vector<std::string>{"Memory and time"}));
  BenchFile dtypes;
  dtypes.sweep("model.dtype", {"float32", "float64"}).sweep("seed", {"1"});
  EXPECT_EQ(headings(dtypes.point({{"model.dtype", "float32"}, {"seed", "1"}}, both)),
            (std::vector<std::string>{"Against model.dtype"}));
  BenchFile shapes;
  shapes.sweep("seq_len", {"128", "256"}).sweep("model.vocab_size", {"1000", "2000"});
  shapes.point({{"seq_len", "128"}, {"model.vocab_size", "1000"}}, both);
  EXPECT_EQ(headings(shapes), (std::vector<std::string>{"Against tokens", "Against vocabulary entries"}));
  EXPECT_EQ(chapters(shapes.run())[0]["rows"].at(0)["charts"].size(), 3u);
}

TEST(Page, AChapterDrawsSoManyRowsAndSaysWhatItLeavesOut) {
  BenchFile file = BenchFile().sweep("seq_len", {"128", "256"});
  std::vector<std::string> names;
  for (int i = 0; i < 100; ++i) names.push_back("name" + std::to_string(i));
  file.sweep("model.name", names);
  for (const std::string& name : names) {
    for (const char* tokens : {"128", "256"}) {
      file.point({{"seq_len", tokens}, {"model.name", name}}, {ran("dense", 1, 4096)});
    }
  }
  const std::string html = page({file.run()});
  EXPECT_EQ(charts_in(html).size(), 2 * 24u);
  EXPECT_EQ(count(html, "<canvas "), 2 * 24u);
  EXPECT_TRUE(has(html, "Of 100 combinations of the other keys the first 24 are drawn; the table holds all. "));
  EXPECT_EQ(count(html, "<tr class=\"point\">"), 200u);
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
  EXPECT_EQ(charts.size(), 3 + 24 + 3u);
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

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The page and the picture as a reader gets them: all of the run is there, nothing else is, and it is well-formed.
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

// As XML, apart from a doctype: tags nest, attributes are quoted, & begins an entity.
::testing::AssertionResult is_well_formed(std::string_view text) {
  std::vector<std::string> open;
  take(text, "<!DOCTYPE html>");
  for (size_t at = text.find_first_of("<>&"); at != std::string_view::npos; at = text.find_first_of("<>&")) {
    text.remove_prefix(at);
    const std::string here(text.substr(0, 60));
    if (!take(text, "&(amp|lt|gt|quot|#39);").empty()) continue;
    bool closes = false, is_empty = false;
    const std::string name = here.starts_with('<') ? take_tag(text, closes, is_empty) : "";
    if (name.empty()) return ::testing::AssertionFailure() << "not markup: " << here;
    if (is_empty) continue;
    if (!closes) {
      open.push_back(name);
    } else if (open.empty() || open.back() != name) {
      return ::testing::AssertionFailure() << "closes nothing: " << here;
    } else {
      open.pop_back();
    }
  }
  if (!open.empty()) return ::testing::AssertionFailure() << open.back() << " stays open";
  return ::testing::AssertionSuccess();
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

TEST(Page, LinesMarkEveryMeasurementAndCrossEveryFailure) {
  const std::string html = page({read_run(kTokensFile)});
  // 11 of memory, 11 of time, and 8 quotients of time: none where dense failed.
  EXPECT_EQ(count(html, "<path class=\"mark\""), 30u);
  EXPECT_EQ(count(html, "<path class=\"cross\""), 3u);
  EXPECT_EQ(count(html, "<path class=\"spread\""), 19u);
  EXPECT_EQ(count(html, "class=\"label\""), 12u);
  EXPECT_TRUE(has(html, "two_pass: 13.2 MiB at 1,024 tokens"));
  EXPECT_TRUE(has(html, "log scale"));
  EXPECT_EQ(count(html, "<svg "), 3u);
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
  EXPECT_EQ(count(html, "<svg "), 8u);
  EXPECT_TRUE(has(html, "The sweep: kernel.time_block × kernel.block_size"));
  EXPECT_TRUE(has(html, "Extra peak memory, dense ÷ two_pass"));
  EXPECT_EQ(count(html, ">dtype = bfloat16</text>"), 4u);
  EXPECT_EQ(count(html, ">10×</text>"), 7u + 2u);  // The cells, and the upper end of each scale.
  EXPECT_EQ(count(html, ">20×</text>"), 6u);
  EXPECT_EQ(count(html, ">1.05×</text>"), 1u);
  EXPECT_EQ(count(html, ">failed</text>"), 2u);
  EXPECT_EQ(count(html, "class=\"absent\""), 6u);
  EXPECT_TRUE(has(html, "two_pass failed: it broke at kernel.time_block = 128, kernel.block_size = 512"));
  EXPECT_TRUE(has(html, "7 of 8 points"));
}

TEST(Page, EverySweepGetsItsDrawings) {
  const auto headings = [](const BenchFile& file) {
    std::vector<std::string> list;
    for (const Chapter& chapter : chapters(file.run())) list.push_back(chapter.heading);
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
  EXPECT_EQ(headings(shapes), (std::vector<std::string>{"Against tokens", "Against the vocabulary",
                                                        "The sweep: seq_len × model.vocab_size"}));
  EXPECT_EQ(chapters(shapes.run())[0].rows.at(0).size(), 3u);
}

TEST(Page, TheCheckOfMarkupSeesWhatIsWrong) {
  EXPECT_TRUE(is_well_formed("<!DOCTYPE html><a b=\"c &amp; d\">x &lt; y<br/></a>"));
  for (const char* text :
       {"<a>", "</a>", "<a><b></a></b>", "a & b", "a > b", "< a></a>", "<a b=c></a>", "<a b=\"<\"></a>", "<a b=\"c"}) {
    EXPECT_FALSE(is_well_formed(text)) << text;
  }
}

TEST(Page, IsWellFormedWhateverTheTextsHold) {
  const std::string nasty = "</svg></style><script>alert('&amp;\"')</script>\u0001";
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
  for (const std::string& text : {page({run, run}), picture({run, run})}) {
    EXPECT_TRUE(is_well_formed(text));
    EXPECT_EQ(text.find("<script"), std::string::npos);
  }
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
    for (const std::string& text : {page({each.run()}), picture({each.run()})}) {
      EXPECT_TRUE(is_well_formed(text));
      EXPECT_EQ(text.find("NaN"), std::string::npos);
      EXPECT_EQ(text.find("=\"∞"), std::string::npos);
    }
  }
  EXPECT_TRUE(has(page({file.run()}), "mark hollow"));
  EXPECT_TRUE(has(page({file.run()}), ">log scale, hollow: 0</text>"));
}

TEST(Page, NeedsNothingButItself) {
  for (const std::string& text : {page({read_run(kTokensFile), two_keys().run()}), picture({read_run(kTokensFile)})}) {
    const std::string bare = std::regex_replace(text, std::regex(" xmlns=\"http://www.w3.org/2000/svg\""), "");
    for (const char* part : {"http:", "https:", "//", "url(", "@import", "<script", "<link", "<img", "src=", "href="}) {
      EXPECT_EQ(bare.find(part), std::string::npos) << part;
    }
  }
}

TEST(Page, DrawingsHaveTitlesDescriptionsAndDistinctNames) {
  const std::string html = page({read_run(kTokensFile), two_keys().run()});
  const size_t drawings = count(html, "<svg ");
  EXPECT_EQ(drawings, 11u);
  EXPECT_EQ(count(html, "role=\"img\""), drawings);
  for (size_t i = 1; i <= drawings; ++i) {
    const std::string id = "drawing-" + std::to_string(i);
    EXPECT_EQ(count(html, "aria-labelledby=\"" + id + "-title " + id + "-desc\""), 1u);
    EXPECT_EQ(count(html, "<title id=\"" + id + "-title\">"), 1u);
    EXPECT_EQ(count(html, "<desc id=\"" + id + "-desc\">"), 1u);
  }
}

TEST(Page, SectionsFollowTheFiles) {
  const BenchRun tokens = read_run(kTokensFile), blocks = two_keys().run();
  const std::string html = page({tokens, blocks});
  EXPECT_LT(html.find(">tokens.jsonl</h2>"), html.find(">run.jsonl</h2>"));
  EXPECT_EQ(page({tokens}).find("<h3"), std::string::npos);
}

TEST(Picture, HasARowForEachSweptSizeOfEachRun) {
  const BenchRun tokens = read_run(kTokensFile), blocks = two_keys().run();
  const std::string svg = picture({blocks, tokens});
  EXPECT_TRUE(is_well_formed(svg));
  EXPECT_TRUE(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
  EXPECT_EQ(count(svg, "<svg "), 1u);
  EXPECT_TRUE(has(svg, ">Extra peak memory</text>"));
  EXPECT_TRUE(has(svg, ">Time of one call</text>"));
  EXPECT_TRUE(has(
      svg, "logitless 0.1.0, Example &lt;CPU&gt; &amp; &quot;Co&quot;, 2 threads, AVX2, openblas Haswell, 2026-11-21"));
  EXPECT_EQ(svg.find("kernel.time_block"), std::string::npos);
  EXPECT_TRUE(has(picture({blocks}), "kernel.time_block"));
}

TEST(Picture, BringsItsGroundForBothColourSchemes) {
  const std::string svg = picture({read_run(kTokensFile)});
  EXPECT_TRUE(has(svg, "<rect class=\"paper\""));
  EXPECT_EQ(count(svg, ".chart .paper{fill:#ffffff}"), 1u);
  EXPECT_EQ(count(svg, ".chart .paper{fill:#0d1117}"), 1u);
}

}  // namespace
}  // namespace logitless::testing

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Output of bench is read back completely, and anything else is refused with the number of the wrong line.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "io/bench_run.h"
#include "io/error.h"
#include "io/files.h"

namespace logitless::testing {
namespace bench_run_test {

using namespace io;

const std::string kTokensFile = (std::filesystem::path(SOURCE_FOLDER) / "tests" / "data" / "tokens.jsonl").string();

// Returns the file with the first `old` replaced by `fresh`.
std::string tokens(const std::string& old = "", const std::string& fresh = "") {
  std::string text = read_text_file(kTokensFile, 1 << 20);
  EXPECT_NE(text.find(old), std::string::npos) << old;
  return text.replace(text.find(old), old.size(), fresh);
}

std::string refusal(const std::string& text) {
  try {
    parse_run("run.jsonl", text);
  } catch (const io::Error& e) {
    EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos) << e.what();
    return e.what();
  }
  return "it was read";
}

TEST(Reader, ATornLastLineIsLeftOut) {
  const BenchRun run = parse_run("run.jsonl", tokens() + std::string("\0\xff", 2));
  ASSERT_EQ(run.points.size(), 3u);
  EXPECT_EQ(run.environment.at(1), std::pair(std::string("cpu"), std::string("Example <CPU> & \"Co\"")));
  const Measurement& m = *run.points[1].find("two_pass");
  EXPECT_TRUE(m.median_s == 5.0 && m.first_s == 7.5 && m.spread_s == 0.05 && m.gemm_efficiency == 0.97);
  EXPECT_EQ(m.extra_peak_bytes, 13893632);
  EXPECT_EQ(run.points[2].find("dense")->error, "cannot allocate the logits <[4096, 151936]> & \"more\"");
  EXPECT_EQ(run.points[2].find_ok("dense"), nullptr);
}

TEST(Reader, WhatIsNoRunIsRefused) {
  for (const char* text : {"", "{\"type\":"}) {
    EXPECT_EQ(refusal(text), "run.jsonl:1: is not a file of bench: it has no whole line");
  }
  EXPECT_EQ(refusal("hello\n"), "run.jsonl:1: is not JSON from byte 1 on");
  EXPECT_EQ(refusal("[1]\n"), "run.jsonl:1: type is missing");
  const std::string header = tokens().substr(0, tokens().find('\n') + 1);
  EXPECT_EQ(refusal(tokens().substr(header.size())), "run.jsonl:1: type is \"point\", not \"header\"");
  EXPECT_EQ(refusal(tokens() + header), "run.jsonl:5: type is \"header\", not \"point\"");
  EXPECT_EQ(refusal(tokens() + "{\"type\":\"point\",\"x\":1e999}\n"), "run.jsonl:5: holds a number that is too large");
  EXPECT_EQ(refusal(std::string(100'000, '[') + "\n"), "run.jsonl:1: is nested deeper than 32 levels");
  EXPECT_EQ(refusal(tokens("\"schema\": 1", "\"schema\": 2")), "run.jsonl:1: schema is 2, not 1");
  EXPECT_EQ(refusal(tokens("\"task\"", "\"mask\"")), "run.jsonl:2: task is missing");
  EXPECT_EQ(refusal(tokens("\"iters\": 5", "\"iters\": 0.5")), "run.jsonl:1: iters is 0.5, not what bench writes");
  EXPECT_EQ(refusal(tokens("\"name\": \"dense\", \"status\": \"ok\"", "\"name\": \"dense\", \"status\": 7")),
            "run.jsonl:2: contender dense: status is 7, not what bench writes");
}

}  // namespace bench_run_test
}  // namespace logitless::testing

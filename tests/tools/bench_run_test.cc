// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// What bench writes is read back whole, and anything else is refused with the line that is wrong.
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "io/bench_run.h"
#include "io/error.h"

namespace logitless::testing {
namespace {

using namespace io;

using Json = nlohmann::ordered_json;

const std::string kTokensFile = (std::filesystem::path(SOURCE_FOLDER) / "tests" / "data" / "tokens.jsonl").string();

Json ran(const std::string& name, double median_s, int64_t extra_peak_bytes) {
  return {{"name", name},
          {"status", "ok"},
          {"loss", 2.5},
          {"first_s", 2 * median_s},
          {"median_s", median_s},
          {"spread_s", median_s / 64},
          {"times_s", Json::array({median_s})},
          {"gemm_efficiency", 0.875},
          {"extra_peak_bytes", extra_peak_bytes},
          {"workspace_bytes", extra_peak_bytes / 2},
          {"plan", name}};
}

struct BenchFile {
  Json header = {
      {"type", "header"},
      {"schema", 1},
      {"version", "0.1.0"},
      {"started", "2026-11-21T15:00:00Z"},
      {"settings", Json::array({"threads=1"})},
      {"sweep", Json::array()},
      {"iters", 5},
      {"warmup", 1},
      {"inputs", "random"},
      {"contenders", Json::array({"dense", "one_pass"})},
      {"environment", {{"cpu", "Example CPU"}, {"threads", 2}, {"l2_bytes", 1048576}, {"warnings", Json::array()}}}};
  std::vector<Json> points;

  BenchFile& sweep(const std::string& key, const std::vector<std::string>& values) {
    header["sweep"].push_back({{"key", key}, {"values", values}});
    return *this;
  }
  BenchFile& point(const Json& at, std::vector<Json> contenders) {
    const auto number = [&](const char* key, int64_t otherwise) {
      return at.contains(key) ? std::stoll(at[key].get<std::string>()) : otherwise;
    };
    points.push_back({{"type", "point"},
                      {"at", at},
                      {"task", "cross_entropy"},
                      {"level", "fused"},
                      {"shape",
                       {{"tokens", number("seq_len", 128)},
                        {"hidden", 64},
                        {"vocab", number("model.vocab_size", 1000)},
                        {"dtype", at.value("model.dtype", "float32")},
                        {"layout", "hidden_vocab"}}},
                      {"gemm_rate_flops", 1.25e11},
                      {"contenders", std::move(contenders)}});
    return *this;
  }
  std::string text() const {
    std::string lines = header.dump() + "\n";
    for (const Json& point : points) lines += point.dump() + "\n";
    return lines;
  }
  io::BenchRun run() const { return io::parse_run("run.jsonl", text()); }
};

std::string refusal(const std::string& text) {
  try {
    parse_run("run.jsonl", text);
  } catch (const io::Error& e) {
    EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos) << e.what();
    return e.what();
  }
  return "it was read";
}

BenchFile small() {
  BenchFile file;
  file.sweep("seq_len", {"128", "256"});
  file.point({{"seq_len", "128"}}, {ran("dense", 1, 4096), ran("one_pass", 1, 512)});
  return file;
}

// What the reader says when `change` has been made to the header or to the first point.
std::string refusal_of(const std::function<void(Json& header, Json& point)>& change) {
  BenchFile file = small();
  change(file.header, file.points[0]);
  return refusal(file.text());
}

TEST(Reader, TheWholeFileIsRead) {
  const BenchRun run = read_run(kTokensFile);
  EXPECT_EQ(run.name, "tokens.jsonl");
  EXPECT_EQ(run.settings, (std::vector<std::string>{"model.hidden_size=1536", "model.vocab_size=151936"}));
  ASSERT_EQ(run.sweep.size(), 1u);
  EXPECT_EQ(run.sweep[0].key, "seq_len");
  EXPECT_EQ(run.iters, 5);
  EXPECT_EQ(run.warmup, 1);
  EXPECT_EQ(run.environment.at(1), std::pair(std::string("cpu"), std::string("Example <CPU> & \"Co\"")));
  EXPECT_EQ(run.environment.size(), 15u);
  ASSERT_EQ(run.points.size(), 3u);
  const Point& point = run.points[1];
  EXPECT_EQ(point.at, (std::vector<std::string>{"1024"}));
  EXPECT_EQ(point.layout, "hidden_vocab");
  EXPECT_EQ(point.gemm_rate_flops, 1.9e11);
  const Measurement& m = *point.find("two_pass");
  EXPECT_EQ(m.median_s, 5.0);
  EXPECT_EQ(m.first_s, 7.5);
  EXPECT_EQ(m.spread_s, 0.05);
  EXPECT_EQ(m.gemm_efficiency, 0.97);
  EXPECT_EQ(m.extra_peak_bytes, 13893632);
  EXPECT_EQ(run.points[2].find("dense")->error, "cannot allocate the logits <[4096, 151936]> & \"more\"");
  EXPECT_EQ(run.points[2].find_ok("dense"), nullptr);
}

TEST(Reader, FieldsThatALevelLacksMayBeAbsent) {
  BenchFile file = small();
  file.points[0].erase("gemm_rate_flops");
  file.points[0]["contenders"][0].erase("gemm_efficiency");
  file.points[0]["contenders"][0]["loss"] = nullptr;
  const BenchRun run = file.run();
  EXPECT_FALSE(run.points[0].gemm_rate_flops);
  EXPECT_FALSE(run.points[0].measurements[0].gemm_efficiency);
}

TEST(Reader, ATornLastLineIsLeftOut) {
  const std::string whole = small().text();
  for (const std::string& tail : {std::string("{"), std::string("{\"type\":\"point\"}"), std::string("\0\xff", 2)}) {
    EXPECT_EQ(parse_run("run.jsonl", whole + tail).points.size(), 1u);
  }
}

TEST(Reader, WhatIsNoRunIsRefused) {
  for (const char* text : {"", "{\"type\":"}) {
    EXPECT_EQ(refusal(text), "run.jsonl:1: is not a file of bench: it has no whole line");
  }
  const std::string elf(
      "\x7f"
      "ELF\0\1\n\xff",
      8);
  for (const std::string& text : {std::string("hello\n"), elf}) {
    EXPECT_EQ(refusal(text), "run.jsonl:1: is not JSON from byte 1 on");
  }
  for (const char* text : {"[1]\n", "{}\n", "7\n"}) {
    EXPECT_EQ(refusal(text), "run.jsonl:1: type is left out");
  }
  EXPECT_EQ(refusal(small().points[0].dump() + "\n"), "run.jsonl:1: type is \"point\", not \"header\"");
  EXPECT_EQ(refusal(small().text() + small().header.dump() + "\n"), "run.jsonl:3: type is \"header\", not \"point\"");
  EXPECT_EQ(refusal(small().text() + "\n"), "run.jsonl:3: is not JSON from byte 1 on");
  EXPECT_EQ(refusal(small().text() + "{\"type\":\"point\",\"x\":1e999}\n"),
            "run.jsonl:3: holds a number that is too large");
  EXPECT_EQ(refusal_of([](Json& header, Json&) { header["schema"] = 2; }), "run.jsonl:1: schema is 2, not 1");
}

TEST(Reader, WhatIsLeftOutOrOfAnotherTypeIsNamed) {
  const auto named = [](const std::string& place, const char* key, const auto& object_of) {
    EXPECT_EQ(refusal_of([&](Json& header, Json& point) { object_of(header, point).erase(key); }),
              place + key + " is left out");
    EXPECT_EQ(refusal_of([&](Json& header, Json& point) { object_of(header, point)[key] = nullptr; }),
              place + key + " is null, not what bench writes");
  };
  for (const char* key :
       {"type", "schema", "settings", "sweep", "iters", "warmup", "inputs", "contenders", "environment"}) {
    named("run.jsonl:1: ", key, [](Json& header, Json&) -> Json& { return header; });
  }
  for (const char* key : {"type", "task", "level"}) {
    named("run.jsonl:2: ", key, [](Json&, Json& point) -> Json& { return point; });
  }
  named("run.jsonl:2: ", "seq_len", [](Json&, Json& point) -> Json& { return point["at"]; });
  named("run.jsonl:2: ", "layout", [](Json&, Json& point) -> Json& { return point["shape"]; });
  const auto contender = [](Json&, Json& point) -> Json& { return point["contenders"][1]; };
  named("run.jsonl:2: ", "name", contender);
  for (const char* key : {"status", "first_s", "median_s", "spread_s", "extra_peak_bytes", "workspace_bytes", "plan"}) {
    named("run.jsonl:2: contender one_pass: ", key, contender);
  }
  EXPECT_EQ(refusal_of([](Json& header, Json&) { header["iters"] = 0.5; }),
            "run.jsonl:1: iters is 0.5, not what bench writes");
  EXPECT_EQ(refusal_of([](Json&, Json& point) { point["contenders"][0]["workspace_bytes"] = 0.5; }),
            "run.jsonl:2: contender dense: workspace_bytes is 0.5, not what bench writes");
  const std::string cut = refusal_of([](Json&, Json& point) { point["task"] = std::vector<int>(100, 7); });
  EXPECT_TRUE(
      cut.ends_with("task is [7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,..., not what bench writes"))
      << cut;
}

TEST(Reader, SizesThatCannotBeAddedAreRefused) {
  for (const char* key : {"median_s", "spread_s", "extra_peak_bytes", "workspace_bytes"}) {
    for (const Json& value : {Json(-1), Json(1e308), Json(std::numeric_limits<uint64_t>::max())}) {
      EXPECT_EQ(refusal_of([&](Json&, Json& point) { point["contenders"][0][key] = value; }),
                std::string("run.jsonl:2: contender dense: ") + key + " is " + value.dump() + ", not from 0 to 2^60");
    }
  }
}

TEST(Reader, LinesThatAreNestedDeepAreRefused) {
  for (const size_t levels : {40, 100'000}) {
    const std::string lists = std::string(levels, '[') + std::string(levels, ']');
    EXPECT_EQ(refusal(lists + "\n"), "run.jsonl:1: is nested deeper than 32 levels");
    BenchFile file = small();
    file.header["environment"]["cpu"] = "@";
    std::string text = file.text();
    EXPECT_EQ(refusal(text.replace(text.find("\"@\""), 3, lists)), "run.jsonl:1: is nested deeper than 32 levels");
    file.header["environment"]["cpu"] = std::string(levels, '[');
    EXPECT_EQ(refusal(file.text()), "it was read");
  }
}

// Whatever names a file holds, a message is one short line.
TEST(Reader, NamesOfTheFileMakeNoLinesInMessages) {
  BenchFile file;
  file.sweep("seq_l\nen" + std::string(10000, 'a'), {"128"});
  file.point({{"seq_len", "128"}}, {ran("dense", 1, 4096)});
  const std::string message = refusal(file.text());
  EXPECT_TRUE(message.starts_with("run.jsonl:2: seq_l ena"));
  EXPECT_LT(message.size(), 200U);
}

TEST(Reader, AFileThatCannotBeReadIsNamed) {
  const auto refusal_of_file = [](const std::string& path) -> std::string {
    try {
      read_run(path);
    } catch (const io::Error& e) {
      return e.what();
    }
    return "it was read";
  };
  EXPECT_EQ(refusal_of_file("/no/such/run.jsonl"), "/no/such/run.jsonl: cannot be opened: No such file or directory");
  EXPECT_EQ(refusal_of_file("/"), "/: is a directory, not a file");
}

}  // namespace
}  // namespace logitless::testing

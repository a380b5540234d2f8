// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// What bench writes is read back whole, and anything else is refused with the line that is wrong.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <functional>
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
  EXPECT_EQ(point.shape.tokens, 1024);
  EXPECT_EQ(point.shape.vocab, 151936);
  EXPECT_EQ(point.gemm_rate_flops, 1.9e11);
  const Measurement& m = *point.find("two_pass");
  EXPECT_EQ(m.median_s, 5.0);
  EXPECT_EQ(m.first_s, 7.5);
  EXPECT_EQ(m.spread_s, 0.05);
  EXPECT_EQ(m.gemm_efficiency, 0.97);
  EXPECT_EQ(m.extra_peak_bytes, 13893632);
  EXPECT_EQ(m.loss, 12.25);
  EXPECT_EQ(run.points[2].find("dense")->error, "cannot allocate the logits <[4096, 151936]> & \"more\"");
  EXPECT_EQ(run.points[2].find_ok("dense"), nullptr);
}

TEST(Reader, FieldsThatALevelLacksMayBeAbsent) {
  BenchFile file = small();
  file.points[0].erase("gemm_rate_flops");
  file.points[0]["contenders"][0].erase("gemm_efficiency");
  file.points[0]["contenders"][0]["loss"] = nullptr;
  file.points[0]["contenders"].push_back(ran("apart", 1, 1));
  const BenchRun run = file.run();
  EXPECT_FALSE(run.points[0].gemm_rate_flops);
  EXPECT_FALSE(run.points[0].measurements[0].gemm_efficiency);
  EXPECT_TRUE(std::isnan(run.points[0].measurements[0].loss));
  EXPECT_EQ(run.contenders, (std::vector<std::string>{"dense", "one_pass", "apart"}));
}

TEST(Reader, ATornLastLineIsLeftOut) {
  const std::string whole = small().text();
  for (const std::string& tail : {std::string("{"), std::string("{\"type\":\"point\"}"), std::string("\0\xff", 2)}) {
    EXPECT_EQ(parse_run("run.jsonl", whole + tail).points.size(), 1u);
  }
}

TEST(Reader, WhatIsNoRunIsRefused) {
  EXPECT_EQ(refusal(""), "run.jsonl:1: the file is empty; `logitless bench` starts one with a header");
  EXPECT_EQ(refusal("{\"type\":"), "run.jsonl:1: is not a line of `logitless bench`: it does not end");
  EXPECT_EQ(refusal("hello\n"), "run.jsonl:1: is not JSON from byte 1 of the line on");
  EXPECT_EQ(refusal(std::string("\x7f"
                                "ELF\0\1\n\xff",
                                8)),
            "run.jsonl:1: is not JSON from byte 1 of the line on");
  EXPECT_EQ(refusal("[1]\n"), "run.jsonl:1: the line is not an object");
  EXPECT_EQ(refusal("{}\n"), "run.jsonl:1: type must be \"header\" on the first line, not left out");
  EXPECT_EQ(refusal(small().header.dump() + "\n"), "run.jsonl:2: there is no point after the header");
  EXPECT_EQ(refusal(small().points[0].dump() + "\n"),
            "run.jsonl:1: type must be \"header\" on the first line, not \"point\"");
  EXPECT_EQ(refusal(small().text() + small().header.dump() + "\n"),
            "run.jsonl:3: type must be \"point\" after the first line, not \"header\"");
  EXPECT_EQ(refusal(small().text() + "\n"), "run.jsonl:3: is not JSON from byte 1 of the line on");
  EXPECT_EQ(refusal(small().text() + "{\"type\":\"point\",\"x\":1e999}\n"),
            "run.jsonl:3: holds a number that is too large");
  EXPECT_EQ(refusal(small().text() + small().points[0].dump() + "\n"),
            "run.jsonl:3: this point stands in the file already");
}

TEST(Reader, AnotherSchemaIsRefused) {
  EXPECT_EQ(refusal_of([](Json& header, Json&) { header["schema"] = 2; }), "run.jsonl:1: schema must be 1, not 2");
  EXPECT_EQ(refusal_of([](Json& header, Json&) { header.erase("schema"); }),
            "run.jsonl:1: schema must be an integer of at least 0, not left out");
}

TEST(Reader, EveryFieldOfTheHeaderIsChecked) {
  for (const char* key :
       {"version", "started", "settings", "sweep", "iters", "warmup", "inputs", "contenders", "environment"}) {
    const std::string start = std::string("run.jsonl:1: ") + key + " must be ";
    EXPECT_TRUE(refusal_of([&](Json& header, Json&) { header.erase(key); }).starts_with(start)) << key;
    EXPECT_TRUE(refusal_of([&](Json& header, Json&) { header[key] = false; }).starts_with(start) ||
                std::string(key) == "environment")
        << key;
  }
  EXPECT_EQ(refusal_of([](Json& header, Json&) { header["environment"] = 1; }),
            "run.jsonl:1: environment is not an object");
  EXPECT_EQ(refusal_of([](Json& header, Json&) { header["iters"] = 0; }),
            "run.jsonl:1: iters must be an integer of at least 1, not 0");
  EXPECT_EQ(refusal_of([](Json& header, Json&) { header["settings"][0] = 1; }),
            "run.jsonl:1: settings must be a list of texts, not [1]");
  EXPECT_EQ(refusal_of([](Json& header, Json&) { header["sweep"][0]["values"] = Json::array(); }),
            "run.jsonl:1: sweep[0].values must be a list of at least one value, not []");
}

TEST(Reader, EveryFieldOfAPointIsChecked) {
  for (const char* key : {"type", "at", "task", "level", "shape", "contenders"}) {
    EXPECT_TRUE(refusal_of([&](Json&, Json& point) {
                  point.erase(key);
                }).starts_with(std::string("run.jsonl:2: ") + key + " must be "))
        << key;
  }
  for (const char* key : {"tokens", "hidden", "vocab", "dtype", "layout"}) {
    EXPECT_TRUE(refusal_of([&](Json&, Json& point) {
                  point["shape"].erase(key);
                }).starts_with(std::string("run.jsonl:2: shape.") + key + " must be "))
        << key;
  }
  for (const char* key :
       {"name", "status", "first_s", "median_s", "spread_s", "extra_peak_bytes", "workspace_bytes", "plan"}) {
    EXPECT_TRUE(refusal_of([&](Json&, Json& point) {
                  point["contenders"][1].erase(key);
                }).starts_with(std::string("run.jsonl:2: contenders[1].") + key + " must be "))
        << key;
  }
}

TEST(Reader, ValuesOutOfRangeAreNamed) {
  const auto with = [](const char* key, const Json& value) {
    return refusal_of([&](Json&, Json& point) { point["contenders"][0][key] = value; });
  };
  EXPECT_EQ(with("median_s", -1), "run.jsonl:2: contenders[0].median_s must be a number of at least 0, not -1");
  EXPECT_EQ(with("median_s", "fast"),
            "run.jsonl:2: contenders[0].median_s must be a number of at least 0, not \"fast\"");
  EXPECT_EQ(with("extra_peak_bytes", -4096),
            "run.jsonl:2: contenders[0].extra_peak_bytes must be an integer of at least 0, not -4096");
  EXPECT_EQ(with("extra_peak_bytes", 0.5),
            "run.jsonl:2: contenders[0].extra_peak_bytes must be an integer of at least 0, not 0.5");
  EXPECT_EQ(with("extra_peak_bytes", std::numeric_limits<uint64_t>::max()),
            "run.jsonl:2: contenders[0].extra_peak_bytes must be an integer of at least 0, not 18446744073709551615");
  // Sizes whose quotients would not be finite.
  const std::string of_a_size = "must be 0 or a number from 1e-12 to 1e24, not ";
  EXPECT_EQ(with("median_s", 1e308), "run.jsonl:2: contenders[0].median_s " + of_a_size + "1e+308");
  EXPECT_EQ(with("first_s", 5e-324), "run.jsonl:2: contenders[0].first_s " + of_a_size + "5e-324");
  EXPECT_EQ(with("spread_s", 1e25), "run.jsonl:2: contenders[0].spread_s " + of_a_size + "1e+25");
  EXPECT_EQ(with("spread_s", 1e-19), "it was read") << "the difference of two times may be anything";
  EXPECT_EQ(with("extra_peak_bytes", std::numeric_limits<int64_t>::max()),
            "run.jsonl:2: contenders[0].extra_peak_bytes must be an integer of at most 2^60, not 9223372036854775807");
  EXPECT_EQ(with("status", "maybe"), "run.jsonl:2: contenders[0].status must be \"ok\" or \"error\", not \"maybe\"");
  EXPECT_EQ(with("loss", "big"), "run.jsonl:2: contenders[0].loss must be a number, not \"big\"");
  EXPECT_EQ(with("name", "one_pass"), "run.jsonl:2: contender one_pass stands there twice");
  EXPECT_TRUE(with("plan", std::vector<int>(100, 7))
                  .ends_with("plan must be a text, not [7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,..."));
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

TEST(Reader, APointLiesInTheSweep) {
  const auto at = [](const Json& place) { return refusal_of([&](Json&, Json& point) { point["at"] = place; }); };
  EXPECT_EQ(at({{"seq_len", "512"}}), "run.jsonl:2: at.seq_len must be a value of the header's sweep, not \"512\"");
  EXPECT_EQ(at({{"seq_len", 128}}), "run.jsonl:2: at.seq_len must be a text, not 128");
  EXPECT_EQ(at(Json::object()), "run.jsonl:2: at.seq_len must be a text, not left out");
  EXPECT_EQ(at({{"seq_len", "128"}, {"seed", "1"}}), "run.jsonl:2: at names a key that the header does not sweep");
}

// Whatever names a file holds, a message is one short line.
TEST(Reader, NamesOfTheFileMakeNoLinesInMessages) {
  BenchFile file;
  file.sweep("seq_l\nen", {"128"});
  file.point({{"seq_len", "128"}}, {ran("dense", 1, 4096)});
  EXPECT_EQ(refusal(file.text()), "run.jsonl:2: at.seq_l en must be a text, not left out");
  const std::string twice = std::string(10000, 'a') + "\x1b[2J";
  BenchFile contenders;
  contenders.sweep("seq_len", {"128"});
  contenders.point({{"seq_len", "128"}}, {ran(twice, 1, 4096), ran(twice, 1, 4096)});
  const std::string message = refusal(contenders.text());
  EXPECT_LT(message.size(), 500U);
  EXPECT_EQ(message.find('\x1b'), std::string::npos);
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

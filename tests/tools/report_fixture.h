// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Files as `logitless bench` writes them, for tests that name only what they vary.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "report/bench_run.h"

namespace logitless::testing {

using Json = nlohmann::ordered_json;

inline const std::string kTokensFile =
    (std::filesystem::path(SOURCE_FOLDER) / "tests" / "data" / "tokens.jsonl").string();

inline Json ran(const std::string& name, double median_s, int64_t extra_peak_bytes) {
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

inline Json failed(const std::string& name, const std::string& message) {
  return {{"name", name}, {"status", "error"}, {"message", message}};
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
  report::BenchRun run() const { return report::parse_run("run.jsonl", text()); }
};

}  // namespace logitless::testing

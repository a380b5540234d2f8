// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Runs `logitless bench` on shapes that take a few milliseconds per point.
#pragma once

#include "cli_fixture.h"
#include "io/bench_run.h"

namespace logitless::testing {

class BenchTest : public CliTest {
 protected:
  // Finished logits need no GEMM, so a point costs little more than its process.
  const std::string small_ = write("small.yaml", "level: logits\nmodel: {vocab_size: 300}\nseq_len: 8\n");

  // Returns the words of a benchmark that times a single turn without warm-up.
  static Words bench(const std::string& config, const Words& rest) {
    const bool has_iters = std::find(rest.begin(), rest.end(), "--iters") != rest.end();
    return Words{"bench", config, "--warmup", "0"} + (has_iters ? Words{} : Words{"--iters", "1"}) + rest;
  }

  /// Reads the lines of a file; each is an object.
  std::vector<json> lines_of(const std::string& name) const {
    std::vector<json> lines;
    std::istringstream in(read(name));
    for (std::string line; std::getline(in, line);) lines.push_back(json::parse(line));
    return lines;
  }
  void write_lines(const std::string& name, const std::vector<json>& lines) const {
    std::string text;
    for (const json& line : lines) text += line.dump() + "\n";
    write(name, text);
  }
  io::BenchRun read_run(const std::string& name) const { return io::read_run(path(name)); }
};

}  // namespace logitless::testing

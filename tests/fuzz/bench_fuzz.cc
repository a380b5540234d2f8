// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The JSON Lines of a benchmark, and the page that `logitless report` makes of them.
#include "fuzz_target.h"
#include "report/bench_run.h"
#include "report/page.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace logitless;
  std::vector<report::BenchRun> runs;
  if (!fuzz::reads([&] { runs.push_back(report::parse_run("run.jsonl", fuzz::text_of(data, size))); })) return 0;
  fuzz::reads([&] { report::page(runs); });
  return 0;
}

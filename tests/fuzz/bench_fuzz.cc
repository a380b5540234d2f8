// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Reads a benchmark's JSON Lines, as --against does.
#include "fuzz_target.h"
#include "io/bench_run.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace logitless;
  fuzz::reads([&] { io::parse_run("run.jsonl", fuzz::text_of(data, size)); });
  return 0;
}

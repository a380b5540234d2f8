// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Prints the number of threads that the environment requests, and a hash of the results of the determinism
// cases.
#include <cinttypes>
#include <cstdio>

#include "determinism_cases.h"
#include "logitless/context.h"

int main() {
  const int threads = logitless::Context().threads();
  std::printf("%d %016" PRIx64 "\n", threads, logitless::testing::hash_of_all_cases(0));
}

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Prints the threads that the environment asks for, and a hash of everything that the determinism cases
// compute.
#include <cinttypes>
#include <cstdio>

#include "determinism_cases.h"
#include "logitless/context.h"

int main() {
  const int threads = logitless::Context().threads();
  std::printf("%d %016" PRIx64 "\n", threads, logitless::testing::hash_of_all_cases(0));
}

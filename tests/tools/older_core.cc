// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// A library for LD_PRELOAD: before main(), OpenBLAS chooses the core that OLDER_CORE names.
#include "support/forced_core.h"

namespace {

__attribute__((constructor)) void choose_older_core() {
  if (const char* core = getenv("OLDER_CORE")) logitless::testing::force_core(core);
}

}  // namespace

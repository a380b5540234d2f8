// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Puts OpenBLAS where a version that does not know the CPU would be.
#pragma once

#include <stdlib.h>

extern "C" {
__attribute__((weak)) void gotoblas_dynamic_quit();
__attribute__((weak)) void gotoblas_dynamic_init();
}

namespace logitless::testing {

/// Acts as if OpenBLAS had chosen `core` by itself: the environment does not say so afterwards. Returns false
/// where this build has one core only.
inline bool force_core(const char* core) {
  if (!gotoblas_dynamic_quit || !gotoblas_dynamic_init) return false;
  setenv("OPENBLAS_CORETYPE", core, 1);
  gotoblas_dynamic_quit();
  gotoblas_dynamic_init();
  unsetenv("OPENBLAS_CORETYPE");
  return true;
}

}  // namespace logitless::testing

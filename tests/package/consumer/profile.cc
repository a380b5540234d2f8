// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Nothing asks for a profile, and none is there.
#include <logitless/profile.h>

#include <cstdlib>

int main() {
  unsetenv("LOGITLESS_PROFILE");
  const logitless::ProfileShape shape{.tokens = 3, .hidden_size = 2, .vocab_size = 5};
  const logitless::Context context(logitless::load_profile("", shape, {.row_tile = 64}));
  if (context.options().row_tile != 64) return 1;
  try {
    logitless::load_profile("not-there.yaml", shape);
    return 1;
  } catch (const logitless::InvalidInput&) {
    return 0;
  }
}

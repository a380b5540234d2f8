// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Nothing asks for a profile, and none is there.
#include <logitless/profile.h>

#include <cstdlib>
#include <string>

int main() {
  unsetenv("LOGITLESS_PROFILE");
  const std::string path;  // what the environment variable names
  // [profile]
  const logitless::ProfileShape shape{.tokens = 2048, .hidden_size = 1536, .vocab_size = 151936};
  std::string note;  // why no entry of the file fits, or empty
  const logitless::Context context(logitless::load_profile(path, shape, {}, &note));
  // [/profile]
  if (context.options().row_tile != 0 || !note.empty()) return 1;
  try {
    logitless::load_profile("not-there.yaml", shape);
    return 1;
  } catch (const logitless::InvalidInput&) {
    return 0;
  }
}

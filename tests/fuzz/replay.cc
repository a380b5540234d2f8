// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Passes every file in the given folders to a fuzz target, so that the corpus runs as a test with any
// compiler.
#include <filesystem>
#include <fstream>
#include <sstream>

#include "fuzz_target.h"

int main(int argc, char** argv) {
  int files = 0;
  for (int i = 1; i < argc; ++i) {
    for (const auto& entry : std::filesystem::directory_iterator(argv[i])) {
      if (!entry.is_regular_file()) continue;
      std::ostringstream bytes;
      bytes << std::ifstream(entry.path(), std::ios::binary).rdbuf();
      const std::string text = bytes.str();
      std::printf("%s, %zu bytes\n", entry.path().c_str(), text.size());
      std::fflush(stdout);
      LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(text.data()), text.size());
      ++files;
    }
  }
  logitless::fuzz::require(files > 0, "there are files to replay");
}

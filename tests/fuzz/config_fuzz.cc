// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Reads a config from a file, and as the value of --set.
#include "io/config.h"

#include "fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace logitless;
  static const fuzz::MemoryFile memory;
  const std::string text(fuzz::text_of(data, size));
  memory.write(text);
  fuzz::reads([&] {
    const io::Config config = io::load_config(memory.path(), {});
    const io::Config again = io::load_config(std::nullopt, config.settings);
    fuzz::require(again.settings == config.settings, "a config's settings give the same config");
  });
  // A command's argument cannot hold a zero byte.
  const std::string argument = text.substr(0, text.find('\0'));
  fuzz::reads([&] { io::load_config(std::nullopt, std::vector{"model=" + argument}); });
  fuzz::reads([&] { io::load_config(std::nullopt, std::vector{"preference.loss_type=" + argument}); });
  return 0;
}

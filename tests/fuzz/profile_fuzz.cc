// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// A profile: what is read can be written and read again.
#include "fuzz_target.h"
#include "io/profile_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace logitless;
  static const fuzz::MemoryFile memory;
  memory.write(fuzz::text_of(data, size));
  std::vector<io::ProfileEntry> entries;
  if (!fuzz::reads([&] { entries = io::read_profile(memory.path(), "--profile"); })) return 0;
  if (!entries.empty()) {
    const io::ProfileEntry& first = entries.front();
    const ProfileShape shape{first.tokens.low, first.hidden_size.low, first.vocab_size.low, first.dtype,
                             first.layout == HeadLayout::kHiddenVocab};
    const io::ProfileChoice choice = io::choose_entry(entries, first.machine, shape, first.workspace_bytes);
    fuzz::require(choice.entry != nullptr, "an entry serves the shape that it begins with");
  }
  memory.write(io::profile_text(entries));
  const std::vector<io::ProfileEntry> again = io::read_profile(memory.path());
  fuzz::require(again.size() == entries.size(), "a profile keeps its entries when it is written");
  for (size_t i = 0; i < entries.size(); ++i) {
    fuzz::require(again[i].replaces(entries[i]), "an entry keeps its machine and shape when it is written");
  }
  return 0;
}

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "logitless/profile.h"

#include <utility>

#include "io/profile_file.h"
#include "logitless/error.h"

namespace logitless {
namespace {

std::vector<io::ProfileEntry> read(const std::string& path) {
  try {
    return io::read_profile(path);
  } catch (const io::Error& e) {
    throw InvalidInput(e.what());
  }
}

}  // namespace

ContextOptions load_profile(const std::string& path, const ProfileShape& shape, ContextOptions base,
                            std::string* note) {
  if (note) note->clear();
  const std::string file = io::profile_path(path);
  if (file.empty()) return base;
  const std::vector<io::ProfileEntry> entries = read(file);
  const io::ProfileChoice choice =
      io::choose_entry(entries, io::machine_of(Context(base)), shape, base.workspace_bytes);
  if (note) *note = choice.why_none;
  if (!choice.entry || base.plan == PlanKind::kDense) return base;
  if (base.plan == PlanKind::kAuto) base.plan = choice.entry->plan;
  if (base.row_tile == 0) base.row_tile = choice.entry->row_tile;
  if (base.vocab_tile == 0) base.vocab_tile = choice.entry->vocab_tile;
  return base;
}

}  // namespace logitless

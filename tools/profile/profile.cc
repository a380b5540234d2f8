// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "logitless/profile.h"

#include <utility>

#include "io/profile_file.h"
#include "logitless/error.h"

namespace logitless {
namespace {

std::vector<io::ProfileEntry> read(const std::string& path, const std::string& source) {
  try {
    return io::read_profile(path, source);
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
  const io::ProfileUse use = io::use_profile(read(file, path.empty() ? "LOGITLESS_PROFILE" : ""), shape, base);
  if (note) *note = use.why_not;
  return use.options;
}

}  // namespace logitless

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The schema of a config: every key, its rule and where it goes. One table, used alike for files and --set.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "io/config.h"
#include "io/config_value.h"

namespace logitless::io {

struct KeyRule {
  std::string key;  ///< dotted
  std::function<void(Config&, const ConfigValue&)> apply;
};

const std::vector<KeyRule>& config_schema();

/// Whether `name` is a section, such as `model`.
bool is_section(const std::string& name);

/// Throws Error where keys rule each other out, or where the task gives a key nothing to act on.
void check_together(const Config& config);

/// "; did you mean model.dtype?" where a known key is close to `key`, else nothing.
std::string suggestion_for(const std::string& key);

}  // namespace logitless::io

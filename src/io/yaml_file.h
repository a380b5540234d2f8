// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <yaml-cpp/yaml.h>

#include <string>

namespace logitless::io {

/// The one document of a YAML file, which must be a map. `what` the file is ("config") serves the messages. Throws
/// Error that names file and line.
YAML::Node read_yaml_file(const std::string& path, const std::string& what);

/// "qwen.yaml:7"
std::string place_in(const std::string& path, const YAML::Node& node);

}  // namespace logitless::io

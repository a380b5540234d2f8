// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Reads YAML so that no untrusted text can hang or exhaust the command.
#pragma once

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <stdexcept>
#include <string>

namespace logitless::io {

/// A text is not a single YAML document, or cannot be a config. what() continues "config.yaml:7: ".
class YamlProblem : public std::runtime_error {
 public:
  YamlProblem(const YAML::Mark& mark, const std::string& reason)
      : std::runtime_error(reason), line(std::max(mark.line, 0) + 1) {}

  const int line;
};

/// Returns the document of a text, or a null node if there is none. Throws YamlProblem.
YAML::Node parse_yaml(const std::string& text);

/// Returns the document of a config, a YAML file or pipe, which must be a map. Throws Error that names file
/// and line.
YAML::Node read_yaml_file(const std::string& path);

/// "qwen.yaml:7"
std::string place_in(const std::string& path, const YAML::Node& node);

}  // namespace logitless::io

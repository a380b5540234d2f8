// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "io/yaml_file.h"

#include "io/error.h"
#include "io/one_line.h"
#include "io/text_file.h"
#include "io/yaml_check.h"

namespace logitless::io {
namespace {

constexpr size_t kMostYamlBytes =
    1 << 20;  // Two thousand entries of a profile; yaml-cpp takes up to 500 times as much.

std::string read_yaml_text(const std::string& path, const std::string& what) {
  std::string text = read_text_file(path, kMostYamlBytes);
  if (text.find('\0') != std::string::npos) throw Error(path + ": is not a text file; a " + what + " is YAML");
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) {
    throw Error(path + ": is empty; a " + what + " needs keys");
  }
  return text;
}

}  // namespace

std::string place_in(const std::string& path, const YAML::Node& node) {
  return path + ":" + std::to_string(node.Mark().line + 1);
}

YAML::Node parse_yaml(const std::string& text) try {
  check_yaml(text);
  return YAML::Load(text);
} catch (const YAML::Exception& e) {
  throw YamlProblem(e.mark, "is not YAML: " + one_line(e.msg));
}

YAML::Node read_yaml_file(const std::string& path, const std::string& what) {
  const std::string text = read_yaml_text(path, what);
  YAML::Node root;
  try {
    root = parse_yaml(text);
  } catch (const YamlProblem& e) {
    throw Error(path + ":" + std::to_string(e.line) + ": " + e.what());
  }
  if (root.IsNull()) throw Error(path + ": is empty; a " + what + " needs keys");
  if (!root.IsMap()) {
    throw Error(place_in(path, root) + ": a " + what + " is a list of `key: value` lines, and this is not");
  }
  return root;
}

}  // namespace logitless::io

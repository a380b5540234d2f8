// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "io/yaml_file.h"

#include <string_view>

#include "io/error.h"
#include "io/mapped_file.h"

namespace logitless::io {
namespace {

std::string read_text_file(const std::string& path, const std::string& what) {
  const MappedFile file(path);
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  if (text.find('\0') != std::string_view::npos) throw Error(path + ": is not a text file; a " + what + " is YAML");
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) {
    throw Error(path + ": is empty; a " + what + " needs keys");
  }
  return std::string(text);
}

}  // namespace

std::string place_in(const std::string& path, const YAML::Node& node) {
  return path + ":" + std::to_string(node.Mark().line + 1);
}

YAML::Node read_yaml_file(const std::string& path, const std::string& what) {
  const std::string text = read_text_file(path, what);
  YAML::Node root;
  try {
    const std::vector<YAML::Node> documents = YAML::LoadAll(text);
    if (documents.size() > 1) {
      throw Error(path + ": holds " + std::to_string(documents.size()) + " YAML documents, not one");
    }
    if (!documents.empty()) root = documents.front();
  } catch (const YAML::Exception& e) {
    throw Error(path + ":" + std::to_string(e.mark.line + 1) + ": is not YAML: " + e.msg);
  }
  if (root.IsNull()) throw Error(path + ": is empty; a " + what + " needs keys");
  if (!root.IsMap()) {
    throw Error(place_in(path, root) + ": a " + what + " is a list of `key: value` lines, and this is not");
  }
  return root;
}

}  // namespace logitless::io

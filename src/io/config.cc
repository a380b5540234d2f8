// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "io/config.h"

#include <algorithm>
#include <set>

#include "io/config_schema.h"
#include "io/config_value.h"
#include "io/mapped_file.h"

namespace logitless::io {
namespace {

// YAML on one line.
std::string text_of(const YAML::Node& node) {
  YAML::Emitter out;
  out.SetSeqFormat(YAML::Flow);
  out.SetMapFormat(YAML::Flow);
  out << node;
  return out.c_str();
}

// Walks one YAML document, or the value of one --set, and applies every key it finds.
class ConfigReader {
 public:
  explicit ConfigReader(Config& config) : config_(config) {}

  // `name` is the path as the user wrote it.
  void read_file(const std::string& name);
  // "model.dtype=bfloat16", the value of `flag`: "--set" or "--sweep".
  void read_assignment(const std::string& flag, const std::string& assignment);

 private:
  std::string place_of(const YAML::Node& node) const {
    return set_place_.empty() ? file_ + ":" + std::to_string(node.Mark().line + 1) : set_place_;
  }
  void walk_section(const std::string& prefix, const YAML::Node& section);
  void apply(const std::string& key, const std::string& place, const YAML::Node& node);

  Config& config_;
  std::string file_;
  std::string set_place_;
};

std::string read_whole_file(const std::string& path) {
  const MappedFile file(path);
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  if (text.find('\0') != std::string_view::npos) throw Error(path + ": is not a text file; a config is YAML");
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos)
    throw Error(path + ": is empty; a config needs keys");
  return std::string(text);
}

void ConfigReader::read_file(const std::string& name) {
  file_ = name;
  const std::string text = read_whole_file(name);
  YAML::Node root;
  try {
    const std::vector<YAML::Node> documents = YAML::LoadAll(text);
    if (documents.size() > 1)
      throw Error(name + ": holds " + std::to_string(documents.size()) + " YAML documents, not one");
    if (!documents.empty()) root = documents.front();
  } catch (const YAML::Exception& e) {
    throw Error(name + ":" + std::to_string(e.mark.line + 1) + ": is not YAML: " + e.msg);
  }
  if (root.IsNull()) throw Error(name + ": is empty; a config needs keys");
  if (!root.IsMap()) throw Error(place_of(root) + ": a config is a list of `key: value` lines, and this is not");
  walk_section("", root);
}

void ConfigReader::read_assignment(const std::string& flag, const std::string& assignment) {
  const size_t equals = assignment.find('=');
  if (equals == std::string::npos || equals == 0) {
    throw Error(flag + " " + assignment + ": must have the form key=value, for example model.dtype=bfloat16");
  }
  const std::string key = assignment.substr(0, equals);
  set_place_ = flag + " " + key;
  YAML::Node node;
  try {
    node = YAML::Load(assignment.substr(equals + 1));
  } catch (const YAML::Exception& e) {
    throw Error(set_place_ + ": the value is not YAML: " + e.msg);
  }
  apply(key, set_place_, node);
}

void ConfigReader::walk_section(const std::string& prefix, const YAML::Node& section) {
  std::set<std::string> seen;
  for (const auto& entry : section) {
    const std::string place = place_of(entry.first);
    if (!entry.first.IsScalar()) throw Error(place + ": a key must be a plain word");
    const std::string key = prefix + entry.first.Scalar();
    if (!seen.insert(key).second) throw Error(place + ": " + key + " stands here a second time");
    apply(key, place, entry.second);
  }
}

void ConfigReader::apply(const std::string& key, const std::string& place, const YAML::Node& node) {
  if (is_section(key)) {
    if (!node.IsMap()) {
      const ConfigValue value{key, place, node};
      value.reject("a section of keys");
    }
    walk_section(key + ".", node);
    return;
  }
  const auto& schema = config_schema();
  const auto it = std::find_if(schema.begin(), schema.end(), [&](const KeyRule& r) { return r.key == key; });
  if (it == schema.end()) {
    const std::string where = place.ends_with(" " + key) ? place : place + ": " + key;
    throw Error(where + " is not a known key" + suggestion_for(key));
  }
  it->apply(config_, {key, place, node});
  config_.places[key] = place;
  config_.settings.push_back(key + "=" + text_of(node));
}

}  // namespace

std::string Config::place_of(const std::string& key) const {
  const auto it = places.find(key);
  if (it == places.end()) return key;
  return it->second.ends_with(" " + key) ? it->second : it->second + ": " + key;
}

Config load_config(const std::optional<std::string>& path, std::span<const std::string> assignments,
                   std::span<const std::string> swept) {
  Config config;
  if (path) ConfigReader(config).read_file(*path);
  for (const std::string& assignment : assignments) ConfigReader(config).read_assignment("--set", assignment);
  config.unswept = config.settings.size();
  for (const std::string& assignment : swept) ConfigReader(config).read_assignment("--sweep", assignment);
  check_together(config);
  for (size_t k = 0; k < config.preference_weights.size(); ++k) {
    config.preference.terms[k].weight = config.preference_weights[k];
  }
  return config;
}

}  // namespace logitless::io

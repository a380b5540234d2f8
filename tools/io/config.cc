// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "io/config.h"

#include <algorithm>
#include <set>

#include "io/config_schema.h"
#include "io/config_value.h"
#include "io/error.h"
#include "io/yaml_file.h"

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
  std::string place_of(const YAML::Node& node) const { return set_place_.empty() ? place_in(file_, node) : set_place_; }
  void walk_section(const std::string& prefix, const YAML::Node& section);
  void apply(const std::string& key, const std::string& place, const YAML::Node& node);

  Config& config_;
  std::string file_;
  std::string set_place_;
};

void ConfigReader::read_file(const std::string& name) {
  file_ = name;
  walk_section("", read_yaml_file(name, "config"));
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
    node = parse_yaml(assignment.substr(equals + 1));
  } catch (const YamlProblem& e) {
    throw Error(set_place_ + ": the value " + e.what());
  }
  apply(key, set_place_, node);
}

void ConfigReader::walk_section(const std::string& prefix, const YAML::Node& section) {
  std::set<std::string> seen;
  for (const auto& entry : section) {
    const std::string place = place_of(entry.first);
    if (!entry.first.IsScalar()) throw Error(place + ": a key must be a plain word");
    const std::string key = prefix + entry.first.Scalar();
    if (!seen.insert(key).second) throw Error(place + ": " + one_line(key) + " stands here a second time");
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
    const std::string where = place.ends_with(" " + key) ? place : place + ": " + one_line(key);
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

void set_key(Config& config, const std::string& source, const std::string& assignment) {
  ConfigReader(config).read_assignment(source, assignment);
  check_together(config);
}

}  // namespace logitless::io

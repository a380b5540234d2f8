// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "io/yaml_file.h"

#include <yaml-cpp/eventhandler.h>

#include <set>
#include <sstream>

#include "io/error.h"
#include "io/files.h"

namespace logitless::io {
namespace {

constexpr size_t kMostLevels = 64;  // a config needs four; yaml-cpp itself gives up at 500
constexpr size_t kMostValues = 100'000;

// Measures a document without building it.
class Measurer : public YAML::EventHandler {
 public:
  /// The start of the document that was handled last.
  YAML::Mark start;

  void OnDocumentStart(const YAML::Mark& mark) override {
    start = mark;
    levels_ = values_ = 0;
    collections_.clear();
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t) override { count(mark); }
  void OnScalar(const YAML::Mark& mark, const std::string&, YAML::anchor_t, const std::string&) override {
    count(mark);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    if (collections_.contains(anchor)) throw YamlProblem(mark, "holds an alias of a list or a map: write it out");
    count(mark);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(mark, anchor);
  }
  void OnSequenceEnd() override { --levels_; }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(mark, anchor);
  }
  void OnMapEnd() override { --levels_; }

 private:
  void open(const YAML::Mark& mark, YAML::anchor_t anchor) {
    if (anchor != YAML::NullAnchor) collections_.insert(anchor);
    if (++levels_ <= kMostLevels) return;
    throw YamlProblem(mark, "is nested deeper than " + std::to_string(kMostLevels) + " levels");
  }
  void count(const YAML::Mark& mark) {
    if (++values_ <= kMostValues) return;
    throw YamlProblem(mark, "holds more than " + std::to_string(kMostValues) + " values");
  }

  size_t levels_ = 0, values_ = 0;
  std::set<YAML::anchor_t> collections_;  // those with an anchor
};

// Throws unless the text is safe for yaml-cpp to build and for any code to traverse: at most one document, at
// most 64 levels deep, at most 100,000 values, and no alias of a list or a map, which could multiply its
// values. Throws YamlProblem, or yaml-cpp's own exception if the text is not YAML. It is needed because
// YAML::LoadAll() never ends on text such as ",".
void check_yaml(const std::string& text) {
  std::istringstream in(text);
  YAML::Parser parser(in);
  Measurer measurer;
  if (!parser.HandleNextDocument(measurer)) return;
  YAML::Mark second;
  for (int documents = 1;; ++documents) {
    const YAML::Mark start = measurer.start;
    if (!parser.HandleNextDocument(measurer)) {
      if (documents == 1) return;
      throw YamlProblem(second, "holds " + std::to_string(documents) + " YAML documents, not one");
    }
    // yaml-cpp does not move past a token that cannot begin a value.
    if (measurer.start.pos == start.pos) throw YamlProblem(start, "is not YAML: no value can begin here");
    if (documents == 1) second = measurer.start;
  }
}

constexpr size_t kMostYamlBytes = 1 << 20;  // yaml-cpp needs up to 500 times as much memory

std::string read_yaml_text(const std::string& path) {
  std::string text = read_text_file(path, kMostYamlBytes);
  if (text.find('\0') != std::string::npos) throw Error(path + ": is not a text file; a config is YAML");
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) throw Error(path + ": is empty; a config needs keys");
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

YAML::Node read_yaml_file(const std::string& path) {
  const std::string text = read_yaml_text(path);
  YAML::Node root;
  try {
    root = parse_yaml(text);
  } catch (const YamlProblem& e) {
    throw Error(path + ":" + std::to_string(e.line) + ": " + e.what());
  }
  if (root.IsNull()) throw Error(path + ": is empty; a config needs keys");
  if (!root.IsMap()) {
    throw Error(place_in(path, root) + ": a config is a list of `key: value` lines, and this is not");
  }
  return root;
}

}  // namespace logitless::io

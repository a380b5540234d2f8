// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "io/yaml_file.h"

#include <yaml-cpp/eventhandler.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <vector>

#include "io/error.h"
#include "io/files.h"

namespace logitless::io {
namespace {

constexpr size_t kMostLevels = 64;       // A config needs four; yaml-cpp itself gives up at 500.
constexpr size_t kMostValues = 100'000;  // Beyond what a profile of the largest size holds.

// Follows a document without building it.
class Measurer : public YAML::EventHandler {
 public:
  /// Where the document that was handled last begins.
  YAML::Mark start;

  void OnDocumentStart(const YAML::Mark& mark) override {
    start = mark;
    open_.clear();
    anchors_.clear();
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override { add(mark, anchor, {}); }
  void OnScalar(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor, const std::string&) override {
    add(mark, anchor, {});
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto target = anchors_.find(anchor);
    if (target == anchors_.end()) throw YamlProblem(mark, "holds an alias inside of what it stands for");
    add(mark, YAML::NullAnchor, target->second);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    begin(mark, anchor);
  }
  void OnSequenceEnd() override { end(); }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    begin(mark, anchor);
  }
  void OnMapEnd() override { end(); }

 private:
  struct Extent {
    size_t levels = 1;
    size_t values = 1;
  };
  struct Open {
    YAML::Mark mark;
    YAML::anchor_t anchor;
    Extent extent;
  };

  void begin(const YAML::Mark& mark, YAML::anchor_t anchor) {
    open_.push_back({mark, anchor, {}});
    if (open_.size() > kMostLevels) reject_levels(mark);
  }
  void end() {
    const Open ended = open_.back();
    open_.pop_back();
    add(ended.mark, ended.anchor, ended.extent);
  }
  // Adds a value that is complete to the one around it.
  void add(const YAML::Mark& mark, YAML::anchor_t anchor, const Extent& extent) {
    if (anchor != YAML::NullAnchor) anchors_[anchor] = extent;
    if (open_.size() + extent.levels > kMostLevels) reject_levels(mark);
    if (open_.empty()) return;
    Extent& around = open_.back().extent;
    around.levels = std::max(around.levels, extent.levels + 1);
    around.values += extent.values;
    if (around.values > kMostValues) {
      throw YamlProblem(mark, "holds more than " + std::to_string(kMostValues) + " values, aliases written out");
    }
  }
  [[noreturn]] static void reject_levels(const YAML::Mark& mark) {
    throw YamlProblem(mark, "is nested deeper than " + std::to_string(kMostLevels) + " levels");
  }

  std::vector<Open> open_;
  std::map<YAML::anchor_t, Extent> anchors_;
};

// Passes a text that yaml-cpp can build and any code can walk: one document at most, nested at most 64 levels
// deep, of at most 100,000 values, aliases counted as what they stand for, and none inside of what it stands
// for. Throws YamlProblem, or what yaml-cpp throws of a text that is not YAML. It is needed because
// YAML::LoadAll() never ends on text such as ",", and because values that aliases multiply fill all memory
// once they are printed or copied.
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
    // yaml-cpp does not leave the place of a token that no value can begin with.
    if (measurer.start.pos == start.pos) throw YamlProblem(start, "is not YAML: no value can begin here");
    if (documents == 1) second = measurer.start;
  }
}

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

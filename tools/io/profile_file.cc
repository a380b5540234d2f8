// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "io/profile_file.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <initializer_list>
#include <limits>
#include <optional>
#include <set>
#include <tuple>

#include "io/config.h"
#include "io/config_value.h"
#include "io/error.h"
#include "io/yaml_file.h"
#include "logitless/environment.h"

namespace logitless::io {
namespace {

constexpr int64_t kMostSize = int64_t{1} << 40;

// A text, written as in a profile and read again.
std::string rewritten(const std::string& text) {
  YAML::Emitter out;
  out << YAML::Flow << YAML::BeginSeq << text << YAML::EndSeq;
  return YAML::Load(out.c_str())[0].Scalar();
}

// The keys of a map, all of them known.
class Section {
 public:
  Section(const std::string& path, std::string name, const YAML::Node& node, std::initializer_list<const char*> known)
      : path_(path), name_(std::move(name)), node_(node) {
    if (!node.IsMap()) ConfigValue{name_, place_in(path, node), node}.reject("a section of keys");
    std::set<std::string> seen;
    for (const auto& entry : node) {
      const std::string place = place_in(path, entry.first) + ": ";
      if (!entry.first.IsScalar()) throw Error(place + "a key must be a plain word");
      const std::string key = entry.first.Scalar();
      if (std::find(known.begin(), known.end(), key) == known.end()) {
        throw Error(place + one_line(full(key)) + " is not a known key of a profile");
      }
      if (!seen.insert(key).second) throw Error(place + one_line(full(key)) + " stands here a second time");
    }
  }

  bool has(const char* key) const { return node_[key].IsDefined(); }
  ConfigValue value(const char* key) const {
    if (!has(key)) throw Error(place_in(path_, node_) + ": " + full(key) + " is not given");
    return {full(key), place_in(path_, node_[key]), node_[key]};
  }
  Section section(const char* key, std::initializer_list<const char*> known) const {
    return {path_, full(key), value(key).node, known};
  }
  // Bytes that are not UTF-8 would be others once profile_text() has written them.
  std::string text(const char* key) const {
    const std::string text = read_text(value(key));
    if (rewritten(text) != text) value(key).reject("a text in UTF-8");
    return text;
  }
  SizeRange range(const char* key) const {
    const ConfigValue list = value(key);
    if (!list.node.IsSequence() || list.node.size() != 2) list.reject("two sizes: [low, high]");
    const auto size = [&](size_t i) { return read_integer({list.key, list.place, list.node[i]}, 0, kMostSize); };
    const SizeRange range{size(0), size(1)};
    if (range.low > range.high) throw Error(list.place + ": " + list.key + " has a low above its high");
    return range;
  }
  int64_t tile(const char* name, const char* older) const {
    const char* key = has(older) ? older : name;
    if (has(name) && has(older))
      throw Error(value(older).place + ": " + full(older) + " is " + full(name) + ", which is given");
    if (!has(key) || is_auto(value(key))) return 0;
    return read_integer(value(key), 1, kMostTileEdge);
  }

 private:
  std::string full(const std::string& key) const { return name_.empty() ? key : name_ + "." + key; }

  std::string path_, name_;
  YAML::Node node_;
};

ProfileMachine read_machine(const Section& machine) {
  return {machine.text("cpu"), static_cast<int>(read_integer(machine.value("threads"), 1, 4096)),
          machine.text("simd_target"), machine.text("gemm_backend"), machine.text("blas_core")};
}

ProfileEntry read_entry(const std::string& path, const YAML::Node& node) {
  const Section entry(path, "profiles", node, {"machine", "shape", "workspace", "kernel", "measured"});
  ProfileEntry out;
  out.machine = read_machine(entry.section("machine", {"cpu", "threads", "simd_target", "gemm_backend", "blas_core"}));
  const Section shape = entry.section("shape", {"dtype", "layout", "tokens", "hidden_size", "vocab_size"});
  out.dtype = read_named<DType>(shape.value("dtype"), kFloatTypes);
  out.tokens = shape.range("tokens");
  if (shape.has("hidden_size")) out.hidden_size = shape.range("hidden_size");
  if (shape.has("layout")) {
    const ConfigValue layout = shape.value("layout");
    if (out.hidden_size.high == 0) {
      throw Error(layout.place + ": " + layout.key + " is that of a head, and without hidden_size there is none");
    }
    out.layout = read_named<HeadLayout>(layout, all_of<HeadLayout>());
  }
  out.vocab_size = shape.range("vocab_size");
  out.workspace_bytes = read_bytes(entry.value("workspace"));
  // Older profiles have the tiles under their older names.
  const Section kernel = entry.section("kernel", {"plan", "row_tile", "vocab_tile", "time_block", "block_size"});
  if (kernel.has("plan"))
    out.plan = read_named<PlanKind>(kernel.value("plan"), {PlanKind::kAuto, PlanKind::kOnePass, PlanKind::kTwoPass});
  out.row_tile = kernel.tile("row_tile", "time_block");
  out.vocab_tile = kernel.tile("vocab_tile", "block_size");
  if (entry.has("measured")) {
    const Section measured = entry.section("measured", {"task", "default_s", "tuned_s"});
    if (measured.has("task")) out.task = measured.text("task");
    const Interval seconds{.text = "seconds from 0 on", .low = 0};
    out.default_s = read_number(measured.value("default_s"), seconds);
    out.tuned_s = read_number(measured.value("tuned_s"), seconds);
  }
  return out;
}

void emit(YAML::Emitter& out, const ProfileEntry& entry) {
  const auto begin = [&](const char* key) { out << YAML::Key << key << YAML::Value << YAML::Flow << YAML::BeginMap; };
  const auto pair = [&](const char* key, const auto& value) { out << YAML::Key << key << YAML::Value << value; };
  const auto range = [&](const char* key, const SizeRange& sizes) {
    out << YAML::Key << key << YAML::Value << YAML::Flow << std::vector<int64_t>{sizes.low, sizes.high};
  };
  const auto tile = [&](const char* key, int64_t edge) { pair(key, edge > 0 ? std::to_string(edge) : "auto"); };
  const bool fused = entry.hidden_size.high > 0;
  out << YAML::BeginMap;
  begin("machine");
  pair("cpu", entry.machine.cpu);
  pair("threads", entry.machine.threads);
  pair("simd_target", entry.machine.simd_target);
  pair("gemm_backend", entry.machine.gemm_backend);
  pair("blas_core", entry.machine.blas_core);
  out << YAML::EndMap;
  begin("shape");
  pair("dtype", name_of(entry.dtype));
  if (fused) pair("layout", name_of(entry.layout));
  range("tokens", entry.tokens);
  if (fused) range("hidden_size", entry.hidden_size);
  range("vocab_size", entry.vocab_size);
  out << YAML::EndMap;
  pair("workspace", entry.workspace_bytes);
  begin("kernel");
  pair("plan", name_of(entry.plan));
  tile("row_tile", entry.row_tile);
  tile("vocab_tile", entry.vocab_tile);
  out << YAML::EndMap;
  begin("measured");
  if (!entry.task.empty()) pair("task", entry.task);
  pair("default_s", entry.default_s);
  pair("tuned_s", entry.tuned_s);
  out << YAML::EndMap << YAML::EndMap;
}

bool is_within(const SizeRange& range, int64_t size) { return size >= range.low && size <= range.high; }

double distance(const SizeRange& range, int64_t size) {
  const auto log2 = [](int64_t value) { return std::log2(static_cast<double>(std::max<int64_t>(value, 1))); };
  return std::abs(log2(size) - (log2(range.low) + log2(range.high)) / 2);
}

double distance(const ProfileEntry& entry, const ProfileShape& shape) {
  return distance(entry.tokens, shape.tokens) + distance(entry.hidden_size, shape.hidden_size) +
         distance(entry.vocab_size, shape.vocab_size);
}

std::string difference(const ProfileMachine& there, const ProfileMachine& here) {
  using Compared = std::tuple<const char*, std::string, std::string>;
  for (const auto& [what, a, b] : {Compared{"CPU", there.cpu, here.cpu},
                                   {"threads", std::to_string(there.threads), std::to_string(here.threads)},
                                   {"simd_target", there.simd_target, here.simd_target},
                                   {"gemm_backend", there.gemm_backend, here.gemm_backend},
                                   {"BLAS core", there.blas_core, here.blas_core}}) {
    if (a != b) return std::string(what) + " " + a + " there and " + b + " here";
  }
  return "";
}

}  // namespace

ProfileMachine machine_of(const Context& context) {
  const Environment environment = describe_environment(context);
  return {environment.cpu, environment.threads, environment.simd_target, environment.gemm_backend,
          environment.blas_core};
}

bool ProfileEntry::replaces(const ProfileEntry& other) const {
  return machine == other.machine && dtype == other.dtype && layout == other.layout && tokens == other.tokens &&
         hidden_size == other.hidden_size && vocab_size == other.vocab_size && workspace_bytes == other.workspace_bytes;
}

// Tells how the head of a shape is stored.
static HeadLayout layout_of(const ProfileShape& shape) {
  return shape.stored_hidden_vocab ? HeadLayout::kHiddenVocab : HeadLayout::kVocabHidden;
}

ProfileEntry entry_for(const ProfileMachine& machine, const ProfileShape& shape, size_t workspace_bytes) {
  const auto around = [](int64_t size) { return SizeRange{(size + 1) / 2, 2 * size}; };
  ProfileEntry entry;
  entry.machine = machine;
  entry.dtype = shape.dtype;
  if (shape.hidden_size > 0) entry.layout = layout_of(shape);
  entry.tokens = around(shape.tokens);
  entry.hidden_size = around(shape.hidden_size);
  entry.vocab_size = around(shape.vocab_size);
  entry.workspace_bytes = workspace_bytes;
  return entry;
}

std::string profile_path(const std::string& path) {
  const char* variable = std::getenv("LOGITLESS_PROFILE");
  return path.empty() && variable ? variable : path;
}

std::vector<ProfileEntry> read_profile(const std::string& path, const std::string& source) try {
  const Section file(path, "", read_yaml_file(path, "profile"), {"profiles"});
  const ConfigValue list = file.value("profiles");
  if (!list.node.IsSequence()) list.reject("a list");
  std::vector<ProfileEntry> entries;
  for (const YAML::Node& node : list.node) entries.push_back(read_entry(path, node));
  return entries;
} catch (const Error& e) {
  throw Error(source + (source.empty() ? "" : " ") + e.what());
}

std::string profile_text(const std::vector<ProfileEntry>& entries) {
  YAML::Emitter out;
  out.SetDoublePrecision(6);
  out << YAML::Comment("Written by `logitless tune`.") << YAML::BeginMap << YAML::Key << "profiles" << YAML::Value
      << YAML::BeginSeq;
  for (const ProfileEntry& entry : entries) emit(out, entry);
  out << YAML::EndSeq << YAML::EndMap;
  return std::string(out.c_str()) + "\n";
}

ProfileChoice choose_entry(const std::vector<ProfileEntry>& entries, const ProfileMachine& machine,
                           const ProfileShape& shape, size_t workspace_bytes) {
  std::vector<const ProfileEntry*> left;
  for (const ProfileEntry& entry : entries) left.push_back(&entry);
  if (left.empty()) return {nullptr, "it is empty"};
  const ProfileMachine& other = entries.front().machine;
  std::erase_if(left, [&](const ProfileEntry* entry) { return entry->machine != machine; });
  if (left.empty()) return {nullptr, "it was made on another machine (" + difference(other, machine) + ")"};
  const bool fused = shape.hidden_size > 0;
  std::erase_if(left, [&](const ProfileEntry* entry) {
    return entry->dtype != shape.dtype || (fused && entry->layout != layout_of(shape));
  });
  if (left.empty()) {
    const std::string layout = fused ? std::string(" and layout ") + name_of(layout_of(shape)) : "";
    return {nullptr, std::string("it has no entry for ") + name_of(shape.dtype) + layout};
  }
  std::erase_if(left, [&](const ProfileEntry* entry) {
    return !is_within(entry->tokens, shape.tokens) || !is_within(entry->hidden_size, shape.hidden_size) ||
           !is_within(entry->vocab_size, shape.vocab_size);
  });
  if (left.empty()) {
    return {nullptr, "it has no entry whose ranges hold " + std::to_string(shape.tokens) + " tokens, hidden size " +
                         std::to_string(shape.hidden_size) + " and vocabulary " + std::to_string(shape.vocab_size)};
  }
  std::erase_if(left, [&](const ProfileEntry* entry) { return entry->workspace_bytes > workspace_bytes; });
  if (left.empty()) return {nullptr, "its entries for this shape were made for a larger workspace"};
  const auto order = [&](const ProfileEntry* entry) {
    return std::tuple(distance(*entry, shape), -static_cast<double>(entry->workspace_bytes));
  };
  return {*std::min_element(left.begin(), left.end(), [&](auto* a, auto* b) { return order(a) < order(b); }), ""};
}

ProfileUse use_profile(const std::vector<ProfileEntry>& entries, const ProfileShape& shape, ContextOptions base) {
  const ProfileChoice choice = choose_entry(entries, machine_of(Context(base)), shape, base.workspace_bytes);
  if (!choice.entry) return {base, choice.why_none};
  if (base.plan == PlanKind::kAuto) base.plan = choice.entry->plan;
  int64_t& rows = shape.hidden_size > 0 ? base.row_tile : base.row_block;
  if (rows == 0) rows = choice.entry->row_tile;
  if (base.vocab_tile == 0) base.vocab_tile = choice.entry->vocab_tile;
  return {base, ""};
}

}  // namespace logitless::io

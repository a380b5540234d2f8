// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "io/config.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "core/fields.h"
#include "io/config_value.h"
#include "io/error.h"
#include "io/yaml_file.h"

namespace logitless::io {
namespace {

// Formats YAML on one line.
std::string text_of(const YAML::Node& node) {
  YAML::Emitter out;
  out.SetSeqFormat(YAML::Flow);
  out.SetMapFormat(YAML::Flow);
  out << node;
  return out.c_str();
}

YAML::Node parse_value(const std::string& place, const std::string& text) try {
  return parse_yaml(text);
} catch (const YamlProblem& e) {
  throw Error(place + ": the value " + e.what());
}

// Returns the current name of an older key; other keys are returned unchanged.
std::string current_name(const std::string& key) {
  if (key == "kernel.time_block") return "kernel.row_tile";
  if (key == "kernel.block_size") return "kernel.vocab_tile";
  return key;
}

// Reads one YAML document, or the value of one --set, and applies every key in it.
class ConfigReader {
 public:
  explicit ConfigReader(Config& config) : config_(config) {}

  // `name` is the path as the user wrote it.
  void read_file(const std::string& name);
  // `assignment` is "model.dtype=bfloat16", the value of `flag`: "--set" or "--sweep".
  void read_assignment(const std::string& flag, const std::string& assignment);

 private:
  std::string place_of(const YAML::Node& node) const { return set_place_.empty() ? place_in(file_, node) : set_place_; }
  void walk_section(const std::string& prefix, const YAML::Node& section);
  void apply(const std::string& given, const std::string& place, const YAML::Node& node);

  Config& config_;
  std::string file_;
  std::string set_place_;
};

void ConfigReader::read_file(const std::string& name) {
  file_ = name;
  walk_section("", read_yaml_file(name));
}

void ConfigReader::read_assignment(const std::string& flag, const std::string& assignment) {
  const size_t equals = assignment.find('=');
  if (equals == std::string::npos || equals == 0) {
    throw Error(flag + " " + assignment + ": must have the form key=value, for example model.dtype=bfloat16");
  }
  const std::string key = assignment.substr(0, equals);
  set_place_ = flag + " " + key;
  apply(key, set_place_, parse_value(set_place_, assignment.substr(equals + 1)));
}

void ConfigReader::walk_section(const std::string& prefix, const YAML::Node& section) {
  std::set<std::string> seen;
  for (const auto& entry : section) {
    const std::string place = place_of(entry.first);
    if (!entry.first.IsScalar()) throw Error(place + ": a key must be a plain word");
    const std::string key = prefix + entry.first.Scalar();
    if (!seen.insert(current_name(key)).second)
      throw Error(place + ": " + one_line(key) + " is set a second time here");
    apply(key, place, entry.second);
  }
}

void ConfigReader::apply(const std::string& given, const std::string& place, const YAML::Node& node) {
  const std::string key = current_name(given);
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
    std::vector<std::string> names;
    for (const KeyRule& rule : schema) {
      names.push_back(rule.key);
      if (const size_t dot = rule.key.find('.'); dot != std::string::npos) names.push_back(rule.key.substr(0, dot));
    }
    throw Error(where + " is not a known key" + suggestion_among(names, key));
  }
  it->apply(config_, {key, place, node});
  config_.places[key] = place;
  config_.settings.push_back(key + "=" + text_of(node));
}

[[noreturn]] void reject(const Config& config, const std::string& key, const std::string& reason) {
  throw Error(config.place_of(key) + " " + reason);
}

// Throws if a key is set that begins with one of `keys`.
void reject_set(const Config& config, const std::vector<std::string_view>& keys, const std::string& reason) {
  for (const auto& [key, place] : config.places) {
    if (std::any_of(keys.begin(), keys.end(), [&, &name = key](std::string_view k) { return name.starts_with(k); })) {
      reject(config, key, reason);
    }
  }
}

// Rejects keys of sets for other tasks, and keys that do not apply to calls on sets.
void check_sets(const Config& config, const std::string& needs) {
  if (!config.has_sets()) {
    std::vector<std::string> tasks;
    for_each_task([&]<class Task> {
      if (kHasSets<Task>) tasks.emplace_back(Task::kName);
    });
    reject_set(config, {"sets."}, needs + "it belongs to " + join_choices(tasks));
    return;
  }
  reject_set(config, {"metrics."}, needs + "it has no such metric");
  if (config.sets.dense) reject_set(config, {"sets.ids"}, "needs sets.dense false");
  if (config.runs<SetDistillation>()) return;
  reject_set(config, {"ignore_index", "shift"}, needs + "the sets say which tokens count");
  if (!config.runs<IdLogps>()) return;
  reject_set(config, {"loss_scale"}, needs + "it has no loss of its own");
  if (config.parallel.data > 1) {
    reject(config, "parallel.data", needs + "it has no loss that ranks could share");
  }
}

// Returns the task's keys outside the section that has its name.
template <class Task>
std::vector<std::string_view> root_keys() {
  if (std::is_same_v<Task, CrossEntropy>) {
    return {"reduction", "mean_over",     "label_smoothing",    "z_loss",
            "dft",       "class_weights", "num_items_in_batch", "metrics.accuracy"};
  }
  if (std::is_same_v<Task, Distillation>) return {"teacher.", "metrics.agreement"};
  if (std::is_same_v<Task, SoftCrossEntropy>) return {"sets.dense"};
  return {};
}

void check_task(const Config& config) {
  const std::string needs = "has no meaning for task " + config.task + ": ";
  for_each_task([&]<class Task> {
    if (config.runs<Task>()) return;
    const std::string section = std::string(Task::kName) + ".";
    std::vector<std::string_view> keys = root_keys<Task>();
    keys.push_back(section);
    reject_set(config, keys, needs + "it belongs to " + Task::kName);
  });
  check_sets(config, needs);
  for_each_task([&]<class Task> {
    if (config.runs<Task>() && !kHasTokenWeights<Task>) {
      reject_set(config, {"token_weights"}, needs + "its losses have no weight per token");
    }
  });
  if (config.has_sets() || config.runs<Distillation>()) {
    reject_set(config, {"top_k"}, needs + "its forward call only computes its loss");
  }
  if (config.runs<PreferenceLoss>() || config.runs<KtoLoss>()) {
    reject_set(config, {"tolerances.losses_rel_l2"}, needs + "it has no per-token losses");
  }
  if (config.runs<PolicyLoss>())
    reject_set(config, {"ignore_index", "shift"}, needs + "a mask says which tokens count");
  // If batch_size is not set, real tensors give the number of sequences, and the library checks it.
  if (config.runs<PreferenceLoss>() && config.is_set("batch_size") && config.batch_size % 2 != 0) {
    reject(config, "batch_size",
           "is " + std::to_string(config.batch_size) + ", but task " + config.task +
               " needs an even number of sequences: the chosen ones, then the rejected ones");
  }
  const auto& preference = config.of<PreferenceLoss>();
  const size_t losses = preference.loss_type.size(), weights = preference.loss_weights.size();
  if (weights != 0 && weights != losses) {
    reject(config, "preference_loss.loss_weights",
           "has " + std::to_string(weights) + " entries, but preference_loss.loss_type has " + std::to_string(losses));
  }
  if (config.policy.on_policy)
    reject_set(config, {"policy_loss.log_ratio_deviation"}, "needs policy_loss.on_policy false");
}

// Rejects keys of a head at level logits. Their defaults are accepted, since a config may be for both levels.
void check_no_head(const Config& config) {
  const Config defaults;
  const auto check = [&](const std::string& key, const auto& value, const auto& by_default) {
    if (value != by_default) reject(config, key, "needs level fused: at level logits there is no head");
  };
  const auto check_backward = [&](const Field& field, const auto& value, const auto& by_default) {
    check(std::string("backward.") + field.name, value, by_default);
  };
  visit_fields(FieldsOf<BackwardOptions>(), check_backward, config.backward, defaults.backward);
  const GradientConfig &gradients = config.gradients, &all = defaults.gradients;
  check("gradients.d_hidden", gradients.d_hidden, all.d_hidden);
  check("gradients.d_weight", gradients.d_weight, all.d_weight);
  check("gradients.d_bias", gradients.d_bias, all.d_bias);
  check("gradients.d_lora_a", gradients.d_lora_a, all.d_lora_a);
  check("gradients.d_lora_b", gradients.d_lora_b, all.d_lora_b);
  const ContextOptions &kernel = config.kernel, &usual = defaults.kernel;
  check("kernel.gemm_backend", kernel.gemm_backend, usual.gemm_backend);
  check("kernel.gradient_precision", kernel.gradient_precision, usual.gradient_precision);
}

void check_level(const Config& config) {
  if (config.level == Level::kFused) {
    reject_set(config, {"kernel.in_place"}, "needs level logits: at level fused there are no logits to replace");
    return;
  }
  if (!config.runs<CrossEntropy>() && !config.runs<PolicyLoss>()) {
    reject(config, "level", "is logits, but task " + config.task + " supports only level fused");
  }
  check_no_head(config);
  if (config.model.softcap != 0) reject(config, "model.softcap", "needs level fused: logits are final");
  if (config.model.bias) reject(config, "model.bias", "needs level fused: logits are final");
  if (config.model.packing) reject(config, "model.packing", "needs level fused: logits are final");
  if (config.model.lora.rank != 0) reject(config, "model.lora.rank", "needs level fused: logits are final");
  if (config.in_place && config.gradients.float32 && size_of(config.model.dtype) == 2) {
    reject(config, "kernel.in_place", "needs gradients.dtype same: the gradient replaces the logits");
  }
}

// Rejects keys that exclude each other, and keys without effect on the task.
void check_together(const Config& config) {
  check_task(config);
  check_level(config);
  if (config.model.packing && config.model.layout != HeadLayout::kVocabHidden) {
    reject(config, "model.packing", "needs model.layout vocab_hidden: packed heads are [V, H]");
  }
  if (config.model.packing && config.parallel.ranks() > 1) {
    reject(config, "model.packing", "packs a head, which is not supported over ranks");
  }
  if (config.of<CrossEntropy>().num_items_in_batch && config.of<CrossEntropy>().reduction != Reduction::kMean) {
    reject(config, "num_items_in_batch", "needs reduction mean");
  }
}

}  // namespace

bool Config::has_sets() const {
  bool found = false;
  for_each_task([&]<class Task> { found |= kHasSets<Task> && runs<Task>(); });
  return found;
}

bool Config::has_token_weights() const {
  bool found = false;
  for_each_task([&]<class Task> {
    if constexpr (kHasTokenWeights<Task>) {
      found |= runs<Task>() && (token_weights || of<Task>().mean_over == MeanOver::kTokenWeights);
    }
  });
  return found;
}

bool Config::within_sets() const {
  return (runs<IdLogps>() && of<IdLogps>().normalise_over == NormaliseOver::kSet) ||
         (runs<SetDistillation>() && of<SetDistillation>().outside == OutsideSet::kRenormalised);
}

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
  return config;
}

std::vector<std::string> list_in(const std::string& place, const std::string& list) {
  std::vector<std::string> texts;
  for (const auto& value : parse_value(place, "[" + list + "]")) texts.push_back(value.IsNull() ? "" : text_of(value));
  return texts;
}

void set_key(Config& config, const std::string& source, const std::string& assignment) {
  ConfigReader(config).read_assignment(source, assignment);
  check_together(config);
}

}  // namespace logitless::io

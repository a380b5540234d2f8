// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/bench/plan.h"

#include <algorithm>
#include <sstream>

#include "cli/common/task_call.h"
#include "io/error.h"
#include "logitless/context.h"

namespace logitless::cli {
namespace {

using io::Error;
using io::Level;

constexpr size_t kMostPoints = 100'000;
// Full plans are measured with exact gradients, whatever the config says.
constexpr const char* kExact = "backward.mode=exact";

struct KnownContender {
  Level level;
  bool by_default;
  Contender contender;
};

const std::vector<KnownContender>& known_contenders() {
  static const std::vector<KnownContender> known = {
      {Level::kFused, true, {.name = "dense", .assignments = {kExact}, .dense = true}},
      {Level::kFused, true, {.name = "auto"}},
      {Level::kFused, false, {.name = "one_pass", .assignments = {"kernel.plan=one_pass", kExact}}},
      {Level::kFused, false, {.name = "two_pass", .assignments = {"kernel.plan=two_pass", kExact}}},
      {Level::kFused, false, {.name = "expected_row", .assignments = {"kernel.plan=expected_row", kExact}}},
      {Level::kFused, false, {.name = "sampled", .assignments = {"backward.mode=sampled"}}},
      {Level::kFused, false, {.name = "certified", .assignments = {"backward.mode=certified"}}},
      {Level::kFused, true, {.name = "forward", .forward_only = true}},
      {Level::kLogits, true, {.name = "dense", .dense = true}},
      {Level::kLogits, true, {.name = "apart", .assignments = {"kernel.in_place=false"}}},
      {Level::kLogits, true, {.name = "in_place", .assignments = {"kernel.in_place=true"}}},
  };
  return known;
}

// `text` is "one_pass" or "one_pass:threads=1:kernel.row_tile=256".
Contender find_contender(const std::string& text, Level level) {
  std::istringstream parts(text);
  std::string name, names;
  std::getline(parts, name, ':');
  for (const KnownContender& known : known_contenders()) {
    if (known.level != level) continue;
    if (known.contender.name != name) {
      names += (names.empty() ? "" : ", ") + known.contender.name;
      continue;
    }
    Contender contender = known.contender;
    contender.name = text;
    for (std::string assignment; std::getline(parts, assignment, ':');) {
      const bool may_differ = assignment.starts_with("threads=") || assignment.starts_with("top_k=") ||
                              assignment.starts_with("kernel.") || assignment.starts_with("backward.");
      if (!may_differ) {
        throw Error("--contenders " + text + ": " + assignment +
                    " cannot be set for one contender, because all share their inputs: use threads, top_k, kernel.* or "
                    "backward.*");
      }
      contender.assignments.push_back(assignment);
    }
    return contender;
  }
  throw Error("--contenders " + text + ": level " + io::name_of(level) + " has " + names);
}

std::vector<Contender> contenders_for(const io::Config& config, const std::vector<std::string>& wanted) {
  std::vector<Contender> contenders;
  for (const KnownContender& known : known_contenders()) {
    // In place, a float32 gradient does not fit into a narrow type's memory. A call that needs only sets
    // computes no logits of the whole vocabulary, so it has no dense version.
    const bool fits =
        (known.contender.name != "in_place" || config.gradient_dtype(config.model.dtype) == config.model.dtype) &&
        !(known.contender.dense && config.within_sets());
    if (wanted.empty() && known.level == config.level && known.by_default && fits)
      contenders.push_back(known.contender);
  }
  for (const std::string& name : wanted) contenders.push_back(find_contender(name, config.level));
  return contenders;
}

void check_contender(const io::Config& config, const Contender& contender) {
  try {
    const Context context(context_options_of(contender_config(config.settings, contender)));
  } catch (const Error& e) {
    throw Error("--contenders " + contender.name + ": " + e.what());
  }
}

PlannedPoint plan_point(const BenchOptions& options, const std::vector<std::string>& swept) {
  PlannedPoint point;
  point.config = options.config.load_with_ranks(swept);
  for (const std::string& assignment : swept) {
    point.outline.at.push_back(assignment.substr(assignment.find('=') + 1));
    point.name += (point.name.empty() ? "" : " ") + assignment;
  }
  if (swept.empty()) point.name = "the config's point";
  reject_ranks(point.config);
  check_seeded(point.config);
  check_outputs(point.config, parts_of(point.config.model));
  reject_by_hand(point.config, is_tolerance, "has no effect on bench, which compares no results");
  point.outline.task = point.config.task;
  point.outline.level = name_of(point.config.level);
  point.outline.layout = io::name_of(seeded_shape(point.config).layout);
  point.contenders = contenders_for(point.config, options.contenders);
  for (const Contender& contender : point.contenders) check_contender(point.config, contender);
  return point;
}

void check_names(const std::vector<std::string>& contenders) {
  for (auto it = contenders.begin(); it != contenders.end(); ++it) {
    if (std::find(contenders.begin(), it, *it) != it) throw Error("--contenders " + *it + ": is given twice");
  }
}

bool overlap(const std::string& a, const std::string& b) {
  return a == b || a.starts_with(b + ".") || b.starts_with(a + ".");
}

}  // namespace

std::vector<std::string> BenchPlan::shared_settings() const {
  const io::Config& config = points.front().config;
  return {config.settings.begin(), config.settings.begin() + static_cast<ptrdiff_t>(config.unswept)};
}

BenchPlan plan_bench(const BenchOptions& options) {
  check_names(options.contenders);
  BenchPlan plan;
  for (const std::string& text : options.sweep) plan.sweep.push_back(parse_sweep(text));
  check_sweep(plan.sweep, options.config.assignments);
  for (const std::vector<std::string>& swept : assignments_of(plan.sweep)) {
    plan.points.push_back(plan_point(options, swept));
    for (const Contender& contender : plan.points.back().contenders) {
      if (std::find(plan.contenders.begin(), plan.contenders.end(), contender.name) == plan.contenders.end()) {
        plan.contenders.push_back(contender.name);
      }
    }
  }
  return plan;
}

SweptKey parse_sweep(const std::string& text) {
  const std::string place = "--sweep " + text;
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    throw Error(place + ": must have the form key=value,value..., for example seq_len=256,512");
  }
  const std::string list = text.substr(equals + 1);
  if (list.find(" #") != std::string::npos) throw Error(place + ": a # begins a comment");
  SweptKey swept{text.substr(0, equals), io::list_in(place, list)};
  if (swept.values.empty()) throw Error(place + " has no value");
  // YAML allows a trailing comma.
  const size_t last = list.find_last_not_of(" \t\r\n");
  if (list[last] == ',') throw Error(place + ": value " + std::to_string(swept.values.size() + 1) + " is empty");
  for (size_t i = 0; i < swept.values.size(); ++i) {
    if (swept.values[i].empty()) throw Error(place + ": value " + std::to_string(i + 1) + " is empty");
    if (std::find(swept.values.begin(), swept.values.begin() + static_cast<ptrdiff_t>(i), swept.values[i]) !=
        swept.values.begin() + static_cast<ptrdiff_t>(i)) {
      throw Error(place + ": " + swept.values[i] + " is given twice");
    }
  }
  return swept;
}

void check_sweep(std::span<const SweptKey> sweep, std::span<const std::string> assignments) {
  for (size_t i = 0; i < sweep.size(); ++i) {
    const std::string& key = sweep[i].key;
    for (const SweptKey& earlier : sweep.first(i)) {
      if (overlap(key, earlier.key)) throw Error("--sweep " + key + ": --sweep " + earlier.key + " sets it as well");
    }
    for (const std::string& assignment : assignments) {
      const std::string set = assignment.substr(0, assignment.find('='));
      if (set == key || set.starts_with(key + ".")) {
        throw Error("--set " + set + " has no effect: --sweep " + key + " sets it as well");
      }
    }
  }
}

std::vector<std::vector<std::string>> assignments_of(std::span<const SweptKey> sweep) {
  std::vector<std::vector<std::string>> points = {{}};
  for (const SweptKey& swept : sweep) {
    if (points.size() > kMostPoints / swept.values.size()) {
      throw Error("--sweep " + swept.key + ": the sweep has more than " + std::to_string(kMostPoints) + " points");
    }
    std::vector<std::vector<std::string>> longer;
    for (const std::vector<std::string>& point : points) {
      for (const std::string& value : swept.values) {
        longer.push_back(point);
        longer.back().push_back(swept.key + "=" + value);
      }
    }
    points = std::move(longer);
  }
  return points;
}

}  // namespace logitless::cli

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/bench_plan.h"

#include <algorithm>

#include "cli/task_call.h"
#include "logitless/context.h"

namespace logitless::cli {
namespace {

using io::Error;
using io::Level;

struct KnownContender {
  Level level;
  bool by_default;
  BenchContender contender;
};

const std::vector<KnownContender>& known_contenders() {
  static const std::vector<KnownContender> known = {
      {Level::kFused, true, {.name = "dense", .dense = true}},
      {Level::kFused, true, {.name = "auto"}},
      {Level::kFused, false, {.name = "one_pass", .assignments = {"kernel.plan=one_pass"}}},
      {Level::kFused, false, {.name = "two_pass", .assignments = {"kernel.plan=two_pass"}}},
      {Level::kFused, true, {.name = "forward", .forward_only = true}},
      {Level::kLogits, true, {.name = "dense", .dense = true}},
      {Level::kLogits, true, {.name = "apart", .assignments = {"kernel.in_place=false"}}},
      {Level::kLogits, true, {.name = "in_place", .assignments = {"kernel.in_place=true"}}},
  };
  return known;
}

BenchContender find_contender(const std::string& name, Level level) {
  std::string names;
  for (const KnownContender& known : known_contenders()) {
    if (known.level != level) continue;
    if (known.contender.name == name) return known.contender;
    names += (names.empty() ? "" : ", ") + known.contender.name;
  }
  throw Error("--contenders " + name + ": level " + io::name_of(level) + " has " + names);
}

std::vector<BenchContender> contenders_for(const io::Config& config, const std::vector<std::string>& wanted) {
  std::vector<BenchContender> contenders;
  for (const KnownContender& known : known_contenders()) {
    // In place there is no room for the gradient of a narrow type in float32.
    const bool fits =
        known.contender.name != "in_place" || config.gradient_dtype(config.model.dtype) == config.model.dtype;
    if (wanted.empty() && known.level == config.level && known.by_default && fits)
      contenders.push_back(known.contender);
  }
  for (const std::string& name : wanted) contenders.push_back(find_contender(name, config.level));
  return contenders;
}

void check_contender(const io::Config& config, const BenchContender& contender) {
  try {
    const Context context(context_options_of(contender_config(config.settings, contender)));
  } catch (const Error& e) {
    throw Error("--contenders " + contender.name + ": " + e.what());
  }
}

// A config serves every command, but who sets a key by hand expects something of it.
void check_effects(const io::Config& config) {
  for (const auto& [key, place] : config.places) {
    if (key.starts_with("tolerances.") && place.starts_with("--")) {
      throw Error(config.place_of(key) + " has no effect on bench, which compares no results");
    }
  }
}

double work_of(const PlannedPoint& point, int turns) {
  constexpr double kGemm = 5e9;          // multiply-adds of the large GEMM, and what starting a process costs
  constexpr double kLogitsSweeps = 100;  // what a logit costs without a GEMM
  const Job shape = seeded_shape(point.config);
  const double depth = point.config.level == Level::kFused ? 3 * static_cast<double>(shape.hidden_size) : kLogitsSweeps;
  const double call = static_cast<double>(shape.tokens) * static_cast<double>(shape.vocab_size) * depth;
  return turns * (kGemm + static_cast<double>(point.contenders.size()) * call);
}

PlannedPoint plan_point(const BenchOptions& options, const Profile& profile, const std::vector<std::string>& swept) {
  PlannedPoint point;
  point.config = io::load_config(options.config_path, options.assignments, swept);
  for (const std::string& assignment : swept) {
    point.at.push_back(assignment.substr(assignment.find('=') + 1));
    point.name += (point.name.empty() ? "" : " ") + assignment;
  }
  if (swept.empty()) point.name = "the config's point";
  check_seeded(point.config);
  check_outputs(point.config, point.config.model.bias);
  check_effects(point.config);
  point.profile = profile.apply(seeded_shape(point.config), point.config);
  point.contenders = contenders_for(point.config, options.contenders);
  for (const BenchContender& contender : point.contenders) check_contender(point.config, contender);
  point.work = work_of(point, options.warmup + options.iters);
  return point;
}

void check_names(const std::vector<std::string>& contenders) {
  for (auto it = contenders.begin(); it != contenders.end(); ++it) {
    if (std::find(contenders.begin(), it, *it) != it) throw Error("--contenders " + *it + ": stands there twice");
  }
}

}  // namespace

std::vector<std::string> BenchPlan::shared_settings() const {
  const io::Config& config = points.front().config;
  return {config.settings.begin(), config.settings.begin() + static_cast<ptrdiff_t>(config.unswept)};
}

std::vector<std::string> BenchPlan::profiles() const {
  std::vector<std::string> lines;
  for (const PlannedPoint& point : points) {
    if (!point.profile.empty()) lines.push_back(point.name + ": " + point.profile);
  }
  return lines;
}

BenchPlan plan_bench(const BenchOptions& options, const Profile& profile) {
  check_names(options.contenders);
  BenchPlan plan;
  for (const std::string& text : options.sweep) plan.sweep.push_back(parse_sweep(text));
  check_sweep(plan.sweep, options.assignments);
  for (const std::vector<std::string>& swept : assignments_of(plan.sweep)) {
    plan.points.push_back(plan_point(options, profile, swept));
    for (const BenchContender& contender : plan.points.back().contenders) {
      if (std::find(plan.contenders.begin(), plan.contenders.end(), contender.name) == plan.contenders.end()) {
        plan.contenders.push_back(contender.name);
      }
    }
  }
  return plan;
}

}  // namespace logitless::cli

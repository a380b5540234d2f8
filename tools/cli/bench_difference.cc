// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/bench_difference.h"

#include <algorithm>

namespace logitless::cli {
namespace {

using report::BenchRun;

std::string comma_separated(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ",") + word;
  return text;
}

void add_settings(const std::vector<std::string>& settings, Facts& facts) {
  for (const std::string& setting : settings) {
    const size_t equals = std::min(setting.find('='), setting.size());
    facts[setting.substr(0, equals)] = setting.substr(std::min(equals + 1, setting.size()));
  }
}

Facts options_of(const BenchRun& run) {
  Facts facts;
  add_settings(run.settings, facts);
  for (const report::SweptKey& swept : run.sweep) facts["--sweep " + swept.key] = comma_separated(swept.values);
  facts["--iters"] = std::to_string(run.iters);
  facts["--warmup"] = std::to_string(run.warmup);
  facts["--inputs"] = run.inputs;
  for (const std::string& line : run.profiles) facts["--profile"].append(line).append("; ");
  facts["--contenders"] = comma_separated(run.contenders);
  return facts;
}

}  // namespace

std::vector<std::string> differences(const Facts& there, const Facts& here) {
  std::vector<std::string> list;
  for (const auto& [name, value] : there) {
    const auto it = here.find(name);
    if (it == here.end()) {
      list.push_back(name + " is " + value + " there and not set here");
    } else if (it->second != value) {
      list.push_back(name + " is " + value + " there and " + it->second + " here");
    }
  }
  for (const auto& [name, value] : here) {
    if (!there.contains(name)) list.push_back(name + " is not set there and " + value + " here");
  }
  return list;
}

std::vector<std::string> option_differences(const BenchRun& there, const BenchRun& here) {
  return differences(options_of(there), options_of(here));
}

std::vector<std::string> machine_differences(const BenchRun& there, const BenchRun& here) {
  return differences({there.environment.begin(), there.environment.end()},
                     {here.environment.begin(), here.environment.end()});
}

std::string joined(const std::vector<std::string>& differences) {
  constexpr size_t kMost = 4;
  std::string text;
  for (size_t i = 0; i < std::min(kMost, differences.size()); ++i) text += (i == 0 ? "" : "; ") + differences[i];
  if (differences.size() > kMost) text += "; and " + std::to_string(differences.size() - kMost) + " more";
  return text;
}

Facts settings_of(const BenchRun& run, const std::vector<std::string>& at) {
  Facts facts;
  add_settings(run.settings, facts);
  for (size_t i = 0; i < at.size(); ++i) facts[run.sweep[i].key] = at[i];
  std::erase_if(facts,
                [](const auto& fact) { return fact.first == "model.name" || fact.first.starts_with("tolerances."); });
  return facts;
}

}  // namespace logitless::cli

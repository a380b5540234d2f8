// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/bench/against.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "cli/common/output.h"
#include "io/error.h"

namespace logitless::cli {
namespace {

using report::BenchRun;
using report::Measurement;
using report::Point;

constexpr int64_t kMemorySpread = 256 << 10;  // of both runs together

/// Values by name.
using Facts = std::map<std::string, std::string>;

void add_settings(const std::vector<std::string>& settings, Facts& facts) {
  for (const std::string& setting : settings) {
    const size_t equals = std::min(setting.find('='), setting.size());
    facts[setting.substr(0, equals)] = setting.substr(std::min(equals + 1, setting.size()));
  }
}

Facts options_of(const BenchRun& run) {
  Facts facts;
  add_settings(run.settings, facts);
  for (const report::SweptKey& swept : run.sweep) facts["--sweep " + swept.key] = joined(swept.values, ",");
  facts["--iters"] = std::to_string(run.iters);
  facts["--warmup"] = std::to_string(run.warmup);
  facts["--inputs"] = run.inputs;
  for (const std::string& line : run.profiles) facts["--profile"].append(line).append("; ");
  facts["--contenders"] = joined(run.contenders, ",");
  return facts;
}

// Each such as "seq_len is 256 there and 512 here".
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

// Every setting of a point by key, swept or not, but for those that no figure depends on. The layout is that
// of the point, because its default has changed: settings that leave it out do not tell.
Facts settings_of(const BenchRun& run, const Point& point) {
  Facts facts;
  add_settings(run.settings, facts);
  for (size_t i = 0; i < point.at.size(); ++i) facts[run.sweep[i].key] = point.at[i];
  facts["model.layout"] = layout_of(point);
  std::erase_if(facts,
                [](const auto& fact) { return fact.first == "model.name" || fact.first.starts_with("tolerances."); });
  return facts;
}

std::string name_of(const BenchRun& run, const Point& point) {
  std::string name;
  for (size_t i = 0; i < point.at.size(); ++i) {
    name += (name.empty() ? "" : " ") + run.sweep[i].key + "=" + point.at[i];
  }
  return name.empty() ? "the config's point" : name;
}

const Point* find(const BenchRun& run, const std::map<std::string, std::string>& settings) {
  for (const Point& point : run.points) {
    if (settings_of(run, point) == settings) return &point;
  }
  return nullptr;
}

// The first few.
std::string some_of(std::vector<std::string> differences) {
  constexpr size_t kMost = 4;
  const size_t more = differences.size() > kMost ? differences.size() - kMost : 0;
  differences.resize(differences.size() - more);
  if (more > 0) differences.push_back("and " + std::to_string(more) + " more");
  return joined(differences, "; ");
}

std::vector<std::string> machine_differences(const BenchRun& there, const BenchRun& here) {
  return differences({there.environment.begin(), there.environment.end()},
                     {here.environment.begin(), here.environment.end()});
}

class Comparer {
 public:
  explicit Comparer(double margin) : margin_(margin) {}

  void compare(const std::string& name, const Point& before, const Point& now) {
    for (const Measurement& m : now.measurements) {
      const Measurement* earlier = before.find(m.contender);
      if (!earlier) {
        missing(name + ", " + m.contender + ": not in the earlier run");
      } else if (earlier->ok() && m.ok()) {
        compare(name, *earlier, m);
      } else if (earlier->ok()) {
        failures_ += name + ", " + m.contender + ": ran before and fails now: " + m.error + "\n";
      }
    }
    for (const Measurement& m : before.measurements) {
      if (!now.find(m.contender)) missing(name + ", " + m.contender + ": not in this run");
    }
  }
  void missing(const std::string& line) { missing_ += line + "\n"; }

  Comparison result(const std::vector<std::string>& notes) const {
    Comparison result{table_.text() + failures_ + missing_, grew_ || !failures_.empty()};
    for (const std::string& note : notes) result.table += "other machine or build: " + note + "\n";
    result.table += result.worse ? "something became slower or larger\n" : "nothing became slower or larger\n";
    return result;
  }

 private:
  void compare(const std::string& name, const Measurement& before, const Measurement& now) {
    const auto threshold = [&](auto earlier, auto spread) {
      return static_cast<double>(spread) + margin_ * static_cast<double>(earlier);
    };
    std::string verdict;
    const auto judge = [&](auto a, auto b, double limit, const char* grew, const char* shrank) {
      const auto change = static_cast<double>(b - a);
      if (std::abs(change) > limit) verdict += (verdict.empty() ? "" : ", ") + std::string(change > 0 ? grew : shrank);
      grew_ = grew_ || change > limit;
    };
    const double of_time = threshold(before.median_s, before.spread_s + now.spread_s);
    judge(before.median_s, now.median_s, of_time, "SLOWER", "faster");
    const int64_t peak_spread = before.extra_peak_spread_bytes + now.extra_peak_spread_bytes;
    judge(before.extra_peak_bytes, now.extra_peak_bytes,
          threshold(before.extra_peak_bytes, std::max(peak_spread, kMemorySpread)), "LARGER peak", "smaller peak");
    judge(before.workspace_bytes, now.workspace_bytes, threshold(before.workspace_bytes, kMemorySpread),
          "LARGER workspace", "smaller workspace");
    table_.add({name + ", " + now.contender, report::human_seconds(before.median_s),
                report::human_seconds(now.median_s), report::human_seconds(of_time),
                human_bytes(before.extra_peak_bytes), human_bytes(now.extra_peak_bytes),
                human_bytes(before.workspace_bytes), human_bytes(now.workspace_bytes), verdict});
  }

  double margin_;
  TextTable table_{
      {"against the earlier run", "time", "now", "threshold", "extra peak", "now", "workspace", "now", ""}};
  bool grew_ = false;
  std::string failures_, missing_;
};

}  // namespace

std::string differences_of(const BenchRun& there, const BenchRun& here) {
  const std::vector<std::string> options = differences(options_of(there), options_of(here));
  return some_of(options.empty() ? machine_differences(there, here) : options);
}

Comparison compare_runs(const BenchRun& before, const BenchRun& now, double margin) {
  Comparer comparer(margin);
  for (const Point& point : now.points) {
    const Point* earlier = find(before, settings_of(now, point));
    if (earlier) {
      comparer.compare(name_of(now, point), *earlier, point);
    } else {
      comparer.missing(name_of(now, point) + ": not in the earlier run");
    }
  }
  for (const Point& point : before.points) {
    if (!find(now, settings_of(before, point))) comparer.missing(name_of(before, point) + ": not in this run");
  }
  return comparer.result(machine_differences(before, now));
}

std::string layout_of(const Point& point) { return point.level == "fused" ? point.shape.layout : ""; }

void check_comparable(const BenchRun& before, const BenchRun& planned) {
  const std::string place = "--against " + before.name;
  if (before.inputs != planned.inputs) {
    throw io::Error(place + ": was measured with --inputs " + before.inputs + ", not " + planned.inputs);
  }
  for (const Point& point : planned.points) {
    if (find(before, settings_of(planned, point))) return;
  }
  std::vector<std::string> nearest;
  for (const Point& point : before.points) {
    const auto list = differences(settings_of(before, point), settings_of(planned, planned.points.front()));
    if (nearest.empty() || list.size() < nearest.size()) nearest = list;
  }
  throw io::Error(place + ": has none of these points: " + some_of(nearest));
}

}  // namespace logitless::cli

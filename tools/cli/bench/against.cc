// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/bench/against.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "cli/common/output.h"
#include "io/error.h"

namespace logitless::cli {
namespace {

using io::BenchRun;
using io::Measurement;
using io::Point;

constexpr int64_t kMemorySpread = 256 << 10;  // sum of both runs' spreads

using Facts = std::map<std::string, std::string>;

Facts settings_of(const BenchRun& run) {
  Facts facts = {{"--inputs", run.inputs}};
  for (const std::string& setting : run.settings) {
    const size_t equals = std::min(setting.find('='), setting.size() - 1);
    facts[setting.substr(0, equals)] = setting.substr(equals + 1);
  }
  return facts;
}

// Returns every setting of a point by key, swept or not, except the keys that do not affect the figures. The
// layout comes from the point, since settings may omit it.
Facts settings_of(const BenchRun& run, const Point& point) {
  Facts facts = settings_of(run);
  for (size_t i = 0; i < point.at.size(); ++i) facts[run.sweep[i].key] = point.at[i];
  facts["model.layout"] = point.level == "fused" ? point.layout : "";
  std::erase_if(facts,
                [](const auto& fact) { return fact.first == "model.name" || fact.first.starts_with("tolerances."); });
  return facts;
}

// Returns entries such as "seq_len is 256 there and not set here".
std::vector<std::string> differences(const Facts& earlier, const Facts& now) {
  const auto value = [](const Facts& facts, const std::string& name) {
    const auto it = facts.find(name);
    return it == facts.end() ? "not set" : it->second;
  };
  Facts all = earlier;
  all.insert(now.begin(), now.end());
  std::vector<std::string> list;
  for (const auto& [name, any] : all) {
    const std::string a = value(earlier, name), b = value(now, name);
    if (a != b) list.push_back(name + " is " + a + " there and " + b + " here");
  }
  return list;
}

std::vector<std::string> machine_differences(const BenchRun& earlier, const BenchRun& now) {
  return differences({earlier.environment.begin(), earlier.environment.end()},
                     {now.environment.begin(), now.environment.end()});
}

// Joins the first few.
std::string some_of(std::vector<std::string> differences) {
  constexpr size_t kMost = 4;
  if (differences.size() > kMost) {
    const size_t more = differences.size() - kMost;
    differences.resize(kMost);
    differences.push_back("and " + std::to_string(more) + " more");
  }
  return joined(differences, "; ");
}

std::string name_of(const BenchRun& run, const Point& point) {
  std::string name;
  for (size_t i = 0; i < point.at.size(); ++i) {
    name += (name.empty() ? "" : " ") + run.sweep[i].key + "=" + point.at[i];
  }
  return name.empty() ? "the config's point" : name;
}

const Point* find(const BenchRun& run, const Facts& settings) {
  const auto it = std::ranges::find(run.points, settings, [&](const Point& point) { return settings_of(run, point); });
  return it == run.points.end() ? nullptr : &*it;
}

// Collects a table line for each contender in both runs, and notes what only one of the runs has.
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

  bool worse() const { return grew_ || !failures_.empty(); }
  std::string text() const { return table_.text() + failures_ + missing_; }

 private:
  void compare(const std::string& name, const Measurement& before, const Measurement& now) {
    std::string verdict;
    const auto check_growth = [&](auto a, auto b, auto spread, const char* grew, const char* shrank) {
      const double change = static_cast<double>(b - a);
      const double limit = static_cast<double>(spread) + margin_ * static_cast<double>(a);
      if (std::abs(change) > limit) verdict += (verdict.empty() ? "" : ", ") + std::string(change > 0 ? grew : shrank);
      grew_ = grew_ || change > limit;
      return limit;
    };
    const double threshold =
        check_growth(before.median_s, now.median_s, before.spread_s + now.spread_s, "SLOWER", "faster");
    check_growth(before.extra_peak_bytes, now.extra_peak_bytes,
                 std::max(before.extra_peak_spread_bytes + now.extra_peak_spread_bytes, kMemorySpread), "LARGER peak",
                 "smaller peak");
    check_growth(before.workspace_bytes, now.workspace_bytes, kMemorySpread, "LARGER workspace", "smaller workspace");
    table_.add({name + ", " + now.contender, human_seconds(before.median_s), human_seconds(now.median_s),
                human_seconds(threshold), human_bytes(before.extra_peak_bytes), human_bytes(now.extra_peak_bytes),
                human_bytes(before.workspace_bytes), human_bytes(now.workspace_bytes), verdict});
  }

  double margin_;
  TextTable table_{
      {"against the earlier run", "time", "now", "threshold", "extra peak", "now", "workspace", "now", ""}};
  bool grew_ = false;
  std::string failures_, missing_;
};

}  // namespace

std::string differences_of(const BenchRun& earlier, const BenchRun& now) {
  const auto options_of = [](const BenchRun& run) {
    Facts facts = settings_of(run);
    for (const io::SweptKey& swept : run.sweep) facts["--sweep " + swept.key] = joined(swept.values, ",");
    facts["--iters"] = std::to_string(run.iters);
    facts["--warmup"] = std::to_string(run.warmup);
    facts["--contenders"] = joined(run.contenders, ",");
    return facts;
  };
  const std::vector<std::string> options = differences(options_of(earlier), options_of(now));
  return some_of(options.empty() ? machine_differences(earlier, now) : options);
}

Comparison compare_runs(const BenchRun& before, const BenchRun& now, double margin) {
  Comparer comparer(margin);
  for (const Point& point : now.points) {
    if (const Point* earlier = find(before, settings_of(now, point))) {
      comparer.compare(name_of(now, point), *earlier, point);
    } else {
      comparer.missing(name_of(now, point) + ": not in the earlier run");
    }
  }
  for (const Point& point : before.points) {
    if (!find(now, settings_of(before, point))) comparer.missing(name_of(before, point) + ": not in this run");
  }
  Comparison result{comparer.text(), comparer.worse()};
  for (const std::string& note : machine_differences(before, now)) {
    result.table += "other machine or build: " + note + "\n";
  }
  result.table += result.worse ? "something became slower or larger\n" : "nothing became slower or larger\n";
  return result;
}

void check_comparable(const BenchRun& before, const BenchRun& planned) {
  std::vector<std::string> nearest;
  for (const Point& point : before.points) {
    const auto list = differences(settings_of(before, point), settings_of(planned, planned.points.front()));
    if (find(planned, settings_of(before, point))) return;
    if (nearest.empty() || list.size() < nearest.size()) nearest = list;
  }
  throw io::Error("--against " + before.name + ": has no point in common with this run: " + some_of(nearest));
}

}  // namespace logitless::cli

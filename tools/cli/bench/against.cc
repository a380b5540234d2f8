// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/bench/against.h"

#include <algorithm>
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

// Every setting of a point by key, swept or not, but for those that no figure depends on.
Facts settings_of(const BenchRun& run, const std::vector<std::string>& at) {
  Facts facts;
  add_settings(run.settings, facts);
  for (size_t i = 0; i < at.size(); ++i) facts[run.sweep[i].key] = at[i];
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
    if (settings_of(run, point.at) == settings) return &point;
  }
  return nullptr;
}

class Comparer {
 public:
  Comparer(double margin, Comparison& out) : margin_(margin), out_(out) {}

  void compare(const std::string& name, const Point& before, const Point& now) {
    for (const Measurement& m : now.measurements) {
      const Measurement* earlier = before.find(m.contender);
      if (!earlier) {
        out_.missing.push_back(name + ", " + m.contender + ": not in the earlier run");
      } else if (earlier->ok() && m.ok()) {
        compare(name, *earlier, m);
      } else if (earlier->ok()) {
        out_.failures.push_back(name + ", " + m.contender + ": ran before and fails now: " + m.error);
      }
    }
    for (const Measurement& m : before.measurements) {
      if (!now.find(m.contender)) out_.missing.push_back(name + ", " + m.contender + ": not in this run");
    }
  }

 private:
  void compare(const std::string& name, const Measurement& before, const Measurement& now) {
    const auto change = [&](double a, double b, double spread) { return Change{a, b, spread + margin_ * a}; };
    const auto bytes = [&](int64_t a, int64_t b, int64_t spread) {
      return change(static_cast<double>(a), static_cast<double>(b),
                    static_cast<double>(std::max(spread, kMemorySpread)));
    };
    out_.changes.push_back({name + ", " + now.contender,
                            change(before.median_s, now.median_s, before.spread_s + now.spread_s),
                            bytes(before.extra_peak_bytes, now.extra_peak_bytes,
                                  before.extra_peak_spread_bytes + now.extra_peak_spread_bytes),
                            bytes(before.workspace_bytes, now.workspace_bytes, 0)});
  }

  double margin_;
  Comparison& out_;
};

std::string verdict_of(const ChangedContender& c) {
  std::string text;
  const auto add = [&](const Change& change, const char* grew, const char* shrank) {
    const char* word = change.grew() ? grew : change.shrank() ? shrank : nullptr;
    if (word) text += (text.empty() ? "" : ", ") + std::string(word);
  };
  add(c.time, "SLOWER", "faster");
  add(c.extra_peak, "LARGER peak", "smaller peak");
  add(c.workspace, "LARGER workspace", "smaller workspace");
  return text;
}

}  // namespace

std::vector<std::string> option_differences(const BenchRun& there, const BenchRun& here) {
  return differences(options_of(there), options_of(here));
}

std::vector<std::string> machine_differences(const BenchRun& there, const BenchRun& here) {
  return differences({there.environment.begin(), there.environment.end()},
                     {here.environment.begin(), here.environment.end()});
}

std::string some_of(std::vector<std::string> differences) {
  constexpr size_t kMost = 4;
  const size_t more = differences.size() > kMost ? differences.size() - kMost : 0;
  differences.resize(differences.size() - more);
  if (more > 0) differences.push_back("and " + std::to_string(more) + " more");
  return joined(differences, "; ");
}

bool Comparison::worse() const {
  return !failures.empty() || std::any_of(changes.begin(), changes.end(), [](const auto& c) {
    return c.time.grew() || c.extra_peak.grew() || c.workspace.grew();
  });
}

Comparison compare_runs(const BenchRun& before, const BenchRun& now, double margin) {
  Comparison out;
  out.notes = machine_differences(before, now);
  Comparer comparer(margin, out);
  for (const Point& point : now.points) {
    const Point* earlier = find(before, settings_of(now, point.at));
    if (earlier) {
      comparer.compare(name_of(now, point), *earlier, point);
    } else {
      out.missing.push_back(name_of(now, point) + ": not in the earlier run");
    }
  }
  for (const Point& point : before.points) {
    if (!find(now, settings_of(before, point.at))) {
      out.missing.push_back(name_of(before, point) + ": not in this run");
    }
  }
  return out;
}

void check_comparable(const BenchRun& before, const BenchRun& now, const std::vector<std::vector<std::string>>& at) {
  const std::string place = "--against " + before.name;
  if (before.inputs != now.inputs) {
    throw io::Error(place + ": was measured with --inputs " + before.inputs + ", not " + now.inputs);
  }
  for (const auto& one : at) {
    if (find(before, settings_of(now, one))) return;
  }
  std::vector<std::string> nearest;
  for (const Point& point : before.points) {
    const auto list = differences(settings_of(before, point.at), settings_of(now, at.front()));
    if (nearest.empty() || list.size() < nearest.size()) nearest = list;
  }
  throw io::Error(place + ": has none of these points: " + some_of(nearest));
}

std::string table_of(const Comparison& comparison) {
  TextTable table({"against the earlier run", "time", "now", "threshold", "extra peak", "now", "workspace", "now", ""});
  for (const ChangedContender& c : comparison.changes) {
    const auto seconds = [](double value) { return report::human_seconds(value); };
    const auto bytes = [](double value) { return report::human_bytes(static_cast<int64_t>(value)); };
    table.add({c.name, seconds(c.time.before), seconds(c.time.now), seconds(c.time.threshold),
               bytes(c.extra_peak.before), bytes(c.extra_peak.now), bytes(c.workspace.before), bytes(c.workspace.now),
               verdict_of(c)});
  }
  std::string text = table.text();
  for (const auto* lines : {&comparison.failures, &comparison.missing}) {
    for (const std::string& line : *lines) text += line + "\n";
  }
  for (const std::string& note : comparison.notes) text += "other machine or build: " + note + "\n";
  return text + (comparison.worse() ? "something became slower or larger\n" : "nothing became slower or larger\n");
}

}  // namespace logitless::cli

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/bench_against.h"

#include <algorithm>
#include <map>

#include "cli/bench_difference.h"
#include "cli/text_table.h"
#include "io/error.h"
#include "report/units.h"

namespace logitless::cli {
namespace {

using report::BenchRun;
using report::Measurement;
using report::Point;

constexpr int64_t kMemorySpread = 256 << 10;  // of both runs together

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
  throw io::Error(place + ": has none of these points: " + joined(nearest));
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

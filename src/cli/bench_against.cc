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

constexpr double kMemorySpread = 256 << 10;  // of both runs together

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
    const auto add = [&](const char* figure, double a, double b, double noise, bool is_time) {
      out_.changes.push_back({name, now.contender, figure, a, b, noise + margin_ * a, is_time});
    };
    const auto spread = static_cast<double>(before.extra_peak_spread_bytes + now.extra_peak_spread_bytes);
    add("time", before.median_s, now.median_s, before.spread_s + now.spread_s, true);
    add("extra peak", static_cast<double>(before.extra_peak_bytes), static_cast<double>(now.extra_peak_bytes),
        std::max(spread, kMemorySpread), false);
    add("workspace", static_cast<double>(before.workspace_bytes), static_cast<double>(now.workspace_bytes),
        kMemorySpread, false);
  }

  double margin_;
  Comparison& out_;
};

}  // namespace

bool Comparison::worse() const {
  return !failures.empty() || std::any_of(changes.begin(), changes.end(), [](const Change& c) { return c.grew(); });
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
  throw io::Error(place + ": has none of these points: " + joined(option_differences(before, now)));
}

std::string table_of(const Comparison& comparison) {
  TextTable table({"against the earlier run", "contender", "figure", "before", "now", "threshold", "change", ""});
  for (const Change& c : comparison.changes) {
    const auto human = [&](double value) {
      return c.is_time ? report::human_seconds(value) : report::human_bytes(static_cast<int64_t>(value));
    };
    const char* grown = c.is_time ? "SLOWER" : "LARGER";
    const char* shrunk = c.is_time ? "faster" : "smaller";
    const std::string change = c.before > 0 ? report::time_ratio(c.now / c.before) : "-";
    table.add({c.point, c.contender, c.figure, human(c.before), human(c.now), human(c.threshold), change,
               c.grew()     ? grown
               : c.shrank() ? shrunk
                            : ""});
  }
  std::string text = table.text();
  for (const std::string& failure : comparison.failures) text += failure + "\n";
  for (const std::string& missing : comparison.missing) text += missing + "\n";
  for (const std::string& note : comparison.notes) text += "other machine or build: " + note + "\n";
  return text + (comparison.worse() ? "something became slower or larger\n" : "nothing became slower or larger\n");
}

}  // namespace logitless::cli

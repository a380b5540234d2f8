// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Every option of every loss reaches the library through a config: the call has the structure that C++ would
// pass, and its result differs from the result without the option.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "cli/common/task_call.h"
#include "io/config.h"
#include "io/config_value.h"
#include "support/calls.h"
#include "support/option_cases.h"

namespace logitless::testing {
namespace config_fields_test {

using Settings = std::vector<std::string>;

// The outcome of a call: the bits of all its numbers, or its refusal.
struct Outcome {
  std::vector<uint64_t> bits;
  std::string refusal;
  bool operator==(const Outcome&) const = default;
  friend void PrintTo(const Outcome& outcome, std::ostream* out) {
    *out << (outcome.refusal.empty() ? std::to_string(outcome.bits.size()) + " numbers" : outcome.refusal);
  }

  void add(double value) { bits.push_back(std::isnan(value) ? 1 : std::bit_cast<uint64_t>(value)); }
  template <class T>
  void add(const std::vector<T>& values) {
    for (const T value : values) add(static_cast<double>(value));
  }
};

// Returns a small batch with some ignored tokens, and with ratios far from 1.
Settings batch_of(const std::string& task) {
  Settings settings = {"task=" + task,  "model.hidden_size=7", "model.vocab_size=41",
                       "batch_size=12", "seq_len=8",           "ignored_fraction=0.3",
                       "seed=3"};
  if (io::load_config(std::nullopt, settings).has_sets()) settings.push_back("sets.ids=5");
  if (task == PolicyLoss::kName) settings.push_back("policy_loss.log_ratio_deviation=9");
  return settings;
}

// Returns the key of a field in the section of a task, or at the root if all tasks have it.
std::string key_of(const std::string& section, const std::string& field) {
  if (field.starts_with("want_")) return "metrics." + field.substr(5);
  const bool has_own = std::ranges::any_of(
      io::config_schema(), [&](const io::KeyRule& rule) { return !section.empty() && rule.key == section + field; });
  return (has_own ? section : "") + field;
}

// Returns the config settings of options that differ from their defaults. Arrays are drawn from the seed.
template <class Options>
Settings settings_of(const std::string& section, const Options& options) {
  std::vector<std::pair<std::string, std::string>> defaults;
  say_fields(Options(), [&](const char* name, const std::string& text) { defaults.emplace_back(name, text); });
  Settings settings;
  size_t at = 0;
  say_fields(options, [&](const char* name, const std::string& text) {
    if (text == defaults[at++].second) return;
    const std::string field = name;
    if (field == "temperatures") {
      settings.push_back("temperature=[0.5, 1.5]");
    } else if (field == "class_weights") {
      settings.push_back("class_weights=true");
    } else {
      settings.push_back(key_of(section, field) + "=" + text);
    }
  });
  return settings;
}

template <class Options>
class Surface {
 public:
  Surface()
      : batch_(batch_of(Options::kName)),
        section_(std::is_same_v<Options, CrossEntropy> ? "" : std::string(Options::kName) + ".") {}

  /// Runs a config; `arrived` receives the options that the library got.
  Outcome outcome(const Options& options, Options* arrived = nullptr) {
    Settings settings = batch_;
    for (const std::string& setting : settings_of(section_, options)) settings.push_back(setting);
    Outcome out;
    try {
      const io::Config config = io::load_config(std::nullopt, settings);
      const cli::Inputs inputs = cli::make_seeded_inputs(config);
      const cli::TaskRun call(config, inputs.job);
      if (arrived) *arrived = call.of<Options>();
      const cli::TaskResult result = call.run(Context());
      out.add(result.loss);
      out.add(result.per_token_loss);
      out.add(result.per_token_logps);
      for (const auto& [name, value] : result.metrics) out.add(value);
      if (arrived) same_lists(options, *arrived);
    } catch (const io::Error& error) {
      out.refusal = error.what();
    } catch (const InvalidInput& error) {
      out.refusal = error.what();
    }
    return out;
  }

 private:
  // Arrays hold other numbers than in the case; they are present if the case has some.
  static void same_lists(const Options& wanted, Options& got) {
    const auto take = [](const Field&, const auto& one, auto& other) {
      if constexpr (requires { one.size_bytes(); }) {
        EXPECT_EQ(other.empty(), one.empty());
        other = one;
      }
    };
    visit_flat(FieldsOf<Options>(), take, wanted, got);
  }

  Settings batch_;
  std::string section_;
};

// Returns whether a setting changes only gradients, or nothing on the seeded batch. Tests of the other APIs
// detect its change.
bool changes_no_value(const std::string& setting) {
  static const std::set<std::string> all = {"kl_estimator = k3_plus", "trust_region_high = 2.5e-05",
                                            "m2_threshold = 0.5", "count_empty_sequences = false"};
  return all.contains(setting);
}

// Returns "exo_pair" for "[exo_pair]".
std::string name_in(const std::string& value) {
  return value.starts_with('[') ? value.substr(1, value.size() - 2) : value;
}

template <class Options>
void every_option_arrives(std::set<std::string> also_refused = {}) {
  Surface<Options> surface;
  std::set<std::string> refusals;
  for (const OptionCase<Options>& one : option_cases<Options>()) {
    SCOPED_TRACE(one.field + " = " + one.value);
    Options arrived;
    const Outcome base = surface.outcome(one.base), changed = surface.outcome(one.changed, &arrived);
    EXPECT_EQ(base.refusal, "");
    EXPECT_EQ(changed == base, changes_no_value(one.field + " = " + one.value));
    if (!changed.refusal.empty()) {
      refusals.insert(one.field + " = " + one.value);
      const std::string named = one.field == "loss_type" ? name_in(one.value) : one.field;
      EXPECT_NE(changed.refusal.find(named), std::string::npos) << changed.refusal;
    } else if (one.field != "temperatures") {
      EXPECT_EQ(all_text(arrived), all_text(one.changed));
    }
  }
  also_refused.merge(refused(Options()));
  EXPECT_EQ(refusals, also_refused);
}

// The command's reference has one number per token.
const std::set<std::string> kOfSequences = {"ref_logps_are = averages"};

TEST(ConfigFields, OfEveryTaskArrive) {
  io::for_each_task([]<class Task> {
    SCOPED_TRACE(Task::kName);
    every_option_arrives<Task>(requires(Task task) { task.ref_logps_are; } ? kOfSequences : std::set<std::string>());
  });
}

// The keys of a teacher and of its seeded sets change the result.
TEST(ConfigFields, OfSeededTeachersAndSetsAct) {
  const auto loss = [](const std::string& task, const Settings& more) {
    Settings settings = batch_of(task);
    if (!more.empty()) std::erase(settings, "sets.ids=5");
    settings.insert(settings.end(), more.begin(), more.end());
    const io::Config config = io::load_config(std::nullopt, settings);
    const cli::Inputs inputs = cli::make_seeded_inputs(config);
    return cli::TaskRun(config, inputs.job).run(Context()).loss;
  };
  for (const char* setting : {"hidden_size=9", "dtype=bfloat16", "softcap=3", "bias=true"}) {
    EXPECT_NE(loss("distillation_loss", {std::string("teacher.") + setting}), loss("distillation_loss", {})) << setting;
  }
  EXPECT_NE(loss("set_distillation_loss", {"sets.ids=6"}), loss("set_distillation_loss", {}));
  EXPECT_NE(loss("soft_cross_entropy", {"sets={dense: true}"}), loss("soft_cross_entropy", {}));
  EXPECT_THROW(loss("id_logps", {"sets.ids=42"}), io::Error);
  EXPECT_EQ(loss("id_logps", {"sets.ids=0"}), 0);
}

}  // namespace config_fields_test
}  // namespace logitless::testing

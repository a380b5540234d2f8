// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Every option of every loss reaches the library through a config: the call has the structure that C++ would
// pass.
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

// Runs a config; returns its refusal. `arrived` receives the options that the library got.
template <class Options>
std::string refusal_of(const Options& options, Options& arrived) {
  const std::string section = std::is_same_v<Options, CrossEntropy> ? "" : std::string(Options::kName) + ".";
  Settings settings = batch_of(Options::kName);
  for (const std::string& setting : settings_of(section, options)) settings.push_back(setting);
  try {
    const io::Config config = io::load_config(std::nullopt, settings);
    const cli::Inputs inputs = cli::make_seeded_inputs(config);
    const cli::TaskRun call(config, inputs.job);
    arrived = call.of<Options>();
    call.run(Context());
    // Arrays hold other numbers than in the case; they are present if the case has some.
    const auto take = [](const Field&, const auto& wanted, auto& got) {
      if constexpr (requires { wanted.size_bytes(); }) {
        EXPECT_EQ(got.empty(), wanted.empty());
        got = wanted;
      }
    };
    visit_flat(FieldsOf<Options>(), take, options, arrived);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

// Returns "exo_pair" for "[exo_pair]".
std::string name_in(const std::string& value) {
  return value.starts_with('[') ? value.substr(1, value.size() - 2) : value;
}

template <class Options>
void every_option_arrives(std::set<std::string> also_refused = {}) {
  std::set<std::string> refusals;
  for (const OptionCase<Options>& one : option_cases<Options>()) {
    SCOPED_TRACE(one.field + " = " + one.value);
    Options arrived;
    EXPECT_EQ(refusal_of(one.base, arrived), "");
    const std::string refusal = refusal_of(one.changed, arrived);
    if (!refusal.empty()) {
      refusals.insert(one.field + " = " + one.value);
      const std::string named = one.field == "loss_type" ? name_in(one.value) : one.field;
      EXPECT_NE(refusal.find(named), std::string::npos) << refusal;
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

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "cli/command.h"
#include "cli/tune.h"

namespace logitless::cli {
namespace {

constexpr const char* kTuneHelp = "Finds the fastest tiles and plan for this machine and a config's shape";

constexpr const char* kTuneFooter =
    R"(Three rounds on seeded inputs, each in a process of its own in which all take turns: the plans at the default tiles,
a trial of tile sizes, and a final of the three fastest against the default. What is faster by more than both spreads
is chosen, else the default stays. kernel.plan, kernel.time_block and kernel.block_size of the config are not used;
every other key is, kernel.workspace as the bound of memory too.

--output gets a YAML profile: an entry for this machine, and for sizes from half to twice those of the config. Entries
that the file has for other machines, shapes and workspaces stay. compare, gradcheck, bench and score take it by
--profile FILE or from the environment variable LOGITLESS_PROFILE, a C++ program by logitless::load_profile(). Other
tiles round differently in the last places, so results with and without a profile agree within rounding, not to the bit.

Exit status: 0 done (also where the default stays), 2 a bad option, config or file, 3 out of memory.

Examples:
  logitless tune configs/tiny.yaml -o profile.yaml
  logitless tune configs/qwen2.5-1.5b.yaml --set seq_len=1024 --budget-s 900 -o profile.yaml
  logitless compare configs/qwen2.5-1.5b.yaml --profile profile.yaml)";

}  // namespace

void add_tune(CLI::App& app, Action& action) {
  CLI::App* tune = app.add_subcommand("tune", kTuneHelp);
  tune->footer(kTuneFooter);
  const auto flags = std::make_shared<ConfigFlags>();
  const auto options = std::make_shared<TuneOptions>();
  flags->add_to(*tune);
  tune->add_option("-o,--output", options->output_path,
                   "the profile to write, or to add to where it is there; - is standard output")
      ->type_name("FILE");
  tune->add_option("--budget-s", options->budget_s, "about how many seconds it may take, 300 by default")
      ->type_name("SECONDS")
      ->check(number_within(1, 1e6));
  tune->add_flag("--quiet", options->quiet, "prints no tables and no progress");
  tune->callback([=, &action] {
    options->config_path = flags->path();
    options->assignments = flags->assignments;
    action = [=] { return run_tune(*options); };
  });
}

}  // namespace logitless::cli

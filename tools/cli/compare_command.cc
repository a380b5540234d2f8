// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "cli/command.h"
#include "cli/compare.h"

namespace logitless::cli {
namespace {

constexpr const char* kCompareHelp =
    "Runs the dense and the fused path on one input and compares loss, gradients, time and memory";

constexpr const char* kCompareFooter =
    R"(Each path runs in a process of its own, so that its peak memory is its own; the figure is what it took above its
inputs and outputs.

Tolerances: tolerances.loss_atol is in nats a token (times the tokens under reduction sum or none);
losses_rel_l2, d_hidden_rel_l2, d_weight_rel_l2 and d_bias_rel_l2 are relative L2 distances. dlogits_max_abs
and dlogits_max_rel belong to a check of the logits' own gradient: compare reads and checks them, and its
report lists them under gates_not_applied.

Exit status: 0 the two agree, 1 they lie apart beyond the tolerances (a NaN does too), 2 a bad option, config or
input, 3 a path's process died or ran out of memory.

Examples:
  logitless compare configs/tiny.yaml --set model.dtype=bfloat16 --json report.json
  logitless compare --hidden states.safetensors --lm-head head.safetensors --targets states.safetensors)";

}  // namespace

void add_compare(CLI::App& app, Action& action) {
  CLI::App* compare = app.add_subcommand("compare", kCompareHelp);
  compare->footer(kCompareFooter);
  const auto flags = std::make_shared<ConfigFlags>();
  const auto shared = std::make_shared<CompareOptions>();
  CompareOptions& options = *shared;
  flags->add_to(*compare);
  add_tensor_flags(*compare, options.tensors);
  compare->add_option("--json", options.json_path, "writes the report as one JSON object; - is standard output")
      ->type_name("FILE");
  compare->add_option("--repeat", options.repeat, "runs each contender N times, alternating, and reports medians")
      ->type_name("N")
      ->check(CLI::Range(1, 1000000));
  add_profile_flag(*compare, options.profile_path);
  compare->add_flag("--quiet", options.quiet, "prints no table and no progress: the exit status says it");
  compare->callback([=, &action] {
    shared->config_path = flags->path();
    shared->assignments = flags->assignments;
    action = [=] { return run_compare(*shared); };
  });
}

}  // namespace logitless::cli

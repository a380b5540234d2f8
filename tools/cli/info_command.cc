// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "cli/command.h"
#include "cli/info.h"

namespace logitless::cli {
namespace {

constexpr const char* kInfoHelp = "Prints what runs on this machine: CPU, instruction set, BLAS, and warnings";

constexpr const char* kInfoFooter = "Example: logitless info --set threads=1";

}  // namespace

void add_info(CLI::App& app, Action& action, const BlasKernels& blas) {
  CLI::App* info = app.add_subcommand("info", kInfoHelp);
  info->footer(kInfoFooter);
  const auto flags = std::make_shared<ConfigFlags>();
  const auto options = std::make_shared<InfoOptions>();
  options->blas = blas;
  flags->add_to(*info);
  info->add_flag("--json", options->json, "prints one JSON object");
  info->callback([=, &action] {
    options->config_path = flags->path();
    options->assignments = flags->assignments;
    action = [=] { return run_info(*options); };
  });
}

}  // namespace logitless::cli

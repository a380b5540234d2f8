// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// `logitless info`: prints what the library uses on this machine.
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/common/command_line.h"
#include "cli/common/output.h"
#include "cli/common/task_call.h"
#include "logitless/context.h"

namespace logitless::cli {
namespace {

constexpr const char* kInfoHelp = "Prints the libraries and kernels that are used on this machine, and warnings";
constexpr const char* kInfoFooter = "Example: logitless info --set threads=1";

const std::vector<std::string> kAppliedKeys = {"threads", "kernel.simd_target", "kernel.gemm_backend"};

struct InfoOptions {
  ConfigFlags config = {};
  bool json = false;
};

std::string cache_text(int64_t bytes) { return bytes > 0 ? human_bytes(bytes) : "unknown"; }

void print_lines(const Environment& e) {
  const auto line = [](const char* name, const std::string& value) { std::printf("%-12s %s\n", name, value.c_str()); };
  line("logitless", e.version);
  line("cpu", e.cpu + ", " + std::to_string(e.cores) + (e.cores == 1 ? " core" : " cores"));
  line("caches",
       "L1d " + cache_text(e.l1d_bytes) + ", L2 " + cache_text(e.l2_bytes) + ", L3 " + cache_text(e.l3_bytes));
  line("threads", std::to_string(e.threads));
  line("simd", e.simd_target + " (of " + joined(e.simd_targets) + ")");
  line("gemm", e.gemm_backend + " (of " + joined(e.gemm_backends) + ")");
  line("float32", e.gemm_float32);
  line("bfloat16", e.gemm_bf16.empty() ? "widened to float32" : e.gemm_bf16);
  line("blas", e.blas_config);
  line("blas core", e.blas_core);
  line("blas threads", e.blas_threading + ", at most " + std::to_string(e.blas_max_threads));
  for (const std::string& warning : e.warnings) line("warning", warning);
}

int run_info(const InfoOptions& options) {
  const io::Config config = options.config.load();
  const auto has_no_use = [](const std::string& key) { return std::ranges::count(kAppliedKeys, key) == 0; };
  reject_by_hand(config, has_no_use, "has no effect on info, which takes " + joined(kAppliedKeys));
  const Environment environment = describe_environment(Context(context_options_of(config)));
  if (options.json) {
    print(page_of(environment_json(environment)));
  } else {
    print_lines(environment);
  }
  return 0;
}

void add_flags(CLI::App& info, InfoOptions& options) {
  options.config.add_to(info);
  info.add_flag("--json", options.json, "prints one JSON object");
}

}  // namespace

void add_info(CLI::App& app, int& status) {
  add_command<InfoOptions>(app, "info", kInfoHelp, kInfoFooter, add_flags, run_info, status);
}

}  // namespace logitless::cli

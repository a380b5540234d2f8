// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/info.h"

#include <cstdio>

#include "cli/compare.h"
#include "cli/environment_json.h"
#include "cli/report_text.h"
#include "io/config.h"
#include "logitless/context.h"
#include "logitless/environment.h"

namespace logitless::cli {
namespace {

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

std::string cache_text(int64_t bytes) { return bytes > 0 ? human_bytes(bytes) : "unknown"; }

// Whose kernels run, and how that came about where the BLAS has not simply chosen well by itself.
std::string core_text(const Environment& e, const BlasKernels& blas) {
  switch (blas.outcome) {
    case BlasKernelsOutcome::kFit:
      return e.blas_core;
    case BlasKernelsOutcome::kSwitched:
      return e.blas_core + ", switched from " + blas.before + ": " + blas.reason;
    default:
      return e.blas_core + ", left as it was: " + blas.reason;
  }
}

void print(const Environment& e, const BlasKernels& blas) {
  const auto line = [](const char* name, const std::string& value) { std::printf("%-12s %s\n", name, value.c_str()); };
  line("logitless", e.version);
  line("cpu", e.cpu + ", " + std::to_string(e.cores) + (e.cores == 1 ? " core" : " cores"));
  line("caches",
       "L1d " + cache_text(e.l1d_bytes) + ", L2 " + cache_text(e.l2_bytes) + ", L3 " + cache_text(e.l3_bytes));
  line("threads", std::to_string(e.threads));
  line("simd", e.simd_target + " (of " + joined(e.simd_targets) + ")");
  line("gemm", e.gemm_backend + " (of " + joined(e.gemm_backends) + ")");
  line("blas", e.blas_config);
  line("blas core", core_text(e, blas));
  line("blas threads", e.blas_threading + ", at most " + std::to_string(e.blas_max_threads));
  for (const std::string& warning : e.warnings) line("warning", warning);
}

}  // namespace

nlohmann::ordered_json json_of(const Environment& e) {
  return {{"version", e.version},
          {"cpu", e.cpu},
          {"cores", e.cores},
          {"threads", e.threads},
          {"l1d_bytes", e.l1d_bytes},
          {"l2_bytes", e.l2_bytes},
          {"l3_bytes", e.l3_bytes},
          {"simd_target", e.simd_target},
          {"simd_targets", e.simd_targets},
          {"gemm_backend", e.gemm_backend},
          {"gemm_backends", e.gemm_backends},
          {"blas_config", e.blas_config},
          {"blas_core", e.blas_core},
          {"blas_threading", e.blas_threading},
          {"blas_max_threads", e.blas_max_threads},
          {"warnings", e.warnings}};
}

int run_info(const InfoOptions& options) {
  const io::Config config = io::load_config(options.config_path, options.assignments);
  const Environment environment = describe_environment(Context(context_options_of(config)));
  if (options.json) {
    nlohmann::ordered_json json = json_of(environment);
    json["blas_kernels"] = {{"outcome", name_of(options.blas.outcome)},
                            {"before", options.blas.before},
                            {"after", options.blas.after},
                            {"reason", options.blas.reason}};
    std::printf("%s\n", json.dump(2).c_str());
  } else {
    print(environment, options.blas);
  }
  return 0;
}

}  // namespace logitless::cli

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "report/machine.h"

namespace logitless::report {

std::string machine_line(const BenchRun& run) {
  std::string line = "logitless " + run.version;
  const auto add = [&](const std::string& text) {
    if (!text.empty()) line += ", " + text;
  };
  add(run.fact("cpu"));
  const std::string threads = run.fact("threads");
  if (!threads.empty()) add(threads + (threads == "1" ? " thread" : " threads"));
  add(run.fact("simd_target"));
  const std::string core = run.fact("blas_core");
  add(run.fact("gemm_backend") + (core.empty() ? "" : " " + core));
  add(run.started.substr(0, run.started.find('T')));
  return line;
}

}  // namespace logitless::report

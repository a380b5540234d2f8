// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "logitless/environment.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <utility>

#include "logitless/version.h"
#include "planning/context_state.h"

namespace logitless {
namespace {

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    const size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set)
                                                     : static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
}

int64_t cache_bytes(int name) { return std::max<int64_t>(0, sysconf(name)); }

}  // namespace

Environment describe_environment(const Context& context) {
  gemm::Description blas = detail::state_of(context).gemm->describe();
  Environment e;
  e.version = version();
  e.cpu = cpu_model();
  e.cores = usable_cores();
  e.threads = context.threads();
  e.l1d_bytes = cache_bytes(_SC_LEVEL1_DCACHE_SIZE);
  e.l2_bytes = cache_bytes(_SC_LEVEL2_CACHE_SIZE);
  e.l3_bytes = cache_bytes(_SC_LEVEL3_CACHE_SIZE);
  e.simd_target = context.simd_target();
  e.simd_targets = simd_targets();
  e.gemm_backend = context.gemm_backend();
  e.gemm_backends = gemm_backends();
  e.gemm_float32 = blas.float32;
  e.gemm_bf16 = blas.bf16;
  e.blas_config = blas.library;
  e.blas_core = blas.core;
  e.blas_threading = blas.threading;
  e.blas_max_threads = blas.max_threads;
  std::move(blas.warnings.begin(), blas.warnings.end(), std::back_inserter(e.warnings));
  if (e.simd_target == "plain")
    e.warnings.push_back("the plain row kernels are in use: they are slow, and meant for tests");
  return e;
}

const char* version() { return LOGITLESS_VERSION_STRING; }

}  // namespace logitless

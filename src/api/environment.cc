// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "logitless/environment.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <utility>

#include "gemm/openblas.h"
#include "logitless/version.h"

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

void add_warnings(const Context& context, Environment& e) {
  if (std::string warning = context.blas_warning(); !warning.empty()) e.warnings.push_back(std::move(warning));
  if (std::getenv("OPENBLAS_L2_SIZE"))
    e.warnings.push_back("OPENBLAS_L2_SIZE is set: the BLAS blocks for another cache");
  if (e.blas_threading == "pthreads") {
    e.warnings.push_back(
        "the BLAS is a pthreads build: its thread number is switched for the whole process during calls");
  }
  if (e.simd_target == "plain") e.warnings.push_back("the plain row kernels are chosen: they are for tests, and slow");
}

}  // namespace

Environment describe_environment(const Context& context) {
  const gemm::OpenBlasInfo blas = gemm::openblas_info();
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
  e.blas_config = blas.config;
  e.blas_core = blas.core;
  e.blas_threading = blas.threading;
  e.blas_max_threads = blas.max_threads;
  add_warnings(context, e);
  return e;
}

const char* version() { return LOGITLESS_VERSION_STRING; }

}  // namespace logitless

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "gemm/gemm.h"

namespace logitless::gemm {

const Backend& openblas_backend();

struct OpenBlasInfo {
  std::string config;     // "OpenBLAS 0.3.21 ... MAX_THREADS=128"
  std::string core;       // "Zen"
  std::string threading;  // "openmp", "pthreads" or "sequential"
  int max_threads = 0;
};
OpenBlasInfo openblas_info();

}  // namespace logitless::gemm

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Libraries that are built on OpenMP start teams of their own. These say how large such a team is.
#pragma once

#include <omp.h>

namespace logitless::gemm {

/// While this lives, the teams of the calling task have `threads` threads. Such a library runs on the calling
/// thread inside a parallel region, but a team of one does not count as one: there, and in threads that
/// OpenMP does not know, only the task's own thread number keeps it from starting a team.
class OmpThreads {
 public:
  explicit OmpThreads(int threads) : before_(omp_get_max_threads()) {
    if (before_ != threads) omp_set_num_threads(threads);
    changed_ = before_ != threads;
  }
  ~OmpThreads() {
    if (changed_) omp_set_num_threads(before_);
  }
  OmpThreads(const OmpThreads&) = delete;
  OmpThreads& operator=(const OmpThreads&) = delete;

 private:
  int before_;
  bool changed_;
};

}  // namespace logitless::gemm

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Contenders that take turns in one process, so that whatever slows the machine down slows all of them down.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "timing/statistics.h"

namespace logitless::bench {

struct Contender {
  std::string name;
  std::function<void()> run;
  double flops = 0;  // of its own multiply-adds, twice; 0: no efficiency is printed
  std::vector<double> seconds;

  double median() const { return timing::median(seconds); }
};

inline double seconds_of(const std::function<void()>& run) {
  const auto begin = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

inline void take_turns(std::vector<Contender>& contenders, int repeat) {
  for (int i = 0; i < repeat; ++i) {
    for (Contender& contender : contenders) contender.seconds.push_back(seconds_of(contender.run));
  }
}

inline void print(const Contender& c, double gemm_rate) {
  const auto [low, high] = std::minmax_element(c.seconds.begin(), c.seconds.end());
  std::printf("  %-34s median %9.4f s  (%.4f to %.4f)", c.name.c_str(), c.median(), *low, *high);
  if (c.flops > 0 && gemm_rate > 0) std::printf("  %.3f of the GEMM rate", c.flops / c.median() / gemm_rate);
  std::printf("\n");
}

inline void print_ratio(const Contender& a, const Contender& b) {
  std::printf("  %s / %s = %.3f\n", a.name.c_str(), b.name.c_str(), a.median() / b.median());
  std::fflush(stdout);
}

}  // namespace logitless::bench

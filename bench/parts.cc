// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// What stands behind the times of calls, which `logitless bench` measures: the row kernels' share of a tile,
// and what a sweep over logits costs the memory alone. Parts take turns, so that whatever slows the machine
// down slows all of them down.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "logitless/logitless.h"
#include "stream/context_state.h"
#include "timing/statistics.h"

namespace logitless::bench {
namespace {

struct Part {
  std::string name;
  std::function<void()> run;
  std::vector<double> seconds = {};
};

// Lets them run, A B C A B C and so on, and prints their medians.
void take_turns(std::vector<Part>& parts, int repeat) {
  for (int i = 0; i < repeat; ++i) {
    for (Part& part : parts) {
      const auto begin = std::chrono::steady_clock::now();
      part.run();
      part.seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    }
  }
  for (const Part& part : parts) {
    const auto [low, high] = std::minmax_element(part.seconds.begin(), part.seconds.end());
    std::printf("  %-34s median %9.6f s  (%.6f to %.6f)\n", part.name.c_str(), timing::median(part.seconds), *low,
                *high);
  }
}

/// The row kernels' share of a tile: their time on one tile against that of the tile's GEMM, on one thread.
void run_rows(int64_t hidden, int repeat) {
  constexpr int64_t kRows = 256, kCols = 1024, kStride = kCols + 16;
  ContextOptions options;
  options.threads = 1;
  const Context context(options);
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> logits(kRows * kStride), scratch(kCols), scale(kRows, 1), x(kRows * hidden, 0.5f),
      w(kCols * hidden, 0.5f), tile(kRows * kStride);
  for (float& v : logits) v = normal(random);
  std::vector<int32_t> target(kRows, 3);
  std::vector<kernels::RowStats> stats(kRows);
  std::vector<kernels::RowGradient<float>> gradients(kRows);
  for (int64_t r = 0; r < kRows; ++r) {
    gradients[static_cast<size_t>(r)] = {.max = 12,
                                         .log_sum = 3,
                                         .inverse_temperature = 1,
                                         .softmax_term = 1,
                                         .target = 7,
                                         .source_row = static_cast<int32_t>(r)};
  }
  kernels::FoldArgs<float> fold;
  fold.shape = {kRows, kCols, kStride, nullptr, 0, {}};
  fold.logits = logits.data();
  fold.inverse_temperature = scale.data();
  fold.target = target.data();
  fold.scratch = scratch.data();
  fold.stats = stats.data();
  kernels::GradientArgs<float> gradient;
  gradient.shape = fold.shape;
  gradient.logits = gradient.out = logits.data();
  gradient.count = kRows;
  gradient.gradients = gradients.data();
  gradient.scratch = scratch.data();
  const auto& kernels = detail::state_of(context).kernels->f32;
  std::vector<Part> parts = {{"GEMM of a tile",
                              [&] {
                                detail::state_of(context).gemm->multiply({kRows,
                                                                          kCols,
                                                                          hidden,
                                                                          {x.data(), DType::kFloat32, hidden, false},
                                                                          {w.data(), DType::kFloat32, hidden, true},
                                                                          tile.data(),
                                                                          kStride,
                                                                          false},
                                                                         *detail::state_of(context).kernels, nullptr);
                              }},
                             {"fold", [&] { kernels.fold(fold); }},
                             {"gradient", [&] { kernels.gradient(gradient); }}};
  std::printf("row kernels (%s) on a tile of %lld x %lld, H = %lld\n", context.simd_target().c_str(),
              static_cast<long long>(kRows), static_cast<long long>(kCols), static_cast<long long>(hidden));
  take_turns(parts, 50 * repeat);
  const double g = timing::median(parts[0].seconds), f = timing::median(parts[1].seconds),
               b = timing::median(parts[2].seconds);
  std::printf("  share of the time: forward only %.3f, one pass %.3f, two pass %.3f\n", f / (g + f),
              (f + b) / (3 * g + f + b), (f + b) / (4 * g + f + b));
}

// What the memory takes at the least: the logits are read twice, and as much is written once. Integer sums,
// because the compiler may vectorise them.
void read_twice_write_once(const float* logits, int64_t size, float* out, int threads) {
  uint32_t sum = 0;
#pragma omp parallel for schedule(static) reduction(+ : sum) num_threads(threads)
  for (int64_t i = 0; i < size; ++i) {
    uint32_t bits;
    std::memcpy(&bits, logits + i, sizeof bits);
    sum += bits;
  }
  const float scale = sum == 1 ? 0.5f : 1.0f;  // keeps the first loop alive
#pragma omp parallel for schedule(static) num_threads(threads)
  for (int64_t i = 0; i < size; ++i) out[i] = scale * logits[i];
}

void run_memory(int64_t tokens, int64_t vocab, int threads, int repeat) {
  ContextOptions options;
  options.threads = threads;
  const int team = Context(options).threads();
  const int64_t size = tokens * vocab;
  const std::unique_ptr<float[]> logits(new float[static_cast<size_t>(size)]);
  const std::unique_ptr<float[]> gradient(new float[static_cast<size_t>(size)]);
  // Every page is touched by the team that uses it.
#pragma omp parallel for schedule(static) num_threads(team)
  for (int64_t i = 0; i < size; ++i) logits[static_cast<size_t>(i)] = gradient[static_cast<size_t>(i)] = 0.5f;
  std::vector<Part> parts = {{"in place", [&] { read_twice_write_once(logits.get(), size, logits.get(), team); }},
                             {"apart", [&] { read_twice_write_once(logits.get(), size, gradient.get(), team); }}};
  std::printf("2 reads and 1 write of float32 logits [%lld, %lld], %d threads\n", static_cast<long long>(tokens),
              static_cast<long long>(vocab), team);
  take_turns(parts, repeat);
}

}  // namespace
}  // namespace logitless::bench

int main(int argc, char** argv) {
  logitless::use_best_blas_kernels();
  CLI::App app("Times of the parts of a call. Run it alone on the machine.");
  std::string what;
  int64_t tokens = 2048, hidden = 1536, vocab = 151936;
  int threads = 0, repeat = 3;
  app.add_option("what", what, "rows or memory")->required()->check(CLI::IsMember({"rows", "memory"}));
  app.add_option("--tokens", tokens, "memory")->check(CLI::PositiveNumber);
  app.add_option("--hidden", hidden, "rows")->check(CLI::PositiveNumber);
  app.add_option("--vocab", vocab, "memory")->check(CLI::PositiveNumber);
  app.add_option("--threads", threads, "memory")->check(CLI::NonNegativeNumber);
  app.add_option("--repeat", repeat, "turns of each part")->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  const logitless::Environment machine = logitless::describe_environment(logitless::Context());
  std::printf("%s, BLAS core %s\n", machine.cpu.c_str(), machine.blas_core.c_str());
  for (const std::string& warning : machine.warnings) std::printf("warning: %s\n", warning.c_str());
  if (what == "rows") logitless::bench::run_rows(hidden, repeat);
  if (what == "memory") logitless::bench::run_memory(tokens, vocab, threads, repeat);
  return 0;
}

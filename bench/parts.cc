// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Measures parts of a call whose total `logitless bench` measures: the row kernels' share of a tile, the rate
// of its products on each backend, the memory traffic of a sweep over logits, and the overhead of a call.
// Parts take turns, so that whatever slows the machine down slows all of them.
#include <time.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "logitless/logitless.h"
#include "planning/context_state.h"
#include "timing/statistics.h"

namespace logitless::bench {
namespace {

struct Part {
  std::string name;
  std::function<void()> run;
  std::vector<double> seconds = {};
};

// With --cpu-time, seconds of this process's CPUs: with one thread, these hardly depend on other processes.
bool counts_cpu_time = false;

double now() {
  timespec time = {};
  clock_gettime(counts_cpu_time ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Runs the parts in turn (A B C A B C ...) and prints their medians; also the rate per thread if `gigaflops`,
// the GFLOP of one turn, is given.
void take_turns(std::vector<Part>& parts, int repeat, double gigaflops = 0) {
  for (int i = 0; i < repeat; ++i) {
    for (Part& part : parts) {
      const double begin = now();
      part.run();
      part.seconds.push_back(now() - begin);
    }
  }
  for (const Part& part : parts) {
    const auto [low, high] = std::minmax_element(part.seconds.begin(), part.seconds.end());
    const double median = timing::median(part.seconds);
    std::printf("  %-34s median %9.6f s  (%.6f to %.6f)", part.name.c_str(), median, *low, *high);
    if (gigaflops > 0) std::printf("  %6.0f GFLOP/s per thread", gigaflops / median);
    std::printf("\n");
  }
}

/// The row kernels' share of a tile: their time on one tile compared with its GEMM, on one thread.
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
  const std::vector<int64_t> ids(kRows, 3);
  std::vector<double> picked(kRows);
  const kernels::PickGradient<float> pick = {7, 1};
  std::vector<int64_t> call_rows(kRows);
  std::vector<int32_t> places(kRows);
  std::iota(call_rows.begin(), call_rows.end(), int64_t{0});
  std::iota(places.begin(), places.end(), int32_t{0});
  std::vector<kernels::RowStats> stats(kRows);
  const std::vector<kernels::RowGradient<float>> gradients(
      kRows, {.max = 12, .log_sum = 3, .inverse_temperature = 1, .softmax_scale = 1, .pick_count = 1, .picks = &pick});
  kernels::FoldArgs<float> fold;
  fold.shape = {kRows, kCols, kStride, nullptr, 0, {}};
  fold.logits = logits.data();
  fold.inverse_temperature = scale.data();
  fold.picks.ids = ids.data();
  fold.call_rows = call_rows.data();
  fold.picked = picked.data();
  fold.scratch = scratch.data();
  fold.stats = stats.data();
  kernels::GradientArgs<float> gradient;
  gradient.shape = fold.shape;
  gradient.logits = gradient.out = logits.data();
  gradient.out_stride = kStride;
  gradient.count = kRows;
  gradient.places = places.data();
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

struct TileProduct {
  const char* name;
  int64_t m, n, k;
  bool a_transposed, b_transposed, accumulate;
};

// Random numbers, like a trainer's: a tile unit that multiplies zeros runs at a higher clock.
std::vector<std::byte> normal_numbers(int64_t count, DType dtype) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<std::byte> out(static_cast<size_t>(count) * size_of(dtype));
  for (int64_t i = 0; i < count; ++i) {
    const float value = normal(random);
    if (dtype == DType::kFloat32) {
      std::memcpy(out.data() + static_cast<size_t>(i) * sizeof value, &value, sizeof value);
    } else {
      // The upper half of a float32 is a bfloat16.
      std::memcpy(out.data() + static_cast<size_t>(i) * sizeof(bfloat16),
                  reinterpret_cast<const std::byte*>(&value) + sizeof(bfloat16), sizeof(bfloat16));
    }
  }
  return out;
}

// Returns the first whole cache line, as a workspace aligns its tiles.
float* aligned(std::vector<float>& data) {
  void* begin = data.data();
  size_t bytes = data.size() * sizeof(float);
  return static_cast<float*>(std::align(64, sizeof(float), begin, bytes));
}

/// The rates of a tile's products; each of the `threads` threads computes its own. A product of gradients has
/// `width` of the `hidden` components.
void run_products(int64_t rows, int64_t hidden, int64_t width, DType dtype, int threads, int repeat) {
  constexpr int64_t kWords = 1024;
  const TileProduct products[] = {{"logits", rows, kWords, hidden, false, true, false},
                                  {"logits, head [H, V]", rows, kWords, hidden, false, false, false},
                                  {"d_hidden", rows, width, kWords, false, false, true},
                                  {"d_weight", kWords, width, rows, true, false, true}};
  ContextOptions options;
  options.threads = threads;
  const int team = Context(options).threads();
  constexpr int64_t kStride = kWords + 16;  // of a tile; larger than any other row needs
  const int64_t tall = std::max(rows, kWords);
  const std::vector<std::byte> a = normal_numbers(tall * std::max(hidden, kStride), dtype);
  const std::vector<std::byte> b = normal_numbers(tall * std::max(hidden, kStride), dtype);
  std::printf("products of a tile of %lld x %lld in %s, %lld of H = %lld, %d threads\n", static_cast<long long>(rows),
              static_cast<long long>(kWords), name_of(dtype), static_cast<long long>(width),
              static_cast<long long>(hidden), team);
  for (const TileProduct& p : products) {
    const bool logits = !p.accumulate;
    const int64_t c_stride = logits ? kStride : hidden;
    std::vector<Part> parts;
    for (const std::string& name : gemm_backends()) {
      options.gemm_backend = name;
      const Context context(options);
      const detail::ContextState& state = detail::state_of(context);
      const size_t scratch = state.gemm->scratch_bytes(p.m, p.n, p.k, dtype, dtype);
      std::vector<std::vector<std::byte>> scratches(static_cast<size_t>(team), std::vector<std::byte>(scratch));
      std::vector<std::vector<float>> sums(static_cast<size_t>(team),
                                           std::vector<float>(static_cast<size_t>(p.m * c_stride) + 16));
      const auto run = [&a, &b, &p, context, scratches, sums, c_stride, dtype, hidden, logits, team]() mutable {
        const detail::ContextState& mine = detail::state_of(context);
        const auto alone = mine.gemm->single_threaded_region();
#pragma omp parallel for schedule(static) num_threads(team)
        for (int thread = 0; thread < team; ++thread) {
          const auto t = static_cast<size_t>(thread);
          const gemm::Product<float> product{
              p.m,
              p.n,
              p.k,
              {a.data(), dtype, logits ? hidden : kStride, p.a_transposed},
              {b.data(), dtype, logits && !p.b_transposed ? kStride : hidden, p.b_transposed},
              aligned(sums[t]),
              c_stride,
              p.accumulate};
          for (int i = 0; i < 4; ++i) mine.gemm->multiply(product, *mine.kernels, scratches[t].data());
        }
      };
      parts.push_back({std::string(p.name) + ", " + name, run});
    }
    for (Part& part : parts) part.run();
    take_turns(parts, 5 * repeat, 4 * 2e-9 * static_cast<double>(p.m * p.n * p.k));
  }
}

// Reads all logits. The sums are integers, because the compiler may vectorise those.
uint32_t plain_sum(const float* logits, int64_t size, int threads) {
  uint32_t sum = 0;
#pragma omp parallel for schedule(static) reduction(+ : sum) num_threads(threads)
  for (int64_t i = 0; i < size; ++i) {
    uint32_t bits;
    std::memcpy(&bits, logits + i, sizeof bits);
    sum += bits;
  }
  return sum;
}

// A lower bound on the memory traffic: the logits are read twice and a buffer of their size is written once.
void read_twice_write_once(const float* logits, int64_t size, float* out, int threads) {
  const float scale = plain_sum(logits, size, threads) == 1 ? 0.5f : 1.0f;  // keeps the sum alive
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
  // The team that uses the pages touches them first.
#pragma omp parallel for schedule(static) num_threads(team)
  for (int64_t i = 0; i < size; ++i) logits[static_cast<size_t>(i)] = gradient[static_cast<size_t>(i)] = 0.5f;
  uint32_t sum = 0;
  std::vector<Part> parts = {{"1 read", [&] { sum += plain_sum(logits.get(), size, team); }},
                             {"in place", [&] { read_twice_write_once(logits.get(), size, logits.get(), team); }},
                             {"apart", [&] { read_twice_write_once(logits.get(), size, gradient.get(), team); }}};
  std::printf("float32 logits [%lld, %lld], %d threads: 1 read, and 2 reads and 1 write in place and apart\n",
              static_cast<long long>(tokens), static_cast<long long>(vocab), team);
  take_turns(parts, repeat);
  std::printf("  %.1f GB/s are read (sum %u)\n", 4e-9 * static_cast<double>(size) / timing::median(parts[0].seconds),
              sum);
}

/// The overhead of a repeated call: one row of 16 numbers, 16 logits.
void run_calls(int threads, int repeat) {
  constexpr int64_t kHidden = 16, kVocab = 16;
  constexpr int kCalls = 10'000;  // per turn
  ContextOptions options;
  options.threads = threads;
  const Context context(options);
  const std::vector<float> hidden(kHidden, 0.1f), weight(kHidden * kVocab, 0.2f);
  std::vector<float> d_hidden(kHidden), d_weight(kHidden * kVocab);
  const int64_t target = 3;
  const Logits logits = Logits::of(view(hidden.data(), {1, kHidden}), view(weight.data(), {kVocab, kHidden}));
  const CrossEntropy task = {.targets = view(&target, {1})};
  Gradients gradients;
  gradients.d_hidden = view(d_hidden.data(), {1, kHidden});
  gradients.d_weight = view(d_weight.data(), {kVocab, kHidden});
  std::vector<Part> parts = {{"forward",
                              [&] {
                                for (int i = 0; i < kCalls; ++i) logitless::forward(context, logits, task);
                              }},
                             {"loss and both gradients", [&] {
                                for (int i = 0; i < kCalls; ++i) logitless::run(context, logits, task, gradients);
                              }}};
  std::printf("%d calls of one row, H = %lld, V = %lld, %d threads\n", kCalls, static_cast<long long>(kHidden),
              static_cast<long long>(kVocab), context.threads());
  for (Part& part : parts) part.run();
  take_turns(parts, 3 * repeat);
  for (const Part& part : parts) {
    std::printf("  %s: %.2f us per call\n", part.name.c_str(), 1e6 * timing::median(part.seconds) / kCalls);
  }
}

}  // namespace
}  // namespace logitless::bench

int main(int argc, char** argv) {
  try {
    CLI::App app("Times of the parts of a call. Run it alone on the machine.");
    std::string what;
    int64_t tokens = 2048, rows = 512, hidden = 1536, width = 0, vocab = 151936;
    int threads = 0, repeat = 3;
    std::string dtype = "bfloat16";
    app.add_option("what", what, "rows, products, memory or calls")
        ->required()
        ->check(CLI::IsMember({"rows", "products", "memory", "calls"}));
    app.add_option("--tokens", tokens, "memory")->check(CLI::PositiveNumber);
    app.add_option("--hidden", hidden, "rows, products")->check(CLI::PositiveNumber);
    app.add_option("--rows", rows, "products: rows of a tile")->check(CLI::PositiveNumber);
    app.add_option("--width", width, "products: components of H that a product of gradients has; 0: all")
        ->check(CLI::NonNegativeNumber);
    app.add_option("--vocab", vocab, "memory")->check(CLI::PositiveNumber);
    app.add_option("--threads", threads, "products, memory, calls")->check(CLI::NonNegativeNumber);
    app.add_option("--dtype", dtype, "products")->check(CLI::IsMember({"bfloat16", "float32"}));
    app.add_flag("--cpu-time", logitless::bench::counts_cpu_time, "seconds of the process's CPUs, for a busy machine");
    app.add_option("--repeat", repeat, "turns of each part")->check(CLI::PositiveNumber);
    CLI11_PARSE(app, argc, argv);
    const logitless::Environment machine = logitless::describe_environment(logitless::Context());
    std::printf("%s, BLAS core %s\n", machine.cpu.c_str(), machine.blas_core.c_str());
    for (const std::string& warning : machine.warnings) std::printf("warning: %s\n", warning.c_str());
    if (what == "rows") logitless::bench::run_rows(hidden, repeat);
    if (what == "products") {
      logitless::bench::run_products(rows, hidden, width == 0 ? hidden : std::min(width, hidden),
                                     dtype == "float32" ? logitless::DType::kFloat32 : logitless::DType::kBFloat16,
                                     threads, repeat);
    }
    if (what == "memory") logitless::bench::run_memory(tokens, vocab, threads, repeat);
    if (what == "calls") logitless::bench::run_calls(threads, repeat);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "parts: %s\n", error.what());
    return 1;
  }
}

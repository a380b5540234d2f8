// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "logits.h"

#include <omp.h>

#include <cstring>
#include <memory>
#include <random>

#include "contender.h"
#include "logitless/logitless.h"

namespace logitless::bench {
namespace {

constexpr int64_t kRowTiles[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512};

struct Buffers {
  int64_t tokens, vocab;
  std::unique_ptr<float[]> logits, gradient;
  std::vector<int64_t> targets;

  int64_t size() const { return tokens * vocab; }
  Logits view() const { return Logits(logits.get(), 1, tokens, vocab); }
  LogitsGradient output(bool in_place) const {
    return LogitsGradient(in_place ? logits.get() : gradient.get(), 1, tokens, vocab);
  }
  Targets words() const { return Targets(targets.data(), tokens); }
};

// Normal logits; every page is touched by the team that uses it.
Buffers make_buffers(int64_t tokens, int64_t vocab) {
  Buffers b{tokens, vocab, nullptr, nullptr, {}};
  b.logits.reset(new float[static_cast<size_t>(b.size())]);
  b.gradient.reset(new float[static_cast<size_t>(b.size())]);
#pragma omp parallel for schedule(static)
  for (int64_t row = 0; row < tokens; ++row) {
    std::minstd_rand random(static_cast<unsigned>(row + 1));
    float* logits = b.logits.get() + row * vocab;
    for (int64_t v = 0; v < vocab; ++v) logits[v] = static_cast<float>(random() % 65536) / 8192 - 4;
    std::memset(b.gradient.get() + row * vocab, 0, static_cast<size_t>(vocab) * sizeof(float));
  }
  std::minstd_rand random(7);
  for (int64_t row = 0; row < tokens; ++row) b.targets.push_back(static_cast<int64_t>(random()) % vocab);
  return b;
}

// What the memory takes at the least: the logits are read twice, and as much is written once. Integer sums, because the
// compiler may vectorise them.
void read_twice_write_once(const Buffers& b, float* out, int threads) {
  const float* logits = b.logits.get();
  const int64_t size = b.size();
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

Context context_of(PlanKind plan, int64_t row_tile, int threads) {
  ContextOptions options;
  options.plan = plan;
  options.row_tile = row_tile;
  options.threads = threads;
  return Context(options);
}

}  // namespace

// In place the gradient of one turn is the logits of the next one: other numbers, the same work.
void run_logits(int64_t tokens, int64_t vocab, int threads, int repeat) {
  const Buffers b = make_buffers(tokens, vocab);
  const int team = context_of(PlanKind::kAuto, 0, threads).threads();
  std::vector<Contender> c;
  for (const bool in_place : {true, false}) {
    const std::string where = in_place ? ", in place" : ", apart";
    float* out = in_place ? b.logits.get() : b.gradient.get();
    c.push_back({"memory: 2 reads, 1 write" + where, [&b, out, team] { read_twice_write_once(b, out, team); }, 0, {}});
    const auto add = [&](const std::string& name, PlanKind plan, int64_t row_tile) {
      c.push_back({name + where,
                   [&b, in_place, context = context_of(plan, row_tile, threads)] {
                     cross_entropy_from_logits(context, b.view(), b.words(), {}, b.output(in_place));
                   },
                   0,
                   {}});
    };
    add("two sweeps, as dense", PlanKind::kDense, 0);
    for (const int64_t rows : kRowTiles) add("row_tile " + std::to_string(rows), PlanKind::kOnePass, rows);
  }
  take_turns(c, repeat);
  std::printf("cross-entropy of logits [1, %lld, %lld] float32 with gradient, %d threads, %s\n",
              static_cast<long long>(tokens), static_cast<long long>(vocab), team,
              context_of(PlanKind::kAuto, 0, threads).simd_target().c_str());
  const size_t half = c.size() / 2;
  for (size_t first : {size_t{0}, half}) {
    const double memory = c[first].median(), sweeps = c[first + 1].median();
    std::printf("  %-34s %10s %12s %12s\n", "", "median s", "/ memory", "/ two sweeps");
    for (size_t i = first; i < first + half; ++i) {
      const double median = c[i].median();
      std::printf("  %-34s %10.4f %12.3f %12.3f\n", c[i].name.c_str(), median, median / memory, median / sweeps);
    }
  }
}

}  // namespace logitless::bench

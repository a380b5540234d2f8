// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "oracle/draws.h"

#include <array>
#include <cmath>

namespace logitless::oracle {
namespace {

// Philox4x32-10, on 64-bit words (Salmon et al. 2011).
std::array<uint64_t, 4> philox(std::array<uint64_t, 4> x, uint64_t key) {
  constexpr uint64_t kLow = 0xFFFFFFFF;
  uint64_t k0 = key & kLow, k1 = key >> 32;
  for (int round = 0; round < 10; ++round) {
    const uint64_t first = x[0] * 0xD2511F53, second = x[2] * 0xCD9E8D57;
    x = {(second >> 32) ^ x[1] ^ k0, second & kLow, (first >> 32) ^ x[3] ^ k1, first & kLow};
    k0 = (k0 + 0x9E3779B9) & kLow;
    k1 = (k1 + 0xBB67AE85) & kLow;
  }
  return x;
}

// Gumbel noise of an id in a draw: -log(-log(1 - w)). The bits of w are words of two counters.
double gumbel(const Tokens& tokens, int64_t row, int64_t draw, int64_t id) {
  const auto key = static_cast<uint64_t>(tokens.draws.draw_seed), of_row = static_cast<uint64_t>(row);
  // In a block of 64 ids, 2c and 2c + 1 have words 0 and 1 of counter c; 32 + 2c and 33 + 2c have 2 and 3.
  const auto counter = static_cast<uint64_t>(id / 64 * 16 + id % 32 / 2);
  const auto word = static_cast<size_t>(id % 64 / 32 * 2 + id % 2);
  std::array<long double, 2> words{};
  for (uint64_t half = 0; half < 2; ++half) {
    const uint64_t high = static_cast<uint64_t>(draw) + 256 * half + (counter >> 32) * 512;
    words[half] =
        static_cast<long double>(philox({counter & 0xFFFFFFFF, of_row & 0xFFFFFFFF, of_row >> 32, high}, key)[word]);
  }
  const long double w = (words[0] + (words[1] + 0.5L) * 0x1p-32L) * 0x1p-32L;
  return static_cast<double>(-std::log(-std::log1p(-w)));
}

}  // namespace

std::vector<int64_t> draw_ids(const Tokens& tokens, int64_t row, const Eigen::Ref<const VectorXd>& a,
                              const std::vector<int64_t>& order) {
  const StatsRequest& request = tokens.draws;
  std::vector<int64_t> kept = order;
  if (request.draw_top_k > 0 && request.draw_top_k < tokens.vocab()) {
    kept.resize(static_cast<size_t>(request.draw_top_k));
  }
  if (request.draw_top_p < 1) {
    const double best = a[kept[0]];
    double all = 0, sum = 0;
    for (const int64_t id : kept) all += std::exp(a[id] - best);
    size_t count = 0;
    while (count < kept.size() && sum < request.draw_top_p * all) sum += std::exp(a[kept[count++]] - best);
    kept.resize(count);
  }
  std::vector<int64_t> drawn;
  for (int64_t draw = 0; draw < request.draws; ++draw) {
    int64_t best = -1;
    double most = 0;
    for (const int64_t id : kept) {
      if (std::isinf(a[id])) continue;
      const double value = a[id] + gumbel(tokens, row, draw, id);
      if (best < 0 || value > most || (value == most && id < best)) best = id, most = value;
    }
    drawn.push_back(best);
  }
  return drawn;
}

}  // namespace logitless::oracle

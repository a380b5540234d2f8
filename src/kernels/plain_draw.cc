// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The noise of draws, which all kernels share, and the plain kernel.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>

#include "kernels/draw_kernels.h"
#include "kernels/plain_tile.h"

namespace logitless::kernels {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Returns more than the rounding errors of values near `value`, and of the exponential of a difference.
double slack_of(double value) { return 1e-9 + std::abs(value) * 0x1p-50; }

template <class T>
void draw(const DrawArgs<T>& args) {
  for (int64_t v = 0; v < args.cols; ++v) {
    for (int64_t draw = 0; draw < args.row.draws; ++draw) {
      args.row.offer(draw, args.first_column + v, static_cast<double>(args.capped[v]));
    }
  }
}

}  // namespace

std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, uint64_t key) {
  auto k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * counter[0], b = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ k0, static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ k1, static_cast<uint32_t>(a)};
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  return counter;
}

uint32_t DrawNoise::word(int64_t draw, int64_t id, bool second) const {
  const int64_t half = kBlock / 2, in_block = id % kBlock;
  const std::array<uint32_t, 3> high = counter_high(draw, id, second);
  const uint32_t low = counter_low(id) + static_cast<uint32_t>(in_block % half / 2);
  return philox({low, high[0], high[1], high[2]}, seed)[static_cast<size_t>(in_block / half * 2 + in_block % 2)];
}

double RowDraws::final_logit(double capped) const {
  constexpr double kMost = std::numeric_limits<double>::max();
  if (std::isinf(capped)) return capped;
  return std::clamp(capped / temperature, -kMost, kMost);
}

double RowDraws::noised(int64_t draw, int64_t id, double capped, uint32_t first) const {
  const uint64_t number = uint64_t{first} << 32 | noise.word(draw, id, true);
  const double w = (static_cast<double>(number) + 0.5) * 0x1p-64;
  // log1p resolves small E, and 1 - w is taken from the bits for large E.
  const double e = w < 0.5 ? -std::log1p(-w) : -std::log((static_cast<double>(~number) + 0.5) * 0x1p-64);
  return final_logit(capped) - std::log(e);
}

bool RowDraws::offer(int64_t draw, int64_t id, double capped, uint32_t first) const {
  if (!(capped > -kInfinity)) return false;
  // The noise is at most −log(first / 2^32), so at most log(2) for each leading zero and one more.
  const double value = best[draw].value, most = (std::countl_zero(first) + 1) * 0.693147180559946;
  if (first > 0 && final_logit(capped) + most < value - slack_of(value)) return false;
  const DrawEntry entry = {noised(draw, id, capped, first), capped, id};
  if (!comes_before(entry, best[draw])) return false;
  best[draw] = entry;
  return true;
}

void RowDraws::offer(int64_t draw, int64_t id, double capped) const {
  const Limit limit = this->limit(draw, final_logit(capped));
  if (!limit.any) return;
  const uint32_t word = noise.word(draw, id, false);
  if (word <= limit.word) offer(draw, id, capped, word);
}

RowDraws::Limit RowDraws::limit(int64_t draw, double largest) const {
  const double value = best[draw].value;
  const double gap = value > -kInfinity     ? largest - value + slack_of(value)
                     : largest > -kInfinity ? kInfinity
                                            : -kInfinity;
  if (!(gap > -46)) return {};  // above all noise, or a NaN
  const double words = std::exp(gap) * 0x1p32;
  constexpr uint32_t kMost = std::numeric_limits<uint32_t>::max();
  return {true, words < kMost ? static_cast<uint32_t>(words) : kMost};
}

void set_plain_draws(RowKernels& kernels) {
  kernels.for_each_type([]<class Sum, class Logit, class Gradient>(TypedKernels<Sum, Logit, Gradient>& typed) {
    typed.draw = draw<Logit>;
  });
}

}  // namespace logitless::kernels

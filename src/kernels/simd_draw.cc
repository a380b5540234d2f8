// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Draws token ids. Nearly all columns are excluded by an integer comparison of their random numbers, so the
// vectors compute no logarithms. Compiled once per Highway target, for the tables of simd.cc.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd_draw.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep

#include "hwy/highway.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/draw_kernels.h"
#include "kernels/row_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace logitless::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Stores the first words of a block's ids in `words`, in the order of the ids, and returns whether one is at
// most `limit`.
#if HWY_TARGET == HWY_SCALAR
HWY_INLINE bool make_words(const DrawNoise& noise, int64_t draw, int64_t block, uint32_t limit, uint32_t* words) {
  for (int64_t i = 0; i < DrawNoise::kBlock; ++i) words[i] = noise.word(draw, block + i, false);
  return std::any_of(words, words + DrawNoise::kBlock, [limit](uint32_t word) { return word <= limit; });
}
#else
// Each lane of 64 bits computes one counter. Its words are in the lower halves, and the upper
// halves may hold anything: MulEven multiplies the lower halves.
HWY_INLINE bool make_words(const DrawNoise& noise, int64_t draw, int64_t block, uint32_t limit, uint32_t* words) {
  const hn::CappedTag<uint64_t, static_cast<size_t>(DrawNoise::kCounters)> d;
  const hn::Repartition<uint32_t, decltype(d)> d32;
  using V = hn::Vec<decltype(d)>;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto multiply = [d32](V a, V b) HWY_ATTR { return hn::MulEven(hn::BitCast(d32, a), hn::BitCast(d32, b)); };
  const V m0 = hn::Set(d, 0xD2511F53U), m1 = hn::Set(d, 0xCD9E8D57U), low = hn::Set(d, 0xFFFFFFFFU);
  const std::array<uint32_t, 3> high = noise.counter_high(draw, block, false);
  const auto most = hn::Set(d32, limit);
  auto least = hn::Set(d32, std::numeric_limits<uint32_t>::max());
  for (int64_t c = 0; c < DrawNoise::kCounters; c += lanes) {
    V x0 = hn::Iota(d, DrawNoise::counter_low(block) + static_cast<uint32_t>(c));
    V x1 = hn::Set(d, high[0]), x2 = hn::Set(d, high[1]), x3 = hn::Set(d, high[2]);
    auto k0 = static_cast<uint32_t>(noise.seed), k1 = static_cast<uint32_t>(noise.seed >> 32);
    for (int round = 0; round < 10; ++round) {
      const V a = multiply(m0, x0), b = multiply(m1, x2);
      x0 = hn::Xor(hn::Xor(hn::ShiftRight<32>(b), x1), hn::Set(d, k0));
      x2 = hn::Xor(hn::Xor(hn::ShiftRight<32>(a), x3), hn::Set(d, k1));
      x1 = b;
      x3 = a;
      k0 += 0x9E3779B9U;
      k1 += 0xBB67AE85U;
    }
    const auto first = hn::BitCast(d32, hn::Or(hn::And(x0, low), hn::ShiftLeft<32>(x1)));
    const auto second = hn::BitCast(d32, hn::Or(hn::And(x2, low), hn::ShiftLeft<32>(x3)));
    hn::StoreU(first, d32, words + 2 * c);
    hn::StoreU(second, d32, words + DrawNoise::kBlock / 2 + 2 * c);
    least = hn::Min(least, hn::Min(first, second));
  }
  return !hn::AllFalse(d32, hn::Eq(hn::Min(least, most), least));
}
#endif

template <class T>
HWY_INLINE T largest_of(const T* logits, int64_t count) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  T largest = -std::numeric_limits<T>::infinity();
  int64_t v = 0;
  if (count >= lanes) {
    auto all = hn::LoadU(d, logits);
    for (v = lanes; v + lanes <= count; v += lanes) all = hn::Max(all, hn::LoadU(d, logits + v));
    // MaxOfLanes of Highway 1.0.3's emulated target starts from the lowest finite number, above -inf.
    if (!hn::AllTrue(d, hn::Eq(all, hn::Set(d, largest)))) largest = hn::GetLane(hn::MaxOfLanes(d, all));
  }
  for (; v < count; ++v) largest = logits[v] > largest ? logits[v] : largest;
  return largest;
}

template <class T>
HWY_NOINLINE void draw(const DrawArgs<T>& args) {
  const RowDraws& row = args.row;
  HWY_ALIGN uint32_t words[DrawNoise::kBlock];
  for (int64_t v = 0, count = 0; v < args.cols; v += count) {
    const int64_t first = args.first_column + v, in_block = first % DrawNoise::kBlock;
    count = std::min(DrawNoise::kBlock - in_block, args.cols - v);
    const double largest = row.final_logit(static_cast<double>(largest_of(args.capped + v, count)));
    for (int64_t draw = 0; draw < row.draws; ++draw) {
      RowDraws::Limit limit = row.limit(draw, largest);
      if (!limit.any || !make_words(row.noise, draw, first - in_block, limit.word, words)) continue;
      for (int64_t i = 0; i < count; ++i) {
        const uint32_t word = words[in_block + i];
        if (word > limit.word) continue;
        if (!row.offer(draw, first + i, static_cast<double>(args.capped[v + i]), word)) continue;
        limit = row.limit(draw, largest);
        if (!limit.any) break;
      }
    }
  }
}

void set_draws(RowKernels& kernels) {
  kernels.for_each_type([]<class Sum, class Logit, class Gradient>(TypedKernels<Sum, Logit, Gradient>& typed) {
    typed.draw = draw<Logit>;
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace logitless::kernels
HWY_AFTER_NAMESPACE();

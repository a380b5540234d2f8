// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The contract of the row kernel that draws token ids, and the noise that decides which ids are drawn.
//
// An id is drawn from softmax(a) as the argmax over v of a_v − log E_v, where the E_v are independent and
// exponentially distributed: −log E_v is Gumbel noise. The argmax over a part of the vocabulary is a partial
// result, so no pass needs all logits of a row (FlashSampling, arXiv 2603.15854).
#pragma once

#include <array>
#include <cstdint>
#include <limits>

namespace logitless::kernels {

/// Returns the four words that Philox4x32-10 gives for a counter and a key (Salmon, Moraes, Dror and Shaw,
/// "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, uint64_t key);

/// The random numbers of the row of a call. The number of an id in a draw depends on the seed, the row, the
/// id and the draw only. It has 64 bits, in two words. The second word comes from another counter, because it
/// is rarely needed: only for ids that may be drawn.
struct DrawNoise {
  uint64_t seed = 0;
  int64_t row = 0;

  /// Four ids share a counter, within aligned blocks of kBlock ids. In a block, ids 2c and 2c + 1 have the
  /// words 0 and 1 of counter c, and ids 32 + 2c and 33 + 2c have its words 2 and 3.
  static constexpr int64_t kBlock = 64;
  static constexpr int64_t kCounters = kBlock / 4;

  /// Returns words 1 to 3 of the counters of the block of `id`, in a draw below 256. Word 0 is
  /// counter_low(id) plus the counter's number in the block.
  std::array<uint32_t, 3> counter_high(int64_t draw, int64_t id, bool second) const {
    const auto of_row = static_cast<uint64_t>(row);
    const auto high_bits = static_cast<uint32_t>(static_cast<uint64_t>(id / kBlock * kCounters) >> 32);
    return {static_cast<uint32_t>(of_row), static_cast<uint32_t>(of_row >> 32),
            static_cast<uint32_t>(draw) | (second ? 0x100U : 0U) | (high_bits << 9)};
  }
  static uint32_t counter_low(int64_t id) { return static_cast<uint32_t>(id / kBlock * kCounters); }

  /// Returns the first or second word of the number of an id in a draw.
  uint32_t word(int64_t draw, int64_t id, bool second) const;
};

/// The best id of a draw among those that were offered.
struct DrawEntry {
  double value = -std::numeric_limits<double>::infinity();  // its final logit plus its noise
  double logit = -std::numeric_limits<double>::infinity();  // its capped logit
  int64_t id = std::numeric_limits<int64_t>::max();         // default: no id was offered
};

inline bool is_taken(const DrawEntry& entry) { return entry.id != std::numeric_limits<int64_t>::max(); }

/// Returns whether `a` replaces `b`: a strict total order, so the order of offers does not matter. Values tie
/// only if rounding absorbs the noise, or by a chance of about 2^-53. Then the larger logit comes first; ties
/// go to the lower id.
inline bool comes_before(const DrawEntry& a, const DrawEntry& b) {
  if (a.value != b.value) return a.value > b.value;
  if (a.logit != b.logit) return a.logit > b.logit;
  return a.id < b.id;
}

/// The draws of one row.
struct RowDraws {
  DrawNoise noise;
  double temperature = 1;  // divides capped logits
  int64_t draws = 0;
  DrawEntry* best = nullptr;  // [draws]: on entry the best of all ids offered before, in any order

  /// Returns capped / temperature, correctly rounded. It is finite for a finite logit.
  double final_logit(double capped) const;
  /// Returns a − log E for the capped logit of an id. E = −log(1 − w) with w = (n + 1/2) / 2^64 and the id's
  /// number n, computed so that E has a relative error of a few 2^-53 for every w: E is within [2^-65, 45.1],
  /// and never 0 or infinite. The sum has an absolute error of at most 2^-52 (|a| + 64). `first` is the first
  /// word of the number.
  double noised(int64_t draw, int64_t id, double capped, uint32_t first) const;
  /// Offers an id to a draw, with the first word of its number, and returns whether it is the best now. A
  /// logit that is −inf or NaN is never drawn.
  bool offer(int64_t draw, int64_t id, double capped, uint32_t first) const;
  /// The same, and computes that word if the id may be drawn.
  void offer(int64_t draw, int64_t id, double capped) const;

  /// The ids whose first words are at most `word` may replace the best id of a draw; all others cannot.
  struct Limit {
    bool any = false;
    uint32_t word = 0;
  };
  /// Returns the limit for ids whose final logits are at most `largest`. The noise of an id whose first word
  /// is x is at most −log(x / 2^32).
  Limit limit(int64_t draw, double largest) const;
};

/// Offers the columns of a row to all of its draws.
///   capped  [cols]; read only, nothing outside it is read.
/// cols = 0 has no effect. The result does not depend on the kernels or on how the columns are divided among
/// calls. A row with a NaN may get any result.
template <class T>
struct DrawArgs {
  const T* capped = nullptr;
  int64_t cols = 0;
  int64_t first_column = 0;  // vocabulary entry of column 0: ids are first_column + column
  RowDraws row;
};

}  // namespace logitless::kernels

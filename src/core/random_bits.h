// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace logitless::core {

/// Returns 64 pseudo-random bits that depend only on the key (SplitMix64: Steele, Lea and Flood 2014), so
/// choices based on them are independent of the order of work.
inline uint64_t random_bits(uint64_t key) {
  uint64_t z = key + 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

/// A systematic sample (Madow 1949) from a single random number: the items' probabilities are summed, and an
/// item is taken when the sum reaches a whole number. The same probabilities always give the same number of
/// items, or one more.
class SystematicSample {
 public:
  /// `bits` come from random_bits().
  explicit SystematicSample(uint64_t bits) : sum_(static_cast<double>(bits >> 11) * 0x1p-53) {}

  /// Returns whether the next item is taken; `chance`, in [0, 1], is its probability.
  bool takes(double chance) {
    sum_ += chance;
    if (sum_ < 1) return false;
    sum_ -= 1;
    return true;
  }

 private:
  double sum_;
};

}  // namespace logitless::core

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Systematic samples of segments and rows.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>

#include "core/random_bits.h"
#include "core/store.h"

namespace logitless::stream {

/// Returns the factor for the gradients of a pair of this mass if it is drawn: 1 / its probability, 1 if it
/// is always kept, 0 if it is never drawn. The probability is derived from the rounded weight, so rounding
/// causes no bias.
inline float weight_of(float mass, double theta) {
  if (!(static_cast<double>(mass) < theta)) return 1;  // also if it is NaN
  const auto weight = static_cast<float>(theta / static_cast<double>(mass));
  return weight < 1e30F ? weight : 0;
}

/// A pair is a row and a segment. Draws from the `count` pairs of one row or one segment systematically:
/// calls take(i, weight) for each drawn pair i. Its mass is mass_of(i); `bits` are random.
template <class MassOf, class Take>
void draw(int64_t count, double theta, uint64_t bits, const MassOf& mass_of, const Take& take) {
  core::SystematicSample sample(bits);
  for (int64_t i = 0; i < count; ++i) {
    const float weight = weight_of(mass_of(i), theta);
    if (weight == 0) continue;
    if (weight == 1 || sample.takes(1 / static_cast<double>(weight))) take(i, weight);
  }
}

/// Returns the random bits for a row or a segment in one of several drawings.
inline uint64_t drawing_bits(uint64_t seed, uint64_t drawing, int64_t first_entry, int64_t index) {
  uint64_t bits = core::random_bits(seed);
  bits = core::random_bits(bits ^ drawing);
  bits = core::random_bits(bits ^ static_cast<uint64_t>(first_entry));
  return core::random_bits(bits ^ static_cast<uint64_t>(index));
}

/// Draws a systematic sample of `wanted` elements of `sizes`: calls take(i, q) for each, with its probability
/// q.
template <class Take>
void draw_by_size(const core::Array<double>& sizes, int64_t wanted, uint64_t bits, const Take& take) {
  const double all = std::accumulate(sizes.begin(), sizes.end(), 0.0);
  if (!(all > 0)) return;
  const double each = static_cast<double>(wanted) / all;
  core::SystematicSample sample(bits);
  for (size_t i = 0; i < sizes.size(); ++i) {
    const double q = std::min(1.0, each * sizes[i]);
    if (!sample.takes(q)) continue;
    take(static_cast<int32_t>(i), q);
    if (--wanted == 0) return;  // rounding could take one more
  }
}

}  // namespace logitless::stream

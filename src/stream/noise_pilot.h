// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Finds the largest θ for a requested noise. Two small samples, one of rows and one of segments, estimate the
// size of the exact gradients and the variance of d_hidden and d_weight under any θ. With the mass m of a
// pair (row i, segment s), its gradients of logits G, the head's rows W and the states x,
//
//     variance of d_hidden:  Σ_is (1 / q − 1) |G W|²          variance of d_weight:  Σ_is (1 / q − 1) |G|² |x|²
//
// with q = min(1, m / θ) (Horvitz and Thompson 1952). A systematic sample of a row always has the same total
// mass, so the direction common to all its segments does not vary. The remaining variance of a row's d_hidden
// is, with y = G W,
//
//     Σ_s (1 / q − 1) |y_s|² − |Σ_s (1 − q_s) y_s|² / Σ_s q_s (1 − q_s)
//
// (Hájek 1964). The segments of d_weight have no common direction.
#pragma once

#include <cstdint>
#include <span>

#include "core/matrices.h"
#include "core/random_bits.h"
#include "fold/segment_masses.h"
#include "stream/segment_wave.h"

namespace logitless::stream {

/// The input of a pilot: the rows that have a gradient, and the mass of each pair (row, segment).
struct Weighed {
  const fold::SegmentMasses& masses;  // NaN: the pair is always taken
  std::span<const int64_t> rows;
  std::span<const int32_t> places;
  double unit = 1;  // of the masses
  uint64_t seed = 0;
  int64_t first_entry = 0;
};

/// The result of a pilot.
struct NoiseFound {
  double theta = 0;  // 0: everything must be kept
  double noise = 0;  // the expected error
};

template <class Types>
NoiseFound find_theta(const Pass<Types>& pass, const Weighed& weighed, double noise, SegmentWave<Types>& wave,
                      SegmentBuffers<Types>& buffers);

/// Returns the factor for the gradients of a pair of this mass if it is drawn: 1 / its probability, 1 if it
/// is always kept, 0 if it is never drawn. The probability is derived from the rounded weight, so rounding
/// causes no bias.
inline float weight_of(float mass, double theta) {
  if (!(static_cast<double>(mass) < theta)) return 1;  // also if it is NaN
  const auto weight = static_cast<float>(theta / static_cast<double>(mass));
  return weight < 1e30F ? weight : 0;
}

/// Draws the segments of a row systematically: calls take(segment, weight) for each drawn segment. `bits` is
/// the random number.
template <class Take>
void draw_row(const float* masses, int64_t segments, double theta, uint64_t bits, const Take& take) {
  core::SystematicSample sample(bits);
  for (int64_t s = 0; s < segments; ++s) {
    const float weight = weight_of(masses[s], theta);
    if (weight == 0) continue;
    if (weight == 1 || sample.takes(1 / static_cast<double>(weight))) take(s, weight);
  }
}

/// Returns the random bits for a row or a segment in one of several drawings.
inline uint64_t drawing_bits(uint64_t seed, uint64_t drawing, int64_t first_entry, int64_t index) {
  uint64_t bits = core::random_bits(seed);
  bits = core::random_bits(bits ^ drawing);
  bits = core::random_bits(bits ^ static_cast<uint64_t>(first_entry));
  return core::random_bits(bits ^ static_cast<uint64_t>(index));
}

}  // namespace logitless::stream

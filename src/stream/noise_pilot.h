// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// How large θ may be for a noise that is asked for. Two small samples, of some rows and of some segments,
// tell how large the exact gradients are and how large the variance of d_hidden and d_weight is under any θ.
// With the mass m of a pair (row i, segment s), its gradients of logits G, the head's rows W and the states
// x,
//
//     variance of d_hidden:  Σ_is (1 / q − 1) |G W|²          variance of d_weight:  Σ_is (1 / q − 1) |G|² |x|²
//
// with q = min(1, m / θ) (Horvitz and Thompson 1952). A systematic sample of a row has always the same mass,
// so that the direction which all its segments share does not vary. Of a row's variance of d_hidden stays,
// with y = G W,
//
//     Σ_s (1 / q − 1) |y_s|² − |Σ_s (1 − q_s) y_s|² / Σ_s q_s (1 − q_s)
//
// (Hájek 1964). The segments of d_weight share no direction.
#pragma once

#include <cstdint>
#include <span>

#include "core/matrices.h"
#include "core/random_bits.h"
#include "fold/segment_masses.h"
#include "planning/buffers.h"
#include "stream/segment_wave.h"

namespace logitless::stream {

/// What a pilot reads: rows that have a gradient, and what each pair of one and a segment weighs.
struct Weighed {
  const fold::SegmentMasses& masses;  // NaN: the pair is always taken
  std::span<const int64_t> rows;
  std::span<const int32_t> places;
  double unit = 1;  // of the masses
  uint64_t seed = 0;
  int64_t first_entry = 0;
};

/// What was found.
struct NoiseFound {
  double theta = 0;  // 0: everything is to be taken
  double noise = 0;  // the expected error
};

template <class Types>
NoiseFound find_theta(const Pass<Types>& pass, const GradientMatrices& outputs, const Weighed& weighed, double noise,
                      SegmentWave<Types>& wave, planning::SegmentBuffers<Types>& buffers);

/// Returns what the gradients of a pair of this mass are multiplied with where it is drawn, which it is with
/// the probability of one over that: 1 where it is always taken, and 0 where it never is. The probability is
/// that of the rounded weight, so that its rounding is no bias.
inline float weight_of(float mass, double theta) {
  if (!(static_cast<double>(mass) < theta)) return 1;  // also where it is NaN
  const auto weight = static_cast<float>(theta / static_cast<double>(mass));
  return weight < 1e30F ? weight : 0;
}

/// Draws the segments of a row systematically: calls take(segment, weight) for those that are taken. `bits`
/// decide.
template <class Take>
void draw_row(const float* masses, int64_t segments, double theta, uint64_t bits, const Take& take) {
  core::SystematicSample sample(bits);
  for (int64_t s = 0; s < segments; ++s) {
    const float weight = weight_of(masses[s], theta);
    if (weight == 0) continue;
    if (weight == 1 || sample.takes(1 / static_cast<double>(weight))) take(s, weight);
  }
}

/// Returns the bits that decide about a row, or a segment, in one of several drawings.
inline uint64_t drawing_bits(uint64_t seed, uint64_t drawing, int64_t first_entry, int64_t index) {
  uint64_t bits = core::random_bits(seed);
  bits = core::random_bits(bits ^ drawing);
  bits = core::random_bits(bits ^ static_cast<uint64_t>(first_entry));
  return core::random_bits(bits ^ static_cast<uint64_t>(index));
}

}  // namespace logitless::stream

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The masses of vocabulary segments, from which sampled and certified gradients choose the segments to keep.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/arena.h"
#include "core/integers.h"
#include "kernels/row_kernels.h"
#include "problem/token_problem.h"
#include "stats/tile_kernels.h"

namespace logitless::fold {

/// The mass of each row of a chunk in each segment of kernels::kSegment vocabulary entries. Tiles start at
/// multiples of a segment.
class SegmentMasses {
 public:
  void take(core::Arena& arena, int64_t rows, int64_t entries, int64_t vocab_tile) {
    segments_ = core::div_up(entries, kernels::kSegment);
    tiles_ = core::div_up(entries, vocab_tile);
    vocab_tile_ = vocab_tile;
    masses_ = arena.take<float>(rows * segments_);
    largest_ = arena.take<double>(rows * tiles_);
  }

  int64_t segments() const { return segments_; }
  /// Returns where a fold writes the masses of a tile, for the rows from `place` on.
  stats::MassRows of(int64_t place, int64_t first_entry) const {
    return {masses_ + place * segments_ + first_entry / kernels::kSegment, segments_,
            largest_ + place * tiles_ + first_entry / vocab_tile_, tiles_};
  }
  /// Returns the masses of a row, [segments].
  float* row(int64_t place) const { return masses_ + place * segments_; }
  /// Converts a row's sums of exponentials, which are relative to the largest logit of each tile, into
  /// probabilities. `max` is the row's largest logit, `log_sum` the logarithm of its sum of exponentials.
  void normalise(int64_t place, double max, double log_sum, double inverse_temperature) const {
    float* const masses = row(place);
    const int64_t per_tile = vocab_tile_ / kernels::kSegment;
    for (int64_t tile = 0; tile < tiles_; ++tile) {
      const double largest = largest_[place * tiles_ + tile];
      const double exponent = (largest - max) * inverse_temperature - log_sum;
      const auto scale = static_cast<float>(std::isinf(largest) && largest < 0 ? 0 : std::exp(exponent));
      const int64_t end = tile + 1 == tiles_ ? segments_ : (tile + 1) * per_tile;
      for (int64_t s = tile * per_tile; s < end; ++s) masses[s] *= scale;
    }
  }

 private:
  float* masses_ = nullptr;    // [rows, segments]
  double* largest_ = nullptr;  // [rows, tiles]
  int64_t segments_ = 0;
  int64_t tiles_ = 0;
  int64_t vocab_tile_ = 0;
};

/// The masses of a call. The first walk computes the sums of exponentials of the softmax; with a teacher, the
/// second walk computes the weights of the pairs (kernels::PairMass).
class CallMasses {
 public:
  void take(core::Arena& arena, const problem::TokenProblem& problem, int64_t rows, int64_t entries,
            int64_t vocab_tile) {
    softmax.take(arena, rows, entries, vocab_tile);
    has_pairs_ = problem.divergence.has_value();
    if (has_pairs_) pairs_.take(arena, rows, entries, vocab_tile);
  }

  /// Returns the masses of the student-teacher pairs, or null without a teacher.
  const SegmentMasses* pairs() const { return has_pairs_ ? &pairs_ : nullptr; }

  SegmentMasses softmax;

 private:
  SegmentMasses pairs_;
  bool has_pairs_ = false;
};

}  // namespace logitless::fold

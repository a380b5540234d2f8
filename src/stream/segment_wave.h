// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Gradients of chosen segments of the vocabulary, a wave of segments at a time: the rows that a segment is
// kept for are gathered, so the work remains matrix products.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "logitless/token_stats.h"
#include "sink/sink.h"
#include "stats/row_gradients.h"
#include "stream/pass.h"
#include "stream/segment_buffers.h"

namespace logitless::stream {

/// The pairs (row, segment) to process.
struct Choice {
  /// [places, columns] with a stride: the factor of a pair's gradients; 0: not kept.
  const float* weights = nullptr;
  int64_t stride = 0;
  int64_t items = 0;                       // number of rows
  int64_t columns = 0;                     // number of segments
  std::span<const int32_t> places = {};    // rows of `weights`, per item; empty: item i has row i
  std::span<const int32_t> rows = {};      // rows of the wave, per item; empty: item i is row i
  std::span<const int32_t> segments = {};  // segments, per column; empty: column s is segment s

  static int64_t of(std::span<const int32_t> list, int64_t i) {
    return list.empty() ? i : list[static_cast<size_t>(i)];
  }
};

/// One wave: some columns of a choice, and the rows that each is kept for, in order.
template <class Types>
class SegmentWave {
 public:
  using Sum = typename Types::Sum;
  using Logit = typename Types::Logit;
  using Gradient = typename Types::Gradient;
  using Buffers = SegmentBuffers<Types>;

  struct Column {
    int64_t segment = 0;
    int64_t begin = 0;  // first of its rows, among those of the wave
    int64_t count = 0;
  };

  /// `rows` are the call's rows that have a gradient; buffers.gradients has one entry for each.
  SegmentWave(const Pass<Types>& pass, Buffers& buffers, std::span<const int64_t> rows,
              const stats::GradientSummands& summands);

  /// Takes the columns of `choice` from `column` on that fit, and returns the next column. The choice must
  /// outlive the wave's use of it.
  int64_t fill(const Choice& choice, int64_t column);
  std::span<const Column> columns() const { return std::span(columns_).first(static_cast<size_t>(count_)); }

  /// Computes the gradients of the wave's logits, and calls use(part, column, offset, thread) for each part
  /// of a column; the parts of a column come in order, on one thread. A column without rows has one part
  /// without rows. With `squares`, also fills buffers.tile_squares and state_squares.
  template <class Use>
  void make(bool squares, const Use& use);
  /// Adds the wave's gradients times the head of a product to sums(item), and calls each_row(at, split,
  /// component, values, count) with the values that row `at` of the wave adds to `count` components. The
  /// calls of one split of a row come in order, on one thread.
  template <class Sums, class EachRow>
  void add_states(const source::Head& head, const Sums& sums, const EachRow& each_row);

 private:
  sink::GradientPart make_part(const Column& column, int64_t begin, int64_t count);
  int64_t first_entry(const Column& column) const { return column.segment * kernels::kSegment; }
  int64_t entries(const Column& column) const {
    return std::min(kernels::kSegment, pass_.run.grid.vocab_size - first_entry(column));
  }
  // Returns the gradients from row `begin` of the wave on.
  stats::GradientRows<Gradient> gradients(int64_t begin) const {
    Gradient* const data = buffers_.tiles + begin * kernels::kSegment;
    const bool split = pass_.run.gradient_terms == 2;
    return {data, kernels::kSegment, split ? data + buffers_.wave_rows * kernels::kSegment : nullptr};
  }
  void find_squares(int64_t begin, const sink::GradientPart& part);

  const Pass<Types>& pass_;
  Buffers& buffers_;
  const std::span<const int64_t> rows_;
  const stats::GradientSummands summands_;
  Choice choice_;
  std::array<Column, kWaveSegments> columns_;
  int64_t count_ = 0;
  core::Array<int32_t> identity_;
};

}  // namespace logitless::stream

#include "stream/segment_wave-inl.h"

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Gradients of chosen segments of the vocabulary, a panel of segments at a time: the rows that a segment is
// kept for are gathered, so the work remains matrix products.
#pragma once

#include <omp.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <span>

#include "core/parallel.h"
#include "core/sum_of_squares.h"
#include "logitless/token_stats.h"
#include "sink/sink.h"
#include "stats/divergence.h"
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
  std::span<const int32_t> rows = {};      // rows of the panel, per item; empty: item i is row i
  std::span<const int32_t> segments = {};  // segments, per column; empty: column s is segment s

  static int64_t of(std::span<const int32_t> list, int64_t i) {
    return list.empty() ? i : list[static_cast<size_t>(i)];
  }
};

/// Returns the terms of the gradients in these rows.
template <class Gradient>
std::array<gemm::Operand, 2> terms_of(const stats::GradientRows<Gradient>& rows) {
  const auto term = [&](const Gradient* data) {
    return gemm::Operand{data, DTypeOf<Gradient>::value, rows.stride, false};
  };
  return {term(rows.data), term(rows.low)};
}

/// One panel: some columns of a choice, and the rows that each is kept for, in order.
template <class Types>
class SegmentPanel {
 public:
  using Sum = typename Types::Sum;
  using Logit = typename Types::Logit;
  using Gradient = typename Types::Gradient;
  using Buffers = SegmentBuffers<Types>;

  struct Column {
    int64_t segment = 0;
    int64_t begin = 0;  // index of its first row among the panel's rows
    int64_t count = 0;
  };

  /// `rows` are the call's rows that have a gradient; buffers.gradients has one entry for each.
  SegmentPanel(const Pass<Types>& pass, Buffers& buffers, std::span<const int64_t> rows,
               const stats::GradientSummands& summands)
      : pass_(pass), buffers_(buffers), rows_(rows), summands_(summands), identity_(kPartRows) {
    std::iota(identity_.begin(), identity_.end(), 0);
  }

  /// Fills the panel with the columns of `choice` that fit, from `column` on, and returns the first column
  /// left out. The choice must outlive the panel's use of it.
  int64_t fill(const Choice& choice, int64_t column) {
    choice_ = choice;
    const int64_t most = std::min(kPanelSegments, choice.columns - column);
    // Reads a row's weights one cache line at a time.
    constexpr int64_t kAtOnce = 16;
    std::array<int64_t, kPanelSegments> counts = {};
    const auto each_line = [&](const auto& use) {
      core::parallel_for(pass_.run.plan.threads, core::div_up(most, kAtOnce), [&](int64_t line) {
        const int64_t begin = line * kAtOnce, end = std::min(most, begin + kAtOnce);
        for (int64_t i = 0; i < choice.items; ++i) {
          const float* const weights = choice.weights + Choice::of(choice.places, i) * choice.stride;
          use(static_cast<int32_t>(i), weights + column, begin, end);
        }
      });
    };
    each_line([&](int32_t, const float* weights, int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c) counts[static_cast<size_t>(c)] += weights[c] != 0;
    });
    count_ = 0;
    int64_t total = 0;
    std::array<int64_t, kPanelSegments> at = {};
    for (int64_t c = 0; c < most; ++c) {
      const int64_t count = counts[static_cast<size_t>(c)];
      if (total + count > buffers_.panel_rows) break;
      columns_[static_cast<size_t>(c)] = {Choice::of(choice.segments, column + c), total, count};
      at[static_cast<size_t>(c)] = total;
      total += count;
      ++count_;
    }
    each_line([&](int32_t i, const float* weights, int64_t begin, int64_t end) {
      for (int64_t c = begin; c < std::min(end, count_); ++c) {
        if (weights[c] == 0) continue;
        const int64_t to = at[static_cast<size_t>(c)]++;
        buffers_.items[to] = i;
        buffers_.weights[to] = weights[c];
      }
    });
    return column + count_;
  }
  std::span<const Column> columns() const { return std::span(columns_).first(static_cast<size_t>(count_)); }

  /// Computes the gradients of the panel's logits, and calls use(part, column, offset, thread) for each part
  /// of a column; the parts of a column come in order, on one thread. A column without rows has one part
  /// without rows. With `squares`, also fills buffers.tile_squares and state_squares.
  template <class Use>
  void make(bool squares, const Use& use) {
    const auto alone = pass_.run.gemm->single_threaded_region();
    core::parallel_for(pass_.run.plan.threads, count_, [&](int64_t c) {
      const Column& column = columns_[static_cast<size_t>(c)];
      int64_t done = 0;
      do {
        const int64_t count = std::min(kPartRows, column.count - done);
        const sink::GradientPart part = make_part(column, column.begin + done, count);
        if (squares) find_squares(column.begin + done, part);
        use(part, c, done, omp_get_thread_num());
        done += count;
      } while (done < column.count);
    });
  }

  /// Adds the panel's gradients times the head of a product to sums(item), and calls each_row(at, split,
  /// component, values, count) with the values that row `at` of the panel adds to `count` components. The
  /// calls of one split of a row come in order, on one thread.
  template <class Sums, class EachRow>
  void add_states(const source::Head& head, const Sums& sums, const EachRow& each_row) {
    const auto alone = pass_.run.gemm->single_threaded_region();
    const int64_t cols = head.components(), splits = core::div_up(cols, kHiddenColumns);
    core::parallel_for(pass_.run.plan.threads, core::div_up(choice_.items, kHiddenRows) * splits, [&](int64_t task) {
      auto& mine = buffers_.threads[static_cast<size_t>(omp_get_thread_num())];
      const int64_t split = task % splits, component = split * kHiddenColumns;
      const auto first = static_cast<int32_t>(task / splits * kHiddenRows);
      const auto last = static_cast<int32_t>(std::min<int64_t>(first + kHiddenRows, choice_.items));
      const source::Multiplier multiply = pass_.multiplier(mine.products);
      for (const Column& column : columns()) {
        const int32_t* const begin = buffers_.items + column.begin;
        const int32_t* const from = std::lower_bound(begin, begin + column.count, first);
        const int32_t* const to = std::lower_bound(from, begin + column.count, last);
        if (from == to) continue;
        const int64_t at = from - buffers_.items;
        gemm::Product<Sum> product;
        product.m = to - from;
        product.n = std::min(kHiddenColumns, cols - component);
        product.k = entries(column);
        product.b = head.operand(source::Head::Order::kEntriesFirst, first_entry(column), product.k, component,
                                 product.n, multiply);
        product.c = mine.sums;
        product.ldc = product.n;
        const stats::GradientRows<Gradient> of_rows = gradients(at);
        const std::array<gemm::Operand, 2> terms = terms_of(of_rows);
        for (size_t t = 0; t < (of_rows.low ? 2 : 1); ++t) {
          product.a = terms[t];
          product.accumulate = t > 0;
          multiply(product);
        }
        for (int64_t r = 0; r < product.m; ++r) {
          const Sum* const row = mine.sums + r * product.n;
          Sum* const out = sums(from[r]) + component;
          for (int64_t c = 0; c < product.n; ++c) out[c] += row[c];
          each_row(at + r, split, component, row, product.n);
        }
      }
    });
  }

 private:
  int64_t first_entry(const Column& column) const { return column.segment * kernels::kSegment; }
  int64_t entries(const Column& column) const {
    return std::min(kernels::kSegment, pass_.run.grid.vocab_size - first_entry(column));
  }
  // Returns the gradients from row `begin` of the panel on.
  stats::GradientRows<Gradient> gradients(int64_t begin) const {
    Gradient* const data = buffers_.tiles + begin * kernels::kSegment;
    const bool split = pass_.run.gradient_terms == 2;
    return {data, kernels::kSegment, split ? data + buffers_.panel_rows * kernels::kSegment : nullptr};
  }

  sink::GradientPart make_part(const Column& column, int64_t begin, int64_t count) {
    auto& mine = buffers_.threads[static_cast<size_t>(omp_get_thread_num())];
    const stats::GradientRows<Gradient> out = gradients(begin);
    sink::GradientPart part;
    part.terms = terms_of(out);
    part.term_count = out.low ? 2 : 1;
    part.rows = std::span<const int64_t>(mine.rows, static_cast<size_t>(count));
    part.contiguous = false;
    part.gathered = mine.gathered;
    part.first_entry = first_entry(column);
    part.entries = entries(column);
    if (count == 0) return part;
    for (int64_t r = 0; r < count; ++r) {
      const int64_t row = Choice::of(choice_.rows, buffers_.items[begin + r]);
      const auto weight = static_cast<Logit>(buffers_.weights[begin + r]);
      mine.rows[r] = rows_[static_cast<size_t>(row)];
      kernels::RowGradient<Logit>& gradient = mine.gradients[r] = buffers_.gradients[row];
      gradient.softmax_scale *= weight;
      gradient.cross_scale *= weight;
      if (mine.divergences) (mine.divergences[r] = buffers_.divergences[row]).scale(weight);
    }
    pass_.source.gather(part.rows, 1, mine.gathered);
    pass_.source.make_logits(part.rows, mine.gathered, part.first_entry, part.entries, mine.logits,
                             pass_.multiplier(mine.products));
    stats::LogitsTile<Logit> tile;
    tile.data = mine.logits;
    tile.rows = count;
    tile.head_entry = part.first_entry;
    tile.first_entry = pass_.problem.first_entry + part.first_entry;
    tile.entries = tile.stride = part.entries;
    if (mine.divergences) tile.teacher_data = mine.logits + count * tile.stride;
    pass_.tiles->gradient(tile, std::span(identity_).first(part.rows.size()), summands_, mine.gradients,
                          mine.divergences, mine.row, out);
    return part;
  }

  // Computes the squares of a part that begins at row `begin` of the panel. The low terms are too small to
  // matter.
  void find_squares(int64_t begin, const sink::GradientPart& part) {
    auto& mine = buffers_.threads[static_cast<size_t>(omp_get_thread_num())];
    const source::Product& product = pass_.source.products().front();
    const gemm::Operand states = product.states.operand(part.rows, product.rows_in(part.gathered));
    const stats::GradientRows<Gradient> of_rows = gradients(begin);
    const int64_t h = pass_.problem.hidden_size;
    for (int64_t r = 0; r < static_cast<int64_t>(part.rows.size()); ++r) {
      const void* of_row = core::element(states.data, states.dtype, r * states.stride);
      buffers_.tile_squares[begin + r] = core::sum_of_squares(of_rows.data + r * of_rows.stride, part.entries);
      buffers_.state_squares[begin + r] =
          core::sum_of_squares(pass_.context.kernels->values(of_row, states.dtype, h, mine.states), h);
    }
  }

  const Pass<Types>& pass_;
  Buffers& buffers_;
  const std::span<const int64_t> rows_;
  const stats::GradientSummands summands_;
  Choice choice_;
  std::array<Column, kPanelSegments> columns_;
  int64_t count_ = 0;
  core::Array<int32_t> identity_;
};

}  // namespace logitless::stream

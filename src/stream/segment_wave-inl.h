// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <omp.h>

#include <algorithm>
#include <bit>
#include <numeric>

#include "core/parallel.h"
#include "stream/segment_wave.h"

namespace logitless::stream {

inline double number_of(double x) { return x; }
inline double number_of(bfloat16 x) { return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16); }

template <class Types>
SegmentWave<Types>::SegmentWave(const Pass<Types>& pass, Buffers& buffers, std::span<const int64_t> rows,
                                const stats::GradientSummands& summands)
    : pass_(pass), buffers_(buffers), rows_(rows), summands_(summands), identity_(plan::kPartRows) {
  std::iota(identity_.begin(), identity_.end(), 0);
}

template <class Types>
int64_t SegmentWave<Types>::fill(const Choice& choice, int64_t column) {
  choice_ = choice;
  const int64_t most = std::min(plan::kWaveSegments, choice.columns - column);
  // A row's weights are read a cache line at a time.
  constexpr int64_t kAtOnce = 16;
  std::array<int64_t, plan::kWaveSegments> counts = {};
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
  std::array<int64_t, plan::kWaveSegments> at = {};
  for (int64_t c = 0; c < most; ++c) {
    const int64_t count = counts[static_cast<size_t>(c)];
    if (total + count > buffers_.wave_rows) break;
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

template <class Types>
sink::GradientPart SegmentWave<Types>::make_part(const Column& column, int64_t begin, int64_t count, bool squares) {
  auto& mine = buffers_.threads[static_cast<size_t>(omp_get_thread_num())];
  const std::span<const int64_t> rows(mine.rows, static_cast<size_t>(count));
  const int64_t first = first_entry(column);
  const source::Product& product = pass_.source.products().front();
  Logit* const tile = buffers_.tiles + begin * kernels::kSegment;
  sink::GradientPart out;
  out.terms = terms(begin);
  out.term_count = term_count();
  out.rows = rows;
  out.contiguous = false;
  out.gathered = mine.gathered;
  out.first_entry = first;
  out.entries = entries(column);
  if (count == 0) return out;
  for (int64_t r = 0; r < count; ++r) {
    const int64_t row = Choice::of(choice_.rows, buffers_.items[begin + r]);
    const auto weight = static_cast<Logit>(buffers_.weights[begin + r]);
    mine.rows[r] = rows_[static_cast<size_t>(row)];
    kernels::RowGradient<Logit>& gradient = mine.gradients[r] = buffers_.gradients[row];
    gradient.softmax_scale *= weight;
    gradient.cross_scale *= weight;
  }
  pass_.source.gather(rows, 1, mine.gathered);
  const source::Multiplier multiply = pass_.multiplier(mine.products);
  gemm::Product<Logit> logits;
  logits.m = count;
  logits.n = out.entries;
  logits.k = product.states.cols();
  logits.a = product.states.operand(rows, product.rows_in(mine.gathered));
  logits.b = product.head.operand(source::Head::Order::kComponentsFirst, first, logits.n, 0, logits.k, multiply);
  logits.c = tile;
  logits.ldc = kernels::kSegment;
  multiply(logits);
  stats::LogitsTile<Logit> of;
  of.data = tile;
  of.rows = count;
  of.head_entry = first;
  of.first_entry = pass_.problem.first_entry + first;
  of.entries = out.entries;
  of.stride = kernels::kSegment;
  auto* const gradients = static_cast<Gradient*>(const_cast<void*>(out.terms[0].data));
  pass_.tiles.gradient(of, std::span(identity_).first(static_cast<size_t>(count)), summands_, mine.gradients, nullptr,
                       mine.row,
                       {gradients, out.terms[0].stride, out.term_count == 2 ? gradients + kernels::kSegment : nullptr});
  if (!squares) return out;
  for (int64_t r = 0; r < count; ++r) {
    double of_tile = 0, of_states = 0;
    for (int64_t v = 0; v < out.entries; ++v) {
      const double g = number_of(gradients[r * out.terms[0].stride + v]);
      of_tile += g * g;
    }
    const void* states = core::element(logits.a.data, logits.a.dtype, r * logits.a.stride);
    if (logits.a.dtype == DType::kFloat64) {
      for (int64_t h = 0; h < logits.k; ++h) {
        const double x = static_cast<const double*>(states)[h];
        of_states += x * x;
      }
    } else {
      const float* wide = static_cast<const float*>(states);
      if (logits.a.dtype != DType::kFloat32) {
        pass_.context.kernels->widen(states, logits.a.dtype, logits.k, mine.states);
        wide = mine.states;
      }
      for (int64_t h = 0; h < logits.k; ++h) of_states += static_cast<double>(wide[h]) * static_cast<double>(wide[h]);
    }
    buffers_.tile_squares[begin + r] = of_tile;
    buffers_.state_squares[begin + r] = of_states;
  }
  return out;
}

template <class Types>
template <class Use>
void SegmentWave<Types>::make(bool squares, const Use& use) {
  const auto alone = pass_.run.gemm->single_threaded_region();
  core::parallel_for(pass_.run.plan.threads, count_, [&](int64_t c) {
    const Column& column = columns_[static_cast<size_t>(c)];
    int64_t done = 0;
    do {
      const int64_t count = std::min(plan::kPartRows, column.count - done);
      use(make_part(column, column.begin + done, count, squares), c, done, omp_get_thread_num());
      done += count;
    } while (done < column.count);
  });
}

template <class Types>
template <class Sums, class EachRow>
void SegmentWave<Types>::add_hidden(const Sums& sums, const EachRow& each_row) {
  const auto alone = pass_.run.gemm->single_threaded_region();
  const int64_t h = pass_.problem.hidden_size, splits = core::div_up(h, plan::kHiddenColumns);
  const source::Head& head = pass_.source.products().front().head;
  core::parallel_for(
      pass_.run.plan.threads, core::div_up(choice_.items, plan::kHiddenRows) * splits, [&](int64_t task) {
        auto& mine = buffers_.threads[static_cast<size_t>(omp_get_thread_num())];
        const int64_t split = task % splits, component = split * plan::kHiddenColumns;
        const auto first = static_cast<int32_t>(task / splits * plan::kHiddenRows);
        const auto last = static_cast<int32_t>(std::min<int64_t>(first + plan::kHiddenRows, choice_.items));
        const source::Multiplier multiply = pass_.multiplier(mine.products);
        for (const Column& column : columns()) {
          const int32_t* const begin = buffers_.items + column.begin;
          const int32_t* const from = std::lower_bound(begin, begin + column.count, first);
          const int32_t* const to = std::lower_bound(from, begin + column.count, last);
          if (from == to) continue;
          const int64_t at = from - buffers_.items;
          gemm::Product<Sum> product;
          product.m = to - from;
          product.n = std::min(plan::kHiddenColumns, h - component);
          product.k = entries(column);
          product.b = head.operand(source::Head::Order::kEntriesFirst, first_entry(column), product.k, component,
                                   product.n, multiply);
          product.c = mine.sums;
          product.ldc = product.n;
          const auto of_rows = terms(at);
          for (int t = 0; t < term_count(); ++t) {
            product.a = of_rows[static_cast<size_t>(t)];
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

}  // namespace logitless::stream

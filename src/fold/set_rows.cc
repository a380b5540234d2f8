// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "fold/set_rows.h"

#include <limits>
#include <numeric>

#include "core/views.h"
#include "problem/id_sets.h"
#include "stats/row_gradients.h"

namespace logitless::fold {

template <class T>
typename SetRows<T>::Scratch SetRows<T>::take(core::Arena& arena, int64_t most_picks) const {
  Scratch out;
  if (bias_.data) out.bias = arena.take<T>(most_picks);
  out.capped = arena.take<T>(most_picks);
  out.picked = arena.take<double>(most_picks);
  out.columns = arena.take<int64_t>(most_picks);
  out.picks = arena.take<kernels::PickGradient<T>>(most_picks);
  return out;
}

template <class T>
kernels::TileShape<T> SetRows<T>::shape(int64_t row, const Scratch& scratch) const {
  kernels::TileShape<T> out;
  out.rows = 1;
  problem::for_each_distinct(problem_, row, [&](int64_t column, int64_t, int64_t, int64_t id) {
    out.cols = column + 1;
    if (bias_.data) scratch.bias[column] = static_cast<T>(core::read(bias_, id));
  });
  out.stride = out.cols;
  out.bias = bias_.data ? scratch.bias : nullptr;
  out.softcap = softcap_;
  out.round_to = problem_.options.round_logits_to;
  return out;
}

template <class T>
void SetRows<T>::statistics(int64_t row, const T* products, const Scratch& scratch, stats::Columns& columns) const {
  const T inverse_temperature = static_cast<T>(problem_.inverse_temperature(row));
  kernels::RowStats folded;
  kernels::FoldArgs<T> args;
  args.shape = shape(row, scratch);
  args.logits = products;
  args.inverse_temperature = &inverse_temperature;
  std::iota(scratch.columns, scratch.columns + args.shape.cols, int64_t{0});
  const int64_t offsets[] = {0, args.shape.cols};
  const int64_t first = 0;
  args.picks = {scratch.columns, offsets};
  args.call_rows = &first;
  args.picked = scratch.picked;
  args.scratch = scratch.capped;
  args.stats = &folded;
  kernels_.typed<T>().fold(args);

  const auto i = static_cast<size_t>(row);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double temperature = problem_.logit_temperature(row);
  TokenStats& stats = columns.stats;
  stats.max_logit[i] = folded.defined() ? folded.max : nan;
  stats.log_sum[i] = folded.defined() ? folded.log_sum() : nan;
  stats.lse[i] = stats.max_logit[i] / temperature + stats.log_sum[i];
  problem::for_each_distinct(problem_, row, [&](int64_t column, int64_t begin, int64_t end, int64_t) {
    const double log_p = (scratch.picked[column] - stats.max_logit[i]) / temperature - stats.log_sum[i];
    for (int64_t pick = begin; pick < end; ++pick) {
      stats.logp[static_cast<size_t>(pick)] = log_p / problem_.logp_temperature(row);
    }
  });
}

template <class T>
void SetRows<T>::gradient(int64_t row, const T* products, const TokenStats& stats, const TokenGrads& grads,
                          const Scratch& scratch, T* out) const {
  kernels::RowGradient<T> gradient = stats::row_gradient(problem_, stats, grads, row, scratch.picks);
  const int64_t first_pick = problem_.pick_begin(row);
  int64_t count = 0;
  problem::for_each_distinct(problem_, row, [&](int64_t column, int64_t begin, int64_t, int64_t) {
    scratch.picks[column] = {column, scratch.picks[begin - first_pick].gradient};
    out[column] = scratch.picks[column].gradient;
    count = column + 1;
  });
  if (!needs_products()) return;
  gradient.pick_count = static_cast<int32_t>(count);
  const int32_t place = 0;
  kernels::GradientArgs<T> args;
  args.shape = shape(row, scratch);
  args.logits = products;
  args.out = out;
  args.out_stride = count;
  args.count = 1;
  args.gradients = &gradient;
  args.places = &place;
  args.scratch = scratch.capped;
  kernels_.typed<T>().gradient(args);
}

template class SetRows<float>;
template class SetRows<double>;

}  // namespace logitless::fold

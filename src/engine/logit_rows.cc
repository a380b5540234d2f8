// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "engine/logit_rows.h"

#include <algorithm>

#include "core/views.h"
#include "engine/forward.h"

namespace logitless::engine {

template <class T>
const T* LogitRows<T>::values(const void* logits, DType dtype, int64_t first, int64_t cols,
                              const Scratch& scratch) const {
  const void* from = core::element(logits, dtype, first);
  if constexpr (sizeof(T) == 4) {
    if (core::is_half(dtype)) {
      kernels_.widen(from, dtype, cols, scratch.values);
      return scratch.values;
    }
  }
  return static_cast<const T*>(from);
}

template <class T>
void LogitRows<T>::statistics(int64_t row, const void* logits, DType dtype, const Scratch& scratch,
                              TokenStats& stats) const {
  const rows::RowStats folded = fold(row, logits, dtype, scratch);
  store_row_stats(problem_, row, folded, stats);
  if (!problem_.request.rank || !folded.defined()) return;
  stats.rank[static_cast<size_t>(row)] += count_above(static_cast<T>(folded.chosen), logits, dtype, scratch);
}

template <class T>
rows::RowStats LogitRows<T>::fold(int64_t row, const void* logits, DType dtype, const Scratch& scratch) const {
  rows::RowStats stats;
  const T inverse_temperature = static_cast<T>(1 / problem_.logit_temperature(row));
  const int64_t vocab = problem_.vocab_size;
  rows::FoldArgs<T> args;
  args.inverse_temperature = &inverse_temperature;
  args.entropy = problem_.request.entropy;
  args.argmax = problem_.request.argmax;
  args.prior = problem_.request.prior;
  args.uniform_prior = 1.0 / static_cast<double>(vocab);
  args.scratch = scratch.row;
  args.stats = &stats;
  for (int64_t first = 0; first < vocab; first += vocab_tile_) {
    const int64_t cols = std::min(vocab_tile_, vocab - first);
    const int32_t target = column(problem_.targets[static_cast<size_t>(row)], first, cols);
    args.shape = shape(first, cols);
    args.logits = values(logits, dtype, first, cols, scratch);
    args.target = &target;
    args.first_column = first;
    args.prior_weights = prior(first);
    kernels_.typed<T>().fold(args);
  }
  return stats;
}

template <class T>
int64_t LogitRows<T>::count_above(T chosen, const void* logits, DType dtype, const Scratch& scratch) const {
  int64_t count = 0;
  for (int64_t first = 0; first < problem_.vocab_size; first += vocab_tile_) {
    const int64_t cols = std::min(vocab_tile_, problem_.vocab_size - first);
    kernels_.typed<T>().count_above(
        {shape(first, cols), values(logits, dtype, first, cols, scratch), &chosen, scratch.row, &count});
  }
  return count;
}

template <class T>
void LogitRows<T>::gradient(const rows::RowGradient<T>& gradient, const void* logits, DType dtype, void* out,
                            DType out_dtype, const Scratch& scratch) const {
  const int64_t vocab = problem_.vocab_size;
  rows::RowGradient<T> here = gradient;
  here.source_row = 0;
  rows::GradientArgs<T> args;
  args.count = 1;
  args.gradients = &here;
  args.entropy = gradient.entropy_term != 0;
  args.prior = gradient.prior_term != 0;
  args.uniform_prior = 1.0 / static_cast<double>(vocab);
  args.scratch = scratch.row;
  for (int64_t first = 0; first < vocab; first += vocab_tile_) {
    const int64_t cols = std::min(vocab_tile_, vocab - first);
    void* to = core::element(out, out_dtype, first);
    here.target = column(gradient.target, first, cols);
    args.shape = shape(first, cols);
    args.logits = values(logits, dtype, first, cols, scratch);
    args.out = core::is_half(out_dtype) ? scratch.values : static_cast<T*>(to);
    args.prior_weights = prior(first);
    kernels_.typed<T>().gradient(args);
    if (core::is_half(out_dtype)) kernels_.round(scratch.values, cols, false, to, out_dtype);
  }
}

template class LogitRows<float>;
template class LogitRows<double>;

}  // namespace logitless::engine

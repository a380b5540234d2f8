// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "stats/row_walk.h"

#include <algorithm>

#include "core/views.h"

namespace logitless::stats {

template <class Types>
stats::LogitsTile<typename Types::Logit> RowWalk<Types>::tile(const void* logits, DType dtype, int64_t first,
                                                              const Scratch& scratch) const {
  const int64_t cols = std::min(vocab_tile_, vocab_size_ - first);
  const void* from = core::element(logits, dtype, first);
  if constexpr (sizeof(Logit) == 4) {
    if (core::is_narrow<Logit>(dtype)) {
      kernels_.widen(from, dtype, cols, scratch.values);
      from = scratch.values;
    }
  }
  return {static_cast<const Logit*>(from), 1, first, cols, cols};
}

template <class Types>
void RowWalk<Types>::statistics(const problem::TokenProblem& problem, int64_t row, const void* logits, DType dtype,
                                const Scratch& scratch, const stats::Finisher& finish) const {
  const std::span<const int64_t> rows(&row, 1);
  Logit inverse_temperature;
  int32_t target;
  const typename stats::TileKernels<Types>::FoldScratch fold = {scratch.row, &inverse_temperature, &target};
  tiles_.set_temperatures(rows, fold);
  kernels::RowStats folded;
  for (int64_t first = 0; first < vocab_size_; first += vocab_tile_) {
    tiles_.fold(tile(logits, dtype, first, scratch), rows, fold, &folded);
  }
  finish({&folded, 1, rows});
  if (!problem.request.rank || !folded.defined()) return;
  const auto chosen = static_cast<Logit>(folded.chosen);
  int64_t& rank = finish.ranks()[static_cast<size_t>(row)];
  for (int64_t first = 0; first < vocab_size_; first += vocab_tile_) {
    tiles_.count_above(tile(logits, dtype, first, scratch), &chosen, scratch.row, &rank);
  }
}

template <class Types>
void RowWalk<Types>::gradient(const kernels::RowGradient<Logit>& gradient, const void* logits, DType dtype, void* out,
                              DType out_dtype, const Scratch& scratch) const {
  const typename stats::TileKernels<Types>::GradientParts parts = {gradient.entropy_scale != 0,
                                                                   gradient.cross_scale != 0};
  constexpr int32_t kPlace = 0;
  for (int64_t first = 0; first < vocab_size_; first += vocab_tile_) {
    kernels::RowGradient<Logit> here = gradient;
    const auto from = tile(logits, dtype, first, scratch);
    void* to = core::element(out, out_dtype, first);
    Logit* wide = core::is_narrow<Logit>(out_dtype) ? scratch.values : static_cast<Logit*>(to);
    tiles_.gradient(from, {&kPlace, 1}, parts, &here, scratch.row, {wide, from.entries});
    if (core::is_narrow<Logit>(out_dtype)) kernels_.round(wide, from.entries, false, to, out_dtype);
  }
}

template class RowWalk<kernels::FloatTiles>;
template class RowWalk<kernels::DoubleTiles>;

}  // namespace logitless::stats

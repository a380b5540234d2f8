// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "fold/row_walk.h"

#include <omp.h>

#include <algorithm>

#include "core/views.h"
#include "stats/divergence.h"
#include "stats/row_gradients.h"

namespace logitless::fold {

template <class Types>
const typename RowWalk<Types>::Scratch& RowWalk<Types>::scratch() const {
  return scratch_[static_cast<size_t>(omp_get_thread_num())];
}

template <class Types>
stats::LogitsTile<typename Types::Logit> RowWalk<Types>::tile(int64_t row, int64_t first,
                                                              const Scratch& scratch) const {
  stats::LogitsTile<Logit> out;
  out.rows = 1;
  out.first_entry = out.head_entry = first;
  out.entries = out.stride = std::min(vocab_tile_, problem_.entries - first);
  const kernels::RowKernels& kernels = tiles_->row_kernels();
  out.data = logits_.values(kernels, row, first, out.entries, scratch.values);
  if (teacher_.any()) out.beside = teacher_.values(kernels, row, first, out.entries, scratch.beside);
  return out;
}

template <class Types>
void RowWalk<Types>::statistics(int64_t row, stats::Columns& columns) const {
  FoldPart<Logit> part;
  part.rows = {&row, 1};
  part.place = part.thread = omp_get_thread_num();
  part.scratch = scratch().row;
  part.columns = &columns;
  make_statistics(folds_.partials(), part.rows, part.place, columns, [&](Walk walk) {
    folds_.partials().begin(walk, part.place, 1);
    for (const Fold<Types>* fold : folds_.of(walk)) fold->begin(part);
    for (int64_t first = 0; first < problem_.entries; first += vocab_tile_) {
      const stats::LogitsTile<Logit> here = tile(row, first, scratch());
      for (const Fold<Types>* fold : folds_.of(walk)) fold->add(part, here);
    }
    for (const Partials* partials : folds_.partials().of(walk)) partials->combine(row, part.place);
  });
}

template <class Types>
void RowWalk<Types>::gradient(int64_t row, const TokenStats& stats, const TokenGrads& grads, void* out,
                              DType out_dtype) const {
  const Scratch& mine = scratch();
  const kernels::RowGradient<Logit> gradient = stats::row_gradient(problem_, stats, grads, row, mine.picks);
  const stats::GradientSummands summands = stats::gradient_summands(gradient);
  kernels::RowDivergence<Logit> divergence;
  if (problem_.divergence) divergence = stats::row_divergence<Logit>(problem_, stats, grads, row);
  constexpr int32_t kPlace = 0;
  for (int64_t first = 0; first < problem_.entries; first += vocab_tile_) {
    const stats::LogitsTile<Logit> from = tile(row, first, mine);
    void* to = core::element(out, out_dtype, first);
    Logit* wide = core::is_narrow<Logit>(out_dtype) ? mine.values : static_cast<Logit*>(to);
    tiles_->gradient(from, {&kPlace, 1}, summands, &gradient, &divergence, mine.row, {wide, from.entries});
    if (core::is_narrow<Logit>(out_dtype)) tiles_->row_kernels().round(wide, from.entries, false, to, out_dtype);
  }
}

template class RowWalk<kernels::FloatTiles>;
template class RowWalk<kernels::DoubleTiles>;

}  // namespace logitless::fold

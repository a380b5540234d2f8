// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "fold/row_walk.h"

#include <omp.h>

#include <algorithm>
#include <cstring>

#include "core/views.h"
#include "problem/id_sets.h"
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
  if (problem_.over_picks) return set_tile(row, scratch);
  stats::LogitsTile<Logit> out;
  out.rows = 1;
  out.first_entry = out.head_entry = first;
  out.entries = out.stride = std::min(vocab_tile_, problem_.entries - first);
  const kernels::RowKernels& kernels = tiles_->row_kernels();
  out.data = logits_.values(kernels, row, first, out.entries, scratch.values);
  if (teacher_.any()) out.teacher_data = teacher_.values(kernels, row, first, out.entries, scratch.teacher_data);
  return out;
}

template <class Types>
stats::LogitsTile<typename Types::Logit> RowWalk<Types>::set_tile(int64_t row, const Scratch& scratch) const {
  stats::LogitsTile<Logit> out;
  out.rows = 1;
  out.data = scratch.values;
  out.entries = out.stride =
      gather_ ? gather_(row, scratch.values) : logits_.gather(tiles_->row_kernels(), problem_, row, scratch.values);
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
    for (int64_t first = 0; first < entries_; first += vocab_tile_) {
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
  const bool narrow = core::is_narrow<Logit>(out_dtype);
  if (problem_.over_picks) {
    set_gradient(row, stats, grads, mine.values);
    std::memset(out, 0, static_cast<size_t>(problem_.vocab_size) * size_of(out_dtype));
    problem::for_each_distinct(problem_, row, [&](int64_t column, int64_t, int64_t, int64_t id) {
      void* const to = core::element(out, out_dtype, id);
      if (narrow) return tiles_->row_kernels().round(mine.values + column, 1, false, to, out_dtype);
      *static_cast<Logit*>(to) = mine.values[column];
    });
    return;
  }
  const kernels::RowGradient<Logit> gradient = stats::row_gradient(problem_, stats, grads, row, mine.picks);
  const stats::GradientSummands summands = stats::gradient_summands(gradient);
  kernels::RowDivergence<Logit> divergence;
  if (problem_.divergence) divergence = stats::row_divergence<Logit>(problem_, stats, grads, row);
  constexpr int32_t kPlace = 0;
  for (int64_t first = 0; first < entries_; first += vocab_tile_) {
    const stats::LogitsTile<Logit> from = tile(row, first, mine);
    void* to = core::element(out, out_dtype, first);
    Logit* wide = narrow ? mine.values : static_cast<Logit*>(to);
    tiles_->gradient(from, {&kPlace, 1}, summands, &gradient, &divergence, mine.row, {wide, from.entries});
    if (narrow) tiles_->row_kernels().round(wide, from.entries, false, to, out_dtype);
  }
}

template <class Types>
void RowWalk<Types>::set_gradient(int64_t row, const TokenStats& stats, const TokenGrads& grads, Logit* out) const {
  const Scratch& mine = scratch();
  const kernels::RowGradient<Logit> gradient = stats::row_gradient(problem_, stats, grads, row, mine.picks);
  if (tiles_->has_softcap()) {
    constexpr int32_t kPlace = 0;
    const stats::LogitsTile<Logit> from = set_tile(row, mine);
    return tiles_->gradient(from, {&kPlace, 1}, {}, &gradient, nullptr, mine.row, {out, from.entries});
  }
  // Every column is a pick, and without a softcap the gradients of picks are final.
  for (int32_t pick = 0; pick < gradient.pick_count; ++pick) out[mine.picks[pick].id] = mine.picks[pick].gradient;
}

template class RowWalk<kernels::FloatTiles>;
template class RowWalk<kernels::DoubleTiles>;

}  // namespace logitless::fold

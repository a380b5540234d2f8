// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "planning/buffers.h"

#include "core/arena.h"
#include "core/views.h"
#include "stats/tile_kernels.h"

namespace logitless::planning {

template <class Types>
typename fold::RowWalk<Types>::Sizes row_walk_sizes(const LogitsProblem& problem, const LogitsPlan& run) {
  const auto is_narrow = [](DType dtype) { return core::is_narrow<typename Types::Logit>(dtype); };
  return {run.plan.threads, run.plan.vocab_tile, is_narrow(problem.dtype),
          problem.teacher_logits && is_narrow(problem.teacher_logits->dtype)};
}

size_t measure_row_walk(const LogitsProblem& problem, const LogitsPlan& run) {
  core::Arena arena;
  stats::with_tile_types(problem, [&](auto types) {
    using Types = decltype(types);
    const fold::RowWalk<Types> walk({problem}, source::GivenLogits(), {}, arena, row_walk_sizes<Types>(problem, run));
  });
  return arena.peak();
}

template fold::RowWalk<kernels::FloatTiles>::Sizes row_walk_sizes<kernels::FloatTiles>(const LogitsProblem&,
                                                                                       const LogitsPlan&);
template fold::RowWalk<kernels::DoubleTiles>::Sizes row_walk_sizes<kernels::DoubleTiles>(const LogitsProblem&,
                                                                                         const LogitsPlan&);

}  // namespace logitless::planning

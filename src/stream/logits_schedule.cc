// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The schedule for finished logits, which need no products: each thread processes one row at a time.
#include <algorithm>

#include "core/arena.h"
#include "core/integers.h"
#include "core/parallel.h"
#include "core/store.h"
#include "fold/row_walk.h"
#include "planning/buffers.h"
#include "sink/dlogits_sink.h"
#include "stats/row_gradients.h"
#include "stats/tile_kernels.h"
#include "stream/schedule.h"

namespace logitless::stream {
namespace {

template <class Types>
class LogitsSchedule final : public Schedule {
 public:
  LogitsSchedule(const detail::ContextState& context, const LogitsProblem& problem, const LogitsGradient& dlogits,
                 const planning::LogitsPlan& run)
      : problem_(problem),
        dlogits_(dlogits, problem.vocab_size),
        run_(run),
        arena_(run.plan.workspace_bytes),
        tiles_(*context.kernels, problem, run.plan.vocab_tile, {}),
        walk_({problem, &tiles_}, source::GivenLogits(problem.logits), teacher_of(problem), arena_,
              planning::row_walk_sizes<Types>(problem, run)) {}

  int64_t chunks() const override { return run_.all_rows_at_once ? 1 : blocks(); }

  std::span<const int64_t> rows(int64_t chunk) const override {
    return run_.all_rows_at_once ? active(0, problem_.tokens) : active(begin_of(chunk), end_of(chunk));
  }

  int chunk_team() const override { return run_.all_rows_at_once ? 0 : run_.plan.threads; }

  void fold(int64_t chunk, stats::Columns& columns) override {
    for_each_block(chunk, [&](int64_t block) {
      for (const int64_t row : active(begin_of(block), end_of(block))) {
        walk_.statistics(row, columns);
      }
    });
  }

  void gradients(int64_t chunk, const TokenStats& stats, const TokenGrads& grads) override {
    for_each_block(chunk, [&](int64_t block) { write_gradient(block, stats, grads); });
  }

 private:
  static source::GivenLogits teacher_of(const LogitsProblem& problem) {
    return problem.teacher_logits ? source::GivenLogits(*problem.teacher_logits) : source::GivenLogits();
  }
  int64_t blocks() const { return core::div_up(problem_.tokens, run_.plan.row_block); }
  int64_t begin_of(int64_t block) const { return block * run_.plan.row_block; }
  int64_t end_of(int64_t block) const { return std::min(begin_of(block) + run_.plan.row_block, problem_.tokens); }

  // A chunk is one block, or all blocks.
  template <class Work>
  void for_each_block(int64_t chunk, const Work& work) {
    if (!run_.all_rows_at_once) return work(chunk);
    core::parallel_for(run_.plan.threads, blocks(), work);
  }

  std::span<const int64_t> active(int64_t begin, int64_t end) const {
    const core::Array<int64_t>& rows = problem_.active();
    if (static_cast<int64_t>(rows.size()) == problem_.tokens) return {rows.begin() + begin, rows.begin() + end};
    const auto first = std::lower_bound(rows.begin(), rows.end(), begin);
    return {first, std::lower_bound(first, rows.end(), end)};
  }

  void write_gradient(int64_t block, const TokenStats& stats, const TokenGrads& grads) {
    const int64_t begin = begin_of(block), end = end_of(block);
    dlogits_.write(
        begin, end, active(begin, end), [&](int64_t row) { return stats::has_gradient(problem_, grads, row); },
        [&](int64_t row, void* to) { walk_.gradient(row, stats, grads, to, dlogits_.dtype()); });
  }

  const LogitsProblem& problem_;
  const sink::DlogitsSink dlogits_;
  const planning::LogitsPlan run_;
  core::Arena arena_;
  const stats::TileKernels<Types> tiles_;
  const fold::RowWalk<Types> walk_;
};

}  // namespace

std::shared_ptr<Schedule> logits_schedule(const detail::ContextState& context, const LogitsProblem& problem,
                                          const LogitsGradient& dlogits, const planning::LogitsPlan& run) {
  return stats::with_tile_types(problem, [&](auto types) -> std::shared_ptr<Schedule> {
    return core::make_shared<LogitsSchedule<decltype(types)>>(context, problem, dlogits, run);
  });
}

}  // namespace logitless::stream

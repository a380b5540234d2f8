// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Forward only, one pass, two pass and expected row, which compute tiles as products. They differ only in the
// plan's data: the number of chunks, whether a chunk's logits are stored, and whether expected rows are
// summed.
#include <optional>
#include <utility>

#include "core/arena.h"
#include "core/store.h"
#include "fold/folds.h"
#include "fold/segment_masses.h"
#include "planning/buffers.h"
#include "sink/call_sinks.h"
#include "stats/statistics.h"
#include "stats/tile_kernels.h"
#include "stream/active_blocks.h"
#include "stream/expected_rows.h"
#include "stream/gradient_tiles.h"
#include "stream/pass.h"
#include "stream/schedule.h"
#include "stream/segment_gradients.h"
#include "stream/walk_tiles.h"

namespace logitless::stream {
namespace {

template <class Types>
class TileSchedule final : public SliceSchedule {
 public:
  using Sum = typename Types::Sum;

  TileSchedule(const detail::ContextState& context, const HiddenProblem& problem, const GradientMatrices& outputs,
               planning::RunPlan run)
      : run_(std::move(run)),
        arena_(run_.plan.workspace_bytes),
        loras_(arena_, problem, {*context.kernels, *run_.gemm, run_.plan.threads}),
        pass_{context,
              problem,
              source::Source(problem, loras_),
              run_,
              {*context.kernels, problem, run_.grid.vocab_tile,
               planning::head_shape<typename Types::Logit>(arena_, context.kernels, problem.head),
               planning::teacher_shape<typename Types::Logit>(arena_, context.kernels, problem)}},
        folds_({problem, &pass_.tiles, &pass_.source, run_.gemm, run_.chooses_segments ? &masses_ : nullptr}),
        sinks_({*context.kernels, *run_.gemm, problem, pass_.source}, outputs, planning::sink_sizes(run_)),
        wrote_rows_(static_cast<size_t>(problem.tokens)) {
    for (sink::Sink<Sum>* sink : sinks_.all()) sink->take_lasting(arena_);
    if (run_.logits_stay) pass_.chunk = planning::take_chunk<typename Types::Logit>(arena_, pass_.source, run_);
    if (run_.expected_rows != planning::ExpectedRowsIn::kNone) expected_rows_.emplace(arena_, pass_, outputs);
    if (run_.chooses_segments) {
      masses_.take(arena_, problem, run_.plan.chunk_rows, run_.grid.vocab_size, run_.grid.vocab_tile);
      segments_.emplace(pass_, outputs, masses_);
    }
    mark_ = arena_.mark();
  }

  int64_t chunks() const override { return run_.chunk_count(); }
  std::span<const int64_t> rows(int64_t chunk) const override { return run_.rows_of(chunk); }

  void fold(int64_t chunk, stats::Columns& columns) override {
    fold::make_statistics(folds_.partials(), rows(chunk), 0, columns,
                          [&](fold::Walk walk) { this->walk(walk, chunk, columns); });
    if (run_.expected_rows == planning::ExpectedRowsIn::kLeft) expected_rows_->leave(columns.stats);
  }

  // The buffers of the two passes share memory: they are never used at the same time.
  void walk(fold::Walk walk, int64_t chunk, stats::Columns& columns) override {
    if (walk == fold::Walk::kFirst && run_.sums_expected_rows()) {
      arena_.rewind(mark_);
      return expected_rows_->walk(arena_, folds_, columns);
    }
    if (walk == fold::Walk::kFirst || run_.sums_expected_rows()) {
      arena_.rewind(mark_);
      forward_.emplace(arena_, pass_.source, run_, folds_);
    }
    walk_tiles(pass_, *forward_, run_.blocks_of(chunk), folds_, walk, columns);
    walked_ = true;
  }

  const fold::CallPartials& partials() const override { return folds_.partials(); }

  void gradients(int64_t chunk, const TokenStats& stats, const TokenGrads& grads) override {
    if (segments_ && !walked_) leave_masses(chunk, stats);
    forward_.reset();
    arena_.rewind(mark_);
    if (segments_) {
      if (segments_->choose(arena_, stats, grads)) {
        segments_->make(arena_);
        chosen_ = true;
        return;
      }
      arena_.rewind(mark_);
    }
    if (expected_rows_) {
      expected_rows_->make_gradients(arena_, stats, grads);
      if (sinks_.all().empty()) return;
      arena_.rewind(mark_);
    }
    backward_.emplace(arena_, pass_.problem, pass_.source, run_);
    for (sink::Sink<Sum>* sink : sinks_.all()) sink->take(arena_);
    const auto c = static_cast<size_t>(chunk);
    const ActiveBlocks active = active_blocks(pass_.problem, run_, run_.chunks[c], run_.chunks[c + 1], grads);
    gradient_tiles(pass_, *backward_, sinks_.all(), active, !wrote_any_, stats, grads,
                   chunk == chunks() - 1 ? sums_ : nullptr);
    wrote_any_ |= !active.empty();
    for (const int64_t row : active.blocks.order) wrote_rows_[static_cast<size_t>(row)] = true;
  }

  // Possible if rows of d_weight are vocabulary entries that are final in the output as soon as they are
  // computed, and if other threads compute while this one communicates.
  bool finishes_rows_early() const override {
    const bool row_by_row = !run_.weight_apart && !pass_.source.products().front().head.layout().is_hidden_vocab();
    return row_by_row && !run_.chooses_segments && run_.plan.threads > 1;
  }
  void follow(ranks::BatchSums& sums) override { sums_ = &sums; }

  void finish_gradients() override {
    if (chosen_) return;
    for (sink::Sink<Sum>* sink : sinks_.all()) sink->finish(wrote_rows_, wrote_any_);
  }

  void report(Plan& plan) const override {
    if (segments_) segments_->report(plan);
  }

 private:
  // Repeats the walk for the masses only: in a backward call the statistics come from another call.
  void leave_masses(int64_t chunk, const TokenStats& stats) {
    stats::Columns columns;
    stats::make_stats(pass_.problem, columns);
    walk(fold::Walk::kFirst, chunk, columns);
    if (!pass_.problem.divergence) return;
    columns.stats.max_logit = stats.max_logit;
    columns.stats.divergence = stats.divergence;
    walk(fold::Walk::kSecond, chunk, columns);
  }

  const planning::RunPlan run_;
  core::Arena arena_;
  const source::LoraStates loras_;
  Pass<Types> pass_;
  fold::CallMasses masses_;
  fold::CallFolds<Types> folds_;
  const sink::CallSinks<Sum> sinks_;
  std::optional<ExpectedRowSums<Types>> expected_rows_;
  std::optional<SegmentGradients<Types>> segments_;
  size_t mark_ = 0;  // end of the memory that lives as long as the call
  std::optional<planning::ForwardBuffers<Types>> forward_;
  std::optional<planning::BackwardBuffers<Types>> backward_;
  ranks::BatchSums* sums_ = nullptr;  // notified when vocabulary entries are final; may be null
  core::Array<bool> wrote_rows_;      // rows of hidden that have had gradients, over all chunks
  bool wrote_any_ = false;
  bool walked_ = false;
  bool chosen_ = false;  // gradients were computed from chosen segments
};

}  // namespace

std::shared_ptr<SliceSchedule> tile_schedule(const detail::ContextState& context, const HiddenProblem& problem,
                                             const GradientMatrices& outputs, planning::RunPlan run) {
  return stats::with_gradient_types(problem, run.gradient_terms, [&](auto types) -> std::shared_ptr<SliceSchedule> {
    return core::make_shared<TileSchedule<decltype(types)>>(context, problem, outputs, std::move(run));
  });
}

}  // namespace logitless::stream

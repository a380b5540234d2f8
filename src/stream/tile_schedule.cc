// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Calls whose logits are computed tile by tile as products: forward only, one pass, two pass and expected
// row. They differ in the plan's data and in how gradients are computed.
#include <array>
#include <optional>
#include <tuple>
#include <utility>

#include "core/arena.h"
#include "core/store.h"
#include "fold/folds.h"
#include "source/lora.h"
#include "stats/statistics.h"
#include "stats/tile_kernels.h"
#include "stream/gradient_way.h"
#include "stream/pass.h"
#include "stream/schedule.h"
#include "stream/walk_tiles.h"

namespace logitless::stream {
namespace {

// Returns the head's softcap and its bias in the type of the logits.
template <class Logit>
stats::HeadShape<Logit> head_shape(core::Arena& arena, const kernels::RowKernels& kernels, const HeadMatrices& head) {
  const ConstVector& bias = head.bias;
  if (!bias.data || bias.dtype == DTypeOf<Logit>::value) return {static_cast<const Logit*>(bias.data), head.softcap};
  Logit* const out = arena.take<Logit>(bias.size);
  if constexpr (sizeof(Logit) == 4) {
    if (!arena.measures()) kernels.widen(bias.data, bias.dtype, bias.size, out);
  }
  return {out, head.softcap};
}

/// All memory comes from the arena. With a measuring arena, only take_all() may be called.
template <class Types>
class TileSchedule final : public SliceSchedule {
 public:
  using Logit = typename Types::Logit;

  TileSchedule(core::Arena& arena, const Pass<Types>& pass) : arena_(arena), pass_(pass), ways_(ways_of(pass_)) {
    const HeadMatrices* const teacher = pass_.problem.teacher ? &pass_.problem.teacher->head : nullptr;
    const kernels::RowKernels& kernels = *pass_.context.kernels;
    const auto head = head_shape<Logit>(arena_, kernels, pass_.problem.head);
    const auto teacher_head = teacher ? head_shape<Logit>(arena_, kernels, *teacher) : stats::HeadShape<Logit>();
    if (!arena_.measures()) pass_.tiles.emplace(kernels, pass_.problem, run_.grid.vocab_tile, head, teacher_head);
    if (run_.stored_tiles() > 0) {
      pass_.chunk =
          arena_.take<Logit>(pass_.source.sides() * run_.chunk_tile_rows * run_.stored_tiles() * run_.grid.tile_stride);
    }
    each_way([&](GradientWay<Types>& way) {
      way.take_lasting(arena_);
      if (way.walks()) first_walk_way_ = &way;
      if (way.masses()) masses_ = way.masses();
    });
    mark_ = arena_.mark();
    folds_.emplace(fold::FoldInputs<Types>{pass_.problem, pass_.tiles ? &*pass_.tiles : nullptr, masses_});
  }

  /// Takes the memory of every step of the run.
  void take_all() {
    if (run_.forward || masses_) {
      take_walk(fold::Walk::kFirst);
      if (!folds_->of(fold::Walk::kSecond).empty()) take_walk(fold::Walk::kSecond);
    }
    if (run_.backward) each_way([&](GradientWay<Types>& way) { take_gradients(way); });
  }

  int64_t chunks() const override { return run_.chunk_count(); }
  std::span<const int64_t> rows(int64_t chunk) const override { return run_.rows_of(chunk); }

  void fold(int64_t chunk, stats::Columns& columns) override {
    each_way([&](GradientWay<Types>& way) { way.begin_statistics(columns); });
    fold::make_statistics(folds_->partials(), rows(chunk), 0, columns,
                          [&](fold::Walk walk) { this->walk(walk, chunk, columns); });
    each_way([&](GradientWay<Types>& way) { way.finish_statistics(columns.stats); });
  }

  void walk(fold::Walk walk, int64_t chunk, stats::Columns& columns) override {
    walked_ = true;
    take_walk(walk);
    if (!walk_) return first_walk_way_->walk(*folds_, columns);
    walk_->run(walk, run_.blocks_of(chunk), columns);
  }

  const fold::CallPartials& partials() const override { return folds_->partials(); }

  void gradients(int64_t chunk, const TokenStats& stats, const TokenGrads& grads) override {
    if (masses_ && !walked_) walk_for_masses(chunk, stats);
    for (const WayOfRun<Types>& way : ways_) {
      if (!way) continue;
      take_gradients(*way);
      last_ = way.get();
      if (way->make(chunk, stats, grads)) return;
    }
  }

  // Possible if rows of d_weight are vocabulary entries that are final in the output as soon as they are
  // computed, and if other threads compute while this one communicates.
  bool finishes_rows_early() const override {
    const bool row_by_row = !run_.weight_apart && !pass_.source.products().front().head.layout().is_hidden_vocab();
    return row_by_row && !run_.approximates && run_.plan.threads > 1;
  }
  void report_final_rows_to(ranks::BatchSums& sums) override {
    each_way([&](GradientWay<Types>& way) { way.report_final_rows_to(sums); });
  }

  void finish_gradients() override {
    if (last_) last_->finish();
  }

  void report(Plan& plan) const override {
    each_way([&](const GradientWay<Types>& way) { way.report(plan); });
  }

 private:
  using Ways = std::array<WayOfRun<Types>, kGradientWays.size()>;

  static Ways ways_of(const Pass<Types>& pass) {
    Ways out;
    for (size_t w = 0; w < out.size(); ++w) out[w] = std::get<MakeWay<Types>>(kGradientWays[w]->make)(pass);
    return out;
  }
  template <class Visit>
  void each_way(const Visit& visit) const {
    for (const WayOfRun<Types>& way : ways_) {
      if (way) visit(*way);
    }
  }

  // A walk and the gradients use the same memory, because they never run at the same time.
  void take_walk(fold::Walk walk) {
    const bool first = walk == fold::Walk::kFirst;
    if (!first && walk_) return;
    walk_.reset();
    arena_.rewind(mark_);
    if (first && first_walk_way_) return first_walk_way_->take_walk(arena_, *folds_);
    walk_.emplace(arena_, pass_, *folds_);
  }
  void take_gradients(GradientWay<Types>& way) {
    walk_.reset();
    arena_.rewind(mark_);
    way.take(arena_);
  }

  // Folds the tiles again only for the masses: in a backward call the statistics come from another call.
  void walk_for_masses(int64_t chunk, const TokenStats& stats) {
    stats::Columns columns;
    stats::make_stats(pass_.problem, columns);
    walk(fold::Walk::kFirst, chunk, columns);
    if (!pass_.problem.divergence) return;
    columns.stats.max_logit = stats.max_logit;
    columns.stats.divergence = stats.divergence;
    walk(fold::Walk::kSecond, chunk, columns);
  }

  core::Arena& arena_;
  Pass<Types> pass_;
  const planning::RunPlan& run_ = pass_.run;
  const Ways ways_;
  GradientWay<Types>* first_walk_way_ = nullptr;  // the way that does the first walk itself, or null
  const fold::CallMasses* masses_ = nullptr;      // filled while folding; null: not needed
  size_t mark_ = 0;                               // end of the memory that lives as long as the call
  std::optional<fold::CallFolds<Types>> folds_;
  std::optional<TileWalk<Types>> walk_;
  GradientWay<Types>* last_ = nullptr;  // the way whose make() was called last
  bool walked_ = false;
};

// A schedule with everything it refers to.
template <class Types>
struct OwnedSchedule {
  const planning::RunPlan run;
  core::Arena arena;
  const source::LoraStates loras;
  const source::Source source;
  TileSchedule<Types> schedule;

  OwnedSchedule(const detail::ContextState& context, const HiddenProblem& problem, const GradientMatrices& outputs,
                planning::RunPlan&& plan)
      : run(std::move(plan)),
        arena(run.plan.workspace_bytes),
        loras(arena, problem, {*context.kernels, *run.gemm, run.plan.threads}),
        source(problem, loras),
        schedule(arena, {context, problem, source, outputs, run}) {}
};

}  // namespace

size_t workspace_of_run(const detail::ContextState& context, const HiddenProblem& problem, const source::Source& source,
                        const GradientMatrices& outputs, const planning::RunPlan& run) {
  core::Arena arena;
  stats::with_gradient_types(problem, run.gradient_terms, [&](auto types) {
    source::LoraStates(arena, problem, {*context.kernels, *run.gemm, run.plan.threads});
    TileSchedule<decltype(types)>(arena, {context, problem, source, outputs, run}).take_all();
  });
  return arena.peak();
}

std::shared_ptr<SliceSchedule> tile_schedule(const detail::ContextState& context, const HiddenProblem& problem,
                                             const GradientMatrices& outputs, planning::RunPlan run) {
  return stats::with_gradient_types(problem, run.gradient_terms, [&](auto types) -> std::shared_ptr<SliceSchedule> {
    const auto owned = core::make_shared<OwnedSchedule<decltype(types)>>(context, problem, outputs, std::move(run));
    return {owned, &owned->schedule};
  });
}

}  // namespace logitless::stream

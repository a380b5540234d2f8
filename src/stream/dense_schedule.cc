// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The dense path: all logits are in memory, and every product is as large and as parallel as the BLAS
// likes it.
#include <algorithm>

#include "core/arena.h"
#include "core/parallel.h"
#include "core/store.h"
#include "fold/row_walk.h"
#include "planning/buffers.h"
#include "sink/call_sinks.h"
#include "stats/row_gradients.h"
#include "stats/tile_kernels.h"
#include "stream/schedule.h"

namespace logitless::stream {
namespace {

template <class Types>
class DenseSchedule final : public Schedule {
 public:
  using Sum = typename Types::Sum;
  using Logit = typename Types::Logit;
  DenseSchedule(const detail::ContextState& context, const HiddenProblem& problem, const GradientMatrices& outputs,
                const Plan& plan)
      : context_(context),
        problem_(problem),
        threads_(plan.threads),
        v_(problem.vocab_size),
        gradient_(plan.gradient_dtype),
        arena_(plan.workspace_bytes),
        loras_(arena_, problem, {*context.kernels, *context.gemm, threads_}),
        source_(problem, loras_),
        buffers_(arena_, *context.gemm, source_, problem.tokens, gradient_, threads_),
        tiles_(*context.kernels, problem, fold::kRowColumns,
               planning::head_shape<Logit>(arena_, context.kernels, problem.head),
               planning::teacher_shape<Logit>(arena_, context.kernels, problem)),
        walk_({problem, &tiles_, &source_, context.gemm}, given_logits(0), teacher_logits(), arena_,
              planning::dense_walk_sizes<Types>(gradient_, threads_)),
        sizes_(planning::dense_sink_sizes(problem, outputs, threads_)),
        sinks_({*context.kernels, *context.gemm, problem, source_}, outputs, sizes_),
        rows_(problem::all_rows(problem.tokens).rows) {
    if (!source_.is_matrix()) source_.gather(rows_, threads_, buffers_.gathered);
  }

  int64_t chunks() const override { return 1; }
  std::span<const int64_t> rows(int64_t) const override { return problem_.active(); }

  void fold(int64_t, stats::Columns& columns) override {
    make_logits();
    core::parallel_for(threads_, static_cast<int64_t>(problem_.active().size()), [&](int64_t a) {
      const int64_t row = problem_.active()[static_cast<size_t>(a)];
      walk_.statistics(row, columns);
    });
  }

  void gradients(int64_t, const TokenStats& stats, const TokenGrads& grads) override {
    if (!has_logits_) make_logits();
    core::parallel_for(threads_, problem_.tokens, [&](int64_t row) { make_gradient(row, stats, grads); });
    const sink::GradientPart all = part();
    planning::for_each_in_turn<Sum>(arena_, sinks_.all(), [&](sink::Sink<Sum>& sink) { hand(all, sink); });
  }

 private:
  Logit* logits(int64_t row) const { return buffers_.logits + row * v_; }
  source::GivenLogits given_logits(int64_t side) const {
    return source::GivenLogits(FinishedLogits(logits(side * problem_.tokens), 1, problem_.tokens, v_));
  }
  source::GivenLogits teacher_logits() const { return source_.sides() > 1 ? given_logits(1) : source::GivenLogits(); }

  source::Multiplier multiplier() const { return {*context_.gemm, *context_.kernels, buffers_.products, threads_}; }

  // The gradients of a row begin where its logits did, in a type that may be narrower.
  sink::GradientPart part() const {
    const auto stride = v_ * static_cast<int64_t>(sizeof(Logit) / size_of(gradient_));
    sink::GradientPart out;
    out.terms[0] = {buffers_.logits, gradient_, stride, false};
    out.rows = rows_;
    out.gathered = buffers_.gathered;
    out.entries = v_;
    return out;
  }

  void make_logits() {
    source_.make_logits(rows_, buffers_.gathered, 0, source_.entries(), buffers_.logits, multiplier());
    has_logits_ = true;
  }

  void make_gradient(int64_t row, const TokenStats& stats, const TokenGrads& grads) const {
    if (!problem_.takes_part(row) || !stats::has_gradient(problem_, grads, row)) {
      std::fill_n(logits(row), v_, Logit{0});
      return;
    }
    walk_.gradient(row, stats, grads, logits(row), gradient_);
  }

  // Hands all gradients to a sink: in one part, or in parts as wide as its tiles of sums.
  void hand(const sink::GradientPart& all, sink::Sink<Sum>& sink) const {
    const int64_t step = sink.tiles_apart() > 0 ? sizes_.part.entries : v_;
    for (int64_t first = 0; first < v_; first += step) {
      const int64_t entries = std::min(step, v_ - first);
      for (int64_t split = 0; split < sink.splits(); ++split) {
        sink.add(all.columns(first, entries), split, /*first=*/true, 0, multiplier());
      }
      sink.finish_tile(first, entries, threads_);
    }
    sink.finish_chunk(rows_, threads_);
    sink.finish(core::Array<bool>(rows_.size(), true), /*any=*/true);
  }

  const detail::ContextState& context_;
  const HiddenProblem& problem_;
  int threads_;
  int64_t v_;
  DType gradient_;  // of the gradients of the logits
  core::Arena arena_;
  const source::LoraStates loras_;
  const source::Source source_;
  planning::DenseBuffers<Types> buffers_;
  const stats::TileKernels<Types> tiles_;
  const fold::RowWalk<Types> walk_;
  const sink::Sizes sizes_;
  const sink::CallSinks<Sum> sinks_;
  const core::Array<int64_t> rows_;  // all of hidden's
  bool has_logits_ = false;
};

}  // namespace

std::shared_ptr<Schedule> dense_schedule(const detail::ContextState& context, const HiddenProblem& problem,
                                         const GradientMatrices& outputs, const Plan& plan) {
  return stats::with_tile_types(problem, [&](auto types) -> std::shared_ptr<Schedule> {
    return core::make_shared<DenseSchedule<decltype(types)>>(context, problem, outputs, plan);
  });
}

}  // namespace logitless::stream

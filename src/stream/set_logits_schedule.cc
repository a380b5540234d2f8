// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Finished logits normalised over sets of token ids: only the logits of these ids are read.
#include <omp.h>

#include <cstring>

#include "core/arena.h"
#include "core/parallel.h"
#include "core/views.h"
#include "fold/set_rows.h"
#include "planning/set_plan.h"
#include "problem/id_sets.h"
#include "sink/dlogits_sink.h"
#include "stats/row_gradients.h"
#include "stats/tile_kernels.h"
#include "stream/schedule.h"

namespace logitless::stream {
namespace {

template <class T>
class SetLogitsSchedule final : public Schedule {
 public:
  using PerThread = typename planning::SetLogitsBuffers<T>::PerThread;

  SetLogitsSchedule(const detail::ContextState& context, const LogitsProblem& problem, const LogitsGradient& dlogits,
                    const Plan& plan)
      : kernels_(*context.kernels),
        problem_(problem),
        dlogits_(dlogits, problem.vocab_size),
        team_(plan.threads),
        rows_(kernels_, problem, {}, 0),
        arena_(plan.workspace_bytes),
        buffers_(arena_, problem, rows_, team_) {}

  int64_t chunks() const override { return 1; }
  std::span<const int64_t> rows(int64_t) const override { return problem_.active(); }

  void fold(int64_t, stats::Columns& columns) override {
    core::parallel_for(team_, static_cast<int64_t>(problem_.active().size()), [&](int64_t a) {
      const int64_t row = problem_.active()[static_cast<size_t>(a)];
      PerThread& mine = scratch();
      read_logits(row, mine.values);
      rows_.statistics(row, mine.values, mine.of_row, columns);
    });
  }

  void gradients(int64_t, const TokenStats& stats, const TokenGrads& grads) override {
    core::parallel_for(team_, problem_.tokens, [&](int64_t row) {
      const std::span<const int64_t> one(&row, problem_.takes_part(row) ? 1 : 0);
      dlogits_.write(
          row, row + 1, one, [&](int64_t) { return stats::has_gradient(problem_, grads, row); },
          [&](int64_t, void* to) { write_row(row, stats, grads, to, scratch()); });
    });
  }

 private:
  PerThread& scratch() { return buffers_.threads[static_cast<size_t>(omp_get_thread_num())]; }

  void read_logits(int64_t row, T* values) const {
    const void* logits = problem::logits_row(problem_.logits, row);
    const DType dtype = problem_.logits.dtype;
    problem::for_each_distinct(problem_, row, [&](int64_t column, int64_t, int64_t, int64_t id) {
      T wide = 0;
      values[column] = *kernels_.values(core::element(logits, dtype, id), dtype, 1, &wide);
    });
  }

  void write_row(int64_t row, const TokenStats& stats, const TokenGrads& grads, void* to, PerThread& mine) const {
    rows_.gradient(row, nullptr, stats, grads, mine.of_row, mine.values);
    const DType dtype = dlogits_.dtype();
    std::memset(to, 0, static_cast<size_t>(problem_.vocab_size) * size_of(dtype));
    problem::for_each_distinct(problem_, row, [&](int64_t column, int64_t, int64_t, int64_t id) {
      void* const at = core::element(to, dtype, id);
      if (core::is_narrow<T>(dtype)) {
        kernels_.round(mine.values + column, 1, false, at, dtype);
      } else {
        *static_cast<T*>(at) = mine.values[column];
      }
    });
  }

  const kernels::RowKernels& kernels_;
  const LogitsProblem& problem_;
  const sink::DlogitsSink dlogits_;
  const int team_;
  const fold::SetRows<T> rows_;
  core::Arena arena_;
  planning::SetLogitsBuffers<T> buffers_;
};

}  // namespace

std::shared_ptr<Schedule> set_logits_schedule(const detail::ContextState& context, const LogitsProblem& problem,
                                              const LogitsGradient& dlogits, const Plan& plan) {
  return stats::with_tile_types(problem, [&](auto types) -> std::shared_ptr<Schedule> {
    return core::make_shared<SetLogitsSchedule<typename decltype(types)::Sum>>(context, problem, dlogits, plan);
  });
}

}  // namespace logitless::stream

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// A vocabulary that is cut into slices, on this rank and on others, is one schedule: statistics of the slices
// meet before they are finished, and sums of d_hidden before they become an output.
#include <algorithm>
#include <utility>

#include "core/store.h"
#include "ranks/cut.h"
#include "ranks/hidden_sums.h"
#include "ranks/slice.h"
#include "stats/row_stats_wire.h"
#include "stream/schedule.h"

namespace logitless::stream {
namespace {

class SlicedSchedule final : public Schedule {
 public:
  SlicedSchedule(const detail::ContextState& context, const HiddenProblem& problem, const Gradients& outputs,
                 const ranks::Cut& cut, const plan::RunPlan& run)
      : context_(context),
        problem_(problem),
        outputs_(outputs),
        cut_(cut),
        group_(*cut_.group),
        plan_(run),
        wire_(problem),
        hidden_sums_(*context.kernels, cut, problem, outputs) {
    const std::span<const int64_t> own = cut_.own();
    slices_.reserve(own.size());
    int64_t first = 0;
    for (const int64_t entries : own) {
      Slice& slice = slices_.emplace_back();
      if (entries > 0) make_slice(first, entries, slice);
      first += entries;
    }
  }

  int64_t chunks() const override { return plan_.chunk_count(); }
  std::span<const int64_t> rows(int64_t chunk) const override { return plan_.rows_of(chunk); }

  void fold(int64_t chunk, const stats::Finisher& finish) override {
    const std::span<const int64_t> rows = this->rows(chunk);
    if (rows.empty()) return;
    if (!cut_.gathered.empty()) return finish({merge_gathered(rows).data(), 1, rows});
    for (Slice& slice : slices_) {
      if (!slice.schedule) continue;
      slice.partials = slice.schedule->fold_slice(chunk);
      stats::combine(*slice.problem, slice.partials);
    }
    if (cut_.left) leave(rows);
    core::Array<kernels::RowStats> whole = meet(rows);
    finish({whole.data(), 1, rows});
    if (problem_.request.rank) count_above(chunk, whole, rows, finish.ranks());
  }

  void gradients(int64_t chunk, const TokenStats& stats, const TokenGrads& grads) override {
    for (Slice& slice : slices_) {
      if (slice.has_gradients()) slice.schedule->gradients(chunk, stats, grads);
    }
  }

  void finish_gradients() override {
    for (Slice& slice : slices_) {
      if (slice.has_gradients()) slice.schedule->finish_gradients();
    }
    hidden_sums_.finish(plan_.plan.threads);
  }

 private:
  struct Slice {
    std::shared_ptr<const HiddenProblem> problem;
    std::shared_ptr<const Gradients> outputs;
    std::shared_ptr<SliceSchedule> schedule;  // null where the slice has no vocabulary entries
    stats::Partials partials;

    bool has_gradients() const { return schedule && outputs->any(); }
  };

  void make_slice(int64_t first, int64_t entries, Slice& slice) {
    slice.problem = core::make_shared<const HiddenProblem>(ranks::problem_of_slice(problem_, first, entries));
    Gradients outputs = ranks::outputs_of_slice(outputs_, problem_.head.layout, first, entries);
    hidden_sums_.give(slices_.size() - 1, outputs);
    slice.outputs = core::make_shared<const Gradients>(std::move(outputs));
    plan::RunPlan run = plan_;
    run.grid.vocab_size = entries;
    run.grid.segments = std::min(run.grid.segments, run.grid.vocab_tiles());
    slice.schedule = tile_schedule(context_, *slice.problem, *slice.outputs, std::move(run));
  }

  // Writes the statistics of a slice that meets nobody, of each row at its place.
  void leave(std::span<const int64_t> rows) const {
    for (size_t i = 0; i < rows.size(); ++i) {
      wire_.put(slices_[0].partials.whole(static_cast<int64_t>(i)),
                cut_.left + static_cast<size_t>(rows[i]) * wire_.bytes());
    }
  }

  // Merges what all slices have left, in their order.
  core::Array<kernels::RowStats> merge_gathered(std::span<const int64_t> rows) const {
    const size_t slice_bytes = wire_.bytes() * static_cast<size_t>(problem_.tokens);
    core::Array<kernels::RowStats> whole(rows.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      const double scale = problem_.inverse_temperature(rows[i]);
      for (size_t begin = 0; begin < cut_.gathered.size(); begin += slice_bytes) {
        const std::byte* from = cut_.gathered.data() + begin + static_cast<size_t>(rows[i]) * wire_.bytes();
        whole[i] = begin == 0 ? wire_.get(from) : kernels::merge(whole[i], wire_.get(from), scale);
      }
    }
    return whole;
  }

  // Merges the statistics of all slices, in their order.
  core::Array<kernels::RowStats> meet(std::span<const int64_t> rows) const {
    const size_t row_bytes = wire_.bytes(), slice_bytes = row_bytes * rows.size();
    const auto most = static_cast<size_t>(cut_.most_slices());
    core::Array<std::byte> mine(most * slice_bytes), all(mine.size() * static_cast<size_t>(group_.size()));
    for (size_t s = 0; s < slices_.size(); ++s) {
      for (size_t i = 0; i < rows.size(); ++i) {
        const stats::Partials& partials = slices_[s].partials;
        wire_.put(slices_[s].schedule ? partials.whole(static_cast<int64_t>(i)) : kernels::RowStats(),
                  mine.data() + s * slice_bytes + i * row_bytes);
      }
    }
    group_.all_gather(std::span<const std::byte>(mine), std::span(all));
    core::Array<kernels::RowStats> whole(rows.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      const double scale = problem_.inverse_temperature(rows[i]);
      bool first = true;
      for (size_t r = 0; r < cut_.slices.size(); ++r) {
        for (size_t s = 0; s < static_cast<size_t>(cut_.slices[r]); ++s) {
          const kernels::RowStats part = wire_.get(all.data() + r * mine.size() + s * slice_bytes + i * row_bytes);
          whole[i] = std::exchange(first, false) ? part : kernels::merge(whole[i], part, scale);
        }
      }
    }
    return whole;
  }

  // Adds the vocabulary entries of all slices that are above the targets to the ranks of the rows.
  void count_above(int64_t chunk, std::span<const kernels::RowStats> whole, std::span<const int64_t> rows,
                   std::span<int64_t> ranks) const {
    core::Array<int64_t> above(static_cast<size_t>(problem_.tokens), 0);
    for (const Slice& slice : slices_) {
      if (!slice.schedule) continue;
      for (size_t i = 0; i < rows.size(); ++i) slice.partials.whole(static_cast<int64_t>(i)) = whole[i];
      slice.schedule->count_above(chunk, slice.partials, above);
    }
    core::Array<int64_t> mine(rows.size()), all(rows.size() * static_cast<size_t>(group_.size()));
    for (size_t i = 0; i < rows.size(); ++i) mine[i] = above[static_cast<size_t>(rows[i])];
    group_.all_gather(std::span<const int64_t>(mine), std::span(all));
    for (size_t i = 0; i < all.size(); ++i) ranks[static_cast<size_t>(rows[i % rows.size()])] += all[i];
  }

  const detail::ContextState& context_;
  const HiddenProblem& problem_;
  const Gradients& outputs_;
  const ranks::Cut& cut_;
  ranks::Group& group_;
  const plan::RunPlan plan_;
  stats::RowStatsWire wire_;
  ranks::HiddenSums hidden_sums_;
  core::Array<Slice> slices_;
};

}  // namespace

std::shared_ptr<Schedule> sliced_schedule(const detail::ContextState& context, const HiddenProblem& problem,
                                          const Gradients& outputs, const ranks::Cut& cut, const plan::RunPlan& run) {
  return core::make_shared<SlicedSchedule>(context, problem, outputs, cut, run);
}

}  // namespace logitless::stream

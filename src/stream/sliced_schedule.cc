// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// One schedule for a vocabulary cut into slices, on this rank and on others: combines the slices' statistics
// before they are finished, and their sums of d_hidden before they are stored in the output.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "core/arena.h"
#include "core/store.h"
#include "fold/call_partials.h"
#include "ranks/cut.h"
#include "ranks/slice.h"
#include "ranks/slice_sums.h"
#include "stream/schedule.h"

namespace logitless::stream {
namespace {

class SlicedSchedule final : public Schedule {
 public:
  SlicedSchedule(const detail::ContextState& context, const HiddenProblem& problem, const GradientMatrices& outputs,
                 const ranks::Cut& cut, const planning::RunPlan& run)
      : context_(context),
        problem_(problem),
        outputs_(outputs),
        cut_(cut),
        group_(*cut_.group),
        plan_(run),
        whole_(problem),
        arena_(bytes_of(whole_, run.plan.chunk_rows)),
        hidden_sums_(*context.kernels, cut, problem::d_hidden_rows(problem, outputs), outputs.d_hidden_mode,
                     problem.sum_type()),
        lora_sums_(*context.kernels, cut, problem::matrix_rows(ranks::lora_part(problem, outputs)), outputs.d_lora_mode,
                   problem.sum_type()) {
    whole_.take(arena_, run.plan.chunk_rows, 1);
    if (cut_.own_partials || !cut_.gathered.empty()) {
      row_offsets_.resize(static_cast<size_t>(problem.tokens) + 1);
      for (size_t row = 0; row + 1 < row_offsets_.size(); ++row) {
        row_offsets_[row + 1] = row_offsets_[row] + whole_.wire_bytes(fold::Walk::kFirst, static_cast<int64_t>(row));
      }
    }
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

  void fold(int64_t chunk, stats::Columns& columns) override {
    const std::span<const int64_t> rows = this->rows(chunk);
    fold::make_statistics(whole_, rows, 0, columns, [&](fold::Walk walk) {
      if (!cut_.gathered.empty()) return join_gathered(rows, columns);
      for (const Slice& slice : slices_) {
        if (slice.schedule) slice.schedule->walk(walk, chunk, columns);
      }
      if (cut_.own_partials) write_partials(rows, columns);
      exchange_partials(walk, rows, columns);
    });
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
    hidden_sums_.finish(problem_.active(), plan_.plan.threads);
    if (!lora_sums_.wanted()) return;
    if (problem_.head.lora.has_states()) return lora_sums_.finish(problem_.active(), plan_.plan.threads);
    core::Array<int64_t> rows(static_cast<size_t>(outputs_.d_lora_a.rows));
    std::iota(rows.begin(), rows.end(), int64_t{0});
    lora_sums_.finish(rows, plan_.plan.threads);
  }

  // Fills the kept share of all this rank's pairs, and the bounds of its slices: their parts of d_hidden add
  // up, and their parts of d_weight are disjoint.
  void report(Plan& plan) const override {
    double entries = 0, kept = 0, weight = 0;
    for (const Slice& slice : slices_) {
      if (!slice.schedule) continue;
      Plan of_slice;
      slice.schedule->report(of_slice);
      const auto slice_entries = static_cast<double>(slice.problem->entries);
      entries += slice_entries;
      kept += slice_entries * of_slice.kept_share;
      plan.d_hidden_bound += of_slice.d_hidden_bound;
      weight += of_slice.d_weight_bound * of_slice.d_weight_bound;
    }
    if (entries > 0) plan.kept_share = kept / entries;
    plan.d_weight_bound = std::sqrt(weight);
  }

 private:
  struct Slice {
    std::shared_ptr<const HiddenProblem> problem;
    std::shared_ptr<const GradientMatrices> outputs;
    std::shared_ptr<SliceSchedule> schedule;  // null if the slice has no vocabulary entries

    bool has_gradients() const { return schedule && outputs->any(); }
  };

  static size_t bytes_of(const fold::CallPartials& partials, int64_t rows) {
    core::Arena measured;
    partials.take(measured, rows, 1);
    return measured.peak();
  }

  void make_slice(int64_t first, int64_t entries, Slice& slice) {
    slice.problem = core::make_shared<const HiddenProblem>(ranks::problem_of_slice(problem_, first, entries));
    GradientMatrices outputs = ranks::outputs_of_slice(outputs_, problem_.head.layout, first, entries);
    redirect_outputs(slices_.size() - 1, outputs);
    slice.outputs = core::make_shared<const GradientMatrices>(std::move(outputs));
    planning::RunPlan run = plan_;
    run.grid.vocab_size = entries;
    run.grid.vocab_ranges = std::min(run.grid.vocab_ranges, run.grid.vocab_tiles());
    slice.schedule = tile_schedule(context_, *slice.problem, *slice.outputs, std::move(run));
  }

  // Redirects the outputs without a vocabulary dimension to the sums of a slice.
  void redirect_outputs(size_t slice, GradientMatrices& outputs) {
    if (hidden_sums_.in_place()) {
      outputs.d_hidden = outputs_.d_hidden;
      outputs.d_hidden_batch_stride = outputs_.d_hidden_batch_stride;
    } else if (hidden_sums_.wanted()) {
      ranks::set_sums(problem_, hidden_sums_.take(slice), outputs);
    }
    if (lora_sums_.in_place()) {
      ranks::lora_part(problem_, outputs) = ranks::lora_part(problem_, outputs_);
    } else if (lora_sums_.wanted()) {
      ranks::set_lora_sums(problem_, lora_sums_.take(slice), outputs);
      // In mode accumulate the slice also adds to these sums, so they start at 0.
      if (outputs_.d_lora_mode == WriteMode::kAccumulate) core::fill_zero(ranks::lora_part(problem_, outputs));
    }
  }

  // Writes the partials of this rank's slice for a caller that does the exchange, each row at its offset.
  void write_partials(std::span<const int64_t> rows, const stats::Columns& columns) const {
    const fold::CallPartials& partials = slices_[0].schedule->partials();
    for (size_t i = 0; i < rows.size(); ++i) {
      partials.put(fold::Walk::kFirst, rows[i], static_cast<int64_t>(i), columns,
                   cut_.own_partials + offset_of(rows[i]));
    }
  }

  // Joins the gathered partials of all slices, in order.
  void join_gathered(std::span<const int64_t> rows, stats::Columns& columns) const {
    const size_t slice_bytes = offset_of(problem_.tokens);
    for (size_t begin = 0; begin < cut_.gathered.size(); begin += slice_bytes) {
      for (size_t i = 0; i < rows.size(); ++i) {
        const std::byte* from = cut_.gathered.data() + begin + offset_of(rows[i]);
        whole_.join(fold::Walk::kFirst, rows[i], static_cast<int64_t>(i), begin == 0, from, columns);
      }
    }
  }

  // Returns the offset of a row in the bytes of a slice.
  size_t offset_of(int64_t row) const { return row_offsets_[static_cast<size_t>(row)]; }

  // Exchanges the partials of all slices and joins them in order.
  void exchange_partials(fold::Walk walk, std::span<const int64_t> rows, stats::Columns& columns) const {
    size_t slice_bytes = 0;
    for (const int64_t row : rows) slice_bytes += whole_.wire_bytes(walk, row);
    const auto most = static_cast<size_t>(cut_.most_slices());
    core::Array<std::byte> mine(most * slice_bytes), all(mine.size() * static_cast<size_t>(group_.size()));
    std::byte* to = mine.data();
    for (const Slice& slice : slices_) {
      for (size_t i = 0; i < rows.size(); ++i) {
        to = slice.schedule ? slice.schedule->partials().put(walk, rows[i], static_cast<int64_t>(i), columns, to)
                            : whole_.put_empty(walk, rows[i], to);
      }
    }
    group_.all_gather(std::span<const std::byte>(mine), std::span(all));
    bool first = true;
    for (size_t r = 0; r < cut_.slices.size(); ++r) {
      const std::byte* from = all.data() + r * mine.size();
      for (int64_t s = 0; s < cut_.slices[r]; ++s, first = false) {
        for (size_t i = 0; i < rows.size(); ++i) {
          from = whole_.join(walk, rows[i], static_cast<int64_t>(i), first, from, columns);
        }
      }
    }
  }

  const detail::ContextState& context_;
  const HiddenProblem& problem_;
  const GradientMatrices& outputs_;
  const ranks::Cut& cut_;
  ranks::Group& group_;
  const planning::RunPlan plan_;
  const fold::CallPartials whole_;  // partials of the whole vocabulary
  core::Arena arena_;               // memory of whole_
  core::Array<size_t> row_offsets_;
  ranks::SliceSums hidden_sums_;
  ranks::SliceSums lora_sums_;  // of d_lora_a or d_lora_states
  core::Array<Slice> slices_;
};

}  // namespace

std::shared_ptr<Schedule> sliced_schedule(const detail::ContextState& context, const HiddenProblem& problem,
                                          const GradientMatrices& outputs, const ranks::Cut& cut,
                                          const planning::RunPlan& run) {
  return core::make_shared<SlicedSchedule>(context, problem, outputs, cut, run);
}

}  // namespace logitless::stream

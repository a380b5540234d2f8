// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "stream/sliced_schedule.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "core/arena.h"
#include "core/views.h"
#include "plan/planner.h"
#include "ranks/cut.h"
#include "ranks/row_sums.h"
#include "sink/hidden_sink.h"
#include "sink/store_sums.h"
#include "source/head.h"
#include "stats/row_stats_wire.h"
#include "stats/tile_kernels.h"

namespace logitless::stream {
namespace {

// Returns the problem on vocabulary entries [first, first + count) of those that are here.
HiddenProblem problem_of(const HiddenProblem& problem, int64_t first, int64_t count) {
  HiddenProblem out = problem;
  out.cut = nullptr;
  out.first_entry = problem.first_entry + first;
  out.entries = count;
  out.head = source::slice(problem.head, first, count);
  return out;
}

DType sum_type(const HiddenProblem& problem) { return problem.in_double() ? DType::kFloat64 : DType::kFloat32; }

// Returns outputs on vocabulary entries [first, first + count), without d_hidden.
Gradients outputs_of(const Gradients& outputs, const HiddenProblem& problem, int64_t first, int64_t count) {
  Gradients out = outputs;
  out.d_weight = source::Layout(problem.head.layout).entries_of(outputs.d_weight, first, count);
  out.d_bias = source::entries_of(outputs.d_bias, first, count);
  if (outputs.weight_sink) {
    out.weight_sink = [&sink = outputs.weight_sink, first](int64_t entry, int64_t entries, ConstMatrix tile) {
      sink(first + entry, entries, tile);
    };
  }
  out.d_hidden = out.d_hidden_second = {};
  out.d_hidden_mode = WriteMode::kOverwrite;
  out.d_hidden_batch_stride = out.d_hidden_second_batch_stride = {};
  return out;
}

// Lets d_hidden, both halves of it, be the rows of `sums` [N, H].
void set_sums(const HiddenProblem& problem, void* sums, Gradients& outputs) {
  const DType dtype = sum_type(problem);
  const int64_t h = problem.hidden_size;
  outputs.d_hidden = Matrix(sums, dtype, problem.hidden.rows, h);
  outputs.d_hidden_second =
      Matrix(core::element(sums, dtype, problem.hidden.rows * h), dtype, problem.hidden_second.rows, h);
}

// Returns what is planned for all slices: the largest one, with sums of d_hidden of its own, and with the
// types that all ranks have. Nothing of it is read or written.
struct Planned {
  HiddenProblem problem;
  Gradients outputs;

  Planned(const HiddenProblem& whole, const Gradients& wanted) : problem(whole) {
    const ranks::HeadTypes& types = whole.cut->types;
    const auto dtype = [](int64_t type) { return static_cast<DType>(type); };
    const int64_t entries = problem.entries = whole.cut->most_entries(), h = problem.hidden_size;
    problem.head.layout = static_cast<HeadLayout>(types.layout);
    const source::Layout layout(problem.head.layout);
    const int64_t rows = layout.rows(entries, h), cols = layout.cols(entries, h);
    problem.head.weight = ConstMatrix(this, dtype(types.weight), rows, cols);
    problem.head.bias = {};
    if (types.bias >= 0) problem.head.bias = ConstVector(this, dtype(types.bias), entries);
    if (types.d_weight >= 0) outputs.d_weight = Matrix(this, dtype(types.d_weight), rows, cols);
    if (types.d_bias >= 0) outputs.d_bias = Vector(this, dtype(types.d_bias), entries);
    if (types.weight_sink >= 0) outputs.weight_sink = [](int64_t, int64_t, const ConstMatrix&) {};
    outputs.d_weight_mode = wanted.d_weight_mode;
    outputs.d_bias_mode = wanted.d_bias_mode;
    if (wanted.wants_d_hidden()) set_sums(problem, this, outputs);
  }
};

std::string name_of_type(int64_t type) { return type < 0 ? "none" : name_of(static_cast<DType>(type)); }

// States the plan and the outputs. Throws RankError where ranks plan different work, or were given different
// things.
void agree_on(const HiddenProblem& problem, const plan::RunPlan& run, const plan::Work& work,
              const Gradients& outputs) {
  ranks::Group& group = *problem.cut->group;
  if (!group.is_shared()) return;
  const ranks::HeadTypes& shared = problem.cut->types;
  const ranks::HeadTypes types = problem.entries > 0 ? problem::head_types(problem, outputs) : shared;
  const bool wants_d_hidden = work.backward && outputs.wants_d_hidden();
  const bool sums = wants_d_hidden && !problem.cut->own_d_hidden;
  ranks::Statement& statement = group.statement();
  const auto is = [&](const char* name, std::string value) { statement.say(name, std::move(value), " is "); };
  const auto wanted = [](bool value) { return std::string(value ? "wanted" : "not wanted"); };
  is("lm_head", name_of_type(types.weight));
  is("the layout of lm_head",
     types.layout == static_cast<int64_t>(HeadLayout::kVocabHidden) ? "vocab_hidden" : "hidden_vocab");
  is("bias", name_of_type(types.bias));
  is("d_weight", name_of_type(types.d_weight));
  is("weight_sink", types.weight_sink < 0 ? "none" : "given");
  is("d_bias", name_of_type(types.d_bias));
  is("the forward half", wanted(work.forward));
  is("a gradient", wanted(work.backward));
  is("d_hidden", sums ? name_of_type(static_cast<int64_t>(problem::d_hidden_dtype(outputs))) : wanted(wants_d_hidden));
  is("d_hidden_mode", sums && outputs.d_hidden_mode == WriteMode::kAccumulate ? "accumulate" : "overwrite");
  statement.say("plan", std::string(name_of(run.plan.kind)));
  statement.say("chunks", run.chunk_count());
  statement.say("row_tile", run.grid.row_tile);
  statement.say("vocab_tile", run.grid.vocab_tile);
  group.agree();
}

class SlicedSchedule final : public Schedule {
 public:
  SlicedSchedule(const detail::ContextState& context, const HiddenProblem& problem, const Gradients& outputs,
                 const plan::RunPlan& run)
      : context_(context),
        problem_(problem),
        outputs_(outputs),
        cut_(*problem.cut),
        group_(*cut_.group),
        plan_(run),
        wire_(problem) {
    const std::span<const int64_t> own = cut_.own();
    // The sums of a rank's only slice may stand in d_hidden, where this is one matrix of their type.
    in_place_ = outputs.d_hidden.data && own.size() == 1 && own[0] > 0 &&
                problem::d_hidden_dtype(outputs) == sum_type(problem) &&
                outputs.d_hidden_mode == WriteMode::kOverwrite && d_hidden_is_matrix(problem, outputs);
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
    if (!outputs_.wants_d_hidden()) return;
    stats::with_tile_types(problem_, [&](auto types) { this->template sum_d_hidden<decltype(types)>(); });
  }

 private:
  struct Slice {
    std::shared_ptr<const HiddenProblem> problem;
    std::shared_ptr<const Gradients> outputs;
    std::shared_ptr<core::Arena> sums;        // [N, H] of d_hidden, where they do not stand in the output
    std::shared_ptr<SliceSchedule> schedule;  // null where the slice has no vocabulary entries
    stats::Partials partials;

    bool has_gradients() const { return schedule && outputs->any(); }
  };

  void make_slice(int64_t first, int64_t entries, Slice& slice) {
    slice.problem = core::make_shared<const HiddenProblem>(problem_of(problem_, first, entries));
    Gradients outputs = outputs_of(outputs_, problem_, first, entries);
    if (in_place_) {
      outputs.d_hidden = outputs_.d_hidden;
    } else if (outputs_.wants_d_hidden()) {
      const size_t bytes = static_cast<size_t>(problem_.tokens * problem_.hidden_size) * size_of(sum_type(problem_));
      core::Arena measured;
      measured.take_bytes(bytes);
      slice.sums = core::make_shared<core::Arena>(measured.peak());
      set_sums(problem_, slice.sums->take_bytes(bytes), outputs);
    }
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

  // Returns the sums of d_hidden of a row over the vocabulary entries of a slice.
  const void* sums_of(const Slice& slice, int64_t row) const {
    return d_hidden_row(*slice.problem, *slice.outputs, row).data;
  }

  // Sums d_hidden over the slices, in their order.
  template <class Types>
  void sum_d_hidden() {
    using Sum = typename Types::Sum;
    const auto& table = context_.kernels->of_tiles<Types>();
    const int64_t h = problem_.hidden_size;
    const std::span<const int64_t> rows = problem_.active();
    const auto store = [&](const Sum* sums, int64_t i) {
      void* to = d_hidden_row(problem_, outputs_, rows[static_cast<size_t>(i)]).data;
      sink::store_sums(*context_.kernels, sums, h, outputs_.d_hidden_mode, to, problem::d_hidden_dtype(outputs_));
    };
    const auto load = [&](int64_t i, int64_t s, Sum* to) {
      const Slice& slice = slices_[static_cast<size_t>(s)];
      if (!slice.schedule) return static_cast<void>(std::fill_n(to, h, Sum{0}));
      std::copy_n(static_cast<const Sum*>(sums_of(slice, rows[static_cast<size_t>(i)])), h, to);
    };
    if (!in_place_) {
      sink::clear_other_rows(problem::d_hidden_rows(problem_, outputs_), outputs_.d_hidden_mode,
                             [&](int64_t row) { return problem_.takes_part(row); });
    }
    const auto count = static_cast<int64_t>(rows.size());
    if (!cut_.own_d_hidden && group_.size() > 1) return sum_over_group<Sum>(count, table, load, store);
    if (in_place_) return;
    core::Array<Sum> part(static_cast<size_t>(h)), total(static_cast<size_t>(h));
    for (int64_t i = 0; i < count; ++i) {
      std::fill(total.begin(), total.end(), Sum{0});
      for (size_t s = 0; s < slices_.size(); ++s) {
        load(i, static_cast<int64_t>(s), part.data());
        table.add(part.data(), h, total.data());
      }
      store(total.data(), i);
    }
  }

  // Sums travel as they are stored, where storing them is all that becomes of them.
  template <class Sum, class Load, class StoreSums>
  void sum_over_group(int64_t count, const kernels::TypedKernels<Sum>& table, const Load& load_sums,
                      const StoreSums& store_sums_of) {
    const int64_t h = problem_.hidden_size;
    const DType dtype = problem::d_hidden_dtype(outputs_);
    const bool stored = outputs_.d_hidden_mode == WriteMode::kOverwrite;
    const size_t bytes = stored ? size_of(dtype) : sizeof(Sum);
    const auto load = [&](int64_t i, int64_t s, std::byte* to) { load_sums(i, s, reinterpret_cast<Sum*>(to)); };
    const auto add = [&](const std::byte* from, Sum* to) { table.add(reinterpret_cast<const Sum*>(from), h, to); };
    const auto finish = [&](const Sum* sums, std::byte* to) {
      if (stored) return sink::store_sums(*context_.kernels, sums, h, WriteMode::kOverwrite, to, dtype);
      std::memcpy(to, sums, static_cast<size_t>(h) * bytes);
    };
    const auto store = [&](const std::byte* from, int64_t i) {
      if (!stored) return store_sums_of(reinterpret_cast<const Sum*>(from), i);
      void* to = d_hidden_row(problem_, outputs_, problem_.active()[static_cast<size_t>(i)]).data;
      std::memcpy(to, from, static_cast<size_t>(h) * bytes);
    };
    ranks::sum_over_ranks<Sum>(group_, cut_.slices, count, h, {sizeof(Sum), static_cast<int64_t>(bytes)},
                               plan_.plan.threads, load, add, finish, store);
  }

  const detail::ContextState& context_;
  const HiddenProblem& problem_;
  const Gradients& outputs_;
  const ranks::Cut& cut_;
  ranks::Group& group_;
  const plan::RunPlan plan_;
  stats::RowStatsWire wire_;
  bool in_place_ = false;
  core::Array<Slice> slices_;
};

}  // namespace

plan::RunPlan choose_sliced_plan(const detail::ContextState& context, int threads, const HiddenProblem& problem,
                                 const plan::Work& work, const Gradients& outputs) {
  const Planned planned(problem, outputs);
  plan::RunPlan run = plan::choose_plan(context, threads, planned.problem, work, planned.outputs);
  agree_on(problem, run, work, outputs);
  return run;
}

size_t least_sliced_workspace(const detail::ContextState& context, int threads, const HiddenProblem& problem,
                              const plan::Work& work, const Gradients& outputs) {
  const Planned planned(problem, outputs);
  return plan::least_workspace(context, threads, planned.problem, work, planned.outputs);
}

std::shared_ptr<Schedule> sliced_schedule(const detail::ContextState& context, const HiddenProblem& problem,
                                          const Gradients& outputs, const plan::RunPlan& run) {
  return core::make_shared<SlicedSchedule>(context, problem, outputs, run);
}

}  // namespace logitless::stream

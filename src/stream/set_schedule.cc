// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Rows that are normalised over sets of token ids: the head's rows of these ids are gathered and multiplied,
// a few at a time, and nothing walks the vocabulary. Every sum has an order of its own, which no thread and
// no size of a buffer changes.
#include <omp.h>

#include <algorithm>
#include <cstring>

#include "core/arena.h"
#include "core/integers.h"
#include "core/parallel.h"
#include "core/views.h"
#include "fold/set_rows.h"
#include "plan/set_plan.h"
#include "problem/hidden_rows.h"
#include "problem/id_sets.h"
#include "sink/hidden_sink.h"
#include "sink/store_sums.h"
#include "source/head.h"
#include "stats/row_gradients.h"
#include "stats/tile_kernels.h"
#include "stream/schedule.h"

namespace logitless::stream {
namespace {

using plan::kSetEntries;
using plan::kSetPart;

void few_rows(const kernels::RowKernels& kernels, const kernels::FewRowsArgs<float>& args) {
  kernels.few_rows_f32(args);
}
void few_rows(const kernels::RowKernels& kernels, const kernels::FewRowsArgs<double>& args) {
  kernels.few_rows_f64(args);
}

template <class T>
class SetSchedule final : public Schedule {
 public:
  using PerThread = typename plan::SetBuffers<T>::PerThread;

  SetSchedule(const detail::ContextState& context, const HiddenProblem& problem, const Gradients& outputs,
              const plan::Work& work, const Plan& plan)
      : kernels_(*context.kernels),
        problem_(problem),
        outputs_(outputs),
        team_(plan.threads),
        hidden_(problem.hidden_size),
        head_(problem.head),
        layout_(head_.layout()),
        rows_(kernels_, problem, problem.head.bias, problem.head.softcap),
        arena_(plan.workspace_bytes),
        buffers_(arena_, problem, work, outputs, rows_, team_) {}

  int64_t chunks() const override { return 1; }
  std::span<const int64_t> rows(int64_t) const override { return problem_.active(); }

  void fold(int64_t, stats::Columns& columns) override {
    core::parallel_for(team_, active(), [&](int64_t a) {
      PerThread& mine = scratch();
      const int64_t row = problem_.active()[static_cast<size_t>(a)];
      make_products(row, mine);
      rows_.statistics(row, mine.products, mine.of_row, columns);
    });
  }

  void gradients(int64_t, const TokenStats& stats, const TokenGrads& grads) override {
    core::Array<bool> has_gradient(static_cast<size_t>(problem_.tokens), false);
    for (const int64_t row : problem_.active()) {
      has_gradient[static_cast<size_t>(row)] = stats::has_gradient(problem_, grads, row);
    }
    const problem::Rows<Matrix> d_hidden = problem::d_hidden_rows(problem_, outputs_);
    core::parallel_for(team_, active(), [&](int64_t a) {
      const int64_t row = problem_.active()[static_cast<size_t>(a)];
      if (!has_gradient[static_cast<size_t>(row)]) return;
      PerThread& mine = scratch();
      if (rows_.needs_products()) make_products(row, mine);
      T* const of_row = buffers_.gradients + problem_.pick_begin(row);
      rows_.gradient(row, mine.products, stats, grads, mine.of_row, of_row);
      if (outputs_.wants_d_hidden()) add_d_hidden(row, of_row, d_hidden.place(row).data, d_hidden.dtype, mine);
    });
    if (outputs_.wants_d_hidden()) {
      sink::clear_other_rows(d_hidden, outputs_.d_hidden_mode,
                             [&](int64_t row) { return has_gradient[static_cast<size_t>(row)]; });
    }
    if (!buffers_.entries) return;
    sort_entries(has_gradient);
    if (outputs_.weight_sink) {
      hand_on_d_weight();
    } else if (outputs_.d_weight.data) {
      core::parallel_for(team_, core::div_up(problem_.vocab_size, kSetEntries),
                         [&](int64_t tile) { store_d_weight(tile * kSetEntries); });
    }
    if (outputs_.d_bias.data) make_d_bias();
  }

 private:
  int64_t active() const { return static_cast<int64_t>(problem_.active().size()); }
  PerThread& scratch() { return buffers_.threads[static_cast<size_t>(omp_get_thread_num())]; }

  // Calls visit(first column, count) for a row's distinct ids, whose head's rows are gathered then.
  template <class Visit>
  void for_each_part(int64_t row, PerThread& mine, const Visit& visit) const {
    int64_t columns = 0;
    problem::for_each_distinct(problem_, row, [&](int64_t column, int64_t, int64_t, int64_t id) {
      head_.copy_entry(kernels_, id,
                       mine.gathered + static_cast<size_t>(column % kSetPart * hidden_) * size_of(head_.dtype()));
      columns = column + 1;
      if (columns % kSetPart == 0) visit(columns - kSetPart, kSetPart);
    });
    if (columns % kSetPart != 0) visit(columns - columns % kSetPart, columns % kSetPart);
  }

  void make_products(int64_t row, PerThread& mine) const {
    const void* states = problem::hidden_rows(problem_).place(row).data;
    kernels::FewRowsArgs<T> args;
    args.rows = 1;
    args.depth = hidden_;
    args.a = kernels_.values(states, problem_.hidden.dtype, hidden_, mine.states);
    args.a_stride = args.b_stride = hidden_;
    args.b = mine.gathered;
    args.b_dtype = head_.dtype();
    args.b_transposed = true;
    args.c_stride = kSetPart;
    for_each_part(row, mine, [&](int64_t first, int64_t count) {
      args.cols = count;
      args.c = mine.products + first;
      few_rows(kernels_, args);
    });
  }

  // Computes sums (+)= Σ_k factors[k] gathered[k].
  void add_gathered(const T* factors, int64_t count, const std::byte* gathered, DType dtype, bool first,
                    T* sums) const {
    kernels::FewRowsArgs<T> args;
    args.rows = 1;
    args.cols = hidden_;
    args.depth = count;
    args.a = factors;
    args.a_stride = count;
    args.b = gathered;
    args.b_dtype = dtype;
    args.b_stride = args.c_stride = hidden_;
    args.c = sums;
    args.accumulate = !first;
    few_rows(kernels_, args);
  }

  void add_d_hidden(int64_t row, const T* gradients, void* to, DType dtype, PerThread& mine) const {
    for_each_part(row, mine, [&](int64_t first, int64_t count) {
      add_gathered(gradients + first, count, mine.gathered, head_.dtype(), first == 0, mine.sums);
    });
    sink::store_sums(kernels_, mine.sums, hidden_, outputs_.d_hidden_mode, to, dtype);
  }

  // Lists the rows of each vocabulary entry, in their order.
  void sort_entries(const core::Array<bool>& has_gradient) {
    int64_t* const offsets = buffers_.offsets;
    std::fill_n(offsets, problem_.vocab_size + 1, int64_t{0});
    const auto for_each = [&](const auto& visit) {
      for (const int64_t row : problem_.active()) {
        if (!has_gradient[static_cast<size_t>(row)]) continue;
        problem::for_each_distinct(problem_, row, [&](int64_t column, int64_t, int64_t, int64_t id) {
          visit(id, plan::SetEntry{row, problem_.pick_begin(row) + column});
        });
      }
    };
    for_each([&](int64_t id, const plan::SetEntry&) { ++offsets[id]; });
    int64_t before = 0;
    for (int64_t id = 0; id <= problem_.vocab_size; ++id) {
      const int64_t count = offsets[id];
      offsets[id] = before;
      before += count;
    }
    for_each([&](int64_t id, const plan::SetEntry& entry) { buffers_.entries[offsets[id]++] = entry; });
    // Each offset has moved to the end of its entry, which is where the next one begins.
    std::copy_backward(offsets, offsets + problem_.vocab_size, offsets + problem_.vocab_size + 1);
    offsets[0] = 0;
  }

  // Sums d_weight of one vocabulary entry, which has rows.
  void sum_entry(int64_t id, PerThread& mine, T* sums) const {
    const problem::Rows<ConstMatrix> states = problem::hidden_rows(problem_);
    const size_t bytes = static_cast<size_t>(hidden_) * size_of(states.dtype);
    const int64_t begin = buffers_.offsets[id], end = buffers_.offsets[id + 1];
    for (int64_t first = begin; first < end; first += kSetPart) {
      const int64_t count = std::min(kSetPart, end - first);
      for (int64_t k = 0; k < count; ++k) {
        const plan::SetEntry& entry = buffers_.entries[first + k];
        mine.factors[k] = buffers_.gradients[entry.gradient];
        std::memcpy(mine.gathered + static_cast<size_t>(k) * bytes, states.place(entry.row).data, bytes);
      }
      add_gathered(mine.factors, count, mine.gathered, states.dtype, first == begin, sums);
    }
  }

  // Makes vocabulary entries [first, first + count) of d_weight in the head's layout.
  ConstMatrix make_tile(int64_t first, int64_t count, PerThread& mine) const {
    const bool hidden_vocab = layout_.is_hidden_vocab();
    const int64_t rows = layout_.rows(count, hidden_), cols = layout_.cols(count, hidden_);
    std::fill_n(mine.tile, count * hidden_, T{0});
    for (int64_t entry = 0; entry < count; ++entry) {
      if (buffers_.offsets[first + entry] == buffers_.offsets[first + entry + 1]) continue;
      T* const sums = hidden_vocab ? mine.sums : mine.tile + entry * hidden_;
      sum_entry(first + entry, mine, sums);
      for (int64_t h = 0; hidden_vocab && h < hidden_; ++h) mine.tile[h * cols + entry] = sums[h];
    }
    return ConstMatrix(mine.tile, rows, cols, cols);
  }

  int64_t entries_from(int64_t first) const { return std::min(kSetEntries, problem_.vocab_size - first); }

  void store_d_weight(int64_t first) {
    const int64_t count = entries_from(first);
    // What is added to changes nowhere else.
    const bool adds = outputs_.d_weight_mode == WriteMode::kAccumulate;
    if (adds && buffers_.offsets[first] == buffers_.offsets[first + count]) return;
    const ConstMatrix tile = make_tile(first, count, scratch());
    const Matrix out = layout_.entries_of(outputs_.d_weight, first, count);
    for (int64_t r = 0; r < tile.rows; ++r) {
      sink::store_sums(kernels_, static_cast<const T*>(tile.data) + r * tile.stride, tile.cols, outputs_.d_weight_mode,
                       core::element(out.data, out.dtype, r * out.stride), out.dtype);
    }
  }

  // Tiles go to the callback in the order of the vocabulary; those of a team are made together.
  void hand_on_d_weight() {
    for (int64_t begin = 0; begin < problem_.vocab_size; begin += team_ * kSetEntries) {
      const int64_t tiles = std::min<int64_t>(team_, core::div_up(problem_.vocab_size - begin, kSetEntries));
      core::parallel_for(team_, tiles, [&](int64_t t) {
        const int64_t first = begin + t * kSetEntries;
        make_tile(first, entries_from(first), buffers_.threads[static_cast<size_t>(t)]);
      });
      for (int64_t t = 0; t < tiles; ++t) {
        const int64_t first = begin + t * kSetEntries, count = entries_from(first);
        const int64_t cols = layout_.cols(count, hidden_);
        outputs_.weight_sink(first, count,
                             ConstMatrix(static_cast<const T*>(buffers_.threads[static_cast<size_t>(t)].tile),
                                         layout_.rows(count, hidden_), cols, cols));
      }
    }
  }

  void make_d_bias() {
    for (int64_t id = 0; id < problem_.vocab_size; ++id) {
      T sum = 0;
      for (int64_t first = buffers_.offsets[id]; first < buffers_.offsets[id + 1]; first += kSetPart) {
        T part = 0;
        for (int64_t k = first; k < std::min(first + kSetPart, buffers_.offsets[id + 1]); ++k) {
          part += buffers_.gradients[buffers_.entries[k].gradient];
        }
        sum += part;
      }
      buffers_.bias[id] = sum;
    }
    const Vector& out = outputs_.d_bias;
    sink::store_sums(kernels_, buffers_.bias, problem_.vocab_size, outputs_.d_bias_mode, out.data, out.dtype);
  }

  const kernels::RowKernels& kernels_;
  const HiddenProblem& problem_;
  const Gradients& outputs_;
  const int team_;
  const int64_t hidden_;
  const source::Head head_;
  const source::Layout& layout_;
  const fold::SetRows<T> rows_;
  core::Arena arena_;
  plan::SetBuffers<T> buffers_;
};

}  // namespace

std::shared_ptr<Schedule> set_schedule(const detail::ContextState& context, const HiddenProblem& problem,
                                       const Gradients& outputs, const plan::Work& work, const Plan& plan) {
  return stats::with_tile_types(problem, [&](auto types) -> std::shared_ptr<Schedule> {
    return core::make_shared<SetSchedule<typename decltype(types)::Sum>>(context, problem, outputs, work, plan);
  });
}

}  // namespace logitless::stream

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Rows normalised over sets of token ids: the head's rows of these ids are gathered and multiplied, a few at
// a time, without a pass over the vocabulary. The order of every sum is independent of the threads and of
// buffer sizes.
#include <omp.h>

#include <algorithm>
#include <optional>
#include <span>

#include "core/arena.h"
#include "core/integers.h"
#include "core/parallel.h"
#include "core/views.h"
#include "fold/set_rows.h"
#include "planning/set_plan.h"
#include "problem/hidden_rows.h"
#include "problem/id_sets.h"
#include "sink/hidden_sink.h"
#include "sink/lora_sink.h"
#include "sink/store_sums.h"
#include "source/source.h"
#include "stats/row_gradients.h"
#include "stats/tile_kernels.h"
#include "stream/schedule.h"

namespace logitless::stream {
namespace {

using planning::kSetEntries;
using planning::kSetPart;

template <class T>
class SetSchedule final : public Schedule {
 public:
  using PerThread = typename planning::SetBuffers<T>::PerThread;

  SetSchedule(const detail::ContextState& context, const HiddenProblem& problem, const GradientMatrices& outputs,
              const planning::Work& work, const Plan& plan)
      : kernels_(*context.kernels),
        problem_(problem),
        outputs_(outputs),
        team_(plan.threads),
        rows_(kernels_, problem, problem.head.bias, problem.head.softcap),
        arena_(plan.workspace_bytes),
        loras_(arena_, problem, {kernels_, *context.gemm, team_}),
        source_(problem, loras_),
        buffers_(arena_, problem, source_, work, outputs, rows_, team_) {
    if (!sink::needs_lora_states(problem, outputs)) return;
    behind_.emplace(kernels_, *context.gemm, problem, outputs, team_);
    behind_->take_lasting(arena_);
    behind_->take(arena_);
  }

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
    core::Array<int64_t> kept;
    kept.reserve(problem_.active().size());
    for (const int64_t row : problem_.active()) {
      if (!stats::has_gradient(problem_, grads, row)) continue;
      has_gradient[static_cast<size_t>(row)] = true;
      kept.push_back(row);
    }
    const problem::Rows<Matrix> d_hidden = problem::d_hidden_rows(problem_, outputs_);
    const problem::Rows<Matrix> lora_states = problem::matrix_rows(outputs_.d_lora_states);
    core::parallel_for(team_, static_cast<int64_t>(kept.size()), [&](int64_t k) {
      const int64_t row = kept[static_cast<size_t>(k)];
      PerThread& mine = scratch();
      if (rows_.needs_products()) make_products(row, mine);
      T* const of_row = buffers_.gradients + problem_.pick_begin(row);
      rows_.gradient(row, mine.products, stats, grads, mine.of_row, of_row);
      if (outputs_.d_lora_states.data) store_d_states(row, of_row, lora_states.place(row).data, mine);
      T* const d_states = behind_ ? buffers_.d_states + k * problem_.head.lora.rank() : nullptr;
      if (d_states) make_d_states(row, of_row, d_states, mine);
      if (!outputs_.wants_d_hidden()) return;
      add_d_hidden(row, of_row, d_states, d_hidden.place(row).data, d_hidden.dtype, mine);
    });
    if (behind_) {
      behind_->add(kept, buffers_.d_states, nullptr, team_);
      behind_->finish();
    }
    const auto kept_row = [&](int64_t row) { return has_gradient[static_cast<size_t>(row)]; };
    if (outputs_.wants_d_hidden()) sink::clear_other_rows(d_hidden, outputs_.d_hidden_mode, kept_row);
    if (outputs_.d_lora_states.data) sink::clear_other_rows(lora_states, outputs_.d_lora_mode, kept_row);
    if (!buffers_.entries) return;
    sort_entries(has_gradient);
    const auto store = [&](const Product& product, const Matrix& out, WriteMode mode) {
      core::parallel_for(team_, core::div_up(problem_.vocab_size, kSetEntries),
                         [&](int64_t tile) { store_d_head(product, tile * kSetEntries, out, mode); });
    };
    if (outputs_.weight_sink) {
      hand_on_d_weight();
    } else if (outputs_.d_weight.data) {
      store(weight(), outputs_.d_weight, outputs_.d_weight_mode);
    }
    if (outputs_.d_lora_b.data) store(*source_.lora(), outputs_.d_lora_b, outputs_.d_lora_mode);
    if (outputs_.d_bias.data) make_d_bias();
  }

 private:
  using Product = source::Product;

  int64_t active() const { return static_cast<int64_t>(problem_.active().size()); }
  const Product& weight() const { return source_.products().front(); }
  PerThread& scratch() { return buffers_.threads[static_cast<size_t>(omp_get_thread_num())]; }

  // Calls visit(first column, count) for parts of a row's distinct ids, after gathering the head's rows of
  // the part.
  template <class Visit>
  void for_each_part(const source::Head& head, int64_t row, PerThread& mine, const Visit& visit) const {
    const size_t row_bytes = static_cast<size_t>(head.components()) * size_of(head.dtype());
    int64_t columns = 0;
    problem::for_each_distinct(problem_, row, [&](int64_t column, int64_t, int64_t, int64_t id) {
      head.copy_entry(kernels_, id, mine.gathered + static_cast<size_t>(column % kSetPart) * row_bytes);
      columns = column + 1;
      if (columns % kSetPart == 0) visit(columns - kSetPart, kSetPart);
    });
    if (columns % kSetPart != 0) visit(columns - columns % kSetPart, columns % kSetPart);
  }

  void make_products(int64_t row, PerThread& mine) const {
    for (const Product& product : source_.products()) {
      const int64_t cols = product.states.cols();
      const gemm::Operand states = product.states.operand(std::span(&row, 1), nullptr);
      kernels::FewRowsArgs<T> args;
      args.rows = 1;
      args.depth = cols;
      args.a = kernels_.values(states.data, states.dtype, cols, mine.states);
      args.a_stride = args.b_stride = cols;
      args.b = mine.gathered;
      args.b_dtype = product.head.dtype();
      args.b_transposed = true;
      args.c_stride = kSetPart;
      args.accumulate = &product != &weight();
      for_each_part(product.head, row, mine, [&](int64_t first, int64_t count) {
        args.cols = count;
        args.c = mine.products + first;
        kernels_.typed<T>().few_rows(args);
      });
    }
  }

  // Computes sums (+)= Σ_k factors[k] rows[k], where rows [count, cols] have a stride.
  void add_rows(const T* factors, int64_t count, const gemm::Operand& rows, int64_t cols, bool first, T* sums) const {
    kernels::FewRowsArgs<T> args;
    args.rows = 1;
    args.cols = cols;
    args.depth = count;
    args.a = factors;
    args.a_stride = count;
    args.b = rows.data;
    args.b_dtype = rows.dtype;
    args.b_stride = rows.stride;
    args.c_stride = cols;
    args.c = sums;
    args.accumulate = !first;
    kernels_.typed<T>().few_rows(args);
  }

  // Computes sums = gradients · head of one row.
  void multiply_by_head(const source::Head& head, int64_t row, const T* gradients, T* sums, PerThread& mine) const {
    const int64_t cols = head.components();
    for_each_part(head, row, mine, [&](int64_t first, int64_t count) {
      add_rows(gradients + first, count, {mine.gathered, head.dtype(), cols}, cols, first == 0, sums);
    });
  }

  void store_d_states(int64_t row, const T* gradients, void* to, PerThread& mine) const {
    const source::Head& head = source_.lora()->head;
    multiply_by_head(head, row, gradients, mine.sums, mine);
    sink::store_sums(kernels_, mine.sums, head.components(), outputs_.d_lora_mode, to, outputs_.d_lora_states.dtype);
  }

  // Computes scale · dU of one row.
  void make_d_states(int64_t row, const T* gradients, T* d_states, PerThread& mine) const {
    multiply_by_head(source_.lora()->head, row, gradients, d_states, mine);
    behind_->scale(d_states, 1);
  }

  void add_d_hidden(int64_t row, const T* gradients, const T* d_states, void* to, DType dtype, PerThread& mine) const {
    const int64_t cols = problem_.hidden_size;
    multiply_by_head(weight().head, row, gradients, mine.sums, mine);
    if (d_states) {
      const ConstMatrix& a = problem_.head.lora.a;
      add_rows(d_states, a.rows, {a.data, a.dtype, a.stride}, cols, /*first=*/false, mine.sums);
    }
    sink::store_sums(kernels_, mine.sums, cols, outputs_.d_hidden_mode, to, dtype);
  }

  // Lists the rows of each vocabulary entry, in order.
  void sort_entries(const core::Array<bool>& has_gradient) {
    int64_t* const offsets = buffers_.offsets;
    std::fill_n(offsets, problem_.vocab_size + 1, int64_t{0});
    const auto for_each = [&](const auto& visit) {
      for (const int64_t row : problem_.active()) {
        if (!has_gradient[static_cast<size_t>(row)]) continue;
        problem::for_each_distinct(problem_, row, [&](int64_t column, int64_t, int64_t, int64_t id) {
          visit(id, planning::SetEntry{row, problem_.pick_begin(row) + column});
        });
      }
    };
    for_each([&](int64_t id, const planning::SetEntry&) { ++offsets[id]; });
    int64_t before = 0;
    for (int64_t id = 0; id <= problem_.vocab_size; ++id) {
      const int64_t count = offsets[id];
      offsets[id] = before;
      before += count;
    }
    for_each([&](int64_t id, const planning::SetEntry& entry) { buffers_.entries[offsets[id]++] = entry; });
    // Each offset now points to the end of its entry, the beginning of the next one.
    std::copy_backward(offsets, offsets + problem_.vocab_size, offsets + problem_.vocab_size + 1);
    offsets[0] = 0;
  }

  // Sums the gradient of one vocabulary entry of a head that has rows.
  void sum_entry(const Product& product, int64_t id, PerThread& mine, T* sums) const {
    const int64_t cols = product.states.cols();
    const size_t bytes = product.states.row_bytes();
    const int64_t begin = buffers_.offsets[id], end = buffers_.offsets[id + 1];
    for (int64_t first = begin; first < end; first += kSetPart) {
      const int64_t count = std::min(kSetPart, end - first);
      for (int64_t k = 0; k < count; ++k) {
        const planning::SetEntry& entry = buffers_.entries[first + k];
        mine.factors[k] = buffers_.gradients[entry.gradient];
        product.states.gather(std::span(&entry.row, 1), 1, mine.gathered + static_cast<size_t>(k) * bytes);
      }
      add_rows(mine.factors, count, {mine.gathered, product.states.dtype(), cols}, cols, first == begin, sums);
    }
  }

  // Computes entries [first, first + count) of a head's gradient in its layout.
  ConstMatrix make_tile(const Product& product, int64_t first, int64_t count, PerThread& mine) const {
    const source::Layout& layout = product.head.layout();
    const int64_t width = product.head.components();
    const bool hidden_vocab = layout.is_hidden_vocab();
    const int64_t rows = layout.rows(count, width), cols = layout.cols(count, width);
    std::fill_n(mine.tile, count * width, T{0});
    for (int64_t entry = 0; entry < count; ++entry) {
      if (buffers_.offsets[first + entry] == buffers_.offsets[first + entry + 1]) continue;
      T* const sums = hidden_vocab ? mine.sums : mine.tile + entry * width;
      sum_entry(product, first + entry, mine, sums);
      for (int64_t h = 0; hidden_vocab && h < width; ++h) mine.tile[h * cols + entry] = sums[h];
    }
    return ConstMatrix(mine.tile, rows, cols, cols);
  }

  int64_t entries_from(int64_t first) const { return std::min(kSetEntries, problem_.vocab_size - first); }

  void store_d_head(const Product& product, int64_t first, const Matrix& all, WriteMode mode) {
    const int64_t count = entries_from(first);
    // Accumulating nothing changes nothing.
    const bool adds = mode == WriteMode::kAccumulate;
    if (adds && buffers_.offsets[first] == buffers_.offsets[first + count]) return;
    const ConstMatrix tile = make_tile(product, first, count, scratch());
    const Matrix out = product.head.layout().entries_of(all, first, count);
    for (int64_t r = 0; r < tile.rows; ++r) {
      sink::store_sums(kernels_, static_cast<const T*>(tile.data) + r * tile.stride, tile.cols, mode,
                       core::element(out.data, out.dtype, r * out.stride), out.dtype);
    }
  }

  // The callback gets tiles in vocabulary order; a team computes several at once.
  void hand_on_d_weight() {
    for (int64_t begin = 0; begin < problem_.vocab_size; begin += team_ * kSetEntries) {
      const int64_t tiles = std::min<int64_t>(team_, core::div_up(problem_.vocab_size - begin, kSetEntries));
      core::parallel_for(team_, tiles, [&](int64_t t) {
        const int64_t first = begin + t * kSetEntries;
        make_tile(weight(), first, entries_from(first), buffers_.threads[static_cast<size_t>(t)]);
      });
      for (int64_t t = 0; t < tiles; ++t) {
        const int64_t first = begin + t * kSetEntries, count = entries_from(first);
        const source::Layout& layout = weight().head.layout();
        const int64_t width = problem_.hidden_size, cols = layout.cols(count, width);
        outputs_.weight_sink(first, count,
                             ConstMatrix(static_cast<const T*>(buffers_.threads[static_cast<size_t>(t)].tile),
                                         layout.rows(count, width), cols, cols));
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
  const GradientMatrices& outputs_;
  const int team_;
  const fold::SetRows<T> rows_;
  core::Arena arena_;
  const source::LoraStates loras_;
  const source::Source source_;
  planning::SetBuffers<T> buffers_;
  std::optional<sink::BehindLora<T>> behind_;  // set if dU is needed
};

}  // namespace

std::shared_ptr<Schedule> set_schedule(const detail::ContextState& context, const HiddenProblem& problem,
                                       const GradientMatrices& outputs, const planning::Work& work, const Plan& plan) {
  return stats::with_tile_types(problem, [&](auto types) -> std::shared_ptr<Schedule> {
    return core::make_shared<SetSchedule<typename decltype(types)::Sum>>(context, problem, outputs, work, plan);
  });
}

}  // namespace logitless::stream

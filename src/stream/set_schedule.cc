// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Hidden states whose rows are normalised over sets of token ids: the head's rows of these ids are gathered
// and multiplied, a few at a time, without a pass over the vocabulary. The order of every sum is independent
// of the threads and of buffer sizes.
#include <omp.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <span>
#include <type_traits>

#include "core/arena.h"
#include "core/integers.h"
#include "core/parallel.h"
#include "core/views.h"
#include "fold/row_walk.h"
#include "planning/planner.h"
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

// Rows of a head, or of hidden states, that are copied and multiplied together: 96 KiB for 1,536 float32
// components, which stay in L2. Sums accumulate kSetPart rows at a time.
constexpr int64_t kSetPart = 16;
// Vocabulary entries of d_weight that a thread sums at a time, and that a callback gets at once.
constexpr int64_t kSetEntries = 64;

template <class Types>
class SetSchedule final : public Schedule {
 public:
  // With workspace_bytes = 0, the schedule only measures its memory.
  SetSchedule(const detail::ContextState& context, const HiddenProblem& problem, const GradientMatrices& outputs,
              const planning::Computation& computation, int team, size_t workspace_bytes)
      : kernels_(*context.kernels),
        problem_(problem),
        outputs_(outputs),
        team_(team),
        most_picks_(problem.most_picks()),
        arena_(workspace_bytes > 0 ? core::Arena(workspace_bytes) : core::Arena()),
        loras_(arena_, problem, {kernels_, *context.gemm, team_}),
        source_(problem, loras_),
        tiles_(kernels_, problem, most_picks_, {nullptr, problem.head.softcap}),
        walk_({problem, &tiles_}, {}, {}, arena_, {.threads = team_, .vocab_tile = most_picks_},
              [this](int64_t row, T* to) { return make_logits(row, to); }),
        threads_(static_cast<size_t>(team)) {
    const bool sums_head = outputs.d_weight.data || outputs.weight_sink || outputs.d_lora_b.data;
    int64_t widest = 0;
    size_t row_bytes = 0;
    bool narrow = false;
    for (const Product& p : source_.products()) {
      const int64_t cols = p.states.cols();
      widest = std::max(widest, cols);
      row_bytes =
          std::max(row_bytes, static_cast<size_t>(cols) * std::max(size_of(p.states.dtype()), size_of(p.head.dtype())));
      narrow |= core::is_narrow<T>(p.states.dtype());
    }
    for (PerThread& one : threads_) {
      one.gathered = arena_.take<std::byte>(kSetPart * static_cast<int64_t>(row_bytes));
      if (narrow) one.states = arena_.take<T>(widest);
      if (!computation.backward) continue;
      one.sums = arena_.take<T>(widest);
      one.factors = arena_.take<T>(kSetPart);
      if (sums_head) one.tile = arena_.take<T>(kSetEntries * widest);
    }
    if (!computation.backward) return;
    gradients_ = arena_.take<T>(problem.pick_entries());
    if (sums_head || outputs.d_bias.data) {
      offsets_ = arena_.take<int64_t>(problem.vocab_size + 1);
      entries_ = arena_.take<Entry>(problem.pick_entries());
    }
    if (outputs.d_bias.data) bias_ = arena_.take<T>(problem.vocab_size);
    if (!sink::needs_lora_states(problem, outputs)) return;
    d_states_ = arena_.take<T>(active() * problem.head.lora.rank());
    a_gradients_.emplace(kernels_, *context.gemm, problem, outputs, team_);
    a_gradients_->take_lasting(arena_);
    a_gradients_->take(arena_);
  }

  size_t workspace_bytes() const { return arena_.peak(); }

  int64_t chunks() const override { return 1; }
  std::span<const int64_t> rows(int64_t) const override { return problem_.active(); }

  void fold(int64_t, stats::Columns& columns) override {
    core::parallel_for(team_, active(),
                       [&](int64_t a) { walk_.statistics(problem_.active()[static_cast<size_t>(a)], columns); });
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
      T* const of_row = gradients_ + problem_.pick_begin(row);
      walk_.set_gradient(row, stats, grads, of_row);
      if (outputs_.d_lora_states.data) {
        store_d_states(source_.lora()->head, row, of_row, nullptr, lora_states, outputs_.d_lora_mode);
      }
      T* const d_states = a_gradients_ ? d_states_ + k * problem_.head.lora.rank() : nullptr;
      if (d_states) {
        multiply_by_head(source_.lora()->head, row, of_row, d_states);
        a_gradients_->scale(d_states, 1);
      }
      if (outputs_.wants_d_hidden()) {
        store_d_states(weight().head, row, of_row, d_states, d_hidden, outputs_.d_hidden_mode);
      }
    });
    if (a_gradients_) {
      a_gradients_->add(kept, d_states_, nullptr, team_);
      a_gradients_->finish();
    }
    const auto kept_row = [&](int64_t row) { return has_gradient[static_cast<size_t>(row)]; };
    if (outputs_.wants_d_hidden()) sink::clear_other_rows(d_hidden, outputs_.d_hidden_mode, kept_row);
    if (outputs_.d_lora_states.data) sink::clear_other_rows(lora_states, outputs_.d_lora_mode, kept_row);
    if (!entries_) return;
    sort_entries(kept);
    if (outputs_.weight_sink) {
      call_weight_sink();
    } else if (outputs_.d_weight.data) {
      store_d_head(weight(), outputs_.d_weight, outputs_.d_weight_mode);
    }
    if (outputs_.d_lora_b.data) store_d_head(*source_.lora(), outputs_.d_lora_b, outputs_.d_lora_mode);
    if (outputs_.d_bias.data) make_d_bias();
  }

 private:
  using T = typename Types::Sum;
  using Product = source::Product;

  struct PerThread {
    std::byte* gathered = nullptr;  // [kSetPart, widest], in the type of a head or of its states
    T* states = nullptr;            // [widest]
    T* sums = nullptr;              // [widest]: sums of d_hidden, or of a vocabulary entry
    T* tile = nullptr;              // [kSetEntries, widest] in the head's layout
    T* factors = nullptr;           // [kSetPart]
  };
  // A row that has a gradient at a vocabulary entry.
  struct Entry {
    int64_t row = 0;
    int64_t gradient = 0;  // index in gradients_
  };

  int64_t active() const { return static_cast<int64_t>(problem_.active().size()); }
  const Product& weight() const { return source_.products().front(); }
  const PerThread& scratch() const { return threads_[static_cast<size_t>(omp_get_thread_num())]; }

  // Calls visit(first column, count) for parts of a row's distinct ids, after gathering the head's rows of
  // the part. Returns the number of distinct ids.
  template <class Visit>
  int64_t for_each_part(const source::Head& head, int64_t row, const Visit& visit) const {
    const size_t row_bytes = static_cast<size_t>(head.components()) * size_of(head.dtype());
    std::byte* const to = scratch().gathered;
    int64_t columns = 0;
    problem::for_each_distinct(problem_, row, [&](int64_t column, int64_t, int64_t, int64_t id) {
      head.copy_entry(kernels_, id, to + static_cast<size_t>(column % kSetPart) * row_bytes);
      columns = column + 1;
      if (columns % kSetPart == 0) visit(columns - kSetPart, kSetPart);
    });
    if (columns % kSetPart != 0) visit(columns - columns % kSetPart, columns % kSetPart);
    return columns;
  }

  // Computes c [cols] (+)= a [depth] · op(B).
  void multiply(const T* a, int64_t depth, const gemm::Operand& b, int64_t cols, bool accumulate, T* c) const {
    kernels::FewRowsArgs<T> args;
    args.rows = 1;
    args.cols = args.c_stride = cols;
    args.depth = args.a_stride = depth;
    args.a = a;
    args.b = b.data;
    args.b_dtype = b.dtype;
    args.b_stride = b.stride;
    args.b_transposed = b.transposed;
    args.c = c;
    args.accumulate = accumulate;
    kernels_.typed<T>().few_rows(args);
  }

  // Writes a row's logits for its distinct ids, including the bias, and returns their number.
  int64_t make_logits(int64_t row, T* logits) const {
    const PerThread& mine = scratch();
    int64_t columns = 0;
    for (const Product& product : source_.products()) {
      const int64_t depth = product.states.cols();
      const gemm::Operand in_place = product.states.operand(std::span(&row, 1), nullptr);
      const T* const states = kernels_.values(in_place.data, in_place.dtype, depth, mine.states);
      columns = for_each_part(product.head, row, [&](int64_t first, int64_t count) {
        const gemm::Operand head = {mine.gathered, product.head.dtype(), depth, true};
        multiply(states, depth, head, count, &product != &weight(), logits + first);
      });
    }
    const ConstVector& bias = problem_.head.bias;
    if (!bias.data) return columns;
    problem::for_each_distinct(problem_, row, [&](int64_t column, int64_t, int64_t, int64_t id) {
      logits[column] += static_cast<T>(core::read(bias, id));
    });
    return columns;
  }

  // Computes sums = gradients · head of one row.
  void multiply_by_head(const source::Head& head, int64_t row, const T* gradients, T* sums) const {
    const int64_t cols = head.components();
    for_each_part(head, row, [&](int64_t first, int64_t count) {
      multiply(gradients + first, count, {scratch().gathered, head.dtype(), cols}, cols, first > 0, sums);
    });
  }

  // Stores the gradient of a row's states: gradients · head, plus d_states · a unless d_states is null.
  void store_d_states(const source::Head& head, int64_t row, const T* gradients, const T* d_states,
                      const problem::Rows<Matrix>& to, WriteMode mode) const {
    T* const sums = scratch().sums;
    multiply_by_head(head, row, gradients, sums);
    if (d_states) {
      const ConstMatrix& a = problem_.head.lora.a;
      multiply(d_states, a.rows, {a.data, a.dtype, a.stride}, head.components(), /*accumulate=*/true, sums);
    }
    sink::store_sums(kernels_, sums, head.components(), mode, to.place(row).data, to.dtype);
  }

  // Lists the rows of each vocabulary entry, in order.
  void sort_entries(const core::Array<int64_t>& kept) {
    std::fill_n(offsets_, problem_.vocab_size + 1, int64_t{0});
    const auto for_each = [&](const auto& visit) {
      for (const int64_t row : kept) {
        problem::for_each_distinct(problem_, row, [&](int64_t column, int64_t, int64_t, int64_t id) {
          visit(id, Entry{row, problem_.pick_begin(row) + column});
        });
      }
    };
    for_each([&](int64_t id, const Entry&) { ++offsets_[id]; });
    std::exclusive_scan(offsets_, offsets_ + problem_.vocab_size + 1, offsets_, int64_t{0});
    for_each([&](int64_t id, const Entry& entry) { entries_[offsets_[id]++] = entry; });
    // Each offset now is the end of its entry's list, where the next list begins.
    std::copy_backward(offsets_, offsets_ + problem_.vocab_size, offsets_ + problem_.vocab_size + 1);
    offsets_[0] = 0;
  }

  // Sums the gradient of one vocabulary entry of a product's head. The entry must have rows.
  void sum_entry(const Product& product, int64_t id, const PerThread& mine, T* sums) const {
    const int64_t cols = product.states.cols(), begin = offsets_[id], end = offsets_[id + 1];
    for (int64_t first = begin; first < end; first += kSetPart) {
      const int64_t count = std::min(kSetPart, end - first);
      for (int64_t k = 0; k < count; ++k) {
        const Entry& entry = entries_[first + k];
        mine.factors[k] = gradients_[entry.gradient];
        product.states.gather(std::span(&entry.row, 1), 1,
                              mine.gathered + static_cast<size_t>(k) * product.states.row_bytes());
      }
      multiply(mine.factors, count, {mine.gathered, product.states.dtype(), cols}, cols, first > begin, sums);
    }
  }

  int64_t entries_from(int64_t first) const { return std::min(kSetEntries, problem_.vocab_size - first); }

  // Computes the gradients of kSetEntries entries of a head, from `first` on, in its layout.
  ConstMatrix make_tile(const Product& product, int64_t first, const PerThread& mine) const {
    const int64_t count = entries_from(first), width = product.head.components();
    const source::Layout& layout = product.head.layout();
    const bool hidden_vocab = layout.is_hidden_vocab();
    const int64_t rows = layout.rows(count, width), cols = layout.cols(count, width);
    std::fill_n(mine.tile, count * width, T{0});
    for (int64_t entry = 0; entry < count; ++entry) {
      if (offsets_[first + entry] == offsets_[first + entry + 1]) continue;
      T* const sums = hidden_vocab ? mine.sums : mine.tile + entry * width;
      sum_entry(product, first + entry, mine, sums);
      for (int64_t h = 0; hidden_vocab && h < width; ++h) mine.tile[h * cols + entry] = sums[h];
    }
    return ConstMatrix(mine.tile, rows, cols, cols);
  }

  void store_d_head(const Product& product, const Matrix& all, WriteMode mode) const {
    core::parallel_for(team_, core::div_up(problem_.vocab_size, kSetEntries), [&](int64_t t) {
      const int64_t first = t * kSetEntries, count = entries_from(first);
      // No row adds to these entries.
      if (mode == WriteMode::kAccumulate && offsets_[first] == offsets_[first + count]) return;
      const ConstMatrix tile = make_tile(product, first, scratch());
      const Matrix out = product.head.layout().entries_of(all, first, count);
      for (int64_t r = 0; r < tile.rows; ++r) {
        sink::store_sums(kernels_, static_cast<const T*>(tile.data) + r * tile.stride, tile.cols, mode,
                         core::element(out.data, out.dtype, r * out.stride), out.dtype);
      }
    });
  }

  // The callback gets tiles in vocabulary order; a team computes several at once.
  void call_weight_sink() const {
    core::Array<ConstMatrix> tiles(static_cast<size_t>(team_));
    for (int64_t begin = 0; begin < problem_.vocab_size; begin += team_ * kSetEntries) {
      const int64_t count = std::min<int64_t>(team_, core::div_up(problem_.vocab_size - begin, kSetEntries));
      core::parallel_for(team_, count, [&](int64_t t) {
        const auto i = static_cast<size_t>(t);
        tiles[i] = make_tile(weight(), begin + t * kSetEntries, threads_[i]);
      });
      for (int64_t t = 0; t < count; ++t) {
        const int64_t first = begin + t * kSetEntries;
        outputs_.weight_sink(first, entries_from(first), tiles[static_cast<size_t>(t)]);
      }
    }
  }

  void make_d_bias() const {
    for (int64_t id = 0; id < problem_.vocab_size; ++id) {
      T sum = 0;
      for (int64_t first = offsets_[id]; first < offsets_[id + 1]; first += kSetPart) {
        T part = 0;
        for (int64_t k = first; k < std::min(first + kSetPart, offsets_[id + 1]); ++k) {
          part += gradients_[entries_[k].gradient];
        }
        sum += part;
      }
      bias_[id] = sum;
    }
    const Vector& out = outputs_.d_bias;
    sink::store_sums(kernels_, bias_, problem_.vocab_size, outputs_.d_bias_mode, out.data, out.dtype);
  }

  const kernels::RowKernels& kernels_;
  const HiddenProblem& problem_;
  const GradientMatrices& outputs_;
  const int team_;
  const int64_t most_picks_;
  core::Arena arena_;
  const source::LoraStates loras_;
  const source::Source source_;
  const stats::TileKernels<Types> tiles_;
  const fold::RowWalk<Types> walk_;
  core::Array<PerThread> threads_;
  // [picks]: one per distinct id of a row, from its first pick
  T* gradients_ = nullptr;
  int64_t* offsets_ = nullptr;                          // [V + 1] into entries_, by vocabulary entry
  Entry* entries_ = nullptr;                            // [picks], by vocabulary entry and row
  T* bias_ = nullptr;                                   // [V]: sums of d_bias
  T* d_states_ = nullptr;                               // [active rows, r]: gradients of a LoRA's states
  std::optional<sink::LoraAGradients<T>> a_gradients_;  // set if dU is needed
};

size_t measure(const detail::ContextState& context, const HiddenProblem& problem, const GradientMatrices& outputs,
               const planning::Computation& computation, int team) {
  return stats::with_tile_types(problem, [&](auto types) {
    return SetSchedule<decltype(types)>(context, problem, outputs, computation, team, 0).workspace_bytes();
  });
}

}  // namespace

Plan set_plan(const detail::ContextState& context, int threads, const HiddenProblem& problem,
              const GradientMatrices& outputs, const planning::Computation& computation) {
  Plan plan = planning::set_plan(context, threads, problem, computation,
                                 [&](int team) { return measure(context, problem, outputs, computation, team); });
  plan.vocab_tile = kSetPart;
  return plan;
}

size_t least_set_workspace(const detail::ContextState& context, const HiddenProblem& problem,
                           const GradientMatrices& outputs, const planning::Computation& computation) {
  return measure(context, problem, outputs, computation, 1);
}

std::shared_ptr<Schedule> set_schedule(const detail::ContextState& context, const HiddenProblem& problem,
                                       const GradientMatrices& outputs, const planning::Computation& computation,
                                       const Plan& plan) {
  return stats::with_tile_types(problem, [&](auto types) -> std::shared_ptr<Schedule> {
    return core::make_shared<SetSchedule<decltype(types)>>(context, problem, outputs, computation, plan.threads,
                                                           plan.workspace_bytes);
  });
}

}  // namespace logitless::stream

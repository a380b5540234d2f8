// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The gradients of a LoRA's inputs. With G, the gradients of the raw logits, and the states U = scale · x aᵀ,
//
//     dU = G b,   d_a = scale · dUᵀ x,   d_hidden = G w + scale · dU a
//
// A WeightSink computes d_b = Gᵀ U.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>

#include "core/integers.h"
#include "core/parallel.h"
#include "core/views.h"
#include "problem/hidden_rows.h"
#include "sink/hidden_sink.h"
#include "sink/sink.h"
#include "sink/store_sums.h"
#include "source/head.h"
#include "source/states.h"

namespace logitless::sink {

/// Returns whether any requested gradient is computed from dU.
inline bool needs_lora_states(const problem::HiddenProblem& problem, const GradientMatrices& outputs) {
  const LoraMatrices& lora = problem.head.lora;
  return lora.given() && !lora.has_states() && (outputs.wants_d_hidden() || outputs.d_lora_a.data);
}

/// Returns the sizes for a sink whose sums are small enough to be kept apart from any output.
inline Sizes with_sums_apart(Sizes sizes) {
  sizes.hidden_apart = true;
  return sizes;
}

/// Computes d_a and the LoRA's share of d_hidden from dU [rows, r].
template <class Sum>
class LoraAGradients {
 public:
  // A task computes kRows x kColumns sums at a time: 128 KiB of float32, which stay in L2.
  static constexpr int64_t kRows = 64;
  static constexpr int64_t kColumns = 512;

  /// All arguments must outlive this.
  LoraAGradients(const kernels::RowKernels& kernels, const gemm::Backend& gemm, const problem::HiddenProblem& problem,
                 const GradientMatrices& outputs, int threads)
      : kernels_(kernels),
        gemm_(gemm),
        scale_(static_cast<Sum>(problem.head.lora.scale)),
        a_(HeadMatrices(problem.head.lora.a)),
        states_(problem::rows_of(problem)),
        breaks_(states_.breaks()),
        out_(core::with_used_stride(outputs.d_lora_a)),
        mode_(outputs.d_lora_mode),
        apart_(out_.data && core::is_narrow<Sum>(out_.dtype)),
        threads_(static_cast<size_t>(threads)) {}

  void take_lasting(core::Arena& arena) {
    if (apart_) sums_ = arena.take<Sum>(rank() * cols());
  }
  void take(core::Arena& arena) {
    const size_t bytes = std::max(scratch_bytes({kRows, kColumns, rank(), DTypeOf<Sum>::value, a_.dtype()}),
                                  scratch_bytes({rank(), kColumns, kRows, DTypeOf<Sum>::value, states_.dtype()}));
    for (PerThread& mine : threads_) {
      mine.gemm = arena.take_bytes(bytes);
      mine.sums = arena.take<Sum>(kRows * kColumns);
      mine.states = static_cast<std::byte*>(arena.take_bytes(kRows * kColumns * size_of(states_.dtype())));
    }
  }

  /// Multiplies dU of `rows` rows by the LoRA's scale, in place.
  void scale(Sum* d_states, int64_t rows) const {
    std::for_each(d_states, d_states + rows * rank(), [this](Sum& value) { value *= scale_; });
  }
  /// Adds the products of `d_states` to d_a and, unless `hidden` is null, to hidden->sums(i, rows[i]).
  /// `d_states` is scale · dU of `rows`, and contiguous.
  void add(std::span<const int64_t> rows, const Sum* d_states, const HiddenSink<Sum>* hidden, int threads) {
    if (rows.empty()) return;
    const auto alone = gemm_.single_threaded_region();
    const auto count = static_cast<int64_t>(rows.size());
    core::parallel_for(threads, hidden ? core::div_up(count, kRows) : 0, [&](int64_t group) {
      const int64_t begin = group * kRows, end = std::min(count, begin + kRows);
      add_to_hidden(rows.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)), begin,
                    d_states + begin * rank(), *hidden);
    });
    if (out_.data) {
      core::parallel_for(threads, core::div_up(cols(), kColumns),
                         [&](int64_t part) { add_to_a(rows, d_states, part * kColumns); });
    }
    added_ = true;
  }

  /// Stores d_a.
  void finish() {
    if (!out_.data) return;
    if (!added_) {
      if (mode_ == WriteMode::kOverwrite) core::fill_zero(out_);
      return;
    }
    if (!apart_) return;
    for (int64_t k = 0; k < rank(); ++k) {
      store_sums(kernels_, sums_ + k * cols(), cols(), mode_, core::element(out_.data, out_.dtype, k * out_.stride),
                 out_.dtype);
    }
  }

 private:
  struct PerThread {
    void* gemm = nullptr;
    Sum* sums = nullptr;          // [kRows, kColumns]
    std::byte* states = nullptr;  // [kRows, kColumns], for rows that are not consecutive
  };

  int64_t rank() const { return a_.entries(); }
  int64_t cols() const { return a_.components(); }
  size_t scratch_bytes(const source::ProductShape& p) const { return gemm_.scratch_bytes(p.m, p.n, p.k, p.a, p.b); }
  const PerThread& scratch() const { return threads_[static_cast<size_t>(omp_get_thread_num())]; }
  source::Multiplier multiplier(const PerThread& mine) const { return {gemm_, kernels_, {mine.gemm, nullptr}}; }

  void add_to_hidden(std::span<const int64_t> rows, int64_t first_place, const Sum* d_states,
                     const HiddenSink<Sum>& hidden) const {
    const PerThread& mine = scratch();
    const source::Multiplier multiply = multiplier(mine);
    for (int64_t first = 0; first < cols(); first += kColumns) {
      gemm::Product<Sum> product;
      product.m = static_cast<int64_t>(rows.size());
      product.n = product.ldc = std::min(kColumns, cols() - first);
      product.k = rank();
      product.a = {d_states, DTypeOf<Sum>::value, rank(), false};
      product.b = a_.operand(source::Head::Order::kEntriesFirst, 0, rank(), first, product.n, multiply);
      product.c = mine.sums;
      multiply(product);
      for (size_t r = 0; r < rows.size(); ++r) {
        Sum* const to = hidden.sums(first_place + static_cast<int64_t>(r), rows[r]) + first;
        kernels_.typed<Sum>().add(mine.sums + static_cast<int64_t>(r) * product.n, product.n, to);
      }
    }
  }

  // Adds to columns [first, first + kColumns) of d_a, over all rows in order.
  void add_to_a(std::span<const int64_t> rows, const Sum* d_states, int64_t first) const {
    const PerThread& mine = scratch();
    const source::Multiplier multiply = multiplier(mine);
    gemm::Product<Sum> product;
    product.m = rank();
    product.n = std::min(kColumns, cols() - first);
    product.c = apart_ ? sums_ + first : static_cast<Sum*>(out_.data) + first;
    product.ldc = apart_ ? cols() : out_.stride;
    for (size_t begin = 0; begin < rows.size(); begin += kRows) {
      const auto group = rows.subspan(begin, std::min(rows.size() - begin, static_cast<size_t>(kRows)));
      product.k = static_cast<int64_t>(group.size());
      product.a = {d_states + static_cast<int64_t>(begin) * rank(), DTypeOf<Sum>::value, rank(), true};
      product.b = columns_of(group, first, product.n, mine);
      product.accumulate = begin > 0 || added_ || (!apart_ && mode_ == WriteMode::kAccumulate);
      multiply(product);
    }
  }

  gemm::Operand columns_of(std::span<const int64_t> rows, int64_t first, int64_t count, const PerThread& mine) const {
    const bool run = rows.back() - rows.front() + 1 == static_cast<int64_t>(rows.size()) &&
                     std::is_sorted(rows.begin(), rows.end()) && breaks_.evenly_spaced(rows.front(), rows.back());
    if (run) {
      gemm::Operand in_place = states_.operand(rows, nullptr);
      in_place.data = core::element(in_place.data, in_place.dtype, first);
      return in_place;
    }
    const size_t bytes = static_cast<size_t>(count) * size_of(states_.dtype());
    for (size_t r = 0; r < rows.size(); ++r) {
      const gemm::Operand row = states_.operand(rows.subspan(r, 1), nullptr);
      std::memcpy(mine.states + r * bytes, core::element(row.data, row.dtype, first), bytes);
    }
    return {mine.states, states_.dtype(), count, false};
  }

  const kernels::RowKernels& kernels_;
  const gemm::Backend& gemm_;
  const Sum scale_;
  const source::Head a_;
  const source::States states_;
  const source::RowBreaks breaks_;
  const Matrix out_;
  const WriteMode mode_;
  const bool apart_;     // d_a has a narrower type than its sums
  Sum* sums_ = nullptr;  // [r, H] if apart_
  bool added_ = false;
  core::Array<PerThread> threads_;
};

/// Sums dU and computes the gradients that depend on it. It also completes a chunk's d_hidden, because one of
/// its terms needs the complete dU.
template <class Sum>
class LoraSink final : public Sink<Sum> {
 public:
  /// `hidden` is the sink of d_hidden, or null. All arguments must outlive this.
  LoraSink(const kernels::RowKernels& kernels, const gemm::Backend& gemm, const problem::HiddenProblem& problem,
           const source::Product& product, const GradientMatrices& outputs, HiddenSink<Sum>* hidden, const Sizes& sizes)
      : Sink<Sum>(ChainOf::kRowBlock),
        hidden_(hidden),
        states_(kernels, product.head,
                problem::matrix_rows(Matrix(nullptr, DTypeOf<Sum>::value, problem.tokens, product.states.cols())),
                WriteMode::kOverwrite, with_sums_apart(sizes)),
        a_gradients_(kernels, gemm, problem, outputs, sizes.threads) {}

  /// Returns the sink that sums dU.
  const HiddenSink<Sum>& states() const { return states_; }

  void take_lasting(core::Arena& arena) override {
    if (hidden_) hidden_->take_lasting(arena);
    states_.take_lasting(arena);
    a_gradients_.take_lasting(arena);
  }
  void take(core::Arena& arena) override {
    if (hidden_) hidden_->take(arena);
    states_.take(arena);
    a_gradients_.take(arena);
  }

  int64_t splits() const override { return hidden_splits() + states_.splits(); }
  void add(const GradientPart& part, int64_t split, bool first, int thread,
           const source::Multiplier& multiply) override {
    if (split < hidden_splits()) return hidden_->add(part, split, first, thread, multiply);
    states_.add(part, split - hidden_splits(), first, thread, multiply);
  }

  void finish_chunk(std::span<const int64_t> rows, int threads) override {
    states_.correct_rounding(rows, threads);
    a_gradients_.scale(states_.sums(0, 0), static_cast<int64_t>(rows.size()));
    a_gradients_.add(rows, states_.sums(0, 0), hidden_, threads);
    if (hidden_) hidden_->finish_chunk(rows, threads);
  }
  void finish(const core::Array<bool>& has_parts, bool any) override {
    a_gradients_.finish();
    if (hidden_) hidden_->finish(has_parts, any);
  }

 private:
  int64_t hidden_splits() const { return hidden_ ? hidden_->splits() : 0; }

  HiddenSink<Sum>* const hidden_;
  HiddenSink<Sum> states_;
  LoraAGradients<Sum> a_gradients_;
};

}  // namespace logitless::sink

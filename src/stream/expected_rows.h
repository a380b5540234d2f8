// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The expected row of a row i is E_i = Σ_v p_iv s_iv w_v over the vocabulary entries that are none of its
// picks, where s is the derivative of the softcap. It is summed while the tiles of logits are folded, as
//
//     E ← E exp(m − m′) + Σ_v exp(a_v − m′) s_v w_v      m′: the largest logit so far
//
// in the order of the vocabulary, so that no bit depends on the threads. As picks are left out, nothing
// cancels where p of a target is near 1. The gradient of the hidden state is then
//
//     d_hidden_i = Σ_picks g_k w_k − g E_i + g_cross Σ_v q_v w_v
//
// with the factors of stats::row_gradient(). A LoRA's rows b_v stand behind those of the head: their sums
// make the gradient of its states in the same way, and with them d_lora_a and the rest of d_hidden.
#pragma once

#include <optional>
#include <span>

#include "core/arena.h"
#include "fold/folds.h"
#include "logitless/token_stats.h"
#include "planning/buffers.h"
#include "stats/columns.h"
#include "stream/pass.h"

namespace logitless::stream {

/// Returns why a loss whose token gradients are these cannot take d_hidden from expected rows, or nothing.
std::string_view no_expected_rows(const problem::HiddenProblem& problem, const TokenLoss::GradsFilled& filled);

/// The expected rows of one call, which has one chunk.
template <class Types>
class ExpectedRowSums {
 public:
  using Sum = typename Types::Sum;

  /// Takes what lives as long as the call. What is given must outlive this.
  ExpectedRowSums(core::Arena& arena, const Pass<Types>& pass, const GradientMatrices& outputs);

  /// Visits all tiles for the first time: hands each to the folds of the first walk, and sums.
  void walk(core::Arena& arena, fold::CallFolds<Types>& folds, stats::Columns& columns);
  /// Divides the sums that a call leaves in its statistics by those of the exponentials.
  void leave(TokenStats& stats) const;
  /// Makes d_hidden, and d_lora_states or d_lora_a where they are wanted.
  void make_gradients(core::Arena& arena, const TokenStats& stats, const TokenGrads& grads) const;

 private:
  using Buffers = planning::SettleBuffers<Sum>;

  std::span<const source::Product> products() const { return pass_.source.differentiated(); }
  int64_t width() const { return pass_.source.width(); }
  size_t index_of(const source::Product& product) const { return static_cast<size_t>(&product - products().data()); }
  double scale_of(int64_t place, const TokenStats& stats) const;
  const Sum* sums(const source::Product& product, int64_t place, const TokenStats& stats) const;
  int64_t first_component(const source::Product& product) const;
  void copy_entry(const source::Head& head, int64_t entry, const typename Buffers::PerThread& mine, Sum* to) const;
  const Sum* entry_row(int64_t entry, const typename Buffers::PerThread& mine) const;
  double softcap_slope(int64_t row, int64_t entry, const Sum* of_entry, const typename Buffers::PerThread& mine) const;
  void make_mean(const Buffers& buffers) const;
  void settle(int64_t place, const TokenStats& stats, const TokenGrads& grads, const Buffers& buffers,
              Sum* lora_states) const;
  void settle_behind_lora(const typename Buffers::PerThread& mine, Sum* lora_states) const;

  const Pass<Types>& pass_;
  const GradientMatrices& outputs_;
  std::optional<planning::ExpectedSums<Types>> sums_;  // where this call makes them
};

}  // namespace logitless::stream

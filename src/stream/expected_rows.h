// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The expected row of row i is E_i = Σ_v p_iv s_iv w_v over all vocabulary entries except the row's picks,
// where s is the derivative of the softcap. It is summed while the tiles of logits are folded, as
//     E ← E exp(m − m′) + Σ_v exp(a_v − m′) s_v w_v      m′: the largest logit so far
//
// in vocabulary order, so the bits do not depend on the threads. Leaving the picks out avoids cancellation
// when the p of a target is near 1. The gradient of the hidden state is then
//     d_hidden_i = Σ_picks g_k w_k − g E_i + g_cross Σ_v q_v w_v
//
// with the factors of stats::row_gradient(). A LoRA's rows b_v are appended to those of the head: their sums
// give the gradient of its states in the same way, and from it d_lora_a and the LoRA's part of d_hidden.
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

/// Returns why d_hidden cannot be computed from expected rows for a loss with these token gradients; empty:
/// it can.
std::string_view no_expected_rows(const problem::HiddenProblem& problem, const TokenLoss::GradsFilled& filled);

/// The expected rows of a call, which has a single chunk.
template <class Types>
class ExpectedRowSums {
 public:
  using Sum = typename Types::Sum;

  /// Takes the memory that lives as long as the call. The arguments must outlive this object.
  ExpectedRowSums(core::Arena& arena, const Pass<Types>& pass, const GradientMatrices& outputs);

  /// First pass over all tiles: folds each tile and adds it to the sums.
  void walk(core::Arena& arena, fold::CallFolds<Types>& folds, stats::Columns& columns);
  /// Divides the sums in `stats.expected` by the sums of exponentials.
  void leave(TokenStats& stats) const;
  /// Computes d_hidden, and d_lora_states or d_lora_a if requested.
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
  std::optional<planning::ExpectedSums<Types>> sums_;  // set if this call computes the sums
};

}  // namespace logitless::stream

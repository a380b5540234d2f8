// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Statistics and gradients of rows that are normalised over a set of token ids: such a row is a small
// vocabulary of its own, whose columns are the distinct ids of its picks.
#pragma once

#include <cstdint>

#include "core/arena.h"
#include "kernels/row_kernels.h"
#include "logitless/token_stats.h"
#include "problem/token_problem.h"
#include "stats/columns.h"

namespace logitless::fold {

/// T is the type of sums and logits. Threads work on different rows at the same time, each in a Scratch of its
/// own.
template <class T>
class SetRows {
 public:
  struct Scratch {
    T* bias = nullptr;    // [most columns], where the head has one
    T* capped = nullptr;  // [most columns]
    double* picked = nullptr;
    int64_t* columns = nullptr;  // 0, 1, 2, ...
    kernels::PickGradient<T>* picks = nullptr;
  };

  /// `bias` is a view of the head's, empty where there is none. What is given must outlive this.
  SetRows(const kernels::RowKernels& kernels, const problem::TokenProblem& problem, const ConstVector& bias,
          double softcap)
      : kernels_(kernels), problem_(problem), bias_(bias), softcap_(static_cast<T>(softcap)) {}

  /// Takes the scratch of one thread for rows of at most `most_picks` picks.
  Scratch take(core::Arena& arena, int64_t most_picks) const;

  /// Fills the statistics of a row whose raw products with its distinct ids are `products`.
  void statistics(int64_t row, const T* products, const Scratch& scratch, stats::Columns& columns) const;
  /// Writes dL/dr of the row's distinct ids to `out`. `products` are only read where needs_products().
  void gradient(int64_t row, const T* products, const TokenStats& stats, const TokenGrads& grads,
                const Scratch& scratch, T* out) const;
  /// A softcap's derivative is that of the raw logit.
  bool needs_products() const { return softcap_ > 0; }

 private:
  kernels::TileShape<T> shape(int64_t row, const Scratch& scratch) const;

  const kernels::RowKernels& kernels_;
  const problem::TokenProblem& problem_;
  const ConstVector bias_;
  const T softcap_;
};

}  // namespace logitless::fold

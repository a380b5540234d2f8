// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Statistics and gradients of rows that are normalised over a set of token ids. Such a row is computed as a
// small vocabulary, whose columns are the distinct ids of its picks.
#pragma once

#include <cstdint>

#include "core/arena.h"
#include "kernels/row_kernels.h"
#include "problem/token_problem.h"
#include "stats/columns.h"

namespace logitless::fold {

/// T is the type of sums and logits. Threads may process different rows at the same time, each with its own
/// Scratch.
template <class T>
class SetRows {
 public:
  struct Scratch {
    T* bias = nullptr;    // [most columns] if the head has a bias, else null
    T* capped = nullptr;  // [most columns]
    double* picked = nullptr;
    int64_t* columns = nullptr;  // 0, 1, 2, ...
    kernels::PickGradient<T>* picks = nullptr;
  };

  /// `bias` is the head's bias, empty if there is none. All arguments must outlive this.
  SetRows(const kernels::RowKernels& kernels, const problem::TokenProblem& problem, const ConstVector& bias,
          double softcap)
      : kernels_(kernels), problem_(problem), bias_(bias), softcap_(static_cast<T>(softcap)) {}

  /// Takes scratch for one thread and rows of at most `most_picks` picks.
  Scratch take(core::Arena& arena, int64_t most_picks) const;

  /// Computes the statistics of a row from `products`, its raw logits (without bias) for its distinct ids.
  void statistics(int64_t row, const T* products, const Scratch& scratch, stats::Columns& columns) const;
  /// Writes dL/dr for the row's distinct ids to `out`. `products` is read only if needs_products().
  void gradient(int64_t row, const T* products, const TokenStats& stats, const TokenGrads& grads,
                const Scratch& scratch, T* out) const;
  /// Returns whether gradients depend on the raw logits: the derivative of a softcap does.
  bool needs_products() const { return softcap_ > 0; }

 private:
  kernels::TileShape<T> shape(int64_t row, const Scratch& scratch) const;

  const kernels::RowKernels& kernels_;
  const problem::TokenProblem& problem_;
  const ConstVector bias_;
  const T softcap_;
};

}  // namespace logitless::fold

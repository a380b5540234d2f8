// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The only place that computes addresses of rows of hidden and d_hidden, whose sequences may be apart.
#pragma once

#include <cstdint>

#include "core/views.h"
#include "problem/hidden_problem.h"

namespace logitless::problem {

/// A row's first element, and the elements to the next row of the same sequence.
template <class Pointer>
struct RowPlace {
  Pointer data;
  int64_t stride;
};

/// Rows whose sequences may be apart in memory.
template <class AnyMatrix>
struct Rows {
  AnyMatrix matrix;
  core::BatchedRows places;
  int64_t count = 0;
  int64_t cols = 0;
  DType dtype = DType::kFloat32;

  using Pointer = decltype(AnyMatrix().data);

  RowPlace<Pointer> place(int64_t row) const {
    return {core::element(matrix.data, dtype, places.offset(row)), places.row_stride};
  }
  /// Returns whether the rows are one matrix for a single product.
  bool is_matrix() const { return places.is_matrix(); }
};

/// Returns the rows of hidden states.
inline Rows<ConstMatrix> rows_of(const StatesAndHead& of) {
  return {of.hidden, of.hidden_places, of.hidden.rows, of.hidden_size, of.hidden.dtype};
}

/// Returns the rows of one matrix.
template <class AnyMatrix>
Rows<AnyMatrix> matrix_rows(const AnyMatrix& matrix) {
  const AnyMatrix used = core::with_used_stride(matrix);
  return {used, core::batched_rows(used.rows, used.cols, used.stride, 1, {}), used.rows, used.cols, used.dtype};
}

/// Returns the rows of d_hidden, without places if it is not requested.
inline Rows<Matrix> d_hidden_rows(const HiddenProblem& problem, const GradientMatrices& outputs) {
  Rows<Matrix> rows = {outputs.d_hidden, {}, problem.tokens, problem.hidden_size, outputs.d_hidden.dtype};
  if (rows.matrix.data) rows.places = d_hidden_places(problem, outputs);
  return rows;
}

}  // namespace logitless::problem

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The one place that knows where the rows of hidden and d_hidden stand: that there may be two matrices of
// each, and that the sequences of each may stand apart.
#pragma once

#include <cstdint>

#include "core/views.h"
#include "problem/hidden_problem.h"

namespace logitless::problem {

/// A row's first element and the distance to the next row of the same piece, in elements.
template <class Pointer>
struct RowPlace {
  Pointer data;
  int64_t stride;
};

/// Rows that stand in two matrices, one after the other, whose sequences may be apart in memory.
template <class AnyMatrix>
struct Rows {
  AnyMatrix first;
  AnyMatrix second;
  core::BatchedRows first_places;
  core::BatchedRows second_places;
  int64_t count = 0;   // of both
  int64_t border = 0;  // rows of the first matrix
  int64_t cols = 0;
  DType dtype = DType::kFloat32;

  using Pointer = decltype(AnyMatrix().data);

  RowPlace<Pointer> place(int64_t row) const {
    const bool in_second = row >= border;
    const core::BatchedRows& places = in_second ? second_places : first_places;
    const int64_t offset = places.offset(in_second ? row - border : row);
    return {core::element((in_second ? second : first).data, dtype, offset), places.row_stride};
  }
  /// Returns whether they are one matrix that a single product can take.
  bool is_matrix() const { return border == count && first_places.is_matrix(); }
};

/// Returns the rows of hidden states, of which there are `tokens`.
inline Rows<ConstMatrix> rows_of(const StatesAndHead& of, int64_t tokens) {
  return {of.hidden, of.hidden_second, of.hidden_places, of.second_places,
          tokens,    of.hidden.rows,   of.hidden_size,   of.hidden.dtype};
}
inline Rows<ConstMatrix> hidden_rows(const HiddenProblem& problem) { return rows_of(problem, problem.tokens); }

/// Returns the rows of one matrix.
template <class AnyMatrix>
Rows<AnyMatrix> matrix_rows(const AnyMatrix& matrix) {
  const AnyMatrix used = core::with_used_stride(matrix);
  return {used,      {},        core::batched_rows(used.rows, used.cols, used.stride, 1, {}), {}, used.rows, used.rows,
          used.cols, used.dtype};
}

/// Returns the type of d_hidden, of whose two matrices there may be one alone.
inline DType d_hidden_dtype(const Gradients& outputs) {
  return outputs.d_hidden.data ? outputs.d_hidden.dtype : outputs.d_hidden_second.dtype;
}

inline Rows<Matrix> d_hidden_rows(const HiddenProblem& problem, const Gradients& outputs) {
  Rows<Matrix> rows = {outputs.d_hidden,    outputs.d_hidden_second, {}, {}, problem.tokens,
                       problem.hidden.rows, problem.hidden_size,     {}};
  if (rows.first.data) rows.first_places = d_hidden_places(problem, outputs);
  if (rows.second.data) rows.second_places = d_hidden_second_places(problem, outputs);
  rows.dtype = d_hidden_dtype(outputs);
  return rows;
}

}  // namespace logitless::problem

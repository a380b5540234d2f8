// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The one place that knows where the rows of hidden and d_hidden stand: that there may be two matrices of
// each, and that the sequences of each may stand apart.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>

#include "core/parallel.h"
#include "core/views.h"
#include "problem/hidden_problem.h"

namespace logitless::problem {

/// A row's first element and the distance to the next row of the same piece, in elements.
template <class Pointer>
struct RowPlace {
  Pointer data;
  int64_t stride;
};

inline RowPlace<const void*> hidden_row(const HiddenProblem& problem, int64_t row) {
  const bool in_second = row >= problem.hidden.rows;
  const ConstMatrix& matrix = in_second ? problem.hidden_second : problem.hidden;
  const core::BatchedRows& places = in_second ? problem.second_places : problem.hidden_places;
  const int64_t index = in_second ? row - problem.hidden.rows : row;
  return {core::element(matrix.data, matrix.dtype, places.offset(index)), places.row_stride};
}

inline RowPlace<void*> d_hidden_row(const HiddenProblem& problem, const Gradients& outputs, int64_t row) {
  const bool in_second = row >= problem.hidden.rows;
  const Matrix& matrix = in_second ? outputs.d_hidden_second : outputs.d_hidden;
  const core::BatchedRows places =
      in_second ? d_hidden_second_places(problem, outputs) : d_hidden_places(problem, outputs);
  const int64_t index = in_second ? row - problem.hidden.rows : row;
  return {core::element(matrix.data, matrix.dtype, places.offset(index)), places.row_stride};
}

/// These return whether hidden, or d_hidden, is one matrix that a single product can take.
inline bool hidden_is_matrix(const HiddenProblem& problem) {
  return problem.hidden_second.rows == 0 && problem.hidden_places.is_matrix();
}
inline bool d_hidden_is_matrix(const HiddenProblem& problem, const Gradients& outputs) {
  return problem.hidden_second.rows == 0 && d_hidden_places(problem, outputs).is_matrix();
}

/// Returns the type of d_hidden, of whose two matrices there may be one alone.
inline DType d_hidden_dtype(const Gradients& outputs) {
  return outputs.d_hidden.data ? outputs.d_hidden.dtype : outputs.d_hidden_second.dtype;
}

/// Copies `rows` of hidden to `to`, one after the other, on a team of at most `threads`.
inline void gather_rows(const HiddenProblem& problem, std::span<const int64_t> rows, int threads, std::byte* to) {
  const size_t bytes = static_cast<size_t>(problem.hidden_size) * size_of(problem.hidden.dtype);
  core::parallel_ranges(threads, static_cast<int64_t>(rows.size()), [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      std::memcpy(to + i * bytes, hidden_row(problem, rows[i]).data, bytes);
    }
  });
}

}  // namespace logitless::problem

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Where the rows of hidden and d_hidden stand: the one place that knows that there may be two matrices of each, and
// that the sequences of each may stand apart.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>

#include "core/views.h"
#include "engine/problem.h"
#include "engine/row_blocks.h"
#include "gemm/gemm.h"

namespace logitless::engine {

/// The first element of a row, and how far on the next row of the same piece is, in elements.
template <class Pointer>
struct RowPlace {
  Pointer data;
  int64_t stride;
};

inline RowPlace<const void*> hidden_row(const Problem& problem, int64_t row) {
  const bool in_second = row >= problem.hidden.rows;
  const ConstMatrix& matrix = in_second ? problem.hidden_second : problem.hidden;
  const core::BatchedRows& places = in_second ? problem.second_places : problem.hidden_places;
  const int64_t index = in_second ? row - problem.hidden.rows : row;
  return {core::element(matrix.data, matrix.dtype, places.offset(index)), places.row_stride};
}

inline RowPlace<void*> d_hidden_row(const Problem& problem, const Gradients& outputs, int64_t row) {
  const bool in_second = row >= problem.hidden.rows;
  const Matrix& matrix = in_second ? outputs.d_hidden_second : outputs.d_hidden;
  const core::BatchedRows places =
      in_second ? d_hidden_second_places(problem, outputs) : d_hidden_places(problem, outputs);
  const int64_t index = in_second ? row - problem.hidden.rows : row;
  return {core::element(matrix.data, matrix.dtype, places.offset(index)), places.row_stride};
}

/// Where rows that follow one another do not do so in memory, in hidden or in d_hidden.
inline RowBreaks row_breaks(const Problem& problem, const Gradients& outputs) {
  const auto time = [](const core::BatchedRows& in, bool wanted, const core::BatchedRows& out) {
    return !in.is_matrix() ? in.time : wanted && !out.is_matrix() ? out.time : 0;
  };
  RowBreaks breaks;
  breaks.border = problem.hidden.rows;
  breaks.first_time = time(problem.hidden_places, outputs.d_hidden.data, d_hidden_places(problem, outputs));
  breaks.second_time =
      time(problem.second_places, outputs.d_hidden_second.data, d_hidden_second_places(problem, outputs));
  return breaks;
}

/// The type of d_hidden, of which there may be one half alone.
inline DType d_hidden_dtype(const Gradients& outputs) {
  return outputs.d_hidden.data ? outputs.d_hidden.dtype : outputs.d_hidden_second.dtype;
}

/// Copies `rows` of hidden to `to`, one after the other.
inline void gather_rows(const Problem& problem, std::span<const int64_t> rows, std::byte* to) {
  const size_t bytes = static_cast<size_t>(problem.hidden_size) * size_of(problem.hidden.dtype);
  for (const int64_t row : rows) {
    std::memcpy(to, hidden_row(problem, row).data, bytes);
    to += bytes;
  }
}

/// The block's hidden states [count, H] as an operand: in place when its rows follow one another, else from `gathered`,
/// where gather_rows() has put them.
inline gemm::Operand hidden_operand(const Problem& problem, const RowBlocks& blocks, const RowBlock& block,
                                    const std::byte* gathered) {
  const DType dtype = problem.hidden.dtype;
  if (!block.contiguous) return {gathered, dtype, problem.hidden_size, false};
  const RowPlace<const void*> first = hidden_row(problem, blocks.order[static_cast<size_t>(block.begin)]);
  return {first.data, dtype, first.stride, false};
}

/// The part of the head that holds words [word, ...) and hidden components [component, ...), as op(M) [H, V] when
/// `hidden_first`, else as op(M) [V, H].
inline gemm::Operand head_operand(const LmHead& head, int64_t word, int64_t component, bool hidden_first) {
  const ConstMatrix& w = head.weight;
  const bool stored_hidden_first = head.layout == HeadLayout::kHiddenVocab;
  const int64_t offset = stored_hidden_first ? component * w.stride + word : word * w.stride + component;
  return {core::element(w.data, w.dtype, offset), w.dtype, w.stride, stored_hidden_first != hidden_first};
}

}  // namespace logitless::engine

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Blocks of rows of hidden, and parts of the head, as operands of products.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>

#include "core/views.h"
#include "gemm/gemm.h"
#include "plan/row_blocks.h"
#include "problem/hidden_rows.h"

namespace logitless::plan {

using problem::HiddenProblem;

/// Returns where rows of hidden that follow one another do not do so in memory.
inline RowBreaks row_breaks(const HiddenProblem& problem) {
  const auto time = [](const core::BatchedRows& places) { return places.is_matrix() ? 0 : places.time; };
  return {problem.hidden.rows, time(problem.hidden_places), time(problem.second_places)};
}

/// Returns the same for d_hidden.
inline RowBreaks d_hidden_breaks(const HiddenProblem& problem, const Gradients& outputs) {
  const auto time = [](bool wanted, const core::BatchedRows& places) {
    return wanted && !places.is_matrix() ? places.time : 0;
  };
  return {problem.hidden.rows, time(outputs.d_hidden.data, problem::d_hidden_places(problem, outputs)),
          time(outputs.d_hidden_second.data, problem::d_hidden_second_places(problem, outputs))};
}

/// Copies the rows of `block` to their places in `to` [tile_rows, H]; the other places become zeros.
inline void gather_tile(const HiddenProblem& problem, const RowBlocks& blocks, const RowBlock& block, std::byte* to) {
  const size_t bytes = static_cast<size_t>(problem.hidden_size) * size_of(problem.hidden.dtype);
  const auto rows = blocks.rows(block);
  size_t r = 0;
  for (int64_t place = 0; place < block.tile_rows; ++place, to += bytes) {
    if (r < rows.size() && blocks.places(block)[r] == place) {
      std::memcpy(to, hidden_row(problem, rows[r++]).data, bytes);
    } else {
      std::memset(to, 0, bytes);
    }
  }
}

/// Moves the rows that gather_tile() has put at their places together, so that they are as gather_rows() puts
/// them.
inline void close_holes(const HiddenProblem& problem, const RowBlocks& blocks, const RowBlock& block,
                        std::byte* gathered) {
  const size_t bytes = static_cast<size_t>(problem.hidden_size) * size_of(problem.hidden.dtype);
  std::byte* to = gathered;
  for (const int32_t place : blocks.places(block)) {
    std::memmove(to, gathered + static_cast<size_t>(place) * bytes, bytes);
    to += bytes;
  }
}

/// Returns the block's hidden states [count, H] as an operand: in place when its rows follow one another,
/// else from `gathered`, where gather_rows() has put them.
inline gemm::Operand hidden_operand(const HiddenProblem& problem, const RowBlocks& blocks, const RowBlock& block,
                                    const std::byte* gathered) {
  const DType dtype = problem.hidden.dtype;
  if (!block.contiguous) return {gathered, dtype, problem.hidden_size, false};
  const problem::RowPlace<const void*> first = hidden_row(problem, blocks.order[static_cast<size_t>(block.begin)]);
  return {first.data, dtype, first.stride, false};
}

/// Returns the hidden states of all rows of the block's tiles [tile_rows, H] as an operand: in place when
/// they follow one another, else from `gathered`, where gather_tile() has put them.
inline gemm::Operand tile_operand(const HiddenProblem& problem, const RowBlocks& blocks, const RowBlock& block,
                                  const std::byte* gathered) {
  const DType dtype = problem.hidden.dtype;
  if (!block.contiguous) return {gathered, dtype, problem.hidden_size, false};
  const int64_t before = blocks.first_place(block);
  const problem::RowPlace<const void*> first =
      hidden_row(problem, blocks.order[static_cast<size_t>(block.begin)] - before);
  return {first.data, dtype, first.stride, false};
}

/// Returns the part of the head that holds vocabulary entries [entry, ...) and hidden components [component,
/// ...), as op(M) [H, V] when `hidden_first`, else as op(M) [V, H].
inline gemm::Operand head_operand(const LmHead& head, int64_t entry, int64_t component, bool hidden_first) {
  const ConstMatrix& w = head.weight;
  const bool stored_hidden_first = head.layout == HeadLayout::kHiddenVocab;
  const int64_t offset = stored_hidden_first ? component * w.stride + entry : entry * w.stride + component;
  return {core::element(w.data, w.dtype, offset), w.dtype, w.stride, stored_hidden_first != hidden_first};
}

}  // namespace logitless::plan

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstring>
#include <span>

#include "core/views.h"
#include "engine/problem.h"
#include "engine/row_blocks.h"
#include "gemm/gemm.h"

namespace logitless::engine {

/// Copies `rows` of hidden to `to`, one after the other.
inline void gather_rows(const ConstMatrix& hidden, std::span<const int64_t> rows, std::byte* to) {
  const size_t bytes = static_cast<size_t>(hidden.cols) * size_of(hidden.dtype);
  for (const int64_t row : rows) {
    std::memcpy(to, core::element(hidden.data, hidden.dtype, row * hidden.stride), bytes);
    to += bytes;
  }
}

/// The block's hidden states [count, H] as an operand: in place when its rows follow one another, else from `gathered`,
/// where gather_rows() has put them.
inline gemm::Operand hidden_operand(const Problem& problem, const RowBlocks& blocks, const RowBlock& block,
                                    const std::byte* gathered) {
  const ConstMatrix& hidden = problem.hidden;
  if (!block.contiguous) return {gathered, hidden.dtype, hidden.cols, false};
  const int64_t first = blocks.order[static_cast<size_t>(block.begin)];
  return {core::element(hidden.data, hidden.dtype, first * hidden.stride), hidden.dtype, hidden.stride, false};
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

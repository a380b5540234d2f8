// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "gemm/gemm.h"
#include "kernels/row_kernels.h"
#include "source/source.h"

namespace logitless::sink {

/// Gradients of the logits of some rows and vocabulary entries, on their way to the sinks: a tile, or all of
/// them.
struct GradientPart {
  std::array<gemm::Operand, 2> terms;  // [rows, entries] each; their sum is the gradient
  int term_count = 1;
  kernels::Residuals residuals;  // of [rows] and [entries], where the sinks put them back
  // [entries]: what they weigh in the mean of the head; null but for the first rows of a chunk
  const bfloat16* entry_weights = nullptr;
  std::span<const int64_t> rows;  // of hidden
  bool contiguous = true;         // they follow one another in hidden
  source::Room gathered;          // where the states of the rows have been copied together, if they have
  // [rows]: what the sums of a row so far are multiplied with before the part is added; null: nothing
  const double* row_scales = nullptr;
  int64_t first_row = 0;  // rows of the chunk before these
  int64_t first_entry = 0;
  int64_t entries = 0;

  /// Calls use(term, first) with each term; what they make is added up.
  template <class Use>
  void for_each_term(const Use& use) const {
    for (int i = 0; i < term_count; ++i) use(terms[static_cast<size_t>(i)], i == 0);
  }
};

}  // namespace logitless::sink

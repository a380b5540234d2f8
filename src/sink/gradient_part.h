// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "gemm/gemm.h"
#include "kernels/row_kernels.h"
#include "source/source.h"

namespace logitless::sink {

/// Gradients of the logits for some rows and vocabulary entries, as the sinks receive them: one tile, or the
/// rows that one segment is kept for.
struct GradientPart {
  std::array<gemm::Operand, 2> terms;  // [rows, entries] each; the gradient is their sum
  int term_count = 1;
  kernels::Residuals residuals;  // [rows] and [entries], if the sinks correct for rounding
  // [entries]: weights for the mean of the head's rows; null except for the first row block of a chunk
  const bfloat16* entry_weights = nullptr;
  std::span<const int64_t> rows;  // row numbers in hidden
  bool contiguous = true;         // the rows are consecutive in hidden
  source::GatherBuffer gathered;  // holds the states of the rows, if they were gathered
  // [rows]: factors for the row sums so far, applied before this part is added; null: no scaling
  const double* row_scales = nullptr;
  int64_t first_row = 0;  // number of rows in the chunk before these
  int64_t first_entry = 0;
  int64_t entries = 0;

  /// Calls use(term, first) for each term; the caller adds up the results.
  template <class Use>
  void for_each_term(const Use& use) const {
    for (int i = 0; i < term_count; ++i) use(terms[static_cast<size_t>(i)], i == 0);
  }
};

}  // namespace logitless::sink

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// A source of a caller's logits, which are read and not computed.
#pragma once

#include <cstdint>

#include "core/matrices.h"
#include "core/views.h"
#include "kernels/row_kernels.h"
#include "problem/id_sets.h"
#include "problem/logits_problem.h"

namespace logitless::source {

class GivenLogits {
 public:
  GivenLogits() = default;
  explicit GivenLogits(const FinishedLogits& logits) : logits_(logits), given_(true) {}

  /// Returns whether logits were given, even if they have no rows or no vocabulary entries.
  bool any() const { return given_; }
  DType dtype() const { return logits_.dtype; }
  /// Returns logits [first, first + count) of a row in the type of the sums: a pointer into the given logits,
  /// or `wide` if they have a 16-bit type and were widened into it.
  template <class Logit>
  const Logit* values(const kernels::RowKernels& kernels, int64_t row, int64_t first, int64_t count,
                      Logit* wide) const {
    const void* from = core::element(problem::logits_row(logits_, row), logits_.dtype, first);
    return kernels.values(from, logits_.dtype, count, wide);
  }
  /// Copies the logits of a row's distinct ids to `to` in the type of the sums, and returns their number.
  template <class Logit>
  int64_t gather(const kernels::RowKernels& kernels, const problem::TokenProblem& problem, int64_t row,
                 Logit* to) const {
    const void* const from = problem::logits_row(logits_, row);
    int64_t count = 0;
    problem::for_each_distinct(problem, row, [&](int64_t column, int64_t, int64_t, int64_t id) {
      Logit wide = 0;
      to[column] = *kernels.values(core::element(from, logits_.dtype, id), logits_.dtype, 1, &wide);
      count = column + 1;
    });
    return count;
  }

 private:
  FinishedLogits logits_;
  bool given_ = false;
};

}  // namespace logitless::source

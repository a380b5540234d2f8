// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Where logits that a caller holds come from. Their rows are read in place, so there is nothing to make, to
// gather or to plan.
#pragma once

#include <cstdint>

#include "core/matrices.h"
#include "core/views.h"
#include "kernels/row_kernels.h"
#include "problem/logits_problem.h"

namespace logitless::source {

class GivenLogits {
 public:
  GivenLogits() = default;
  explicit GivenLogits(const FinishedLogits& logits) : logits_(logits), given_(true) {}

  /// Tells whether there are any, be they without rows or vocabulary entries.
  bool any() const { return given_; }
  DType dtype() const { return logits_.dtype; }
  /// Returns logits [first, first + count) of a row in the type of the sums: where they stand, or those of a
  /// 16-bit type in `wide`.
  template <class Logit>
  const Logit* values(const kernels::RowKernels& kernels, int64_t row, int64_t first, int64_t count,
                      Logit* wide) const {
    const void* from = core::element(problem::logits_row(logits_, row), logits_.dtype, first);
    return kernels.values(from, logits_.dtype, count, wide);
  }

 private:
  FinishedLogits logits_;
  bool given_ = false;
};

}  // namespace logitless::source

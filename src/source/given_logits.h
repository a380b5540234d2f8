// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Where logits that stand in memory come from: they are a caller's, or all those that plan dense has made.
// Their rows are read in place, so there is nothing to make, to gather or to plan.
#pragma once

#include <cstdint>

#include "core/views.h"
#include "logitless/logits.h"
#include "problem/logits_problem.h"

namespace logitless::source {

class GivenLogits {
 public:
  GivenLogits() = default;
  /// `beside` holds the logits of a second head, of the same type and with the same strides, if there is one.
  explicit GivenLogits(const Logits& logits, const void* beside = nullptr) : logits_(logits), beside_(logits) {
    beside_.data = beside;
  }

  DType dtype() const { return logits_.dtype; }
  /// These return where a row stands from vocabulary entry `first` on; null where there is no second head.
  const void* row(int64_t row, int64_t first) const { return place(logits_, row, first); }
  const void* beside(int64_t row, int64_t first) const { return beside_.data ? place(beside_, row, first) : nullptr; }

 private:
  static const void* place(const Logits& logits, int64_t row, int64_t first) {
    return core::element(problem::logits_row(logits, row), logits.dtype, first);
  }

  Logits logits_;
  Logits beside_;
};

}  // namespace logitless::source

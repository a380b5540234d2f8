// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// ∂L/∂loss of a backward pass: one value, or under Reduction::kNone one per token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/check_fields.h"
#include "core/checks.h"
#include "problem/token_problem.h"

namespace logitless::loss {

class Upstream {
 public:
  /// Sets one value for every token.
  void set(double value) {
    core::check_field("upstream", kFinite, value);
    value_ = value;
  }
  /// Sets values that must outlive this: one entry, or [N] if `per_token`. Throws InvalidInput.
  void set(std::span<const double> values, bool per_token, const problem::TokenProblem& problem) {
    const int64_t wanted = per_token ? problem.tokens : 1;
    if (static_cast<int64_t>(values.size()) != wanted) {
      core::fail("upstream has ", values.size(), " entries but must have ", wanted,
                 per_token ? ": one per token under reduction none" : ": the loss is one value");
    }
    core::check_aligned("upstream", values);
    if (!per_token) return set(values[0]);
    problem::check_finite_entries("upstream", values, problem);
    values_ = values;
  }
  double of(size_t row) const { return values_.empty() ? value_ : values_[row]; }

 private:
  double value_ = 1;
  std::span<const double> values_;
};

}  // namespace logitless::loss

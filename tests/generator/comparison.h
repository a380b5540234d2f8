// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Compares the results of a drawn call with its reference. The bounds come from running the reference on
// logits that are moved by the largest error of an engine.
#pragma once

#include <string>
#include <vector>

#include "generator/outputs.h"
#include "generator/reference_call.h"

namespace logitless::testing {

/// The reference's results: first on the exact logits, then on moved ones.
struct References {
  std::vector<ReferenceResult> results;
  /// [N]: the sizes of the terms that a row's gradients sum, to which rounding is relative; empty: the
  /// gradients themselves.
  oracle::VectorXd terms;
};

/// Returns how the numbers of a result differ, or an empty string.
std::string column_fault(const DrawnCall& call, const std::vector<Column>& got, const References& references);
/// Returns how the gradients differ, or an empty string.
std::string gradient_fault(const DrawnCall& call, const Side& student, const Plan& plan, Outputs& outputs,
                           const References& references);

}  // namespace logitless::testing

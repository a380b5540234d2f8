// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Compares what a drawn call has left with its reference. The bounds follow from what the reference makes of
// logits that are moved by as much as an engine's may be off.
#pragma once

#include <string>
#include <vector>

#include "generator/outputs.h"
#include "generator/reference_call.h"

namespace logitless::testing {

/// The same call on the logits of a side, the first time as they are, then moved.
struct References {
  std::vector<ReferenceResult> results;
  oracle::MatrixXd slope;  ///< dc/dr, [N, V]
  /// [N]: what the terms of a row's gradients add up to, of which rounding is a share; empty: the gradients
  /// themselves.
  oracle::VectorXd terms;
};

/// Returns how the numbers of a result differ; empty: they do not.
std::string column_fault(const DrawnCall& call, const std::vector<Column>& got, const References& references);
/// Returns how the gradients differ.
std::string gradient_fault(const DrawnCall& call, const Side& student, const Plan& plan, Outputs& outputs,
                           const References& references);

}  // namespace logitless::testing

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// A call whose logits the caller holds: it has the logits, checked, and the gradient that is wanted
// of them.
#pragma once

#include <utility>

#include "core/checks.h"
#include "core/store.h"
#include "logitless/logits.h"
#include "problem/token_problem.h"

namespace logitless::problem {

using LogitsTensors = Tensors<Logits>;

struct LogitsProblem : TokenProblem {
  Logits logits;
};

/// Returns the logits, checked. Throws InvalidInput.
LogitsTensors check_tensors(const Logits& logits);

/// Returns the whole problem, apart from the outputs. Throws InvalidInput for a task that is wrong.
inline LogitsProblem resolve(const LogitsTensors& tensors, Task task) {
  return {resolve(tensors.shape, std::move(task)), tensors.operands};
}

/// These return the V logits of a row, and where their gradients go.
const void* logits_row(const Logits& logits, int64_t row);
void* dlogits_row(const LogitsGradient& dlogits, int64_t row);

/// Returns everything that the call reads except the targets, and except the logits themselves where they are
/// overwritten in place.
core::Array<core::ByteRange> reads_of(const LogitsProblem& problem, const LogitsGradient& dlogits);
/// Returns what may be written.
core::Array<core::ByteRange> writes_of(const LogitsProblem& problem, const LogitsGradient& dlogits);

/// Throws InvalidInput for a gradient of the wrong shape, type or strides.
void check_outputs(const LogitsProblem& problem, const LogitsGradient& dlogits);

}  // namespace logitless::problem

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// A call whose logits the caller holds: it has the logits, checked, and the gradient that is wanted
// of them.
#pragma once

#include <cstdint>

#include "core/checks.h"
#include "core/store.h"
#include "logitless/logits.h"
#include "problem/token_problem.h"

namespace logitless::problem {

struct LogitsProblem : TokenProblem {
  Logits logits;
  core::Array<int64_t> sequence_offsets;  // [B + 1]
};

/// Returns the problem with its logits checked; what stands in TokenProblem beyond shapes is left to the
/// caller. Throws InvalidInput.
LogitsProblem make_problem(const Logits& logits);

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

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// A call whose logits the caller holds: it has the logits, checked, and the gradient that is wanted
// of them.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "core/checks.h"
#include "core/matrices.h"
#include "core/store.h"
#include "logitless/divergence.h"
#include "problem/token_problem.h"

namespace logitless::problem {

/// The logits of a call, and those of a teacher.
struct LogitsOperands {
  FinishedLogits logits;
  std::span<const int64_t> offsets;  // of packed sequences, as the caller has them
  std::optional<FinishedLogits> teacher_logits;
};
using LogitsTensors = Tensors<LogitsOperands>;

struct LogitsProblem : TokenProblem, LogitsOperands {};

/// Returns the logits, checked, whose sequences may be packed. Throws InvalidInput.
LogitsTensors check_tensors(const FinishedLogits& logits, std::span<const int64_t> offsets = {});
/// Checks finished logits of a teacher beside those of this shape; a rank may have no part of the vocabulary
/// (`may_be_empty`). Throws InvalidInput.
void check_teacher_logits(const TeacherMatrices& teacher, const Shape& shape, bool may_be_empty);
/// Checks a teacher beside `tensors` and puts it there. Throws InvalidInput.
void add_teacher(const TeacherMatrices& teacher, LogitsTensors& tensors);

/// Returns what is read of logits that messages call `name`.
core::ByteRange range_of(std::string_view name, const FinishedLogits& logits);

/// Returns the whole problem, apart from the outputs. Throws InvalidInput for a task that is wrong.
inline LogitsProblem resolve(const LogitsTensors& tensors, Task task) {
  return {resolve(tensors.shape, std::move(task)), tensors.operands};
}

/// These return the V logits of a row, and where their gradients go.
const void* logits_row(const FinishedLogits& logits, int64_t row);
void* dlogits_row(const LogitsGradient& dlogits, int64_t row);

/// Returns everything that the call reads except the targets, and except the logits themselves where they are
/// overwritten in place.
core::Array<core::ByteRange> reads_of(const LogitsProblem& problem, const LogitsGradient& dlogits);
/// Returns what may be written.
core::Array<core::ByteRange> writes_of(const LogitsProblem& problem, const LogitsGradient& dlogits);

/// Throws InvalidInput for a gradient of the wrong shape, type or strides.
void check_outputs(const LogitsProblem& problem, const LogitsGradient& dlogits);

}  // namespace logitless::problem

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// A call on finished logits: the checked logits and the output of their gradient.
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

/// The logits of a call and of its teacher.
struct LogitsOperands {
  FinishedLogits logits;
  std::span<const int64_t> offsets;  // of packed sequences, as the caller has them
  std::optional<FinishedLogits> teacher_logits;
};
using LogitsTensors = Tensors<LogitsOperands>;

struct LogitsProblem : TokenProblem, LogitsOperands {};

/// Returns the checked logits, whose sequences may be packed. Throws InvalidInput.
LogitsTensors check_tensors(const FinishedLogits& logits, std::span<const int64_t> offsets = {});
/// Checks a teacher's finished logits against this shape. `may_be_empty`: a rank may have no part of the
/// vocabulary. Throws InvalidInput.
void check_teacher_logits(const TeacherMatrices& teacher, const Shape& shape, bool may_be_empty);
/// Checks a teacher against `tensors` and adds it to them. Throws InvalidInput.
void add_teacher(const TeacherMatrices& teacher, LogitsTensors& tensors);

/// Returns the memory of logits; messages call them `name`.
core::ByteRange range_of(std::string_view name, const FinishedLogits& logits);

/// Returns the whole problem, except the outputs. Throws InvalidInput for an invalid task.
inline LogitsProblem resolve(const LogitsTensors& tensors, Task task) {
  return {resolve(tensors.shape, std::move(task)), tensors.operands};
}

/// Returns the address of a row's V logits, or of their gradients.
const void* logits_row(const FinishedLogits& logits, int64_t row);
void* dlogits_row(const LogitsGradient& dlogits, int64_t row);

/// Returns all memory that the call reads, except the targets, and except logits that are overwritten in
/// place.
core::Array<core::ByteRange> reads_of(const LogitsProblem& problem, const LogitsGradient& dlogits);
/// Returns the memory that the call may write.
core::Array<core::ByteRange> writes_of(const LogitsProblem& problem, const LogitsGradient& dlogits);

/// Throws InvalidInput for a gradient of the wrong shape, type or strides.
void check_outputs(const LogitsProblem& problem, const LogitsGradient& dlogits);

}  // namespace logitless::problem

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// A call whose logits are products: it has hidden states and an LM head, checked, and the gradients
// that are wanted of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "core/batched_rows.h"
#include "core/checks.h"
#include "core/matrices.h"
#include "core/store.h"
#include "problem/logits_problem.h"
#include "problem/token_problem.h"

namespace logitless::problem {

/// Hidden states and a head, whose product is logits.
struct StatesAndHead {
  ConstMatrix hidden;                // hidden_places tell where a row stands
  int64_t sequences = 0;             // of equal length; 0: they are packed
  std::span<const int64_t> offsets;  // of packed ones, as the caller has them
  core::BatchedRows hidden_places;
  HeadMatrices head;  // the vocabulary entries that are here; its bias has one number for each of them
  int64_t hidden_size = 0;
  ConstVector given_bias;                                          // as the caller has it
  std::shared_ptr<const core::Array<std::byte>> chosen_bias = {};  // what LmHead::vocab_ids choose of it
};

/// What the logits of a call are made of, and those of a teacher over the same rows and vocabulary entries,
/// which is not differentiated: they are products too, or stand in memory.
struct HiddenOperands : StatesAndHead {
  std::optional<StatesAndHead> teacher;
  std::optional<FinishedLogits> teacher_logits;
};
using HiddenTensors = Tensors<HiddenOperands>;

struct HiddenProblem : TokenProblem, HiddenOperands {};

/// Returns the tensors, checked. A head without vocabulary entries is one of a rank (`may_be_empty`). Throws
/// InvalidInput for anything that breaks the contracts of tensors.h.
HiddenTensors check_tensors(const HiddenStates& hidden, const HeadMatrices& head, bool may_be_empty = false);
/// Checks a teacher beside `tensors` and puts it there. Throws InvalidInput.
void add_teacher(const TeacherMatrices& teacher, bool may_be_empty, HiddenTensors& tensors);

/// Returns the whole problem, apart from the outputs. Throws InvalidInput for a task that is wrong.
inline HiddenProblem resolve(const HiddenTensors& tensors, Task task) {
  return {resolve(tensors.shape, std::move(task)), tensors.operands};
}

/// Returns what is read of hidden states that messages call `name`.
core::ByteRange range_of(std::string_view name, const HiddenStates& hidden);

/// Appends what is read of a head that messages call `name`, and of its bias as the caller has it.
void append_reads(const HeadMatrices& head, const ConstVector& bias, std::string_view name, std::string_view bias_name,
                  core::Array<core::ByteRange>& reads);
/// Returns everything that the call reads except the targets.
core::Array<core::ByteRange> reads_of(const HiddenProblem& problem, const GradientMatrices& outputs);
/// Returns what may be written.
core::Array<core::ByteRange> writes_of(const HiddenProblem& problem, const GradientMatrices& outputs);

/// Tells where the rows of d_hidden stand.
core::BatchedRows d_hidden_places(const HiddenProblem& problem, const GradientMatrices& outputs);

/// Throws InvalidInput for outputs of the wrong shape, type or strides.
void check_outputs(const HiddenProblem& problem, const GradientMatrices& outputs);

}  // namespace logitless::problem

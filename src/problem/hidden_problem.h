// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// A call whose logits are products: checked hidden states, LM head and gradient outputs.
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
  ConstMatrix hidden;                // hidden_places has the positions of its rows
  int64_t sequences = 0;             // of equal length; 0: packed
  std::span<const int64_t> offsets;  // of packed sequences, in the caller's memory
  core::BatchedRows hidden_places;
  HeadMatrices head;  // this rank's vocabulary entries; its bias has one number per entry
  int64_t hidden_size = 0;
  ConstVector given_bias;                                          // in the caller's memory
  std::shared_ptr<const core::Array<std::byte>> chosen_bias = {};  // the entries LmHead::vocab_ids of it
};

/// The operands of a call's logits, and of a teacher over the same rows and vocabulary entries, which has no
/// gradient: products too, or finished logits.
struct HiddenOperands : StatesAndHead {
  std::optional<StatesAndHead> teacher;
  std::optional<FinishedLogits> teacher_logits;
};
using HiddenTensors = Tensors<HiddenOperands>;

struct HiddenProblem : TokenProblem, HiddenOperands {};

/// Returns the checked tensors. `may_be_empty`: a rank's head may have no vocabulary entries. Throws
/// InvalidInput for tensors that break the contracts of the public headers.
HiddenTensors check_tensors(const HiddenStates& hidden, const HeadMatrices& head, bool may_be_empty = false);
/// Checks a teacher against `tensors` and adds it to them. Throws InvalidInput.
void add_teacher(const TeacherMatrices& teacher, bool may_be_empty, HiddenTensors& tensors);

/// Returns the whole problem, except the outputs. Throws InvalidInput for an invalid task.
inline HiddenProblem resolve(const HiddenTensors& tensors, Task task) {
  return {resolve(tensors.shape, std::move(task)), tensors.operands};
}

/// Returns the memory of hidden states; messages call them `name`.
core::ByteRange range_of(std::string_view name, const HiddenStates& hidden);

/// Appends the memory of a head, called `name` in messages, and of the caller's bias.
void append_reads(const HeadMatrices& head, const ConstVector& bias, std::string_view name, std::string_view bias_name,
                  core::Array<core::ByteRange>& reads);
/// Returns all memory that the call reads, except the targets.
core::Array<core::ByteRange> reads_of(const HiddenProblem& problem, const GradientMatrices& outputs);
/// Returns the memory that the call may write.
core::Array<core::ByteRange> writes_of(const HiddenProblem& problem, const GradientMatrices& outputs);

/// Returns the positions of the rows of d_hidden.
core::BatchedRows d_hidden_places(const HiddenProblem& problem, const GradientMatrices& outputs);

/// Throws InvalidInput for outputs of the wrong shape, type or strides.
void check_outputs(const HiddenProblem& problem, const GradientMatrices& outputs);

}  // namespace logitless::problem

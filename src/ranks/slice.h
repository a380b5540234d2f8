// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// A slice of the vocabulary is computed as a separate call on a part of the head.
#pragma once

#include <cstdint>

#include "core/matrices.h"
#include "core/views.h"
#include "problem/hidden_problem.h"
#include "problem/hidden_rows.h"

namespace logitless::ranks {

/// Returns the problem for vocabulary entries [first, first + count) of this rank's entries.
problem::HiddenProblem problem_of_slice(const problem::HiddenProblem& problem, int64_t first, int64_t count);
/// Returns the outputs for these vocabulary entries, without d_hidden, d_lora_a and d_lora_states.
GradientMatrices outputs_of_slice(const GradientMatrices& outputs, HeadLayout layout, int64_t first, int64_t count);

/// Sets d_hidden to the matrix `sums` [N, H].
void set_sums(const problem::HiddenProblem& problem, void* sums, GradientMatrices& outputs);
/// Returns the LoRA gradient that has no vocabulary entries and so is summed over slices: d_lora_states if
/// the states are given, else d_lora_a.
template <class AnyGradients>
auto& lora_part(const problem::HiddenProblem& problem, AnyGradients& outputs) {
  return problem.head.lora.has_states() ? outputs.d_lora_states : outputs.d_lora_a;
}
/// Sets that gradient to the contiguous matrix `sums`.
inline void set_lora_sums(const problem::HiddenProblem& problem, void* sums, GradientMatrices& outputs) {
  const LoraMatrices& lora = problem.head.lora;
  const ConstMatrix& of = lora.has_states() ? lora.states : lora.a;
  lora_part(problem, outputs) = Matrix(sums, problem.sum_type(), of.rows, of.cols);
}

}  // namespace logitless::ranks

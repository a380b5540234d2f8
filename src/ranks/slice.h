// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// A slice of the vocabulary is a call of its own, on a part of the head.
#pragma once

#include <cstdint>

#include "core/matrices.h"
#include "core/views.h"
#include "problem/hidden_problem.h"
#include "problem/hidden_rows.h"

namespace logitless::ranks {

/// Returns the problem on vocabulary entries [first, first + count) of those that are here.
problem::HiddenProblem problem_of_slice(const problem::HiddenProblem& problem, int64_t first, int64_t count);
/// Returns the outputs on these vocabulary entries, without d_hidden, d_lora_a and d_lora_states.
GradientMatrices outputs_of_slice(const GradientMatrices& outputs, HeadLayout layout, int64_t first, int64_t count);

/// Lets d_hidden, both halves of it, be the rows of `sums` [N, H].
void set_sums(const problem::HiddenProblem& problem, void* sums, GradientMatrices& outputs);
/// Returns the gradient of what a LoRA multiplies with b, which has no vocabulary entries: d_lora_states, or
/// d_lora_a.
template <class AnyGradients>
auto& lora_part(const problem::HiddenProblem& problem, AnyGradients& outputs) {
  return problem.head.lora.has_states() ? outputs.d_lora_states : outputs.d_lora_a;
}
/// Lets it be `sums`, whose rows follow one another.
inline void set_lora_sums(const problem::HiddenProblem& problem, void* sums, GradientMatrices& outputs) {
  const LoraMatrices& lora = problem.head.lora;
  const ConstMatrix& of = lora.has_states() ? lora.states : lora.a;
  lora_part(problem, outputs) = Matrix(sums, problem.sum_type(), of.rows, of.cols);
}

}  // namespace logitless::ranks

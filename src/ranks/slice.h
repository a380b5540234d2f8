// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// A slice of the vocabulary is a call of its own, on a part of the head.
#pragma once

#include <cstdint>

#include "core/views.h"
#include "logitless/tensors.h"
#include "problem/hidden_problem.h"
#include "problem/hidden_rows.h"

namespace logitless::ranks {

/// Returns the problem on vocabulary entries [first, first + count) of those that are here.
problem::HiddenProblem problem_of_slice(const problem::HiddenProblem& problem, int64_t first, int64_t count);
/// Returns the outputs on these vocabulary entries, without d_hidden and d_lora_a.
Gradients outputs_of_slice(const Gradients& outputs, HeadLayout layout, int64_t first, int64_t count);

/// Returns the type of the sums of d_hidden.
inline DType sum_type(const problem::HiddenProblem& problem) {
  return problem.in_double() ? DType::kFloat64 : DType::kFloat32;
}
/// Lets d_hidden, both halves of it, be the rows of `sums` [N, H].
void set_sums(const problem::HiddenProblem& problem, void* sums, Gradients& outputs);
/// Lets d_lora_a be `sums` [r, H].
inline void set_lora_sums(const problem::HiddenProblem& problem, void* sums, Gradients& outputs) {
  outputs.d_lora_a = Matrix(sums, sum_type(problem), problem.head.lora.rank(), problem.hidden_size);
}
/// Returns the rows of d_lora_a.
inline problem::Rows<Matrix> lora_rows(const Matrix& d_lora_a) {
  problem::Rows<Matrix> rows = problem::matrix_rows(d_lora_a.data, d_lora_a.dtype, d_lora_a.rows, d_lora_a.cols);
  rows.first = core::with_used_stride(d_lora_a);
  rows.first_places = core::batched_rows(d_lora_a.rows, d_lora_a.cols, rows.first.stride, 1, {});
  return rows;
}

}  // namespace logitless::ranks

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// A LoRA adds a second product to the logits: logits += U bᵀ with states U = scale · x aᵀ [N, r].
// The states are given, or computed once before the first tile.
#pragma once

#include <cstdint>

#include "core/arena.h"
#include "gemm/gemm.h"
#include "kernels/row_kernels.h"
#include "problem/hidden_problem.h"
#include "problem/hidden_rows.h"

namespace logitless::source {

/// Kernels, backend and threads for computing the states of a LoRA.
struct LoraTeam {
  const kernels::RowKernels& kernels;
  const gemm::Backend& gemm;
  int threads = 1;
};

/// The LoRA states of a call's head and of its teacher's head, in the type of the sums.
class LoraStates {
 public:
  /// Has no memory: a source that is constructed with it can only be measured.
  LoraStates() = default;
  /// Takes memory for the states and, unless the arena only measures, computes the states of the active rows.
  /// The states of other rows become zeros.
  LoraStates(core::Arena& arena, const problem::HiddenProblem& problem, const LoraTeam& team);

  problem::Rows<ConstMatrix> of_call(const problem::HiddenProblem& problem) const;
  problem::Rows<ConstMatrix> of_teacher(const problem::HiddenProblem& problem) const;

 private:
  void* call_states_ = nullptr;
  void* teacher_states_ = nullptr;
};

/// Returns a LoRA's b as a head, for logits = U bᵀ.
HeadMatrices lora_head(const HeadMatrices& head);

}  // namespace logitless::source

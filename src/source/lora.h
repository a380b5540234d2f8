// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// A LoRA is a product of its own beside that of the head's weight: logits += U bᵀ with states
// U = scale · x aᵀ [N, r]. These are given, or made once before the first tile.
#pragma once

#include <cstdint>

#include "core/arena.h"
#include "gemm/gemm.h"
#include "kernels/row_kernels.h"
#include "problem/hidden_problem.h"
#include "problem/hidden_rows.h"

namespace logitless::source {

/// What makes the states of a LoRA.
struct LoraTeam {
  const kernels::RowKernels& kernels;
  const gemm::Backend& gemm;
  int threads = 1;
};

/// The states of the LoRAs of a call's head and of its teacher's, in the type of the sums.
class LoraStates {
 public:
  /// Has no memory: a source that is made with it can only be measured.
  LoraStates() = default;
  /// Takes the memory of the states and, unless the arena only measures, makes those of the rows that take
  /// part. Those of other rows become zeros.
  LoraStates(core::Arena& arena, const problem::HiddenProblem& problem, const LoraTeam& team);

  problem::Rows<ConstMatrix> of_call(const problem::HiddenProblem& problem) const;
  problem::Rows<ConstMatrix> of_teacher(const problem::HiddenProblem& problem) const;

 private:
  void* of_call_ = nullptr;
  void* of_teacher_ = nullptr;
};

/// Returns a LoRA's b as a head: logits = U bᵀ.
HeadMatrices lora_head(const HeadMatrices& head);

}  // namespace logitless::source

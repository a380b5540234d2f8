// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The plan of calls whose rows are normalised over sets of token ids: it gathers the head's rows of these
// ids, and has no tiles.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/arena.h"
#include "core/store.h"
#include "fold/set_rows.h"
#include "logitless/plan.h"
#include "planning/context_state.h"
#include "planning/run_plan.h"
#include "problem/hidden_problem.h"
#include "problem/logits_problem.h"
#include "source/source.h"

namespace logitless::planning {

/// This many rows of a head, or of hidden states, are copied together and multiplied at a time: 96 KiB for
/// 1,536 float32 components, which stay in L2. Sums accumulate kSetPart rows at a time.
inline constexpr int64_t kSetPart = 16;
/// A thread sums this many vocabulary entries of d_weight at a time; a callback gets as many at once.
inline constexpr int64_t kSetEntries = 64;

/// A row that has a gradient at a vocabulary entry.
struct SetEntry {
  int64_t row = 0;
  int64_t gradient = 0;  // its index among the gradients
};

/// The memory of a call on hidden states. T is the type of sums; `widest` is the largest number of components
/// of the source's products.
template <class T>
struct SetBuffers {
  struct PerThread {
    typename fold::SetRows<T>::Scratch of_row;
    std::byte* gathered = nullptr;  // [kSetPart, widest], in the type of a head or of its states
    T* states = nullptr;            // [widest]
    T* products = nullptr;          // [most picks]
    T* sums = nullptr;              // [widest]: sums of d_hidden, or of a vocabulary entry
    T* tile = nullptr;              // [kSetEntries, widest] in the head's layout
    T* factors = nullptr;           // [kSetPart]
  };
  core::Array<PerThread> threads;
  T* gradients = nullptr;       // [picks]: gradients of a row's distinct ids, from its first pick on
  int64_t* offsets = nullptr;   // [V + 1] into `entries`, by vocabulary entry
  SetEntry* entries = nullptr;  // [picks], by vocabulary entry and row
  T* bias = nullptr;            // [V]: sums of d_bias
  T* d_states = nullptr;        // [active rows, r]: gradients of a LoRA's states

  SetBuffers(core::Arena& arena, const problem::HiddenProblem& problem, const source::Source& source, const Work& work,
             const GradientMatrices& outputs, const fold::SetRows<T>& rows, int team);
};

/// Plans `work` for `threads` threads, or as many as the budget has scratch for. Throws InvalidInput if it
/// has no scratch for one thread.
Plan set_plan(const detail::ContextState& context, int threads, const problem::HiddenProblem& problem, const Work& work,
              const GradientMatrices& outputs);
/// The same for finished logits.
Plan set_plan(const detail::ContextState& context, int threads, const problem::LogitsProblem& problem,
              const Work& work);

/// Returns the smallest ContextOptions::workspace_bytes of the same call.
size_t least_set_workspace(const detail::ContextState& context, const problem::HiddenProblem& problem, const Work& work,
                           const GradientMatrices& outputs);
size_t least_set_workspace(const detail::ContextState& context, const problem::LogitsProblem& problem);

/// The memory of a call on finished logits, per thread of a team.
template <class T>
struct SetLogitsBuffers {
  struct PerThread {
    typename fold::SetRows<T>::Scratch of_row;
    T* values = nullptr;  // [most picks]: logits, or their gradients
  };
  core::Array<PerThread> threads;

  SetLogitsBuffers(core::Arena& arena, const problem::LogitsProblem& problem, const fold::SetRows<T>& rows, int team);
};

}  // namespace logitless::planning

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gemm/gemm.h"
#include "kernels/row_kernels.h"
#include "logitless/tensors.h"
#include "problem/hidden_problem.h"
#include "sink/sink.h"
#include "source/source.h"

namespace logitless::sink {

/// What the sinks of a call are made of.
struct SinkInputs {
  const kernels::RowKernels& kernels;
  const gemm::Backend& gemm;  // for sinks that multiply when a chunk is finished
  const problem::HiddenProblem& problem;
  const source::Source& source;
};

/// Makes a sink for each output that is wanted. The planner lets these measure the memory that they take, and
/// the run lets them take it. All that is given must outlive the sinks.
template <class Sum>
Sinks<Sum> make_sinks(const SinkInputs& inputs, const Gradients& outputs, const Sizes& sizes);

}  // namespace logitless::sink

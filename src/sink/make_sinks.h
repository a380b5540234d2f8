// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/row_kernels.h"
#include "logitless/tensors.h"
#include "problem/hidden_problem.h"
#include "sink/sink.h"
#include "source/source.h"

namespace logitless::sink {

/// Makes a sink for each output that is wanted. The planner lets these measure the memory that they take, and
/// the run lets them take it. All that is given must outlive the sinks.
template <class Sum>
Sinks<Sum> make_sinks(const kernels::RowKernels& kernels, const problem::HiddenProblem& problem,
                      const source::Source& source, const Gradients& outputs, const Sizes& sizes);

}  // namespace logitless::sink

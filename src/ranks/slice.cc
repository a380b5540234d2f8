// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "ranks/slice.h"

#include "core/views.h"

namespace logitless::ranks {
namespace {

using problem::HiddenProblem;

// Returns vocabulary entries [first, first + count) of a matrix in the head's layout.
template <class AnyMatrix>
AnyMatrix entries_of(const AnyMatrix& matrix, HeadLayout layout, int64_t first, int64_t count) {
  AnyMatrix out = core::with_used_stride(matrix);
  const bool hidden_vocab = layout == HeadLayout::kHiddenVocab;
  (hidden_vocab ? out.cols : out.rows) = count;
  if (out.data) out.data = core::element(out.data, out.dtype, hidden_vocab ? first : first * out.stride);
  return out;
}

template <class AnyVector>
AnyVector entries_of(const AnyVector& vector, int64_t first, int64_t count) {
  AnyVector out = vector;
  if (!out.data) return out;
  out.size = count;
  out.data = core::element(out.data, out.dtype, first);
  return out;
}

}  // namespace

HiddenProblem problem_of_slice(const HiddenProblem& problem, int64_t first, int64_t count) {
  HiddenProblem out = problem;
  out.first_entry = problem.first_entry + first;
  out.entries = count;
  out.head.weight = entries_of(problem.head.weight, problem.head.layout, first, count);
  out.head.bias = entries_of(problem.head.bias, first, count);
  return out;
}

Gradients outputs_of_slice(const Gradients& outputs, HeadLayout layout, int64_t first, int64_t count) {
  Gradients out = outputs;
  out.d_weight = entries_of(outputs.d_weight, layout, first, count);
  out.d_bias = entries_of(outputs.d_bias, first, count);
  if (outputs.weight_sink) {
    out.weight_sink = [&sink = outputs.weight_sink, first](int64_t entry, int64_t entries, ConstMatrix tile) {
      sink(first + entry, entries, tile);
    };
  }
  out.d_hidden = out.d_hidden_second = {};
  out.d_hidden_mode = WriteMode::kOverwrite;
  out.d_hidden_batch_stride = out.d_hidden_second_batch_stride = {};
  return out;
}

void set_sums(const HiddenProblem& problem, void* sums, Gradients& outputs) {
  const DType dtype = sum_type(problem);
  const int64_t h = problem.hidden_size;
  outputs.d_hidden = Matrix(sums, dtype, problem.hidden.rows, h);
  outputs.d_hidden_second =
      Matrix(core::element(sums, dtype, problem.hidden.rows * h), dtype, problem.hidden_second.rows, h);
}

}  // namespace logitless::ranks

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "ranks/slice.h"

#include "core/views.h"
#include "source/head.h"

namespace logitless::ranks {

using problem::HiddenProblem;

HiddenProblem problem_of_slice(const HiddenProblem& problem, int64_t first, int64_t count) {
  HiddenProblem out = problem;
  out.first_entry = problem.first_entry + first;
  out.entries = count;
  out.head = source::slice(problem.head, first, count);
  if (out.teacher) out.teacher->head = source::slice(problem.teacher->head, first, count);
  if (out.teacher_logits) {
    FinishedLogits& logits = *out.teacher_logits;
    if (logits.data) logits.data = core::element(logits.data, logits.dtype, first);
    logits.vocab = count;
  }
  return out;
}

GradientMatrices outputs_of_slice(const GradientMatrices& outputs, HeadLayout layout, int64_t first, int64_t count) {
  GradientMatrices out = outputs;
  out.d_weight = source::Layout(layout).entries_of(outputs.d_weight, first, count);
  out.d_bias = source::entries_of(outputs.d_bias, first, count);
  out.d_lora_b = source::Layout(HeadLayout::kVocabHidden).entries_of(outputs.d_lora_b, first, count);
  out.d_lora_a = out.d_lora_states = {};
  if (outputs.weight_sink) {
    out.weight_sink = [&sink = outputs.weight_sink, first](int64_t entry, int64_t entries, ConstMatrix tile) {
      sink(first + entry, entries, tile);
    };
  }
  out.d_hidden = {};
  out.d_hidden_mode = WriteMode::kOverwrite;
  out.d_hidden_batch_stride = {};
  return out;
}

void set_sums(const HiddenProblem& problem, void* sums, GradientMatrices& outputs) {
  outputs.d_hidden = Matrix(sums, problem.sum_type(), problem.tokens, problem.hidden_size);
}

}  // namespace logitless::ranks

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Random inputs of one call, as C and as C++ see them.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "logitless/c_api.h"
#include "logitless/logitless.h"
#include "support/inputs.h"

namespace logitless::testing {

template <class View>
void set_matrix(View& out, const auto& in) {
  out.data = in.data;
  out.dtype = static_cast<int32_t>(in.dtype);
  out.rows = in.rows;
  out.cols = in.cols;
  out.stride = in.stride;
}

/// One call on random inputs, as C sees them.
struct CCall {
  Inputs inputs;
  GradientOutputs outputs;
  Gradients wanted = outputs.gradients();
  HiddenStates states_view = inputs.hidden_view();
  logitless_hidden_states states;
  logitless_lm_head head;
  logitless_source source;
  logitless_targets targets;
  logitless_gradients gradients;
  logitless_context* context = nullptr;

  explicit CCall(const InputSpec& spec, const RunSpec& run = {}) : inputs(spec), outputs(inputs, run) {
    LOGITLESS_INIT(hidden_states, &states);
    set_matrix(states.states, states_view.states);
    states.sequences = states_view.sequences;
    states.offsets = states_view.offsets.data();
    states.offset_count = states_view.offsets.size();
    states.batch_stride = states_view.batch_stride.value_or(0);
    const LmHead head_view = inputs.head_view();
    LOGITLESS_INIT(lm_head, &head);
    set_matrix(head.weight, head_view.weight);
    head.layout = static_cast<int32_t>(head_view.layout);
    head.bias = {head_view.bias.data, static_cast<int32_t>(head_view.bias.dtype), head_view.bias.size};
    head.softcap = head_view.softcap;
    LOGITLESS_INIT(source, &source);
    source.hidden = &states;
    source.head = &head;
    const Targets targets_view = inputs.targets_view();
    LOGITLESS_INIT(targets, &targets);
    targets.data32 = targets_view.data32;
    targets.data64 = targets_view.data64;
    targets.size = targets_view.size;
    targets.stride = targets_view.stride;
    targets.time = targets_view.time;
    targets.batch_stride = targets_view.batch_stride;
    LOGITLESS_INIT(gradients, &gradients);
    set_matrix(gradients.d_hidden, wanted.d_hidden);
    set_matrix(gradients.d_weight, wanted.d_weight);
    gradients.d_bias = {wanted.d_bias.data, static_cast<int32_t>(wanted.d_bias.dtype), wanted.d_bias.size};
    gradients.d_hidden_mode = static_cast<int32_t>(wanted.d_hidden_mode);
    gradients.d_weight_mode = static_cast<int32_t>(wanted.d_weight_mode);
    gradients.d_bias_mode = static_cast<int32_t>(wanted.d_bias_mode);
    gradients.d_hidden_batch_stride = wanted.d_hidden_batch_stride.value_or(0);
    EXPECT_EQ(logitless_context_create(nullptr, &context), LOGITLESS_OK);
  }
  ~CCall() { logitless_context_free(context); }
  CCall(const CCall&) = delete;
  CCall& operator=(const CCall&) = delete;
};

/// Inputs of every type and form.
inline std::vector<InputSpec> specs() {
  std::vector<InputSpec> out(5);
  out[1].dtype = DType::kBFloat16;
  out[1].layout = HeadLayout::kVocabHidden;
  out[1].padding = 3;
  out[1].targets32 = true;
  out[2].dtype = DType::kFloat64;
  out[2].sequences = 4;
  out[2].tokens = 36;
  out[2].hidden_rows = Rows::kSlice;
  out[2].strided_targets = true;
  out[3].sequences = 4;
  out[3].tokens = 32;
  out[3].softcap = 20;
  out[4].offsets = {0, 5, 5, 37};
  out[4].dtype = DType::kFloat16;
  for (InputSpec& spec : out) spec.ignored = 0.2;
  return out;
}

}  // namespace logitless::testing

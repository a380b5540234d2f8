// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The gradients of a drawn call, in their own memory.
#pragma once

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "generator/side.h"
#include "logitless/gradients.h"

namespace logitless::testing {

struct Outputs {
  /// Creates the gradients that the call requests. An accumulating call adds to their initial
  /// numbers.
  Outputs(const DrawnCall& call, Side& student) : call_(call), student_(student) {
    const auto type_of = [&](DType input) {
      return call.narrow_outputs ? input : call.states == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
    };
    const int64_t hidden = student.x.cols(), vocab = call.vocab, rank = call.lora_rank;
    if (call.finished) {
      if (!call.in_place) d_logits = rows_of_tokens(call, type_of(call.states), vocab, kOutputs);
    } else {
      if (call.d_hidden) d_hidden = rows_of_tokens(call, type_of(call.states), hidden, kOutputs);
      if (call.d_weight && !call.packing) {
        const DType type = call.sink ? type_of(DType::kFloat32) : type_of(call.head);
        d_weight = call.head_transposed ? GuardedTensor(type, {vocab, hidden}, {1, vocab + call.output_gap})
                                        : GuardedTensor::rows(type, vocab, hidden, call.output_gap);
      }
      if (call.d_bias && call.bias) d_bias = GuardedTensor::vector(type_of(call.head), vocab);
      if (rank > 0 && call.d_lora_b) d_lora_b = GuardedTensor::rows(type_of(call.lora), vocab, rank, call.output_gap);
      if (rank > 0 && call.d_lora_a) {
        if (call.lora_states) d_lora_states = GuardedTensor::rows(type_of(call.lora), call.tokens(), rank);
        if (!call.lora_states) d_lora_a = GuardedTensor::rows(type_of(call.lora), rank, hidden);
      }
    }
    if (call.accumulate) {
      Random random(call.seed + 5);
      for (GuardedTensor* out : all()) {
        const bool of_lora = out == &d_lora_a || out == &d_lora_b || out == &d_lora_states;
        if (out == &d_logits || (call.sink && out == &d_weight)) continue;  // these are overwritten
        if (call.lora_overwrites && of_lora) continue;
        for (int64_t i = 0; out->given() && i < out->count(); ++i) out->set(i, normal_of(random));
      }
    }
    for (GuardedTensor* out : all()) out->keep();
  }

  std::vector<GuardedTensor*> all() {
    return {&d_hidden, &d_weight, &d_bias, &d_lora_a, &d_lora_b, &d_lora_states, &d_logits};
  }
  bool any() {
    for (const GuardedTensor* out : all()) {
      if (out->given()) return true;
    }
    return call_.finished && call_.in_place;
  }
  bool unchanged() {
    for (const GuardedTensor* out : all()) {
      if (!out->unchanged()) return false;
    }
    return true;
  }
  bool borders_intact() {
    for (const GuardedTensor* out : all()) {
      if (out->given() && !out->borders_intact()) return false;
    }
    return true;
  }
  std::vector<std::byte> bytes() {
    std::vector<std::byte> bytes;
    for (const GuardedTensor* out : all()) bytes.insert(bytes.end(), out->bytes().begin(), out->bytes().end());
    if (call_.in_place) bytes.insert(bytes.end(), student_.finished.bytes().begin(), student_.finished.bytes().end());
    return bytes;
  }

  /// Returns views of `count` vocabulary entries from `first` on.
  logitless::Gradients views(int64_t first, int64_t count) {
    const auto cut = [&](GuardedTensor& tensor) { return cut_axis(tensor.view(), first, count); };
    logitless::Gradients out;
    out.d_hidden = d_hidden.view();
    out.d_bias = cut(d_bias);
    out.d_lora_a = d_lora_a.view();
    out.d_lora_b = cut(d_lora_b);
    out.d_lora_states = d_lora_states.view();
    out.d_logits = call_.in_place ? student_.finished.view() : d_logits.view();
    if (call_.sink && d_weight.given()) {
      out.weight_sink = [this, first](int64_t begin, int64_t entries, const ConstTensor& tile) {
        receive(first + begin, entries, tile);
      };
    } else {
      out.d_weight = cut(d_weight);
    }
    out.d_hidden_mode = out.d_weight_mode = out.d_bias_mode = out.d_lora_mode =
        call_.accumulate ? WriteMode::kAccumulate : WriteMode::kOverwrite;
    if (call_.lora_overwrites) out.d_lora_mode = WriteMode::kOverwrite;
    out.backward.mode = call_.backward;
    out.backward.theta = call_.backward == BackwardMode::kSampled ? 0.05 : 0;
    return out;
  }

  GuardedTensor d_hidden, d_weight, d_bias, d_lora_a, d_lora_b, d_lora_states, d_logits;
  std::string complaint;  ///< an error in the calls of a sink

 private:
  void receive(int64_t first, int64_t count, const ConstTensor& tile) {
    if (first != next_) complaint = "the sink got entry " + std::to_string(first) + ", not " + std::to_string(next_);
    next_ = first + count;
    for (int64_t v = 0; v < count; ++v) {
      for (int64_t h = 0; h < tile.sizes[1]; ++h) {
        d_weight.set(first + v, h,
                     oracle::read_element(tile.data, tile.dtype, v * tile.strides[0] + h * tile.strides[1]));
        // With ids, the head has other entries.
        if (call_.sink_overwrites && !call_.vocab_ids) student_.weight.set(first + v, h, std::nan(""));
      }
    }
  }

  const DrawnCall& call_;
  Side& student_;
  int64_t next_ = 0;
};

}  // namespace logitless::testing

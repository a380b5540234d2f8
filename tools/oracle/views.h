// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Converts the engine's matrices to the views of the public API, for the tools and tests that compare with
// the oracle: it reads the same matrices.
#pragma once

#include <optional>

#include "core/matrices.h"
#include "logitless/logitless.h"

namespace logitless {

/// Returns rows at a distance of `stride` as [N, H], or as sequences of equal length [B, T, H].
template <class Void>
BasicTensor<Void> rows_view(Void* data, DType dtype, int64_t rows, int64_t cols, int64_t stride, int64_t sequences,
                            std::optional<int64_t> batch_stride) {
  if (sequences == 1 && !batch_stride) return {data, dtype, {rows, cols}, {stride, 1}};
  const int64_t time = sequences == 0 ? 1 : rows / sequences;
  return {data,
          dtype,
          {sequences, time, cols},
          {batch_stride.value_or(detail::saturated_product(time, stride)), stride, 1}};
}

inline ConstTensor view_of(const HiddenStates& hidden) {
  const ConstMatrix& m = hidden.states;
  if (!m.data && m.cols == 0) return {};
  return rows_view(m.data, m.dtype, m.rows, m.cols, m.stride, hidden.offsets.empty() ? hidden.sequences : 1,
                   hidden.batch_stride);
}

inline LmHead head_of(const HeadMatrices& head) {
  LmHead out;
  if (head.packed.given()) {
    const PackedMatrix& packed = head.packed;
    const PackedBlock block = block_of(packed.packing);
    const int64_t bytes = packed.cols / block.numbers * block.bytes;
    out.weight = ConstTensor(packed.data, DType::kUInt8, {packed.rows, bytes}, {packed.row_bytes.value_or(bytes), 1});
    out.packing = packed.packing;
    out.group = packed.group;
    if (packed.scales) {
      out.scales = view(packed.scales, {packed.rows, packed.group == 0 ? 1 : packed.cols / packed.group});
    }
  } else {
    const ConstTensor weight = head.weight;
    out.weight = head.layout == HeadLayout::kHiddenVocab ? transposed(weight) : weight;
  }
  out.bias = head.bias;
  out.softcap = head.softcap;
  out.vocab_ids = head.ids;
  out.lora = {head.lora.a, head.lora.b, head.lora.scale, head.lora.states};
  return out;
}

inline Logits logits_of(const HiddenStates& hidden, const HeadMatrices& head) {
  return Logits::of(view_of(hidden), head_of(head), hidden.offsets);
}
inline Logits logits_of(const TeacherMatrices& teacher) {
  Logits out = logits_of(teacher.hidden, teacher.head);
  if (teacher.has_logits()) out.finished = teacher.logits;
  return out;
}

/// Returns the gradients for hidden states of `sequences` sequences and a head. The result's sink refers to
/// `given`.
inline Gradients gradients_of(const GradientMatrices& given, int64_t sequences, HeadLayout layout) {
  Gradients out;
  const Matrix& d = given.d_hidden;
  if (d.data) {
    out.d_hidden = rows_view(d.data, d.dtype, d.rows, d.cols, d.stride, sequences, given.d_hidden_batch_stride);
  }
  const Tensor d_weight = given.d_weight;
  out.d_weight = layout == HeadLayout::kHiddenVocab ? transposed(d_weight) : d_weight;
  out.d_bias = given.d_bias;
  out.d_lora_a = given.d_lora_a;
  out.d_lora_b = given.d_lora_b;
  out.d_lora_states = given.d_lora_states;
  out.d_logits = given.d_logits;
  out.d_hidden_mode = given.d_hidden_mode;
  out.d_weight_mode = given.d_weight_mode;
  out.d_bias_mode = given.d_bias_mode;
  out.d_lora_mode = given.d_lora_mode;
  out.backward = given.backward;
  if (given.weight_sink) {
    out.weight_sink = [&sink = given.weight_sink, layout](int64_t first, int64_t count, const ConstTensor& tile) {
      const size_t row = layout == HeadLayout::kVocabHidden ? 0 : 1;
      sink(first, count, ConstMatrix(tile.data, tile.dtype, tile.sizes[row], tile.sizes[1 - row], tile.strides[row]));
    };
  }
  return out;
}
inline Gradients gradients_of(const GradientMatrices& given, const HiddenStates& hidden, const HeadMatrices& head) {
  return gradients_of(given, hidden.offsets.empty() ? hidden.sequences : 1, head.layout);
}
inline Gradients gradients_of(const GradientMatrices& given, const Logits& logits) {
  const bool turned = logits.head.weight.strides[1] != 1;
  return gradients_of(given, logits.hidden.axes == 3 ? logits.hidden.sizes[0] : 1,
                      turned ? HeadLayout::kHiddenVocab : HeadLayout::kVocabHidden);
}
inline Gradients gradients_of(const LogitsGradient& d_logits) {
  Gradients out;
  out.d_logits = d_logits;
  return out;
}

}  // namespace logitless

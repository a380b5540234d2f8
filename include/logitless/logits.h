// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
/// @file
/// The input of every task: hidden states and a head, or finished logits.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "logitless/packed.h"
#include "logitless/tensor.h"

namespace logitless {

/// A low-rank adapter on a head's weight (LoRA, Hu et al. 2021, arXiv:2106.09685): adds scale · (x_i aᵀ) ·
/// b_v to the raw logits. x aᵀ is computed once per call (with Ranks::slices once per slice), in the type of
/// the sums. If you compute these rows yourself, e.g. after a dropout or with a different a per row, pass
/// them as `states` in place of `a`.
struct LoraAdapter {
  ConstTensor a = {};       ///< [r, H]
  ConstTensor b = {};       ///< [V, r]; with LmHead::vocab_ids, one row per entry of the weight
  double scale = 1;         ///< often alpha / r; finite; must be 1 if `states` is given
  ConstTensor states = {};  ///< [N, r]: adds states_i · b_v instead

  /// Returns whether there is an adapter.
  bool given() const { return a.given() || b.given() || states.given(); }
};

/// The LM head computes the raw logit r_iv = x_i · w_v + bias_v (plus the adapter's term) and the capped
/// logit c_iv = softcap · tanh(r_iv / softcap). A packed weight is frozen: it has no gradient.
struct LmHead {
  /// [V, H]: logits = hidden · weightᵀ (tied embeddings, PyTorch's nn.Linear, GGUF). For a weight stored as
  /// [H, V] pass its transposed() view. One of the two axes must be contiguous. A packed weight is uint8, [V,
  /// bytes of a row], and requires hidden states other than float64.
  ConstTensor weight = {};
  std::optional<Packing> packing = {};  ///< format of a packed weight
  ConstTensor scales = {};              ///< kInt8, kNf4: float32, [V, H / group]
  /// kInt8, kNf4: numbers of a row that share a scale, a divisor of H (for kNf4 an even number); 0: all.
  int64_t group = 0;
  /// [V], optional. A -inf entry masks its vocabulary entry (but not with a softcap, which bounds logits from
  /// below).
  ConstTensor bias = {};
  /// Positive and a normal number of the type of the sums, or 0: no softcap (Gemma 2 uses 30).
  double softcap = 0;
  /// Restricts the vocabulary to these rows of weight and bias; empty: all rows. Entry k of the call's
  /// vocabulary is row vocab_ids[k]: targets, class weights, d_weight, d_bias and d_lora_b all refer to
  /// positions in this list. An id listed twice is two entries.
  std::span<const int64_t> vocab_ids = {};
  LoraAdapter lora = {};  ///< adapter on weight; default: absent

  /// Returns whether any part is set.
  bool given() const { return weight.given() || scales.given() || !vocab_ids.empty() || bias.given() || lora.given(); }
  /// Returns the number of rows of the weight.
  int64_t stored_entries() const { return weight.sizes[0]; }
  /// Returns V.
  int64_t vocab_size() const { return vocab_ids.empty() ? stored_entries() : static_cast<int64_t>(vocab_ids.size()); }
};

/// The logits of N tokens: either hidden states and a head, whose logits are computed tile by tile within
/// ContextOptions::workspace_bytes, or finished logits in the caller's memory. A teacher or a reference is
/// another Logits.
struct Logits {
  /// [N, H], one row per token of a single sequence, or [B, T, H], where row b * T + t is token t of sequence
  /// b. The last axis is contiguous; other strides are free, so a slice such as hidden[:, :-1] or the
  /// transpose of [T, B, H] works.
  ConstTensor hidden = {};
  LmHead head = {};  ///< multiplies hidden
  /// Packed sequences (cu_seqlens) of hidden states [N, H] or finished logits [N, V]: 0 = offsets[0] <=
  /// offsets[1] <= ... <= offsets.back() = N. Sequence s has the rows [offsets[s], offsets[s + 1]).
  std::span<const int64_t> offsets = {};
  /// Finished logits in place of hidden and head: [N, V] or [B, T, V], with rows as in `hidden`. They are
  /// capped logits: you have applied bias and softcap; the task's temperature still applies.
  /// Gradients::d_logits is their only gradient, and they cannot be cut among vocabulary ranks. float32,
  /// bfloat16 and float16 are computed in float32, float64 in float64.
  ConstTensor finished = {};

  /// Logits from hidden states and a head.
  static Logits of(const ConstTensor& hidden, const LmHead& head, std::span<const int64_t> offsets = {}) {
    return {hidden, head, offsets, {}};
  }
  /// The same with a plain weight.
  static Logits of(const ConstTensor& hidden, const ConstTensor& weight, std::span<const int64_t> offsets = {}) {
    return of(hidden, LmHead{.weight = weight}, offsets);
  }
  /// Finished logits.
  static Logits given(const ConstTensor& logits) { return {{}, {}, {}, logits}; }

  /// Returns whether the logits are finished.
  bool is_given() const { return finished.given(); }
};

}  // namespace logitless

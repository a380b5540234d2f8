// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
/// @file
/// What a task is of: logits that are the product of hidden states and a head, or finished ones.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "logitless/packed.h"
#include "logitless/tensor.h"

namespace logitless {

/// A low-rank adapter beside a head's weight (LoRA, Hu et al. 2021, arXiv:2106.09685): it adds scale ·
/// (x_i aᵀ) · b_v to the raw logits. x aᵀ is computed once a call (with Ranks::slices once a slice), in
/// the type of the sums. A caller who makes these rows otherwise, e.g. of states that a dropout has seen,
/// or with another a for each row, gives them as `states` in place of `a`.
struct LoraAdapter {
  ConstTensor a = {};       ///< [r, H]
  ConstTensor b = {};       ///< [V, r], or, with LmHead::vocab_ids, a row for each entry that the weight has
  double scale = 1;         ///< s, often alpha / r; finite. 1 with states
  ConstTensor states = {};  ///< [N, r]: it adds states_i · b_v instead

  /// Tells whether there is one.
  bool given() const { return a.given() || b.given() || states.given(); }
};

/// The LM head gives the raw logit r_iv = x_i · w_v + bias_v, to which an adapter adds its own, and the
/// capped logit c_iv = softcap · tanh(r_iv / softcap). Its weight is a matrix, or a packed one, which is
/// frozen: it has no gradient.
struct LmHead {
  /// [V, H]: logits = hidden · weightᵀ (tied embeddings, PyTorch's nn.Linear, GGUF). One that is stored as
  /// [H, V] is its transposed() view. One of its two axes is contiguous. A packed one is uint8, [V, bytes of
  /// a row], and goes with hidden states that are not float64.
  ConstTensor weight = {};
  std::optional<Packing> packing = {};  ///< of a packed weight
  ConstTensor scales = {};              ///< of kInt8 and kNf4, float32: [V, H / group]
  /// Of kInt8 and kNf4: how many numbers of a row share a scale, a divisor of H, even for kNf4; 0: all.
  int64_t group = 0;
  /// [V], or none. A -inf entry masks its vocabulary entry (but not under a softcap, which bounds it from
  /// below).
  ConstTensor bias = {};
  /// It is positive, and a normal number of the type of the sums, or 0 for none (Gemma 2 uses 30).
  double softcap = 0;
  /// Which vocabulary entries of weight and bias the call is over, as rows of these; empty: all. Entry k of
  /// the call's vocabulary is entry vocab_ids[k]: targets, class weights, d_weight, d_bias and d_lora_b mean
  /// places in this list. An id that stands there twice is two entries.
  std::span<const int64_t> vocab_ids = {};
  LoraAdapter lora = {};  ///< beside weight; left as it is, there is none

  /// Tells whether there is any part of one.
  bool given() const { return weight.given() || scales.given() || !vocab_ids.empty() || bias.given() || lora.given(); }
  /// Returns how many vocabulary entries the weight has.
  int64_t stored_entries() const { return weight.sizes[0]; }
  /// Returns V.
  int64_t vocab_size() const { return vocab_ids.empty() ? stored_entries() : static_cast<int64_t>(vocab_ids.size()); }
};

/// The final raw logits of N tokens: of hidden states and a head, which are never in memory, or finished ones
/// that the caller holds. A teacher's and a reference's are another Logits.
struct Logits {
  /// [N, H], one row a token of one sequence, or [B, T, H], whose row b * T + t is token t of sequence b. Its
  /// last axis is contiguous, so that a slice such as hidden[:, :-1], or the transpose of [T, B, H], can be
  /// given.
  ConstTensor hidden = {};
  LmHead head = {};  ///< of them
  /// For packed sequences (cu_seqlens) of rows [N, H], or of finished logits [N, V], these hold 0 =
  /// offsets[0] <= offsets[1] <= ...
  /// <= offsets.back() = N. Sequence s holds the rows [offsets[s], offsets[s + 1]).
  std::span<const int64_t> offsets = {};
  /// In place of these: [N, V] or [B, T, V]. Rows are those of hidden states above. They are final raw
  /// logits: no bias and no softcap is applied to them, they have no head, Gradients::d_logits is their only
  /// gradient, and they are not cut among ranks of a vocabulary. Tensors of float32, bfloat16 and float16 are
  /// computed in float32, those of float64 in float64.
  ConstTensor finished = {};

  /// Makes those of hidden states and a head.
  static Logits of(const ConstTensor& hidden, const LmHead& head, std::span<const int64_t> offsets = {}) {
    return {hidden, head, offsets, {}};
  }
  /// Does the same with a head that is a weight.
  static Logits of(const ConstTensor& hidden, const ConstTensor& weight, std::span<const int64_t> offsets = {}) {
    return of(hidden, LmHead{.weight = weight}, offsets);
  }
  /// Takes finished ones.
  static Logits given(const ConstTensor& logits) { return {{}, {}, {}, logits}; }

  /// Tells whether they are finished.
  bool is_given() const { return finished.given(); }
};

}  // namespace logitless

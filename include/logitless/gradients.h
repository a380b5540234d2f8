// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
/// @file
/// Where a call's gradients go, and how it makes them: exactly, or of the parts of the vocabulary that
/// matter.
#pragma once

#include <array>
#include <cstdint>
#include <functional>

#include "logitless/names.h"
#include "logitless/tensor.h"

namespace logitless {

/// How gradients are made. The loss and all statistics are exact in each mode.
enum class BackwardMode {
  kExact,  ///< of all vocabulary entries
  /// Of segments of 64 vocabulary entries of a row that are drawn at random: one whose share of the gradient
  /// is m is taken with the probability q = min(1, m / θ), and its gradient divided by q, so that the
  /// expectation of every element of every gradient is the exact one. Segments that hold a target or another
  /// id of the row are always taken. A row's segments are drawn systematically (one random number a row).
  kSampled,
  /// Of all segments but the smallest of each row, whose probabilities together are at most `tolerance`.
  /// Nothing is random; the gradients are biased, by at most Plan::d_hidden_bound and Plan::d_weight_bound.
  kCertified,
};

/// The names of modes.
template <>
inline constexpr std::array kNamesOf<BackwardMode> = {"exact", "sampled", "certified"};

/// What kSampled and kCertified can make gradients of: hidden states and a head, and a loss whose token
/// gradients are those of log-probabilities, lse, cross and a divergence. Other calls are refused. They run
/// in two pass, and keep N V / 64 float32 numbers from one walk to the next (with a teacher twice as many);
/// where the workspace has no room for those, and where so much would be taken that it would not pay,
/// gradients are exact: Plan::kept_share is 1 then. Sources: docs/losses.md, "Gradients of a sample".
struct BackwardOptions {
  BackwardMode mode = BackwardMode::kExact;  ///< how gradients are made
  /// Of kSampled: the expected error of d_hidden and of d_weight, whichever is larger, relative to the exact
  /// gradient (Frobenius norms; d_bias is not held to it), from 0 (exact, to the bit) to below 1. θ follows
  /// from it. Not with a vocabulary that is cut, nor with a LoRA on the head, where `theta` must be given.
  double noise = 0.01;
  /// Of kSampled: θ, in place of `noise`: positive, or 0 for none. Its unit is the mean, over the rows that
  /// have a gradient, of what their distributions are multiplied with: of a cross-entropy |∂L/∂logp|, and
  /// with `cross` or a divergence the sum of the absolute values of all.
  double theta = 0;
  double tolerance = 1e-3;  ///< of kCertified: the probability of what a row leaves out, from 0 to below 1
  /// Of kSampled: the same seed draws the same segments, for every number of threads and with the same cut of
  /// the vocabulary. What a row draws follows from the seed and its number in the call. So each step of a
  /// training, each micro-batch of a step and each rank that has tokens of its own needs another seed: with
  /// the same one their errors would be alike, and would not average out. PyTorch's functions draw it.
  int64_t seed = 0;
};

/// What a call does with what an output holds.
enum class WriteMode {
  kOverwrite,  ///< what was there does not matter, not even a NaN
  /// The gradient is added to what is there. A 16-bit output, and a float32 or float64 d_hidden whose sums
  /// [N, H] (one pass: of a chunk) find room in the workspace, is rounded once. Any other float32 or float64
  /// output g is added to part by part, with an error of at most (parts + 1) u (|g before| + |gradient|), u =
  /// 2^-24 or 2^-53. d_hidden has a part for each tile of the vocabulary, and one more for every 64 of its
  /// entries. d_weight and d_bias have a part for each tile of rows, and one more for every 64 rows; there
  /// are at most 2 N / row_tile + 1 tiles, so that a small ContextOptions::row_tile makes many (N at 1).
  /// Gradients of two terms (Plan::gradient_terms) have twice as many parts.
  kAccumulate,
};

/// The names of modes.
template <>
inline constexpr std::array kNamesOf<WriteMode> = {"overwrite", "accumulate"};

/// Receives each finished vocabulary tile of d_weight once: the vocabulary entries [first, first + count).
/// The tiles come in vocabulary order, one call at a time, from any thread of the team. `tile` is [count, H],
/// stored as the weight is (honour its strides), float32 (float64 for a float64 head), and lives until the
/// callback returns. The callback may overwrite these vocabulary entries of the weight: nothing reads them
/// afterwards (but where an id stands twice in LmHead::vocab_ids, whose row is read for each of its entries).
/// What it throws reaches the caller of the library.
using WeightGradientSink = std::function<void(int64_t first, int64_t count, const ConstTensor& tile)>;

/// Where the gradients go. No output may overlap an input or another output; an output covers everything from
/// its first to its last element, what stands between its rows included. Each output is optional by itself;
/// each has the type of its sums (float32; float64, and nothing else, for float64 inputs) or that of its
/// input: 16-bit outputs are summed in float32 and rounded to nearest even once, at the end.
struct Gradients {
  /// The shape of hidden; rows that take no part get zeros (or keep what is there, when accumulating). Its
  /// strides are its own; no two rows may overlap.
  Tensor d_hidden = {};
  Tensor d_weight = {};       ///< [V, H], stored as weight is
  Tensor d_bias = {};         ///< [V]; only for a head with a bias
  Tensor d_lora_a = {};       ///< [r, H], of LoraAdapter::a
  Tensor d_lora_b = {};       ///< [V, r], of LoraAdapter::b
  Tensor d_lora_states = {};  ///< [N, r], of LoraAdapter::states
  /// Of finished logits, whose only gradient it is. It has their shape, and their type or float32 (float64,
  /// and nothing else, for float64 logits). It is either a buffer apart from the logits and every other
  /// input, or exactly the logits: the same pointer, type and strides (in place). Rows may not overlap. It is
  /// overwritten; rows that take no part get zeros.
  Tensor d_logits = {};
  WriteMode d_hidden_mode = WriteMode::kOverwrite;  ///< of d_hidden
  WriteMode d_weight_mode = WriteMode::kOverwrite;  ///< of d_weight; a sink has none
  WriteMode d_bias_mode = WriteMode::kOverwrite;    ///< of d_bias
  WriteMode d_lora_mode = WriteMode::kOverwrite;    ///< of d_lora_a, d_lora_b and d_lora_states
  /// This takes the place of d_weight: at most one of the two may be set.
  WeightGradientSink weight_sink = {};
  /// How they are made.
  BackwardOptions backward = {};

  /// Tells whether anything is wanted: where nothing is, a call runs forward only.
  bool any() const {
    return d_hidden.given() || d_weight.given() || d_bias.given() || weight_sink || d_lora_a.given() ||
           d_lora_b.given() || d_lora_states.given() || d_logits.given();
  }
};

}  // namespace logitless

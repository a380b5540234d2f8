// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
/// @file
/// Where a call's gradients are stored, and how they are computed: exactly, or only from the parts of the
/// vocabulary that matter.
#pragma once

#include <array>
#include <cstdint>
#include <functional>

#include "logitless/names.h"
#include "logitless/tensor.h"

namespace logitless {

/// How gradients are computed. The loss and all statistics are exact in every mode.
enum class BackwardMode {
  kExact,  ///< from all vocabulary entries
  /// From randomly drawn segments of 64 vocabulary entries per row. A segment whose share of the gradient is
  /// m is drawn with probability q = min(1, m / θ) and its gradient divided by q, so every
  /// gradient is unbiased. Segments that hold a target or another id of the row are always kept. Each row is
  /// sampled systematically (one random number per row).
  kSampled,
  /// From all segments except the smallest of each row, whose probabilities sum to at most `tolerance`.
  /// Deterministic; the gradients are biased, by at most Plan::d_hidden_bound and Plan::d_weight_bound.
  kCertified,
};

/// The names of BackwardMode.
template <>
inline constexpr std::array kNamesOf<BackwardMode> = {"exact", "sampled", "certified"};

/// Options of the backward pass. kSampled and kCertified work for hidden states and a head, with losses whose
/// token gradients are with respect to logp, lse, cross and a divergence; other calls are refused. They run
/// as two pass and store N V / 64 float32 numbers between the passes (twice as many with a teacher).
/// Gradients are exact, with Plan::kept_share 1, if the workspace has no room for these numbers, or if too
/// many segments would be kept to save time. Sources: docs/sampled-gradients.md.
struct BackwardOptions {
  BackwardMode mode = BackwardMode::kExact;  ///< how gradients are computed
  /// kSampled: the expected error of d_hidden or d_weight, whichever is larger, relative to the exact
  /// gradient (Frobenius norms; d_bias is not included). In [0, 1); 0 gives exact gradients. θ is derived
  /// from it. With a cut vocabulary or a LoRA on the head, set `theta` instead.
  double noise = 0.01;
  /// kSampled: sets θ in place of `noise`; positive, or 0 to use `noise`. A segment is drawn with probability
  /// min(1, Σ |∂L/∂logit| / (theta · mean_i f_i)): the sum (for some divergences an upper bound of it) is
  /// over its entries, and the mean over the rows with a gradient. f_i is the factor that scales row i's
  /// distribution: |∂L/∂logp_i| for a plain cross-entropy; with `cross` or a divergence, the sum of the
  /// absolute factors.
  double theta = 0;
  double tolerance = 1e-3;  ///< kCertified: the probability that a row may drop, in [0, 1)
  /// kSampled: the same seed draws the same segments, for every number of threads, given the same cut of the
  /// vocabulary. A row's draw depends on the seed and the row's index in the call. So use another seed for
  /// each training step, each micro-batch and each rank with tokens of its own; with equal seeds their errors
  /// are correlated and do not average out. PyTorch's functions draw the seed.
  int64_t seed = 0;
};

/// How a gradient is combined with the output's content.
enum class WriteMode {
  kOverwrite,  ///< the content is ignored, NaN included
  /// The gradient is added to the content. A 16-bit output is rounded once, and so is a float32 or float64
  /// d_hidden if its sums [N, H] (one pass: of a chunk) fit in the workspace. Any other float32 or float64
  /// output g is updated part by part, with an error of at most (parts + 1) u (|g before| + |gradient|), u =
  /// 2^-24 or 2^-53. d_hidden has one part per vocabulary tile, plus one per 64 entries of it. d_weight and
  /// d_bias have one part per row tile, plus one per 64 rows; there are at most 2 N / row_tile + 1 row tiles,
  /// so a small ContextOptions::row_tile means many parts (N at 1). Two-term gradients (Plan::gradient_terms)
  /// have twice as many parts.
  kAccumulate,
};

/// The names of WriteMode.
template <>
inline constexpr std::array kNamesOf<WriteMode> = {"overwrite", "accumulate"};

/// Receives each finished vocabulary tile of d_weight once: entries [first, first + count). Tiles come in
/// vocabulary order, one call at a time, from any thread of the team. `tile` is [count, H], stored as the
/// weight is (use its strides), float32 (float64 for a float64 head), and valid until the callback returns.
/// The callback may overwrite these entries of the weight: they are not read again (unless LmHead::vocab_ids
/// lists an id twice; its row is then read for each). Exceptions propagate to the caller of the library.
using WeightGradientSink = std::function<void(int64_t first, int64_t count, const ConstTensor& tile)>;

/// The outputs of the gradients. No output may overlap an input or another output; an output covers
/// everything from its first to its last element, gaps between rows included. Each output is optional. Each
/// has the type of its sums (float32; for float64 inputs float64, and no other type) or of its input; 16-bit
/// outputs are summed in float32 and rounded to nearest even once, at the end.
struct Gradients {
  /// Same shape as hidden, with strides of its own; no two rows may overlap. Ignored rows get zeros
  /// (or keep their content when accumulating).
  Tensor d_hidden = {};
  Tensor d_weight = {};       ///< [V, H], stored as weight is
  Tensor d_bias = {};         ///< [V]; only for a head with a bias
  Tensor d_lora_a = {};       ///< [r, H], for LoraAdapter::a
  Tensor d_lora_b = {};       ///< [V, r], for LoraAdapter::b
  Tensor d_lora_states = {};  ///< [N, r], for LoraAdapter::states
  /// The only gradient of finished logits: same shape, same type or float32 (for float64 logits float64
  /// only). Either a buffer that overlaps no input, or exactly the logits themselves (same pointer, type and
  /// strides: in place). Rows may not overlap. Always overwritten; ignored rows get zeros.
  Tensor d_logits = {};
  WriteMode d_hidden_mode = WriteMode::kOverwrite;  ///< of d_hidden
  WriteMode d_weight_mode = WriteMode::kOverwrite;  ///< of d_weight; not used with a sink
  WriteMode d_bias_mode = WriteMode::kOverwrite;    ///< of d_bias
  WriteMode d_lora_mode = WriteMode::kOverwrite;    ///< of d_lora_a, d_lora_b and d_lora_states
  /// Receives d_weight tile by tile instead; set at most one of d_weight and weight_sink.
  WeightGradientSink weight_sink = {};
  /// How the gradients are computed.
  BackwardOptions backward = {};

  /// Returns whether any gradient is requested. If not, a call runs forward only.
  bool any() const {
    return d_hidden.given() || d_weight.given() || d_bias.given() || weight_sink || d_lora_a.given() ||
           d_lora_b.given() || d_lora_states.given() || d_logits.given();
  }
};

}  // namespace logitless

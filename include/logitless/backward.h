// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
/// @file
/// How a call makes its gradients: exactly, or of the parts of the vocabulary that matter.
#pragma once

#include <array>
#include <cstdint>

#include "logitless/names.h"

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

}  // namespace logitless

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
/// @file
/// The cross-entropy of an LM head, fused: no call holds the [N, V] logits.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "logitless/context.h"
#include "logitless/export.h"
#include "logitless/names.h"
#include "logitless/plan.h"
#include "logitless/tensor.h"
#include "logitless/token_stats.h"

namespace logitless {

/// How the tokens' losses become one.
enum class Reduction {
  kMean,  ///< Σ_i loss_i / normaliser
  kSum,   ///< Σ_i loss_i
  kNone,  ///< one loss a token, and one upstream gradient a token
};

/// The names of reductions.
template <>
inline constexpr std::array kNamesOf<Reduction> = {"mean", "sum", "none"};

/// What is worth logging besides the loss; NaN stands for what was not asked for.
struct CrossEntropyMetrics {
  int64_t tokens = 0;     ///< tokens that took part
  double mean_nll = 0;    ///< mean of −logp, without smoothing, weights, z-loss, dft and loss_scale
  double perplexity = 1;  ///< exp(mean_nll)
  /// The part of `loss` that is z-loss, as it is in it: reduced, and times loss_scale.
  double z_loss = 0;
  /// The share of tokens whose argmax is the target.
  double accuracy = std::numeric_limits<double>::quiet_NaN();
  double mean_entropy = std::numeric_limits<double>::quiet_NaN();  ///< mean of the entropy, in nats
};

/// What a cross-entropy is, and what is known of its tokens.
struct CrossEntropyResult {
  double loss = 0;  ///< reduced as the options say; under kNone the sum of per_token_loss
  /// [N]: each entry is loss_scale (nll_i + z_i), times p_i with dft, whatever the reduction; it is 0 where a
  /// row takes no part.
  std::vector<double> per_token_loss;
  std::vector<double> per_token_logps;  ///< [N], logp of the target; 0 where a row takes no part
  std::vector<double> per_token_lse;    ///< [N], TokenStats::lse
  /// [N], TokenStats::argmax; empty without want_accuracy.
  std::vector<int64_t> per_token_argmax;
  CrossEntropyMetrics metrics;  ///< over the tokens that take part
  Plan plan;                    ///< what ran
};

/// The loss of token i with target y is as follows, where W = class_weights (1 without):
///
///     nll_i = (1 − ε) W_y (−logp_i) + (ε / V) Σ_v W_v (−log p_iv)    as in PyTorch, with label smoothing ε
///     z_i   = z_loss · lse_i²                                        PaLM (Chowdhery et al. 2022), section 5
///     with dft, both are multiplied by p_i = e^logp_i without gradient    DFT (arXiv 2508.05629)
///     kMean: loss = Σ nll_i / Σ W_yi + Σ z_i / tokens   (or both / num_items_in_batch, where given)
///
/// The sums over i run over the tokens that take part. loss_scale multiplies loss and gradients. A mean over
/// nothing is 0, and so are its gradients: this holds for both parts without tokens, and for the nll part
/// with Σ W_y = 0. Under kNone, run() makes the gradients of the sum of all losses.
struct LOGITLESS_API CrossEntropy {
  using Result = CrossEntropyResult;                     ///< what its verbs return
  static constexpr const char* kName = "cross_entropy";  ///< on every surface
  ConstTensor targets = {};                              ///< token ids, [N] or [B, T], int32 or int64
  TokenOptions token = {};                               ///< which rows take part, and how log-probabilities are taken
  Reduction reduction = Reduction::kMean;                ///< how the tokens' losses become one
  double label_smoothing = 0;                            ///< ε in [0, 1]
  double z_loss = 0;                                     ///< λ >= 0, finite
  bool dft = false;                                      ///< a token's loss counts as much as its probability
  std::span<const float> class_weights = {};             ///< [V], finite and >= 0; empty: all 1
  double loss_scale = 1.0;                               ///< finite
  /// The sums are divided by this, e.g. the tokens of all micro-batches. It is positive and finite, and goes
  /// with kMean only.
  std::optional<double> num_items_in_batch = {};
  bool want_accuracy = false;  ///< fill metrics.accuracy and per_token_argmax
  bool want_entropy = false;   ///< fill metrics.mean_entropy
};

}  // namespace logitless

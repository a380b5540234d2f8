// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
/// @file
/// Cross-entropy of an LM head, fused: a call stores no more of the [N, V] logits than fit in its workspace.
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

/// How the per-token losses are reduced.
enum class Reduction {
  kMean,  ///< Σ_i loss_i divided as CrossEntropy documents
  kSum,   ///< Σ_i loss_i
  kNone,  ///< one loss per token, and one upstream gradient per token
};

/// The names of Reduction.
template <>
inline constexpr std::array kNamesOf<Reduction> = {"mean", "sum", "none"};

/// What Reduction::kMean divides the sum of the weighted losses by; w_i are the token_weights, or 1.
enum class MeanOver {
  kTokens,         ///< the active tokens: Σ_i w_i loss_i / Σ_i 1
  kSequences,      ///< the sequences, including those without a token ("batchmean")
  kSequenceMeans,  ///< in each sequence its active tokens, whatever their weights; then the sequences
  kTokenWeights,   ///< the weights: Σ_i w_i loss_i / Σ_i w_i; needs token_weights
};

/// The names of MeanOver.
template <>
inline constexpr std::array kNamesOf<MeanOver> = {"tokens", "sequences", "sequence_means", "token_weights"};

/// Metrics worth logging. NaN: not requested.
struct CrossEntropyMetrics {
  int64_t tokens = 0;     ///< active tokens
  double mean_nll = 0;    ///< mean of −logp, without smoothing, any weights, z-loss, dft and loss_scale
  double perplexity = 1;  ///< exp(mean_nll)
  /// The z-loss part of `loss`: reduced, and times loss_scale.
  double z_loss = 0;
  /// The share of tokens whose argmax is the target.
  double accuracy = std::numeric_limits<double>::quiet_NaN();
  double mean_entropy = std::numeric_limits<double>::quiet_NaN();  ///< mean of the entropy, in nats
};

/// The loss, and per-token values.
struct CrossEntropyResult {
  double loss = 0;  ///< reduced as the options say; under kNone the sum of per_token_loss
  /// [N], before reduction: loss_scale w_i (nll_i + z_i), times p_i with dft; 0 for ignored rows.
  std::vector<double> per_token_loss;
  std::vector<double> per_token_logps;  ///< [N], logp of the target; 0 for ignored rows
  std::vector<double> per_token_lse;    ///< [N], TokenStats::lse
  /// [N], TokenStats::argmax; empty without want_accuracy.
  std::vector<int64_t> per_token_argmax;
  CrossEntropyMetrics metrics;  ///< over the active tokens
  Plan plan;                    ///< what ran
};

/// The loss of token i with target y, where W = class_weights (1 if empty):
///
///     nll_i = (1 − ε) W_y (−logp_i) + (ε / V) Σ_v W_v (−log p_iv)    as in PyTorch, with label smoothing ε
///     z_i   = z_loss · lse_i²                                        PaLM (Chowdhery et al. 2022), section 5
///     with dft, both are multiplied by p_i = e^logp_i without gradient    DFT (arXiv 2508.05629)
///     w_i   = token_weights_i                                        1 if absent
///     kMean: loss = Σ w_i nll_i / Σ W_yi + Σ w_i z_i / tokens      mean_over = kTokens
///            loss = Σ w_i nll_i / Σ w_i W_yi + Σ w_i z_i / Σ w_i   mean_over = kTokenWeights
///            loss = Σ w_i (nll_i + z_i) / sequences                mean_over = kSequences
///            loss = the mean over sequences of the first line, with sums over one sequence    kSequenceMeans
///
/// The sums over i run over the active tokens. num_items_in_batch, if given, replaces both sums over the
/// batch, or the number of sequences. loss_scale multiplies loss and gradients. A part whose divisor is 0 is
/// 0, and so are its gradients. Under kNone, run() computes the gradients of the sum of all losses.
struct LOGITLESS_API CrossEntropy {
  using Result = CrossEntropyResult;                     ///< result type of the verbs
  static constexpr const char* kName = "cross_entropy";  ///< on every surface
  ConstTensor targets = {};                              ///< token ids, [N] or [B, T], int32 or int64
  /// w_i, which multiplies the loss and the gradients of token i: [N] or [B, T], finite and >= 0; absent: all
  /// 1. Entries of ignored rows are not read. A token with weight 0 is active, but costs no GEMM in the
  /// backward pass.
  ConstTensor token_weights = {};
  TokenOptions token = {};                    ///< which rows are active, and how log-probabilities are taken
  Reduction reduction = Reduction::kMean;     ///< how the per-token losses are reduced
  MeanOver mean_over = MeanOver::kTokens;     ///< what kMean divides by
  double label_smoothing = 0;                 ///< ε in [0, 1]
  double z_loss = 0;                          ///< λ >= 0, finite
  bool dft = false;                           ///< multiply a token's loss by its probability, no gradient
  std::span<const float> class_weights = {};  ///< [V], finite and >= 0; empty: all 1
  double loss_scale = 1.0;                    ///< finite
  /// Divides the sums, in place of the divisors above, e.g. by the tokens of all micro-batches.
  /// Positive and finite; only with kMean.
  std::optional<double> num_items_in_batch = {};
  bool want_accuracy = false;  ///< fill metrics.accuracy and per_token_argmax
  bool want_entropy = false;   ///< fill metrics.mean_entropy
};

}  // namespace logitless

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
/// @file
/// A split vocabulary for callers that exchange between calls, and not within them: frameworks that compile
/// communication into their own graph. Each slice folds its logits to a few bytes a token; the caller gathers
/// them; and every call that has those of all slices (Ranks::slice) is one on the whole vocabulary.
///
///     options.ranks.slice = {.first = 4096 * rank, .vocab_size = 16384};
///     std::vector<std::byte> mine = cross_entropy_slice(Context(options), hidden, head, targets);
///     all = ...gather `mine` of all ranks, in the order of the vocabulary...
///     options.ranks.slice->gathered = all;
///     CrossEntropyResult result = cross_entropy(Context(options), hidden, head, targets, {}, gradients);
///
/// Each rank then has the loss of the whole vocabulary, d_weight and d_bias of its entries, and a d_hidden
/// that is to be summed over the ranks.
#pragma once

#include <cstddef>
#include <vector>

#include "logitless/context.h"
#include "logitless/cross_entropy.h"
#include "logitless/tensors.h"
#include "logitless/token_stats.h"

namespace logitless {

/// Returns the bytes that each token has in what a slice leaves, for hidden states of this type.
LOGITLESS_API size_t slice_bytes_per_token(DType hidden, const StatsRequest& request = {});
/// Does the same for cross_entropy_slice().
LOGITLESS_API size_t slice_bytes_per_token(DType hidden, const CrossEntropyOptions& options);

/// Folds the logits of the context's slice. Returns [N, slice_bytes_per_token] for compute_token_stats() and
/// backpropagate_token_grads() with the same inputs, options and request. Throws InvalidInput.
LOGITLESS_API std::vector<std::byte> token_stats_slice(const Context& context, const HiddenStates& hidden,
                                                       const LmHead& head, const Targets& targets,
                                                       const TokenOptions& options = {},
                                                       const StatsRequest& request = {});
/// Does the same for cross_entropy() and its halves.
LOGITLESS_API std::vector<std::byte> cross_entropy_slice(const Context& context, const HiddenStates& hidden,
                                                         const LmHead& head, const Targets& targets,
                                                         const CrossEntropyOptions& options = {});

}  // namespace logitless

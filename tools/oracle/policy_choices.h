// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Choices that depend on all tokens of a batch: docs/losses-policy.md, "Choices over the batch". Each
// function returns positions in the list of tokens that are not ignored.
#pragma once

#include <cstddef>
#include <vector>

#include "logitless/policy.h"
#include "oracle/number.h"

namespace logitless::oracle {

using Numbers = std::vector<Number>;

/// M2PO: the largest moments, until the mean of the others is below the threshold.
std::vector<size_t> large_moments(const Numbers& moments, double threshold);

/// clip_cov: random tokens that are not clipped and have a covariance within the bounds.
std::vector<size_t> tokens_to_drop(const Numbers& covariances, const std::vector<bool>& is_clipped,
                                   const PolicyLoss& options);

/// kl_cov: the tokens with the largest covariances.
std::vector<size_t> tokens_to_penalise(const Numbers& covariances, const PolicyLoss& options);

}  // namespace logitless::oracle

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Draws from the softmax of a row, with the noise that the library documents.
#pragma once

#include <cstdint>
#include <vector>

#include "oracle/oracle.h"

namespace logitless::oracle {

/// Returns the ids that a row draws, by the request in `tokens`. `order` has all ids, sorted by logit; ties
/// go to the lower id.
std::vector<int64_t> draw_ids(const Tokens& tokens, int64_t row, const Eigen::Ref<const VectorXd>& a,
                              const std::vector<int64_t>& order);

}  // namespace logitless::oracle

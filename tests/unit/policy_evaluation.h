// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The policy losses as functions of token statistics, on fabricated statistics.
#pragma once

#include <string>
#include <vector>

#include "logitless/policy.h"
#include "logitless/token_stats.h"
#include "support/policy_cases.h"

namespace logitless::testing {

struct Evaluated {
  PolicyResult result;
  TokenGrads grads;
};

/// How many rows evaluate() gets at a time.
enum class Calls { kOne, kOneASequence, kOneAToken };

Evaluated evaluate(const PolicyCase& policy_case, const PolicyData& data, Calls calls = Calls::kOne);

/// Compares loss, losses, metrics and gradients to 1e-12, and an exact 0 where the oracle has one: such a row
/// costs no GEMM.
void matches_oracle(const PolicyCase& policy_case, const PolicyData& data);

/// Returns the variant's plain case under another name.
PolicyCase one_case(PolicyLossType variant, const std::string& name);

}  // namespace logitless::testing

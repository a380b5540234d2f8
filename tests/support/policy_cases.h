// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Batches and options for the tests of the policy losses.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "logitless/policy.h"
#include "oracle/policy_oracle.h"
#include "support/calls.h"

namespace logitless::testing {

/// Options, and the properties of the batch that they need.
struct PolicyCase {
  std::string name;
  PolicyLoss options;
  bool advantages_per_token = false;
  bool on_policy = false;      ///< without old_logps
  bool teacher_alone = false;  ///< without advantages
  bool with_sampling = false;  ///< with sampling_logps, even if no option needs them
};

/// Returns the variant with only its required options.
PolicyCase plain_case(PolicyLossType variant);
/// Returns every variant with each of option_cases() alone, and `mixtures` random sets of options.
std::vector<PolicyCase> policy_cases(int mixtures);

/// Numbers for N tokens in sequences of different lengths. Vectors cover all tokens; batch() passes on those
/// that the case needs.
struct PolicyData {
  std::vector<int64_t> offsets;
  std::vector<uint8_t> mask;
  std::vector<int64_t> ids;
  std::vector<double> sequence_advantages, token_advantages, old_logps, ref_logps, sampling_logps, teacher_logps;
  std::vector<double> scores;  // [B]
  oracle::PolicyPoint at;

  int64_t tokens() const { return offsets.back(); }
  PolicyBatch batch(const PolicyCase& policy_case) const;
  oracle::PolicyTokens oracle_tokens(const PolicyCase& policy_case) const;
};

/// Returns 14 tokens in five sequences, one of them empty and one fully masked. One advantage is exactly 0.
/// Log ratios are a few tenths, the sampler's are slightly larger with one unknown value, and masked entries
/// hold garbage.
PolicyData mixed_data(uint64_t seed);
/// Returns data with these log ratios (logp − old, exact if they have few binary digits), for sequences with
/// one advantage each.
PolicyData data_of(const std::vector<std::vector<double>>& log_ratios, const std::vector<double>& advantages);

}  // namespace logitless::testing

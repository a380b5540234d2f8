// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Batches and options for the tests of the policy losses.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "logitless/policy.h"
#include "oracle/policy_oracle.h"
#include "support/calls.h"

namespace logitless::testing {

/// Options, and what the batch has to look like for them.
struct PolicyCase {
  std::string name;
  PolicyLoss options;
  bool advantages_per_token = false;
  bool on_policy = false;      ///< without old_logps
  bool teacher_alone = false;  ///< without advantages
  bool with_sampling = false;  ///< sampling_logps, with a NaN among them where they may be unknown
};

/// One way to vary a case, where the variant allows it.
struct PolicyTwist {
  std::string name;
  std::function<void(PolicyCase&)> apply;
  std::function<bool(PolicyLossType)> allowed = [](PolicyLossType) { return true; };
};

/// Tells whether the loss of a token depends on all tokens of the batch.
bool couples_batch(const PolicyCase& policy_case);
/// Returns the variant with what it cannot do without.
PolicyCase plain_case(PolicyLossType variant);
/// Returns every option there is, one at a time.
const std::vector<PolicyTwist>& policy_twists();
/// Returns every variant with every option alone, and with `mixtures` random sets of options.
std::vector<PolicyCase> policy_cases(int mixtures);

/// Numbers for N tokens in sequences of different lengths. Vectors are for every token; what batch() shows of
/// them depends on the case.
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

/// 14 tokens: five sequences, one of them of no tokens and one of masked tokens alone; an advantage of
/// exactly 0; log ratios of a few tenths, a sampler a little further away, one unknown value of it, garbage
/// under the mask.
PolicyData mixed_data(uint64_t seed);
/// Makes data of log ratios (logp − old, exact where they are few binary digits) of sequences with an
/// advantage each.
PolicyData data_of(const std::vector<std::vector<double>>& log_ratios, const std::vector<double>& advantages);

}  // namespace logitless::testing

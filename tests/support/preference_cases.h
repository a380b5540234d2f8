// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Options and fabricated batches for tests of the preference losses.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "oracle/preference_oracle.h"

namespace logitless::testing {

/// Returns every loss. The list is written out, because the library's own list is under test.
const std::vector<PreferenceLossType>& every_preference_loss();

struct PreferenceCase {
  std::string name;
  PreferenceLoss options;
};

/// Returns options with one term that the loss accepts, with label_smoothing if it is required.
PreferenceLoss options_of(PreferenceLossType loss);
/// Returns every loss with every option that applies to it, and weighted sums.
const std::vector<PreferenceCase>& preference_cases();

/// Returns a batch of sequences with these lengths (chosen ones first), random log-probabilities of about -1,
/// every fourth token ignored, and a reference close to the policy.
oracle::SequenceBatch random_batch(const std::vector<int64_t>& lengths, uint64_t seed);
/// Returns sequences of one token with these log-probabilities and reference.
oracle::SequenceBatch one_token_batch(const std::vector<double>& logp, const std::vector<double>& reference);

struct KtoCase {
  std::string name;
  KtoLoss options;
  std::vector<double> kl_logps, kl_ref_logps;
  std::vector<uint8_t> labels;  ///< repeated as needed
  bool weighs = false;          ///< with sequence_weights
};

const std::vector<KtoCase>& kto_cases();
/// Adds the labels and the baseline of a case.
oracle::KtoInput kto_input(const oracle::SequenceBatch& batch, const KtoCase& kto_case);

}  // namespace logitless::testing

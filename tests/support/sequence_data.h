// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The tensors of one call of preference_loss or kto_loss, and the oracle's statistics of policy and
// reference.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "logitless/preference.h"
#include "oracle/preference_oracle.h"
#include "support/compare.h"
#include "support/inputs.h"
#include "support/views.h"

namespace logitless::testing {

inline constexpr double kFloat64Unit = 0x1p-53;
// Rounding of the loss's own fp64 arithmetic: a sum of at most 60 tokens, a handful of operations and
// functions of a few units each, in the library and in the oracle. In shares of the sums that go in.
inline constexpr double kArithmeticUnits = 256;

/// How the call gets the reference's log-probabilities; they are the same numbers in every form.
enum class ReferenceForm {
  kNone,
  kSequences,  ///< sums
  kAverages,   ///< these sums, divided by the tokens that take part
  kTokens,     ///< NaN where a token takes no part
  kModel,      ///< hidden states of another width and a head
};

struct SequenceData {
  SequenceData(const InputSpec& spec, const InputSpec& reference_spec)
      : inputs(spec), reference_model(reference_spec) {}

  Inputs inputs;
  TokenOptions token;
  Inputs reference_model;
  HostTensor reference_logps;  ///< [1, S] or [1, N]
  Reference reference;
  SequenceLogps ref_logps_are = SequenceLogps::kSums;  ///< what the call's options must say
  oracle::SequenceBatch batch;
  /// How far each sequence's Σ logp may be off, and the reference's.
  std::vector<double> errors, reference_errors;
  Expected expected;
  /// The truth about the call and its bounds; a run without a comparison does not pay for them.
  std::optional<std::pair<oracle::PreferenceTruth, oracle::PreferenceTruth>> pairs;
  std::optional<std::pair<oracle::KtoTruth, oracle::KtoTruth>> kto;
};

/// With `pairs` the sequences are pairs, and those with an empty side are without a part. Sequences in
/// `empty` have no target.
std::shared_ptr<SequenceData> make_sequence_data(const InputSpec& spec, const std::vector<int64_t>& empty,
                                                 const TokenOptions& token, ReferenceForm form, DType reference_dtype,
                                                 bool pairs, const Context& context);

}  // namespace logitless::testing

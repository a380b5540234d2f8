// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// What losses on whole sequences share: which token predicts what, and log-probabilities summed over a sequence.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "engine/problem.h"
#include "logitless/preference.h"
#include "logitless/token_stats.h"

namespace logitless::loss {

/// The rows of S sequences and the words they predict.
struct SequenceTokens {
  std::vector<int64_t> targets;   // [N], kNoTarget where a row takes no part
  std::vector<int64_t> sequence;  // [N]
  std::vector<int64_t> counts;    // [S]: rows that take part

  int64_t sequences() const { return static_cast<int64_t>(counts.size()); }
  int64_t tokens() const { return static_cast<int64_t>(targets.size()); }
  double count(int64_t s) const { return static_cast<double>(counts[static_cast<size_t>(s)]); }
  /// Takes the rows of sequence s out.
  void drop(int64_t s);
  /// The options with which the engine takes `targets` as they are.
  TokenOptions options(const PreferenceTokenOptions& token) const;
};

/// Throws InvalidInput for targets of the wrong number or outside of the vocabulary.
SequenceTokens read_sequences(const std::vector<int64_t>& offsets, const Targets& targets,
                              const PreferenceTokenOptions& token, int64_t vocab_size);

bool is_given(const Reference& reference);

/// Throws InvalidInput for a reference in both forms or of the wrong size.
void check_reference(const Reference& reference, const SequenceTokens& tokens, const LmHead& head);

/// What a reference reads: no output may overlap it.
std::vector<core::ByteRange> ranges_of(const Reference& reference);

/// Σ_t log-probability under the reference, [S]; computes them where hidden states were given.
std::vector<double> reference_sums(const Context& context, const Reference& reference, const SequenceTokens& tokens,
                                   const PreferenceTokenOptions& token);

/// The engine's problem for these tokens, with all checks of inputs and outputs. `extra`: further inputs that no output
/// may overlap.
engine::Problem checked_problem(const HiddenStates& hidden, const LmHead& head, const Targets& targets,
                                const SequenceTokens& tokens, const PreferenceTokenOptions& token, StatsRequest request,
                                const Gradients& gradients, std::span<const core::ByteRange> extra);

}  // namespace logitless::loss

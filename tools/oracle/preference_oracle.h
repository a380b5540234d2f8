// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The float64 oracle of preference losses and KTO: docs/losses-preference.md word for word. From token
// log-probabilities it computes loss, metrics and ∂loss/∂logp.
#pragma once

#include <cstdint>
#include <vector>

#include "logitless/preference.h"
#include "oracle/oracle.h"

namespace logitless::oracle {

/// The tokens of S sequences. For pairs: the B chosen sequences, then the B rejected ones.
struct SequenceBatch {
  std::vector<double> logp;              ///< [N]
  std::vector<double> entropy;           ///< [N]; empty: not requested
  std::vector<bool> is_active;           ///< [N]
  std::vector<int64_t> offsets;          ///< [S + 1]: sequence s holds the tokens [offsets[s], offsets[s + 1])
  std::vector<double> reference;         ///< [S]: the reference's sums over tokens that are not ignored; empty: none
  std::vector<double> reference_tokens;  ///< [N]: the terms of these sums, if known
  std::vector<double> square_sums;       ///< [N]: Σ p²; empty: not requested
  std::vector<double> held_logp;         ///< [N]: where sg() holds logp; empty: at logp

  int64_t tokens() const { return static_cast<int64_t>(logp.size()); }
  int64_t sequences() const { return static_cast<int64_t>(offsets.size()) - 1; }
  /// n_s
  int64_t count(int64_t sequence) const;
  /// Returns Σ of `values` over the sequence's tokens that are not ignored.
  double sum(const std::vector<double>& values, int64_t sequence) const;
};

/// Drops each pair that has an empty side: its other side loses its labels.
void drop_half_pairs(std::span<const int64_t> offsets, Tokens& tokens);
/// Reads a batch without its reference.
SequenceBatch read_batch(const Tokens& tokens, const TokenStatistics& stats, std::vector<int64_t> offsets);

/// Adds the call's reference, if any: [S] sums or averages, or [N] log-probabilities of tokens.
void add_reference(const ConstTensor& logps, EntriesPer per, SequenceLogps meaning, SequenceBatch& batch);

/// Returns true if the loss has a, b or Δ in its formula.
bool compares_with_reference(PreferenceLossType loss);

struct PreferenceTruth {
  double loss = 0;
  std::vector<double> sequence_logps;  ///< [2B]; 0 in dropped pairs
  PreferenceMetrics metrics;
  std::vector<double> d_logp;  ///< ∂loss/∂logp, [N]
};

PreferenceTruth compute_preference(const SequenceBatch& batch, const PreferenceLoss& options);

/// Returns how far any sequence log-probability (or average, for terms of averages) may move before something
/// jumps: the accuracy, the slope of a hinge, the order of sorted values, the end of orpo's range.
double distance_from_kinks(const SequenceBatch& batch, const PreferenceLoss& options);

struct KtoInput {
  SequenceBatch batch;
  std::vector<uint8_t> labels;  ///< [S]
  std::vector<double> kl_logps, kl_ref_logps;
  std::vector<double> sequence_weights, reward_targets;  ///< [S] or empty
};

struct KtoTruth {
  double loss = 0;
  std::vector<double> sequence_losses;  ///< [S]
  std::vector<double> sequence_logps;   ///< [S]
  KtoMetrics metrics;
  std::vector<double> d_logp;  ///< [N]
};

KtoTruth compute_kto(const KtoInput& input, const KtoLoss& options);

/// `offsets`: the bounds of the sequences, [S + 1]; `tokens` comes from read_tokens() for the same call. The
/// reference of `task`, if any, must be given as log-probabilities. Both functions read the batch from the
/// task.
PreferenceTruth preference_result(std::span<const int64_t> offsets, const Tokens& tokens, const TokenStatistics& stats,
                                  const PreferenceLoss& task);
KtoTruth kto_result(std::span<const int64_t> offsets, const Tokens& tokens, const TokenStatistics& stats,
                    const KtoLoss& task);
LossTruth preference_truth(std::span<const int64_t> offsets, const Tokens& tokens, const TokenStatistics& stats,
                           const PreferenceLoss& task);
/// The reference of `task`, if any, must be given as log-probabilities.
LossTruth kto_truth(std::span<const int64_t> offsets, const Tokens& tokens, const TokenStatistics& stats,
                    const KtoLoss& task);

}  // namespace logitless::oracle

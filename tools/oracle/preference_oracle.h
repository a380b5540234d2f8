// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The fp64 oracle of preference losses and KTO: docs/losses-preference.md word for word. Token
// log-probabilities in, loss, metrics and ∂loss/∂logp out.
#pragma once

#include <cstdint>
#include <vector>

#include "logitless/preference.h"
#include "oracle/oracle.h"

namespace logitless::oracle {

/// The tokens of S sequences. For pairs: the B chosen sequences, then the B rejected ones.
struct SequenceBatch {
  std::vector<double> logp;              ///< [N]
  std::vector<double> entropy;           ///< [N]; empty: not asked for
  std::vector<bool> takes_part;          ///< [N]
  std::vector<int64_t> offsets;          ///< [S + 1]: sequence s holds the tokens [offsets[s], offsets[s + 1])
  std::vector<double> reference;         ///< [S]: the reference's sums over the tokens that take part; empty: none
  std::vector<double> reference_tokens;  ///< [N]: what they are sums of, where that is known
  std::vector<double> square_sums;       ///< [N]: Σ p²; empty: not asked for
  std::vector<double> held_logp;         ///< [N]: where sg() holds logp; empty: there

  int64_t tokens() const { return static_cast<int64_t>(logp.size()); }
  int64_t sequences() const { return static_cast<int64_t>(offsets.size()) - 1; }
  /// n_s
  int64_t count(int64_t sequence) const;
  /// Σ of `values` over the tokens of the sequence that take part.
  double sum(const std::vector<double>& values, int64_t sequence) const;
};

/// A pair with an empty side takes no part at all: its other side loses its labels.
void drop_half_pairs(std::span<const int64_t> offsets, Tokens& tokens);
/// Without a reference.
SequenceBatch read_batch(const Tokens& tokens, const TokenStatistics& stats, std::vector<int64_t> offsets);

/// Adds what the call got, if anything: [S] sums or averages, or [N] log-probabilities of tokens.
void add_reference(const ConstTensor& logps, EntriesPer per, SequenceLogps meaning, SequenceBatch& batch);

/// Whether the loss has a, b or Δ in its formula.
bool compares_with_reference(PreferenceLossType loss);

struct PreferenceTruth {
  double loss = 0;
  std::vector<double> sequence_logps;  ///< [2B]; 0 in pairs that take no part
  PreferenceMetrics metrics;
  std::vector<double> d_logp;  ///< ∂loss/∂logp, [N]
};

PreferenceTruth compute_preference(const SequenceBatch& batch, const PreferenceLoss& options);

/// How far any sequence log-probability (or average, where a term takes averages) may move before something
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

/// `offsets`: where the sequences begin and end, [S + 1]; `tokens` is what read_tokens() made of the same
/// call. The reference of `task`, if it has one, is log-probabilities.
/// Both read the batch from the task.
PreferenceTruth preference_result(std::span<const int64_t> offsets, const Tokens& tokens, const TokenStatistics& stats,
                                  const PreferenceLoss& task);
KtoTruth kto_result(std::span<const int64_t> offsets, const Tokens& tokens, const TokenStatistics& stats,
                    const KtoLoss& task);
LossTruth preference_truth(std::span<const int64_t> offsets, const Tokens& tokens, const TokenStatistics& stats,
                           const PreferenceLoss& task);
/// The reference of `task` is log-probabilities.
LossTruth kto_truth(std::span<const int64_t> offsets, const Tokens& tokens, const TokenStatistics& stats,
                    const KtoLoss& task);

}  // namespace logitless::oracle

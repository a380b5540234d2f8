// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Policy losses as a function of token statistics: docs/losses.md, section 1.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "core/checks.h"
#include "core/store.h"
#include "logitless/policy.h"
#include "logitless/token_stats.h"
#include "loss/batch.h"
#include "loss/policy_variants.h"
#include "ranks/totals.h"

namespace logitless::loss {

/// Throws InvalidInput for an option that is out of range, or that has no meaning with the other options or
/// the tensors.
void check_policy_options(const PolicyLoss& options);

/// Returns whether probabilities are over the sampler's kept ids.
inline bool has_kept(const PolicyLoss& task) {
  const IdSets& kept = task.kept;
  return kept.ids.given() || !kept.offsets.empty() || !kept.counts.empty();
}

/// Returns whether a correction uses the ratio of a whole sequence.
inline bool is_sequence_level(SamplerCorrection correction) {
  return correction == SamplerCorrection::kSequenceTruncate || correction == SamplerCorrection::kSequenceMask ||
         correction == SamplerCorrection::kGeometricMask;
}

class CompletionLoss final : public TokenLoss {
 public:
  /// Keeps a reference to the options; checks and copies the tensors, without reading entries whose mask is
  /// 0. `offsets`, [B + 1], are the sequences of the N rows of `rows_name`.
  CompletionLoss(const PolicyLoss& options, std::span<const int64_t> offsets, int64_t vocab_size,
                 std::string_view rows_name = "hidden", ranks::Totals totals = ranks::Totals());

  /// Returns the chosen token id of each row, [N], or kNoTarget if it takes no part.
  const core::Array<int64_t>& targets() const { return targets_; }
  /// Sets which pick of each row is its chosen id, [N], for rows with several picks: log-probabilities and
  /// their gradients are then per pick.
  void set_chosen_picks(core::Array<int64_t> picks) { chosen_picks_ = std::move(picks); }
  /// Returns the advantage of each row, [N], or 0 if it takes no part.
  std::span<const double> advantages() const { return advantage_; }

  /// Returns whether each sequence has a score above 0, [B]; empty without scores.
  std::span<const uint8_t> good_sequences() const { return good_; }

  StatsRequest needs() const override;
  GradsFilled gradients() const override { return {.entropy = options_.entropy_bonus != 0}; }
  std::span<const int64_t> groups() const override { return groups_; }
  void evaluate(std::span<const int64_t> rows, const TokenStats& stats, TokenGrads& grads) override;

  /// Returns the loss and metrics of all evaluated rows.
  PolicyResult result(const TokenStats& stats, const Plan& plan) const;

 private:
  // Sums over the tokens of one sequence.
  struct Sequence {
    double tokens = 0;
    double log_ratio = 0;     // Σ δ, or Σ clipped δ
    double drift = 0;         // Σ (q − logp)
    double sampler = 0;       // Σ (old − sampling)
    double vespo = 0;         // Σ clamp(δ) + κ
    double by_log_ratio = 0;  // Σ ∂loss/∂w over its tokens
  };
  struct Ratio {
    double value = 1;
    double slope = 1;  // ∂ρ/∂w
  };
  // Decisions about a token that depend on the whole batch.
  static constexpr uint8_t kDropped = 1;  // by its second moment against the sampler
  static constexpr uint8_t kChosen = 2;   // by its covariance

  // Returns the index of a row's chosen id among the picks.
  size_t pick_of(size_t i) const { return chosen_picks_.empty() ? i : static_cast<size_t>(chosen_picks_[i]); }
  const PolicyVariantRow& variant() const { return row_of(options_.loss_type); }
  bool coupled_ratio() const;
  std::string coupling_of_batch() const;
  bool moments_need_policy() const { return options_.m2_threshold && old_.empty(); }
  double clamp_bound() const { return options_.log_ratio_clamp.value_or(kMostLogRatio); }
  double normaliser(int64_t row) const;
  double old_logp(size_t i, double logp) const { return old_.empty() ? logp : old_[i]; }
  double token_log_ratio(size_t i, double logp) const;
  double sampler_log_ratio(size_t i, double logp) const;
  bool teacher_is_against_policy() const;
  void add_teacher(std::span<const int64_t> rows, const TokenStats* stats);
  double corrected(double log_ratio) const;
  Ratio sequence_term(size_t i, double logp) const;

  void add_to_sequence(int64_t row, double logp);
  void find_entropy_threshold(std::span<const int64_t> rows, const TokenStats& stats);
  void drop_large_moments(std::span<const int64_t> rows, const TokenStats* stats);
  void choose_by_covariance(std::span<const int64_t> rows, const TokenStats& stats);
  Ratio ratio(size_t i, double logp) const;
  PolicyTokenLoss token_loss(size_t i, double logp, double ratio) const;
  bool is_trusted(size_t i, double logp) const;
  double factor(size_t i, double logp) const;
  void add_kl(size_t i, double logp, double ratio, PolicyTokenLoss& out);
  void note_clips(size_t i, double logp, double ratio);

  const PolicyLoss& options_;
  ranks::Totals totals_;
  double tokens_ = 0;  // tokens of the whole batch that take part
  double batch_ = 0;   // sequences of the whole batch, empty ones included
  bool advantage_per_token_ = false;
  double good_tokens_ = 0;  // tokens of the whole batch in sequences with a score above 0
  core::Array<int64_t> targets_;
  core::Array<int64_t> chosen_picks_;  // [N] or empty
  core::Array<int64_t> sequence_;      // [N]
  core::Array<int64_t> groups_;        // [N] or empty
  core::Array<double> advantage_;      // [N]; the teacher's part is added once it is known
  core::Array<double> old_, ref_, sampling_, teacher_;
  core::Array<Sequence> sequences_;  // [B]
  core::Array<uint8_t> good_;        // [B]: has a score above 0; empty without scores
  core::Array<uint8_t> marks_;       // [N]: kDropped, kChosen; empty without such decisions
  double entropy_threshold_ = 0;
  double kept_tokens_ = 0;  // tokens with top_i = 1

  // [N], for the evaluated rows.
  core::Array<double> loss_;
  core::Array<double> ratio_;
  core::Array<double> kl_;
  core::Array<double> teacher_kl_;
  core::Array<uint8_t> clips_;  // kLow, kHigh
};

/// Returns the memory of a batch: no output may overlap it.
core::Array<core::ByteRange> batch_ranges(const PolicyLoss& task);

}  // namespace logitless::loss

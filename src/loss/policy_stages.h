// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The stages of a policy loss, in the order in which CompletionLoss (policy.h) takes a token through them.
// The stages are sections of docs/losses-policy.md.
//
//     A teacher in the advantage    PolicyBatch                   A, with the teacher's part       policy_batch.cc
//     Importance ratio              PolicyRatios                  ρ, per token or per sequence     policy_stages.cc
//     Loss per token                policy_token_loss             ℓ                                policy_variants.cc
//     Factors, Sampler correction   PolicyWeights                 ℓ · keep · top · near · m2 · r   policy_stages.cc
//     Penalties                     add_kl, add_sampler_penalty   ℓ + beta K + sampler_penalty (…)²  policy_stages.cc
//     Aggregation                   aggregation                   the factor of ℓ in the loss      policy.cc
//
// A stage that depends on other tokens receives all of them, in add() or as a list, before it processes the
// first one.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "core/checks.h"
#include "core/store.h"
#include "logitless/policy.h"
#include "logitless/token_stats.h"
#include "loss/math.h"
#include "loss/sequences.h"

namespace logitless::loss {

/// An active token, with the letters of docs/losses-policy.md.
struct PolicyToken {
  size_t row = 0;
  size_t sequence = 0;           ///< s
  double sequence_tokens = 0;    ///< n_s
  double advantage = 0;          ///< A
  double logp = 0;               ///< log-probability
  double old_logp = 0;           ///< old
  double ref_logp = 0;           ///< ref, if given
  double sampling_logp = 0;      ///< sampling; NaN if unknown
  double log_ratio = 0;          ///< δ
  double sampler_log_ratio = 0;  ///< old − sampling, or 0 if that is unknown
  double entropy = 0;            ///< H, if requested
  bool is_good = false;          ///< its sequence has a score above 0
  double ratio = 1;              ///< ρ, set by PolicyRatios
  double ratio_slope = 1;        ///< ∂ρ/∂w, set by PolicyRatios
  double sequence_sum = 0;       ///< the sum over its sequence that PolicyRatios keeps, if any
  bool is_chosen = false;        ///< by choose_by_covariance()
};

/// The tokens of a batch, and their inputs.
struct PolicyBatch {
  /// Checks the options, and checks and copies the tensors, without reading entries of ignored tokens.
  /// `offsets`, [B + 1], are the sequences of the N rows of `rows_name`.
  PolicyBatch(const PolicyLoss& options, std::span<const int64_t> offsets, int64_t vocab_size,
              std::string_view rows_name);

  SequenceTokens tokens;
  core::Array<double> advantages;  // [N]; the teacher's part is added once it is known
  bool advantage_per_token = false;
  core::Array<double> old, ref, sampling, teacher;  // [N] or empty
  core::Array<double> teacher_kl;                   // [N] or empty: minus the teacher's log ratio
  core::Array<uint8_t> good;                        // [B]: has a score above 0; empty without scores
  core::Array<int64_t> picks;                       // [N]: of each row's chosen id; empty: row i has pick i

  size_t pick(size_t row) const { return picks.empty() ? row : static_cast<size_t>(picks[row]); }
  bool is_good(size_t row) const { return !good.empty() && good[static_cast<size_t>(tokens.sequence[row])]; }
  /// Returns the active rows.
  core::Array<int64_t> rows() const;
  /// Adds the teacher's discounted log ratios to the advantages. `rows` are increasing, and whole sequences
  /// if there is a discount. Null `stats`: the teacher is compared with given log-probabilities, which the
  /// constructor does.
  void add_teacher(const PolicyLoss& options, std::span<const int64_t> rows, const TokenStats* stats);
  /// Returns the token of a row. Null `stats`: with a log-probability of 0.
  PolicyToken token(int64_t row, const TokenStats* stats) const;
};
/// Returns whether the teacher is compared with the policy itself, not with given log-probabilities.
bool teacher_reads_policy(const PolicyLoss& options);

/// Importance ratios, and how their gradient reaches log-probabilities.
class PolicyRatios {
 public:
  PolicyRatios(const PolicyLoss& options, const SequenceTokens& tokens);

  bool sums_sequences() const { return !sums_.empty(); }
  /// Returns whether the tokens of a sequence share one ratio.
  bool are_shared() const;
  /// Adds a token to the sum of its sequence.
  void add(const PolicyToken& token);
  /// Sets ratio, ratio_slope and sequence_sum.
  void set_ratio(PolicyToken& token) const;
  /// Adds a token's ∂loss/∂w to the sum of its sequence, for a shared ratio.
  void add_gradient(const PolicyToken& token, double by_log_ratio) { sums_[token.sequence].by_w += by_log_ratio; }
  /// Returns ∂loss/∂logp through a shared ratio, once the gradients of its sequence are complete.
  double shared_gradient(const PolicyToken& token) const;

 private:
  struct Sums {
    double terms = 0;
    double by_w = 0;  // Σ ∂loss/∂w
  };
  WithSlope term(const PolicyToken& token) const;

  const PolicyLoss& options_;
  double clamp_;            // c
  core::Array<Sums> sums_;  // [B]; empty if nothing is summed
};

/// Which bound, if any, has clipped a token.
enum class Clip : uint8_t { kNone, kLow, kHigh };

/// One token's loss and its derivatives.
struct PolicyTokenLoss {
  double loss = 0;
  double by_logp = 0;
  double by_ratio = 0;
  Clip clip = Clip::kNone;

  /// Multiplies by a constant, with 0 · ∞ = 0.
  void scale(double factor) {
    loss = weighted(factor, loss);
    by_logp = weighted(factor, by_logp);
    by_ratio = weighted(factor, by_ratio);
  }
};

/// What PolicyRatios sums over a sequence.
enum class SequenceSum {
  kNone,         ///< nothing: ρ is per token
  kMean,         ///< δ, and w is the mean (importance_sampling_level = sequence)
  kSum,          ///< δ, and w is the sum
  kClippedMean,  ///< δ clipped on the side of the token's advantage, and w is the mean
  kWeight,       ///< the terms of vespo's W; ρ is per token
};

struct PolicyVariantRow {
  PolicyLossType loss_type;
  PolicyTokenLoss (*token_loss)(const PolicyToken& token, const PolicyLoss& options);
  PolicyAggregation aggregation;  ///< if the option is kDefault
  SequenceSum sequence_sum = SequenceSum::kNone;
  bool has_loss_without_advantage = false;  ///< if false, the loss is 0 where A = 0
  bool reads_scores = false;
  TrustRegion trust_region = TrustRegion::kNone;  ///< if the option is kDefault
  bool chooses_by_covariance = false;             ///< covariances
  double default_epsilon_low = 0.2;               ///< if epsilon_low is unset
  double default_epsilon_high = 0.3;              ///< if epsilon_high is unset

  /// Returns whether the loss is −min(ρ A, clamp(ρ) A).
  bool is_clipped_surrogate() const;
  /// Returns whether the upper bound of the ratio is epsilon_high, not 1 + epsilon_high.
  bool is_truncated() const;
};
const PolicyVariantRow& row_of(PolicyLossType variant);

/// The bounds, from the options or the variant's defaults.
double epsilon_low(const PolicyLoss& options);
double epsilon_high(const PolicyLoss& options);
/// The smallest ratio: 1 − ε_low, or 0 for a truncated weight without epsilon_low.
double least_ratio(const PolicyLoss& options);
/// Clamps a logarithm to [log 10⁻⁸, 20]. vespo does so to W, and to the logarithm of each sampler correction
/// in it.
double bounded_log_weight(double log_weight);
/// Returns gmpo's d, which is δ clipped on the side of the advantage, and its slope by δ.
WithSlope clipped_log_ratio(const PolicyToken& token, const PolicyLoss& options);

PolicyTokenLoss policy_token_loss(const PolicyToken& token, const PolicyLoss& options);
/// Sets chosen[row] of the tokens that clip_cov drops or kl_cov penalises, from all tokens of the batch.
void choose_by_covariance(std::span<const PolicyToken> tokens, const PolicyLoss& options, core::Array<bool>& chosen);

/// Returns whether a correction uses the ratio of a whole sequence.
bool is_sequence_level(SamplerCorrection correction);
TrustRegion trust_region_of(const PolicyLoss& options);

/// The factors of tokens' losses, which have no gradient.
class PolicyWeights {
 public:
  PolicyWeights(const PolicyLoss& options, const PolicyBatch& batch);

  bool sums_sequences() const { return !sums_.empty(); }
  /// Adds a token to the sums of its sequence.
  void add(const PolicyToken& token);
  /// Finds the top tokens by entropy, from all tokens of the batch.
  void find_top(std::span<const PolicyToken> tokens);
  /// Drops the tokens with the largest second moments, from all tokens of the batch. With old_logps the
  /// constructor calls it.
  void drop_large_moments(std::span<const PolicyToken> tokens);
  /// Returns the factor of a token.
  double of(const PolicyToken& token) const;

  bool is_top(double entropy) const { return !(entropy < least_entropy_); }
  /// Returns Σ top_i, if find_top() was called.
  double top_tokens() const { return top_tokens_; }

 private:
  struct Sums {
    double drift = 0;    // Σ (q − logp)
    double sampler = 0;  // Σ (old − sampling)
  };
  bool is_near(const PolicyToken& token) const;

  const PolicyLoss& options_;
  bool behaviour_is_old_;  // q is old_logps
  TrustRegion region_;
  SamplerCorrection correction_;
  core::Array<Sums> sums_;     // [B]; empty if nothing reads them
  core::Array<bool> dropped_;  // [N]: by its second moment; empty without m2_threshold
  double least_entropy_ = kNothing;
  double top_tokens_ = 0;
};

/// Adds beta K to a token's loss, and returns K.
double add_kl(const PolicyToken& token, const PolicyLoss& options, PolicyTokenLoss& out);
void add_sampler_penalty(const PolicyToken& token, const PolicyLoss& options, PolicyTokenLoss& out);

}  // namespace logitless::loss

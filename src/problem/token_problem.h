// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// This is what a call says about its rows of logits, wherever the logits come from: which rows take part,
// which words they predict, and how a logit becomes a log-probability.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string_view>

#include "core/checks.h"
#include "core/store.h"
#include "logitless/tensors.h"
#include "logitless/token_stats.h"
#include "ranks/totals.h"

namespace logitless::problem {

/// It stands for the word of a row that takes no part. No vocabulary has it.
inline constexpr int64_t kNoTarget = std::numeric_limits<int64_t>::min();

/// These are the rows that take part in a call, and the words that they predict.
struct RowTargets {
  core::Array<int64_t> rows;   // increasing
  core::Array<int64_t> words;  // [N], of the rows that take part; empty where the call has no targets
};

/// This is the one place where ignore_index and shift are resolved. It returns the word of each of the N
/// rows, or kNoTarget. Sequence s holds the rows [offsets[s], offsets[s + 1]). Throws InvalidInput for
/// targets of the wrong number or outside of the vocabulary; every target is checked, also one that no
/// position predicts.
core::Array<int64_t> resolve_words(const Targets& targets, const TokenOptions& options,
                                   std::span<const int64_t> offsets, int64_t vocab_size, std::string_view rows_name);
/// Returns the rows whose word is not kNoTarget.
RowTargets row_targets(core::Array<int64_t> words);
/// Returns all of `tokens` rows, without targets.
RowTargets all_rows(int64_t tokens);

/// This is q of the prior statistic, Σ_v q_v log p_v.
struct Prior {
  std::span<const float> weights = {};  // [V], finite and >= 0; empty: 1/V each
  // This is the name of the weights in error messages, because callers may know them by another one.
  std::string_view name = "prior";
  double mass = 1;  // Σ q
};

struct TokenProblem {
  TokenOptions options;
  StatsRequest request;  // its prior_weights are not read: those of `prior` are
  Prior prior;
  int64_t tokens = 0;
  int64_t vocab_size = 0;                 // of the whole vocabulary: targets, priors and losses mean this one
  int64_t first_word = 0;                 // of those whose logits are here
  int64_t words = 0;                      // whose logits are here: all, but where ranks share them
  DType dtype = DType::kFloat32;          // type of hidden, or of the logits
  std::string_view rows_name = "hidden";  // what messages call the tensor that has the rows
  RowTargets targets;
  ranks::Totals totals;  // over the whole batch

  /// Returns the rows that take part, increasing.
  const core::Array<int64_t>& active() const { return targets.rows; }
  /// Returns the word that `row`, which takes part, predicts; none where the call has no targets.
  std::optional<int64_t> target(int64_t row) const {
    if (targets.words.empty()) return {};
    return targets.words[static_cast<size_t>(row)];
  }
  bool takes_part(int64_t row) const;

  /// Tells whether sums are in float64: they are for float64 tensors, and in float32 for all others.
  bool in_double() const { return dtype == DType::kFloat64; }
  double temperature(int64_t row) const {
    return options.temperatures.empty() ? options.temperature : options.temperatures[static_cast<size_t>(row)];
  }
  /// Returns what a capped logit is divided by to be a final one.
  double logit_temperature(int64_t row) const {
    return options.temperature_meaning == TemperatureMeaning::kScaleLogits ? temperature(row) : 1.0;
  }
  double logp_temperature(int64_t row) const {
    return options.temperature_meaning == TemperatureMeaning::kScaleLogp ? temperature(row) : 1.0;
  }
  /// Returns what a capped logit is multiplied with, rounded to the type of the sums.
  double inverse_temperature(int64_t row) const {
    const double inverse = 1 / logit_temperature(row);
    return in_double() ? inverse : static_cast<double>(static_cast<float>(inverse));
  }
  double prior_weight(int64_t word) const {
    return prior.weights.empty() ? 1.0 / static_cast<double>(vocab_size) : prior.weights[static_cast<size_t>(word)];
  }
};

/// Throws InvalidInput for options, temperatures or prior weights that are wrong, and fills prior.mass. All
/// other members are set by then.
void check_tokens(TokenProblem& problem);

/// Throws InvalidInput unless `value`, a positive factor that kernels divide by, and its reciprocal are
/// normal numbers of the type in which tensors of type `dtype` are summed.
void check_scale(std::string_view name, double value, DType dtype);

/// Throws InvalidInput unless `dtype`, of an output, is the type of the sums or that of its input.
void check_output_type(std::string_view name, DType dtype, DType input, std::string_view input_name);

/// Throws InvalidInput for more sequences without a row than a call makes lists of; `name` is what messages
/// call their number.
void check_empty_sequences(std::string_view name, int64_t sequences);

/// Throws InvalidInput unless `entries`, the size of what messages call `name`, is the number of tokens.
void check_entries(std::string_view name, size_t entries, const TokenProblem& problem);
/// Throws InvalidInput unless the entry of every row that takes part is finite.
void check_finite_entries(std::string_view name, std::span<const double> values, const TokenProblem& problem);

/// Returns what a call reads apart from its tensors and targets.
core::Array<core::ByteRange> reads_of(const TokenProblem& problem);

}  // namespace logitless::problem

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The inputs of one call, checked and resolved: every InvalidInput of the engine is thrown while a Problem is made.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/batched_rows.h"
#include "core/checks.h"
#include "logitless/tensors.h"
#include "logitless/token_stats.h"

namespace logitless::engine {

/// What a call says about its rows of logits, wherever the logits come from.
struct TokenProblem {
  TokenOptions options;
  StatsRequest request;
  int64_t tokens = 0;
  int64_t vocab_size = 0;
  DType dtype = DType::kFloat32;          // of hidden, or of the logits
  std::vector<int64_t> active;            // rows that take part, increasing
  std::vector<int64_t> targets;           // [tokens], -1 where a row takes no part or has no target
  double prior_mass = 1;                  // Σ q
  std::string_view prior_name = "prior";  // in messages: what the caller knows options.prior as
  std::string_view rows_name = "hidden";  // and what has the rows

  /// Sums in float64 for float64 tensors, in float32 for all others.
  bool in_double() const { return dtype == DType::kFloat64; }
  double temperature(int64_t row) const {
    return options.temperatures.empty() ? options.temperature : options.temperatures[static_cast<size_t>(row)];
  }
  /// What a capped logit is multiplied with to be a final one.
  double logit_temperature(int64_t row) const {
    return options.temperature_meaning == TemperatureMeaning::kScaleLogits ? temperature(row) : 1.0;
  }
  double logp_temperature(int64_t row) const {
    return options.temperature_meaning == TemperatureMeaning::kScaleLogp ? temperature(row) : 1.0;
  }
  double prior_weight(int64_t word) const {
    return options.prior.empty() ? 1.0 / static_cast<double>(vocab_size) : options.prior[static_cast<size_t>(word)];
  }
};

/// Checks the options, and the targets against them, and fills `active`, `targets` and `prior_mass`. All other members
/// are set by then. Sequence s holds the rows [offsets[s], offsets[s + 1]).
void resolve_tokens(TokenProblem& problem, const Targets& targets, std::span<const int64_t> offsets);
/// The same where no statistic needs a target: every row takes part.
void resolve_tokens(TokenProblem& problem);

/// What a call reads apart from its tensors.
std::vector<core::ByteRange> reads_of(const TokenProblem& problem, const Targets& targets);

struct Problem : TokenProblem {
  ConstMatrix hidden;         // rows [0, hidden.rows); rows_of_hidden.h tells where a row stands
  ConstMatrix hidden_second;  // the rows after them, if any
  int64_t sequences = 0;      // of equal length in each matrix; 0: they are packed
  core::BatchedRows hidden_places;
  core::BatchedRows second_places;
  LmHead head;
  int64_t hidden_size = 0;
};

/// Throws InvalidInput for anything that breaks the contracts of tensors.h and token_stats.h. `prior_name` is what the
/// caller knows options.prior as.
Problem make_problem(const HiddenStates& hidden, const LmHead& head, const Targets& targets,
                     const TokenOptions& options, StatsRequest request, std::string_view prior_name = "prior");

/// [B + 1], for losses that know sequences. Throws InvalidInput for hidden states whose shape or sequences are wrong.
std::vector<int64_t> checked_sequence_offsets(const HiddenStates& hidden);

/// What hidden states that stand under `name` and `second_name` read.
std::vector<core::ByteRange> ranges_of(std::string_view name, std::string_view second_name, const HiddenStates& hidden);

/// What may be written, for losses that have inputs of their own to keep apart from it.
std::vector<core::ByteRange> output_ranges(const Problem& problem, const Gradients& outputs);

/// Where the rows of d_hidden, and of d_hidden_second, stand.
core::BatchedRows d_hidden_places(const Problem& problem, const Gradients& outputs);
core::BatchedRows d_hidden_second_places(const Problem& problem, const Gradients& outputs);

/// Shapes, dtypes, strides and overlaps of the outputs. `targets` is an input as well.
void check_gradients(const Problem& problem, const Targets& targets, const Gradients& outputs);

}  // namespace logitless::engine

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The rows of a call, for either kind of logits: which rows are active, which token ids they predict, and how
// a logit becomes a log-probability.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string_view>

#include "core/checks.h"
#include "core/matrices.h"
#include "core/store.h"
#include "logitless/divergence.h"
#include "logitless/token_stats.h"

namespace logitless::problem {

/// The token id of an ignored row; no vocabulary contains it.
inline constexpr int64_t kNoTarget = std::numeric_limits<int64_t>::min();

/// The active rows in a call, and their picks: the token ids whose log-probabilities are computed. A
/// target is its row's only pick.
struct RowPicks {
  core::Array<int64_t> rows;  // increasing
  core::Array<int64_t> ids;   // of the picks, increasing in each row; empty without picks
  // [N + 1]: row r has the picks [offsets[r], offsets[r + 1]); empty: row r has the single pick r
  core::Array<int64_t> offsets;
};

/// Returns the offsets of packed sequences of `tokens` rows, checked. Throws InvalidInput.
core::Array<int64_t> packed_offsets(std::span<const int64_t> offsets, int64_t tokens, std::string_view rows_name);
/// Resolves ignore_index and shift, and is the only place that does. Returns the token id of each of the N
/// rows, or kNoTarget. Sequence s has the rows [offsets[s], offsets[s + 1]). Throws InvalidInput for targets
/// of the wrong number or outside the vocabulary; all targets are checked, including those that no position
/// predicts.
core::Array<int64_t> resolve_targets(const Targets& targets, const TokenOptions& options,
                                     std::span<const int64_t> offsets, int64_t vocab_size, std::string_view rows_name);
/// Returns the rows whose token id is not kNoTarget, each with this id as its only pick.
RowPicks target_picks(core::Array<int64_t> ids);
/// Returns all of `tokens` rows, without picks.
RowPicks all_rows(int64_t tokens);

/// The q of the cross statistic, Σ_v q_v log p_v.
struct Cross {
  std::span<const float> weights = {};  // [V], finite and >= 0; empty: 1/V each
  // The name of the weights in messages, which differs by task.
  std::string_view name = "cross_weights";
  double mass = 1;  // Σ q
  // Per-row weights in place of `weights`, [N, V] in the type of the sums, already checked; or null.
  const void* rows = nullptr;
  int64_t rows_stride = 0;
  core::Array<double> row_masses = {};  // [N]: Σ q of each row
};

/// One temperature, or one per token.
struct Temperatures {
  double one = 1;
  std::span<const double> each = {};  // [N], or empty

  double of(int64_t row) const { return each.empty() ? one : each[static_cast<size_t>(row)]; }
};

/// The divergence of a student's and a teacher's distribution: a statistic of the logits of two heads.
struct DivergenceTask {
  Divergence kind = Divergence::kForwardKl;
  double parameter = 0;  // β, λ, w or η
  Temperatures student;
  Temperatures teacher;
  std::string_view teacher_name = "teacher_temperature";  // of a scalar, in messages
  // `student` equals the temperatures of TokenOptions, so one softmax serves logp and divergence.
  bool shares_softmax = true;
  bool entropy = false;  // of both models
  bool argmax = false;   // of the teacher
  std::optional<DType> teacher_rounding = {};
};

/// The shape of a call's logits [tokens, vocab_size].
struct Shape {
  int64_t tokens = 0;
  int64_t vocab_size = 0;                  // of the whole vocabulary, as for targets, weights and losses
  int64_t first_entry = 0;                 // first vocabulary entry here
  int64_t entries = 0;                     // vocabulary entries here: all, unless ranks share them
  DType dtype = DType::kFloat32;           // type of hidden, or of the logits
  std::string_view rows_name = "hidden";   // name of the tensor with the rows, in messages
  std::string_view vocab_name = "weight";  // name of the tensor with the vocabulary, in messages
};

/// The tensors of a call, checked before its task: the operands of its logits, their shape and their
/// sequences.
template <class Operands>
struct Tensors {
  Operands operands;
  Shape shape = {};
  core::Array<int64_t> sequence_offsets = {};  // [B + 1]
};

/// The task of a call: which rows are active and what they predict, how a logit becomes a log-probability,
/// and which statistics are needed.
struct Task {
  TokenOptions options;
  StatsRequest request;  // its cross_weights are not used: `cross` has them
  RowPicks picks;
  Cross cross = {};
  /// The probabilities of a row sum to 1 over the distinct ids of its picks. Only logp and lse
  /// are computed, without a pass over the vocabulary.
  bool over_picks = false;
  std::optional<DivergenceTask> divergence = {};
};

struct TokenProblem : Shape, Task {
  /// Returns the active rows, increasing.
  const core::Array<int64_t>& active() const { return picks.rows; }
  /// Returns the token id that `row`, which is active, predicts: its first pick, or nothing without picks.
  std::optional<int64_t> target(int64_t row) const {
    if (pick_begin(row) == pick_end(row)) return {};
    return picks.ids[static_cast<size_t>(pick_begin(row))];
  }
  bool is_active(int64_t row) const;
  /// An active row has the picks [pick_begin(row), pick_end(row)), whose token ids are picks.ids.
  int64_t pick_begin(int64_t row) const {
    return picks.offsets.empty() ? row : picks.offsets[static_cast<size_t>(row)];
  }
  int64_t pick_end(int64_t row) const { return picks.ids.empty() ? pick_begin(row) : pick_begin(row + 1); }
  /// Returns the number of entries in a column of picks; without picks, one per row.
  int64_t pick_entries() const { return pick_begin(tokens); }
  /// Returns the largest number of picks of a row.
  int64_t most_picks() const;

  /// Returns whether sums are float64: yes for float64 tensors, no (float32) for all others.
  bool in_double() const { return dtype == DType::kFloat64; }
  /// Returns the type of sums.
  DType sum_type() const { return in_double() ? DType::kFloat64 : DType::kFloat32; }
  double temperature(int64_t row) const {
    return options.temperatures.empty() ? options.temperature : options.temperatures[static_cast<size_t>(row)];
  }
  /// Returns the divisor that makes a capped logit final.
  double logit_temperature(int64_t row) const {
    return options.temperature_meaning == TemperatureMeaning::kScaleLogits ? temperature(row) : 1.0;
  }
  double logp_temperature(int64_t row) const {
    return options.temperature_meaning == TemperatureMeaning::kScaleLogp ? temperature(row) : 1.0;
  }
  /// Returns the factor that makes a capped logit final, rounded to the type of the sums.
  double inverse_temperature(int64_t row) const { return inverse_of(logit_temperature(row)); }
  /// Returns the factor for another temperature.
  double inverse_of(double temperature) const {
    const double inverse = 1 / temperature;
    return in_double() ? inverse : static_cast<double>(static_cast<float>(inverse));
  }
  /// Returns the row's own weights [V] in the type of the sums, or null.
  template <class T>
  const T* own_weights(int64_t row) const {
    return cross.rows ? static_cast<const T*>(cross.rows) + row * cross.rows_stride : nullptr;
  }
  double cross_mass(int64_t row) const { return cross.rows ? cross.row_masses[static_cast<size_t>(row)] : cross.mass; }
  double cross_weight(int64_t row, int64_t entry) const {
    if (cross.rows) return in_double() ? own_weights<double>(row)[entry] : own_weights<float>(row)[entry];
    return cross.weights.empty() ? 1.0 / static_cast<double>(vocab_size) : cross.weights[static_cast<size_t>(entry)];
  }
};

/// Returns the task on logits of this shape, with its cross.mass set. Throws InvalidInput for invalid
/// options, temperatures or cross weights.
TokenProblem resolve(const Shape& shape, Task task);

/// Throws InvalidInput if ignore_index or shift is set for a task without targets; `why` explains it.
void check_no_targets(const TokenOptions& options, std::string_view why);

/// Throws InvalidInput unless `value`, a positive factor that kernels divide by, and its reciprocal are
/// normal numbers of the type in which tensors of type `dtype` are summed.
void check_scale(std::string_view name, double value, DType dtype);

/// Throws InvalidInput unless both types are float64, or neither.
void check_sum_type(std::string_view name, DType dtype, DType other, std::string_view other_name);

/// Throws InvalidInput unless `dtype`, of an output, is the type of its sums or of its input.
void check_output_type(std::string_view name, DType dtype, DType input, std::string_view input_name);

/// Throws InvalidInput if there are more sequences without rows than a call supports; messages call their
/// number `name`.
void check_empty_sequences(core::MemberName name, int64_t sequences);

/// Throws InvalidInput unless `entries`, the size of the vector called `name`, is the number of tokens.
void check_entries(std::string_view name, size_t entries, const TokenProblem& problem);
/// The same for a column of picks.
void check_pick_entries(std::string_view name, size_t entries, const TokenProblem& problem);
/// Throws InvalidInput unless the entry of every active row is finite.
void check_finite_entries(std::string_view name, std::span<const double> values, const TokenProblem& problem);

/// Returns the memory that a call reads apart from its tensors and targets.
core::Array<core::ByteRange> reads_of(const TokenProblem& problem);

}  // namespace logitless::problem

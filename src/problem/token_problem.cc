// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "problem/token_problem.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>

#include "core/check_fields.h"
#include "core/store.h"
#include "core/views.h"

namespace logitless::problem {
namespace {

using core::fail;

// Returns the smallest normal number of the type in which `dtype` is summed.
double least_normal(DType dtype) {
  return dtype == DType::kFloat64 ? std::numeric_limits<double>::min() : std::numeric_limits<float>::min();
}

bool is_scale(double value, DType dtype) { return value >= least_normal(dtype) && value <= 1 / least_normal(dtype); }

bool is_logit_rounding(DType dtype) { return dtype == DType::kBFloat16 || dtype == DType::kFloat16; }

void check_rounding(std::string_view name, DType dtype) {
  if (!is_logit_rounding(dtype)) fail(name, " = ", name_of(dtype), " must be bfloat16 or float16");
}

void check_token_options(const TokenProblem& problem) {
  const TokenOptions& options = problem.options;
  core::check_named("temperature_meaning", options.temperature_meaning);
  if (options.round_logits_to) check_rounding("round_logits_to", *options.round_logits_to);
  core::check_aligned("temperatures", options.temperatures);
  if (options.temperatures.empty()) {
    check_scale("temperature", options.temperature, problem.dtype);
  } else if (static_cast<int64_t>(options.temperatures.size()) != problem.tokens) {
    fail("temperatures ", core::HasEntries(options.temperatures.size()), " but ", problem.rows_name, " has ",
         problem.tokens, " rows");
  }
}

// Only the temperatures of active rows are checked: padding may hold anything.
void check_temperatures(const TokenProblem& problem, std::span<const double> temperatures) {
  if (temperatures.empty()) return;
  for (const int64_t row : problem.active()) {
    const double temperature = temperatures[static_cast<size_t>(row)];
    if (is_scale(temperature, problem.dtype)) continue;
    check_scale("temperatures[" + std::to_string(row) + "]", temperature, problem.dtype);
  }
}

// Checks temperatures like the options of tokens; messages call a single one `name`.
void check_temperatures(const TokenProblem& problem, std::string_view name, const Temperatures& temperatures) {
  if (temperatures.each.empty()) return check_scale(name, temperatures.one, problem.dtype);
  core::check_aligned("temperatures", temperatures.each);
  check_entries("temperatures", temperatures.each.size(), problem);
  check_temperatures(problem, temperatures.each);
}

void check_divergence(const TokenProblem& problem) {
  if (!problem.divergence) return;
  const DivergenceTask& task = *problem.divergence;
  check_temperatures(problem, "temperature", task.student);
  check_temperatures(problem, task.teacher_name, task.teacher);
  if (task.teacher_rounding) check_rounding("teacher_round_logits_to", *task.teacher_rounding);
}

void check_draws(const StatsRequest& request) {
  core::check_field("draws", kTopCount, static_cast<double>(request.draws));
  core::check_field("draw_top_k", kTopCount, static_cast<double>(request.draw_top_k));
  core::check_field("draw_top_p", kPositiveShare, request.draw_top_p);
  if (request.draw_top_p < 1 && request.draw_top_k == 0) {
    fail("draw_top_p = ", request.draw_top_p,
         " needs draw_top_k: the most likely ids are taken from the draw_top_k largest logits, at most ", kMostTopK);
  }
  if (request.draws > 0) return;
  if (request.draw_seed != 0) fail("draw_seed = ", request.draw_seed, " has no effect: draws is 0");
  if (request.draw_top_k != 0) fail("draw_top_k = ", request.draw_top_k, " has no effect: draws is 0");
}

void check_cross(const TokenProblem& problem) {
  const Cross& cross = problem.cross;
  if (cross.weights.empty()) return;
  core::check_aligned(cross.name, cross.weights);
  if (static_cast<int64_t>(cross.weights.size()) != problem.vocab_size) {
    fail(cross.name, " ", core::HasEntries(cross.weights.size()), " but the vocabulary has ", problem.vocab_size);
  }
  for (size_t v = 0; v < cross.weights.size(); ++v) {
    if (!kNotNegative.holds(cross.weights[v])) {
      fail(cross.name, "[", v, "] = ", cross.weights[v], " must be ", kNotNegative.text);
    }
  }
}

}  // namespace

core::Array<int64_t> packed_offsets(std::span<const int64_t> offsets, int64_t tokens, std::string_view rows_name) {
  core::check_aligned("offsets", offsets);
  if (offsets.front() != 0) fail("offsets[0] = ", offsets.front(), " must be 0");
  for (size_t s = 1; s < offsets.size(); ++s) {
    if (offsets[s] < offsets[s - 1]) {
      fail("offsets[", s, "] = ", offsets[s], " is below offsets[", s - 1, "] = ", offsets[s - 1]);
    }
  }
  if (offsets.back() != tokens) {
    fail("offsets[", offsets.size() - 1, "] = ", offsets.back(), " must be the number of rows of ", rows_name, ", ",
         tokens);
  }
  return {offsets.begin(), offsets.end()};
}

core::Array<int64_t> resolve_targets(const Targets& targets, const TokenOptions& options,
                                     std::span<const int64_t> offsets, int64_t vocab_size, std::string_view rows_name) {
  const int64_t tokens = offsets.back();
  core::check_field("shift", kPositions, static_cast<double>(options.shift));
  core::check_targets("targets", targets, tokens, rows_name);
  // An id out of range is an error at every position.
  const int64_t ignore = options.ignore_index;
  for (int64_t i = 0; i < targets.size; ++i) {
    const int64_t target = targets[i];
    if (target != ignore && (target < 0 || target >= vocab_size)) {
      fail("targets[", i, "] = ", target, " is outside [0, ", vocab_size, ") and is not ignore_index (", ignore, ")");
    }
  }
  core::Array<int64_t> ids(static_cast<size_t>(tokens), kNoTarget);
  for (size_t s = 0; s + 1 < offsets.size(); ++s) {
    const int64_t predicting = offsets[s + 1] - offsets[s] - options.shift;  // rows that have a target
    for (int64_t row = offsets[s]; row < offsets[s] + predicting; ++row) {
      const int64_t target = targets[row + options.shift];
      if (target != ignore) ids[static_cast<size_t>(row)] = target;
    }
  }
  return ids;
}

RowPicks target_picks(core::Array<int64_t> ids) {
  RowPicks out;
  out.rows.reserve(
      static_cast<size_t>(std::count_if(ids.begin(), ids.end(), [](int64_t id) { return id != kNoTarget; })));
  for (size_t row = 0; row < ids.size(); ++row) {
    if (ids[row] != kNoTarget) out.rows.push_back(static_cast<int64_t>(row));
  }
  out.ids = std::move(ids);
  return out;
}

RowPicks all_rows(int64_t tokens) {
  RowPicks out;
  out.rows.resize(static_cast<size_t>(tokens));
  std::iota(out.rows.begin(), out.rows.end(), int64_t{0});
  return out;
}

bool TokenProblem::is_active(int64_t row) const {
  return std::binary_search(picks.rows.begin(), picks.rows.end(), row);
}

int64_t TokenProblem::most_picks() const {
  if (picks.offsets.empty()) return picks.ids.empty() ? 0 : 1;
  int64_t most = 0;
  for (const int64_t row : active()) most = std::max(most, pick_end(row) - pick_begin(row));
  return most;
}

void check_no_targets(const TokenOptions& options, std::string_view why) {
  if (options.shift != 0) fail("shift = ", options.shift, " has no meaning here: ", why);
  if (options.ignore_index != TokenOptions().ignore_index) {
    fail("ignore_index = ", options.ignore_index, " has no meaning here: ", why);
  }
}

void check_scale(std::string_view name, double value, DType dtype) {
  core::check_field(name, kPositive, value);
  if (is_scale(value, dtype)) return;
  const double least = least_normal(dtype);
  fail(name, " = ", value, " must be in [", least, ", ", 1 / least, "] for ",
       dtype == DType::kFloat64 ? "float64" : "float32", " sums");
}

TokenProblem resolve(const Shape& shape, Task task) {
  TokenProblem problem = {shape, std::move(task)};
  check_token_options(problem);
  core::check_field("top_k", kTopCount, static_cast<double>(problem.request.top_k));
  check_draws(problem.request);
  check_cross(problem);
  check_temperatures(problem, problem.options.temperatures);
  check_divergence(problem);
  if (problem.cross.weights.empty()) return problem;
  problem.cross.mass = 0;
  for (const float q : problem.cross.weights) problem.cross.mass += q;
  return problem;
}

void check_sum_type(std::string_view name, DType dtype, DType other, std::string_view other_name) {
  if ((dtype == DType::kFloat64) != (other == DType::kFloat64)) {
    core::fail(name, " is ", name_of(dtype), " but ", other_name, " is ", name_of(other),
               ": float64 cannot be mixed with other types");
  }
}

void check_output_type(std::string_view name, DType dtype, DType input, std::string_view input_name) {
  const DType sums = input == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
  if (dtype != sums && dtype != input) {
    fail(name, " is ", name_of(dtype), " but must be ", name_of(sums), " or ", input_name, "'s type, ", name_of(input));
  }
}

void check_empty_sequences(core::MemberName name, int64_t sequences) {
  constexpr int64_t kMost = 1 << 24;  // their offsets are 128 MiB
  if (sequences > kMost) fail(name, " = ", sequences, " is above ", kMost, ", the most sequences without rows");
}

void check_entries(std::string_view name, size_t entries, const TokenProblem& problem) {
  if (static_cast<int64_t>(entries) == problem.tokens) return;
  fail(name, " ", core::HasEntries(entries), " but ", problem.rows_name, " has ", problem.tokens, " rows");
}

void check_pick_entries(std::string_view name, size_t entries, const TokenProblem& problem) {
  if (problem.picks.offsets.empty()) return check_entries(name, entries, problem);
  if (static_cast<int64_t>(entries) == problem.pick_entries()) return;
  fail(name, " ", core::HasEntries(entries), " but there are ", problem.pick_entries(), " picks");
}

void check_finite_entries(std::string_view name, std::span<const double> values, const TokenProblem& problem) {
  core::check_aligned(name, values);
  for (const int64_t row : problem.active()) {
    const double value = values[static_cast<size_t>(row)];
    if (!std::isfinite(value)) fail(name, "[", row, "] = ", value, " must be finite");
  }
}

core::Array<core::ByteRange> reads_of(const TokenProblem& problem) {
  const auto& temperatures = problem.options.temperatures;
  const auto& weights = problem.cross.weights;
  core::Array<core::ByteRange> reads = {core::range_of("temperatures", temperatures.data(), temperatures.size_bytes()),
                                        core::range_of(problem.cross.name, weights.data(), weights.size_bytes())};
  if (problem.divergence) {
    const std::span<const double> of_student = problem.divergence->student.each;
    reads.push_back(core::range_of("temperatures", of_student.data(), of_student.size_bytes()));
  }
  return reads;
}

}  // namespace logitless::problem

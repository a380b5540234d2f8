// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "api/stated.h"

#include <algorithm>
#include <utility>

#include "core/packed.h"
#include "core/views.h"
#include "problem/hidden_rows.h"

namespace logitless::api {
namespace {

using problem::HiddenProblem;

// The sample: this many rows, and this many bytes of each. It takes less than 10 microseconds.
constexpr int64_t kSampledRows = 8;
constexpr size_t kSampledBytes = 4096;

// States a sample of `rows` rows of `bytes` bytes at row_of(i): the first, the last, and evenly spaced rows
// in between.
template <class RowOf>
void state_sample(ranks::Statement& statement, const std::string& name, int64_t rows, int64_t bytes,
                  const RowOf& row_of) {
  const int64_t count = std::min(rows, kSampledRows);
  statement.say_values(name, count, [&](int64_t i) {
    const int64_t row = count < 2 ? 0 : i * (rows - 1) / (count - 1);
    return ranks::digest_of(row_of(row), std::min(static_cast<size_t>(bytes), kSampledBytes));
  });
}

void state_sample(ranks::Statement& statement, const std::string& name, const ConstMatrix& matrix, int64_t rows) {
  state_sample(statement, name, rows, matrix.cols * static_cast<int64_t>(size_of(matrix.dtype)),
               [&](int64_t row) { return core::element(matrix.data, matrix.dtype, row * matrix.stride); });
}

// States a sample of the rows that take part.
void state_sample(ranks::Statement& statement, const std::string& name, const problem::TokenProblem& problem,
                  const problem::Rows<ConstMatrix>& rows) {
  const std::span<const int64_t> active = problem.active();
  state_sample(statement, name, static_cast<int64_t>(active.size()),
               rows.cols * static_cast<int64_t>(size_of(rows.dtype)),
               [&](int64_t i) { return rows.place(active[static_cast<size_t>(i)]).data; });
}

// States the parts of a head's LoRA that all ranks have. Its states are compared only if `tokens` is not
// null: ranks then have the same tokens.
void state_lora(ranks::Statement& statement, const HeadMatrices& head, const std::string& of,
                const problem::TokenProblem* tokens) {
  const LoraMatrices& lora = head.lora;
  const ConstMatrix& first = lora.has_states() ? lora.states : lora.a;
  const char* const kind = lora.has_states() ? "states of " : "a of ";
  statement.say(of + "lora", lora.given() ? kind + text_of(first.dtype) : "none");
  if (!lora.given()) return;
  statement.say(of + "lora.scale", lora.scale);
  if (!lora.has_states()) return state_sample(statement, of + "lora.a", first, first.rows);
  if (tokens) state_sample(statement, of + "lora.states", *tokens, problem::matrix_rows(lora.states));
}

// States a head, which has `entries` vocabulary entries here.
void state_head(ranks::Statement& statement, const HeadMatrices& head, int64_t entries, const std::string& name,
                const std::string& of) {
  statement.say(of + "the size of " + name, entries);
  state_lora(statement, head, of, nullptr);
  statement.say_array(of + name + ".ids", head.ids);
  statement.say(of + "layout", head.layout);
  statement.say(of + "bias", head.bias.data ? name_of(head.bias.dtype) : std::string("none"));
  const PackedMatrix& packed = head.packed;
  statement.say(of + name + ".dtype", packed.given() ? name_of(packed.packing) : name_of(head.weight.dtype));
  if (!packed.given()) return state_sample(statement, of + name, head.weight, entries == 0 ? 0 : head.weight.rows);
  const int64_t rows = entries == 0 ? 0 : packed.rows;
  statement.say(of + name + ".group", packed.group);
  state_sample(statement, of + name, rows, core::row_bytes(packed),
               [&](int64_t row) { return core::row_of(packed, row); });
  if (!packed.scales) return;
  const int64_t scales = core::row_scales(packed);
  state_sample(statement, of + name + ".scales", rows, scales * static_cast<int64_t>(sizeof(float)),
               [&](int64_t row) { return packed.scales + row * scales; });
}

// States the properties of hidden states and head that all ranks share.
void state_states(ranks::Statement& statement, DType dtype, int64_t hidden_size, const HeadMatrices& head,
                  const std::string& of) {
  statement.say(of + "hidden.dtype", dtype);
  statement.say(of + "hidden_size", hidden_size);
  statement.say(of + "softcap", head.softcap);
}

// States the properties of a teacher that all ranks share.
void state_teacher(ranks::Statement& statement, const HiddenProblem& problem) {
  if (problem.teacher_logits) return statement.say("teacher.logits.dtype", problem.teacher_logits->dtype);
  const problem::StatesAndHead& teacher = *problem.teacher;
  state_states(statement, teacher.hidden.dtype, teacher.hidden_size, teacher.head, "teacher.");
}

}  // namespace

void state_vector(ranks::Statement& statement, std::string name, const problem::TokenProblem& problem,
                  const ConstVector& values) {
  const std::span<const int64_t> rows = problem.active();
  statement.say_values(std::move(name), values.size == 0 ? 0 : static_cast<int64_t>(rows.size()),
                       [&](int64_t i) { return core::read(values, rows[static_cast<size_t>(i)]); });
}

void state_tokens(ranks::Statement& statement, const HiddenProblem& problem, const std::string& of) {
  state_states(statement, problem.dtype, problem.hidden_size, problem.head, of);
  statement.say(of + "tokens", problem.tokens);
  statement.say_array(of + "picks per token", std::span(problem.picks.offsets));
  statement.say_array(of + "targets", std::span(problem.picks.ids));
  state_vector(statement, of + "temperatures", problem, problem.options.temperatures);
  state_sample(statement, of + "hidden", problem, problem::rows_of(problem));
  state_lora(statement, problem.head, of, &problem);
}

void state_teacher_tokens(ranks::Statement& statement, const HiddenProblem& problem) {
  state_teacher(statement, problem);
  statement.say("teacher_round_logits_to", problem.divergence->teacher_rounding);
  state_vector(statement, "temperatures", problem, problem.divergence->student.each);
  if (!problem.teacher) return;
  state_sample(statement, "teacher.hidden", problem, problem::rows_of(*problem.teacher));
  state_lora(statement, problem.teacher->head, "teacher.", &problem);
}

void state_head(ranks::Statement& statement, const HiddenProblem& problem, const std::string& of) {
  state_states(statement, problem.dtype, problem.hidden_size, problem.head, of);
  statement.say(of + "the size of the vocabulary", problem.vocab_size);
  state_head(statement, problem.head, problem.entries, "weight", of);
}

void state_teacher_head(ranks::Statement& statement, const HiddenProblem& problem) {
  state_teacher(statement, problem);
  if (problem.teacher) state_head(statement, problem.teacher->head, problem.entries, "head", "teacher.");
}

void state_logits(ranks::Statement& statement, const problem::LogitsProblem& problem) {
  statement.say("logits.dtype", problem.dtype);
  if (problem.teacher_logits) statement.say("teacher.logits.dtype", problem.teacher_logits->dtype);
  statement.say("the size of the vocabulary", problem.vocab_size);
}

}  // namespace logitless::api

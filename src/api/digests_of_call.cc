// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "api/digests_of_call.h"

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

// Adds a sample of `rows` rows of `bytes` bytes at row_of(i): the first, the last, and evenly spaced rows
// in between.
template <class RowOf>
void digest_sample(ranks::Digests& digests, const std::string& name, int64_t rows, int64_t bytes, const RowOf& row_of) {
  const int64_t count = std::min(rows, kSampledRows);
  digests.add_values(name, count, [&](int64_t i) {
    const int64_t row = count < 2 ? 0 : i * (rows - 1) / (count - 1);
    return ranks::digest_of(row_of(row), std::min(static_cast<size_t>(bytes), kSampledBytes));
  });
}

void digest_sample(ranks::Digests& digests, const std::string& name, const ConstMatrix& matrix, int64_t rows) {
  digest_sample(digests, name, rows, matrix.cols * static_cast<int64_t>(size_of(matrix.dtype)),
                [&](int64_t row) { return core::element(matrix.data, matrix.dtype, row * matrix.stride); });
}

// Adds a sample of the active rows.
void digest_sample(ranks::Digests& digests, const std::string& name, const problem::TokenProblem& problem,
                   const problem::Rows<ConstMatrix>& rows) {
  const std::span<const int64_t> active = problem.active();
  digest_sample(digests, name, static_cast<int64_t>(active.size()),
                rows.cols * static_cast<int64_t>(size_of(rows.dtype)),
                [&](int64_t i) { return rows.place(active[static_cast<size_t>(i)]).data; });
}

// Adds the parts of a head's LoRA that all ranks have. Its states are compared only if `tokens` is not
// null: ranks then have the same tokens.
void digest_lora(ranks::Digests& digests, const HeadMatrices& head, const std::string& of,
                 const problem::TokenProblem* tokens) {
  const LoraMatrices& lora = head.lora;
  const ConstMatrix& first = lora.has_states() ? lora.states : lora.a;
  const char* const kind = lora.has_states() ? "states of " : "a of ";
  digests.add(of + "lora", lora.given() ? kind + text_of(first.dtype) : "none");
  if (!lora.given()) return;
  digests.add(of + "lora_scale", lora.scale);
  if (!lora.has_states()) return digest_sample(digests, of + "lora_a", first, first.rows);
  if (tokens) digest_sample(digests, of + "lora_states", *tokens, problem::matrix_rows(lora.states));
}

// Adds a head with `entries` vocabulary entries on this rank.
void digest_head(ranks::Digests& digests, const HeadMatrices& head, int64_t entries, const std::string& name,
                 const std::string& of) {
  digests.add(of + "the size of " + name, entries);
  digest_lora(digests, head, of, nullptr);
  digests.add_array(of + name + ".ids", head.ids);
  digests.add(of + "layout", head.layout);
  digests.add(of + "bias", head.bias.data ? name_of(head.bias.dtype) : std::string("none"));
  const PackedMatrix& packed = head.packed;
  digests.add(of + name + ".dtype", packed.given() ? name_of(packed.packing) : name_of(head.weight.dtype));
  if (!packed.given()) return digest_sample(digests, of + name, head.weight, entries == 0 ? 0 : head.weight.rows);
  const int64_t rows = entries == 0 ? 0 : packed.rows;
  digests.add(of + name + ".group", packed.group);
  digest_sample(digests, of + name, rows, core::row_bytes(packed),
                [&](int64_t row) { return core::row_of(packed, row); });
  if (!packed.scales) return;
  const int64_t scales = core::row_scales(packed);
  digest_sample(digests, of + name + ".scales", rows, scales * static_cast<int64_t>(sizeof(float)),
                [&](int64_t row) { return packed.scales + row * scales; });
}

// Adds the properties of hidden states and head that all ranks share.
void digest_states(ranks::Digests& digests, DType dtype, int64_t hidden_size, const HeadMatrices& head,
                   const std::string& of) {
  digests.add(of + "hidden.dtype", dtype);
  digests.add(of + "hidden_size", hidden_size);
  digests.add(of + "softcap", head.softcap);
}

// Adds the properties of a teacher that all ranks share.
void digest_teacher(ranks::Digests& digests, const HiddenProblem& problem) {
  if (problem.teacher_logits) return digests.add("teacher.logits.dtype", problem.teacher_logits->dtype);
  const problem::StatesAndHead& teacher = *problem.teacher;
  digest_states(digests, teacher.hidden.dtype, teacher.hidden_size, teacher.head, "teacher.");
}

}  // namespace

void digest_vector(ranks::Digests& digests, std::string name, const problem::TokenProblem& problem,
                   const ConstVector& values) {
  const std::span<const int64_t> rows = problem.active();
  digests.add_values(std::move(name), values.size == 0 ? 0 : static_cast<int64_t>(rows.size()),
                     [&](int64_t i) { return core::read(values, rows[static_cast<size_t>(i)]); });
}

void digest_tokens(ranks::Digests& digests, const HiddenProblem& problem, const std::string& of) {
  digest_states(digests, problem.dtype, problem.hidden_size, problem.head, of);
  digests.add(of + "tokens", problem.tokens);
  digests.add_array(of + "picks per token", std::span(problem.picks.offsets));
  digests.add_array(of + "targets", std::span(problem.picks.ids));
  digest_vector(digests, of + "temperatures", problem, problem.options.temperatures);
  digest_sample(digests, of + "hidden", problem, problem::rows_of(problem));
  digest_lora(digests, problem.head, of, &problem);
}

void digest_teacher_tokens(ranks::Digests& digests, const HiddenProblem& problem) {
  digest_teacher(digests, problem);
  digests.add("teacher_round_logits_to", problem.divergence->teacher_rounding);
  digest_vector(digests, "temperatures", problem, problem.divergence->student.each);
  if (!problem.teacher) return;
  digest_sample(digests, "teacher.hidden", problem, problem::rows_of(*problem.teacher));
  digest_lora(digests, problem.teacher->head, "teacher.", &problem);
}

void digest_head(ranks::Digests& digests, const HiddenProblem& problem, const std::string& of) {
  digest_states(digests, problem.dtype, problem.hidden_size, problem.head, of);
  digests.add(of + "the size of the vocabulary", problem.vocab_size);
  digest_head(digests, problem.head, problem.entries, "weight", of);
}

void digest_teacher_head(ranks::Digests& digests, const HiddenProblem& problem) {
  digest_teacher(digests, problem);
  if (problem.teacher) digest_head(digests, problem.teacher->head, problem.entries, "head", "teacher.");
}

void digest_logits(ranks::Digests& digests, const problem::LogitsProblem& problem) {
  digests.add("logits.dtype", problem.dtype);
  if (problem.teacher_logits) digests.add("teacher.logits.dtype", problem.teacher_logits->dtype);
  digests.add("the size of the vocabulary", problem.vocab_size);
}

}  // namespace logitless::api

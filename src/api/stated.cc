// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "api/stated.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "core/packed.h"
#include "core/views.h"
#include "problem/hidden_rows.h"

namespace logitless::api {
namespace {

// So many rows, and so many bytes of each, are read: under 10 microseconds in all.
constexpr int64_t kSampledRows = 8;
constexpr size_t kSampledBytes = 4096;

// Returns a sample of `rows` rows of `bytes` bytes: row_of(i) says where row i stands.
template <class RowOf>
ranks::Entries sample(std::string name, int64_t rows, size_t bytes, RowOf row_of,
                      const std::function<int64_t(int64_t)>& id) {
  const int64_t count = std::min(rows, kSampledRows);
  // The first, the last, and rows between them.
  const auto place = [rows, count](int64_t i) { return count < 2 ? 0 : i * (rows - 1) / (count - 1); };
  ranks::Entries out;
  out.size = count;
  out.bits = [=](int64_t i) { return ranks::digest_of(row_of(place(i)), std::min(bytes, kSampledBytes)); };
  out.name_of = [=, name = std::move(name)](int64_t i) {
    return "row " + std::to_string(id(place(i))) + " of " + name;
  };
  return out;
}

// States a sample of those of `rows` that take part.
void say_sample_of_rows(ranks::Statement& statement, const problem::TokenProblem& problem,
                        const problem::Rows<ConstMatrix>& rows, const std::string& name) {
  const std::span<const int64_t> active = problem.active();
  const auto row_of = [active](int64_t i) { return active[static_cast<size_t>(i)]; };
  statement.say("a sample of " + name,
                sample(
                    name, static_cast<int64_t>(active.size()), static_cast<size_t>(rows.cols) * size_of(rows.dtype),
                    [rows, row_of](int64_t i) { return rows.place(row_of(i)).data; }, row_of));
}

// States a sample of `rows` rows of a matrix.
template <class RowOf>
void say_sample(ranks::Statement& statement, const std::string& name, int64_t rows, size_t bytes, RowOf row_of) {
  statement.say("a sample of " + name, sample(name, rows, bytes, row_of, [](int64_t row) { return row; }));
}

// States what all ranks have of a head's LoRA. Its states are those of the tokens.
void say_lora(ranks::Statement& statement, const LmHead& head, const std::string& of) {
  const LoraAdapter& lora = head.lora;
  if (!lora.given()) return statement.say(of + "lora", std::string("none"));
  const ConstMatrix* const first = lora.has_states() ? &lora.states : &lora.a;
  statement.say(of + (lora.has_states() ? "lora.states" : "lora.a"), std::string(name_of(first->dtype)), " is ");
  statement.say(of + "lora.scale", lora.scale);
  if (lora.has_states()) return;
  say_sample(statement, of + "lora.a", first->rows, static_cast<size_t>(first->cols) * size_of(first->dtype),
             [first](int64_t row) { return core::element(first->data, first->dtype, row * first->stride); });
}

// States it for ranks that have the same tokens.
void say_lora_of_tokens(ranks::Statement& statement, const problem::TokenProblem& problem, const LmHead& head,
                        const std::string& of) {
  say_lora(statement, head, of);
  if (!head.lora.has_states()) return;
  say_sample_of_rows(statement, problem, problem::matrix_rows(head.lora.states), of + "lora.states");
}

void say_ids(ranks::Statement& statement, std::span<const int64_t> ids, const std::string& name) {
  if (ids.empty()) return statement.say(name, std::string("none"));
  ranks::Entries entries;
  entries.size = static_cast<int64_t>(ids.size());
  entries.bits = [ids](int64_t k) { return static_cast<uint64_t>(ids[static_cast<size_t>(k)]); };
  entries.text = [ids](int64_t k) { return std::to_string(ids[static_cast<size_t>(k)]); };
  entries.name_of = [name](int64_t k) { return name + "[" + std::to_string(k) + "]"; };
  statement.say(name, std::move(entries));
}

void say_packed(ranks::Statement& statement, const PackedMatrix& packed, int64_t rows, const std::string& name) {
  statement.say(name + ".group", packed.group);
  const PackedMatrix* const of = &packed;
  say_sample(statement, name, rows, static_cast<size_t>(core::row_bytes(packed)),
             [of](int64_t row) { return core::row_of(*of, row); });
  if (!packed.scales) return;
  const int64_t scales = core::row_scales(packed);
  say_sample(statement, name + ".scales", rows, static_cast<size_t>(scales) * sizeof(float),
             [of, scales](int64_t row) { return of->scales + row * scales; });
}

// States what a head is, of which `entries` vocabulary entries are here.
void say_head(ranks::Statement& statement, const LmHead& head, int64_t entries, const std::string& name,
              const std::string& of) {
  statement.say(of + "the size of " + name, entries);
  say_lora(statement, head, of);
  say_ids(statement, head.ids, of + name + ".ids");
  statement.say(of + "layout", std::string(name_of(head.layout)));
  statement.say(of + "bias", std::string(head.bias.data ? name_of(head.bias.dtype) : "none"), " is ");
  const PackedMatrix& packed = head.packed;
  const ConstMatrix* const weight = &head.weight;
  statement.say(of + name, std::string(packed.given() ? name_of(packed.packing) : name_of(weight->dtype)), " is ");
  if (packed.given()) return say_packed(statement, packed, entries == 0 ? 0 : packed.rows, of + name);
  say_sample(statement, of + name, entries == 0 ? 0 : weight->rows,
             static_cast<size_t>(weight->cols) * size_of(weight->dtype),
             [weight](int64_t row) { return core::element(weight->data, weight->dtype, row * weight->stride); });
}

}  // namespace

ranks::Entries entries_of(std::string name, int64_t size, const std::function<double(int64_t)>& value) {
  ranks::Entries out;
  out.size = size;
  out.bits = [value](int64_t i) { return std::bit_cast<uint64_t>(value(i)); };
  out.text = [value](int64_t i) { return text_of(value(i)); };
  out.name_of = [name = std::move(name)](int64_t i) { return name + "[" + std::to_string(i) + "]"; };
  return out;
}

ranks::Entries entries_of(std::string name, std::span<const float> values) {
  ranks::Entries out;
  out.size = static_cast<int64_t>(values.size());
  const auto at = [values](int64_t i) {
    float value = 0;
    std::memcpy(&value, reinterpret_cast<const std::byte*>(values.data()) + static_cast<size_t>(i) * sizeof value,
                sizeof value);
    return value;
  };
  out.bits = [at](int64_t i) { return uint64_t{std::bit_cast<uint32_t>(at(i))}; };
  out.text = [at](int64_t i) { return text_of(at(i)); };
  out.name_of = [name = std::move(name)](int64_t i) { return name + "[" + std::to_string(i) + "]"; };
  return out;
}

ranks::Entries entries_of_tokens(std::string name, const problem::TokenProblem& problem,
                                 const std::function<double(int64_t)>& value) {
  const std::span<const int64_t> rows = problem.active();
  ranks::Entries out;
  out.size = static_cast<int64_t>(rows.size());
  const auto at = [rows, value](int64_t i) { return value(rows[static_cast<size_t>(i)]); };
  out.bits = [at](int64_t i) { return std::bit_cast<uint64_t>(at(i)); };
  out.text = [at](int64_t i) { return text_of(at(i)); };
  out.name_of = [rows, name = std::move(name)](int64_t i) {
    return "the " + name + " of token " + std::to_string(rows[static_cast<size_t>(i)]);
  };
  return out;
}

void state_vector(ranks::Statement& statement, const std::string& name, const problem::TokenProblem& problem,
                  const ConstVector& values) {
  if (values.size == 0) return statement.say(name, std::string("none"));
  statement.say(
      name, entries_of_tokens("entry of " + name, problem, [values](int64_t row) { return core::read(values, row); }));
}

void state_tokens(ranks::Statement& statement, const problem::HiddenProblem& problem, const std::string& of) {
  statement.say(of + "hidden", std::string(name_of(problem.dtype)), " is ");
  statement.say(of + "hidden_size", problem.hidden_size);
  statement.say(of + "tokens", problem.tokens);
  statement.say(of + "softcap", problem.head.softcap);
  // The targets of all tokens, so that the first that differs is found even where other tokens take part.
  const problem::TokenProblem* tokens = &problem;
  ranks::Entries targets;
  if (!problem.picks.ids.empty()) targets.size = problem.pick_entries();
  targets.bits = [tokens](int64_t pick) { return static_cast<uint64_t>(tokens->picks.ids[static_cast<size_t>(pick)]); };
  targets.text = [tokens](int64_t pick) {
    const int64_t entry = tokens->picks.ids[static_cast<size_t>(pick)];
    return entry == problem::kNoTarget ? "none" : std::to_string(entry);
  };
  const core::Array<int64_t>& offsets = problem.picks.offsets;
  targets.name_of = [&offsets](int64_t pick) {
    if (offsets.empty()) return "the target of token " + std::to_string(pick);
    const auto row = std::upper_bound(offsets.begin(), offsets.end(), pick) - offsets.begin() - 1;
    return "pick " + std::to_string(pick - offsets[static_cast<size_t>(row)]) + " of token " + std::to_string(row);
  };
  if (!offsets.empty()) {
    ranks::Entries counts;
    counts.size = problem.tokens;
    const auto count = [tokens](int64_t row) { return tokens->pick_end(row) - tokens->pick_begin(row); };
    counts.bits = [count](int64_t row) { return static_cast<uint64_t>(count(row)); };
    counts.text = [count](int64_t row) { return std::to_string(count(row)); };
    counts.name_of = [](int64_t row) { return "the number of picks of token " + std::to_string(row); };
    statement.say(of + "pick counts", std::move(counts));
  }
  statement.say(of + "targets", std::move(targets));
  if (problem.options.temperatures.empty()) {
    statement.say(of + "temperatures", std::string("none"));
  } else {
    statement.say(of + "temperatures", entries_of_tokens("temperature", problem,
                                                         [tokens](int64_t row) { return tokens->temperature(row); }));
  }
  say_sample_of_rows(statement, problem, problem::rows_of(problem), of + "hidden");
  say_lora_of_tokens(statement, problem, problem.head, of);
}

namespace {

// States what all ranks know of a teacher.
void state_teacher(ranks::Statement& statement, const problem::HiddenProblem& problem) {
  if (problem.teacher_logits) {
    statement.say("teacher.logits", std::string(name_of(problem.teacher_logits->dtype)), " is ");
    return;
  }
  const problem::StatesAndHead& teacher = *problem.teacher;
  statement.say("teacher.hidden", std::string(name_of(teacher.hidden.dtype)), " is ");
  statement.say("teacher.hidden_size", teacher.hidden_size);
  statement.say("teacher.softcap", teacher.head.softcap);
}

}  // namespace

void state_teacher_tokens(ranks::Statement& statement, const problem::HiddenProblem& problem) {
  state_teacher(statement, problem);
  statement.say("teacher.round_logits_to", problem.divergence->teacher_rounding);
  const problem::Temperatures& temperatures = problem.divergence->student;
  if (temperatures.each.empty()) {
    statement.say("temperatures", std::string("none"));
  } else {
    statement.say("temperatures", entries_of_tokens("temperature", problem,
                                                    [&temperatures](int64_t row) { return temperatures.of(row); }));
  }
  if (!problem.teacher) return;
  say_sample_of_rows(statement, problem, problem::rows_of(*problem.teacher), "teacher.hidden");
  say_lora_of_tokens(statement, problem, problem.teacher->head, "teacher.");
}

void state_head(ranks::Statement& statement, const problem::HiddenProblem& problem, const std::string& of) {
  const LmHead& head = problem.head;
  statement.say(of + "hidden", std::string(name_of(problem.dtype)), " is ");
  statement.say(of + "hidden_size", problem.hidden_size);
  statement.say(of + "softcap", head.softcap);
  statement.say(of + "the size of the vocabulary", problem.vocab_size);
  say_head(statement, head, problem.entries, "lm_head", of);
}

void state_teacher_head(ranks::Statement& statement, const problem::HiddenProblem& problem) {
  state_teacher(statement, problem);
  if (problem.teacher) say_head(statement, problem.teacher->head, problem.entries, "head", "teacher.");
}

void state_logits(ranks::Statement& statement, const problem::LogitsProblem& problem) {
  statement.say("logits", std::string(name_of(problem.dtype)), " is ");
  if (problem.teacher_logits) {
    statement.say("teacher.logits", std::string(name_of(problem.teacher_logits->dtype)), " is ");
  }
  statement.say("the size of the vocabulary", problem.vocab_size);
}

}  // namespace logitless::api

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// What a call was given, as ranks state it to each other: its options by the list of their fields, and its
// inputs, of which hidden states and head by a sample.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <type_traits>

#include "logitless/fields.h"
#include "problem/hidden_problem.h"
#include "problem/logits_problem.h"
#include "ranks/meeting.h"

namespace logitless::api {

/// Returns `size` entries: "name[3]".
ranks::Entries entries_of(std::string name, int64_t size, const std::function<double(int64_t)>& value);
/// Returns those of an array, whose memory need not be aligned.
ranks::Entries entries_of(std::string name, std::span<const float> values);
/// Returns values of tokens, of which those that take no part are not read: "the advantage of token 7".
ranks::Entries entries_of_tokens(std::string name, const problem::TokenProblem& problem,
                                 const std::function<double(int64_t)>& value);

/// States all fields of an options structure but the tokens' temperatures, which are part of state_tokens().
template <class Options>
void state_options(ranks::Statement& statement, const Options& options) {
  const auto visit = [&](const Field& field, const auto& value) {
    using T = std::remove_cvref_t<decltype(value)>;
    if constexpr (std::is_same_v<T, std::span<const float>>) {
      statement.say(field.name, entries_of(field.name, value));
    } else if constexpr (!std::is_same_v<T, std::span<const double>>) {
      statement.say(field.name, value);
    }
  };
  visit_flat(FieldsOf<Options>(), visit, options);
}

/// States a vector that has an entry a token; one that is not given has none.
void state_vector(ranks::Statement& statement, const std::string& name, const problem::TokenProblem& problem,
                  const ConstVector& values);
/// States what ranks with the same tokens were given. `of` stands before the names of a part of a call.
void state_tokens(ranks::Statement& statement, const problem::HiddenProblem& problem, const std::string& of);
/// States what ranks with parts of a batch were given: of a head, its size, type and a sample.
void state_head(ranks::Statement& statement, const problem::HiddenProblem& problem, const std::string& of);
/// State the same of a teacher.
void state_teacher_tokens(ranks::Statement& statement, const problem::HiddenProblem& problem);
void state_teacher_head(ranks::Statement& statement, const problem::HiddenProblem& problem);
void state_logits(ranks::Statement& statement, const problem::LogitsProblem& problem);

}  // namespace logitless::api

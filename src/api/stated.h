// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// What a call was given, as ranks state it to each other: its options by the list of their fields, and a
// digest of each of its inputs. Of hidden states and the head only a sample is hashed.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include "core/fields.h"
#include "core/tensors.h"
#include "problem/hidden_problem.h"
#include "problem/logits_problem.h"
#include "ranks/meeting.h"

namespace logitless::api {

/// States all fields of an options structure but the tokens' temperatures, which are part of state_tokens().
template <class Options>
void state_options(ranks::Statement& statement, const Options& options) {
  const auto visit = [&](const Field& field, const auto& value) {
    using T = std::remove_cvref_t<decltype(value)>;
    if constexpr (std::is_same_v<T, std::span<const float>>) {
      statement.say_array(field.name, value);
    } else if constexpr (!std::is_same_v<T, std::span<const double>>) {
      statement.say(field.name, value);
    }
  };
  visit_flat(FieldsOf<Options>(), visit, options);
}

/// States a vector with one value per token, of the tokens that take part; the others are not read. A vector
/// that is not given has no values.
void state_vector(ranks::Statement& statement, std::string name, const problem::TokenProblem& problem,
                  const ConstVector& values);
inline void state_tensor(ranks::Statement& statement, std::string name, const problem::TokenProblem& problem,
                         const ConstTensor& values) {
  const ConstVector vector = core::vector_of(name, values);
  state_vector(statement, std::move(name), problem, vector);
}
inline void state_vector(ranks::Statement& statement, std::string name, const problem::TokenProblem& problem,
                         std::span<const double> values) {
  state_vector(statement, std::move(name), problem, ConstVector(values.data(), static_cast<int64_t>(values.size())));
}
/// States what ranks with the same tokens were given. `of` stands before the names of a part of a call.
void state_tokens(ranks::Statement& statement, const problem::HiddenProblem& problem, const std::string& of);
/// States what ranks with parts of a batch were given: of a head, its size, type and a sample.
void state_head(ranks::Statement& statement, const problem::HiddenProblem& problem, const std::string& of);
/// State the same of a teacher.
void state_teacher_tokens(ranks::Statement& statement, const problem::HiddenProblem& problem);
void state_teacher_head(ranks::Statement& statement, const problem::HiddenProblem& problem);
void state_logits(ranks::Statement& statement, const problem::LogitsProblem& problem);

}  // namespace logitless::api

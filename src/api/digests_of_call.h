// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The fields of a call that ranks compare: options by their lists of fields, and a digest of each input. Only
// a sample of hidden states and of the head is hashed.
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

/// Adds all fields of an options structure, except the tokens' temperatures, which digest_tokens() adds.
template <class Options>
void digest_options(ranks::Digests& digests, const Options& options) {
  const auto visit = [&](const Field& field, const auto& value) {
    using T = std::remove_cvref_t<decltype(value)>;
    if constexpr (std::is_same_v<T, std::span<const float>>) {
      digests.add_array(field.name, value);
    } else if constexpr (!std::is_same_v<T, std::span<const double>>) {
      digests.add(field.name, value);
    }
  };
  visit_flat(FieldsOf<Options>(), visit, options);
}

/// Adds a per-token vector: the entries of active tokens, others are not read. An absent vector has no
/// values.
void digest_vector(ranks::Digests& digests, std::string name, const problem::TokenProblem& problem,
                   const ConstVector& values);
inline void digest_tensor(ranks::Digests& digests, std::string name, const problem::TokenProblem& problem,
                          const ConstTensor& values) {
  const ConstVector vector = core::vector_of(name, values);
  digest_vector(digests, std::move(name), problem, vector);
}
inline void digest_vector(ranks::Digests& digests, std::string name, const problem::TokenProblem& problem,
                          std::span<const double> values) {
  digest_vector(digests, std::move(name), problem, ConstVector(values.data(), static_cast<int64_t>(values.size())));
}
/// Adds the inputs that ranks with the same tokens must share. `of` is a prefix for the names of a part of a
/// call.
void digest_tokens(ranks::Digests& digests, const problem::HiddenProblem& problem, const std::string& of);
/// Adds the inputs that ranks of a split batch must share: the head's size, type and a sample of it.
void digest_head(ranks::Digests& digests, const problem::HiddenProblem& problem, const std::string& of);
/// The same for a teacher.
void digest_teacher_tokens(ranks::Digests& digests, const problem::HiddenProblem& problem);
void digest_teacher_head(ranks::Digests& digests, const problem::HiddenProblem& problem);
void digest_logits(ranks::Digests& digests, const problem::LogitsProblem& problem);

}  // namespace logitless::api

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// All vectors and numbers of a call's result, for any task, except its plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "core/fields.h"
#include "logitless/logitless.h"

namespace logitless::testing {

/// The forward half of a caller's own loss returns its statistics.
struct StatsForward {
  TokenStats result;
};

template <class T>
inline constexpr bool kIsVector = false;
template <class T>
inline constexpr bool kIsVector<std::vector<T>> = true;

/// Calls visit(member) for each vector and number of a result.
template <class T, class Visit>
void visit_returned(const T& from, const Visit& visit) {
  if constexpr (std::is_arithmetic_v<T> || kIsVector<T>) {
    visit(from);
  } else if constexpr (std::is_same_v<T, DivergenceStats>) {
    visit(from.value), visit(from.overlap), visit(from.mean), visit(from.log_sum), visit(from.teacher_max_logit);
    visit(from.teacher_log_sum), visit(from.entropy), visit(from.teacher_entropy), visit(from.teacher_argmax);
  } else if constexpr (requires { from.result; }) {  // a forward half
    visit_returned(from.result, visit);
    if constexpr (requires { from.stats; }) visit_returned(from.stats, visit);
    if constexpr (requires { from.grads; }) visit_returned(from.grads, visit);
  } else {
    visit_fields(
        FieldsOf<T>(), [&](const Field&, const auto& member) { visit_returned(member, visit); }, from);
    if constexpr (requires { from.divergence; }) visit_returned(from.divergence, visit);
  }
}

/// Returns the number of vectors that are not empty: each is a heap block that the caller gets.
template <class Returned>
int64_t count_columns(const Returned& returned) {
  int64_t count = 0;
  visit_returned(returned, [&]<class T>(const T& member) {
    if constexpr (kIsVector<T>) count += member.empty() ? 0 : 1;
  });
  return count;
}

/// Returns all numbers of a result.
template <class Returned>
std::vector<double> numbers(const Returned& returned) {
  std::vector<double> numbers;
  visit_returned(returned, [&]<class T>(const T& member) {
    if constexpr (!kIsVector<T>) numbers.push_back(static_cast<double>(member));
  });
  return numbers;
}

/// Returns the bytes of all vectors and numbers.
template <class Returned>
std::vector<std::byte> bytes_of(const Returned& returned) {
  std::vector<std::byte> bytes;
  const auto append = [&](const auto& values) {
    const auto more = std::as_bytes(std::span(values));
    bytes.insert(bytes.end(), more.begin(), more.end());
  };
  visit_returned(returned, [&]<class T>(const T& member) {
    if constexpr (kIsVector<T>) append(member);
  });
  append(numbers(returned));
  return bytes;
}

}  // namespace logitless::testing

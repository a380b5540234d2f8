// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The results of all tasks by name.
#pragma once

#include <string>
#include <type_traits>
#include <vector>

#include "core/fields.h"
#include "record/keys.h"

namespace logitless::record {

template <class T>
Tensor tensor_of(const std::vector<T>& column) {
  constexpr DType kType = std::is_same_v<T, double>    ? DType::kFloat64
                          : std::is_same_v<T, int64_t> ? DType::kInt64
                                                       : DType::kUInt8;
  return Tensor(const_cast<T*>(column.data()), kType, {static_cast<int64_t>(column.size())});
}

template <std::integral T>
Value value_of(T number) {
  return static_cast<int64_t>(number);
}
inline Value value_of(double number) { return number; }
inline Value value_of(const std::string& text) { return std::string_view(text); }
template <Named Enum>
Value value_of(Enum value) {
  return std::string_view(name_of(value));
}
template <class T>
Value value_of(const std::vector<T>& column) {
  return tensor_of(column);
}

/// Visits the fields of a structure and of its nested structures: visit(name, value, field).
template <class Structure, class Visit>
void visit_values(const Structure& from, const std::string& prefix, const Visit& visit) {
  const auto visit_member = [&]<class T>(const Field& field, const T& member) {
    if constexpr (requires { value_of(member); }) {
      visit(prefix + field.name, value_of(member), field);
    } else {
      visit_values(member, prefix, visit);
    }
  };
  visit_fields(FieldsOf<Structure>(), visit_member, from);
}

}  // namespace logitless::record

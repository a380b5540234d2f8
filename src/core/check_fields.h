// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Checks options against the rules in their lists.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/checks.h"
#include "core/fields.h"
#include "logitless/names.h"

namespace logitless::core {

/// Throws InvalidInput if the number is outside the interval. Messages put `prefix` before the name.
inline void check_field(std::string_view name, const Interval& range, double value, std::string_view prefix = "") {
  if (!range.holds(value)) fail(prefix, name, " = ", value, " must be ", range.text);
}

/// Throws InvalidInput if the value is not an enumerator.
template <Named Enum>
void check_named(std::string_view name, Enum value, std::string_view prefix = "") {
  const auto number = static_cast<std::underlying_type_t<Enum>>(value);
  if (number >= 0 && static_cast<size_t>(number) < kNamesOf<Enum>.size()) return;
  fail(prefix, name, " = ", static_cast<int64_t>(number), " is not one of its ", kNamesOf<Enum>.size(), " enumerators");
}

/// Throws InvalidInput if a number is outside its field's interval, or an enumerator is invalid. Does not
/// check the entries of spans: they may be per token, and some tokens are ignored.
template <class Options>
void check_fields(const Options& options, std::string_view prefix = "") {
  const auto check = [&](const Field& field, const auto& value) {
    using T = std::remove_cvref_t<decltype(value)>;
    if constexpr (Named<T>) {
      check_named(field.name, value, prefix);
    } else if constexpr (std::is_same_v<T, std::optional<DType>>) {
      if (value) check_named(field.name, *value, prefix);
    } else if constexpr (std::is_same_v<T, double>) {
      check_field(field.name, field.range, value, prefix);
    } else if constexpr (std::is_same_v<T, std::optional<double>> || std::is_same_v<T, std::optional<int64_t>>) {
      if (value) check_field(field.name, field.range, static_cast<double>(*value), prefix);
    } else if constexpr (std::is_same_v<T, std::vector<double>>) {
      for (size_t k = 0; k < value.size(); ++k) {
        check_field(std::string(field.name) + "[" + std::to_string(k) + "]", field.range, value[k], prefix);
      }
    } else if constexpr (std::is_same_v<T, std::vector<PreferenceLossType>>) {
      for (size_t k = 0; k < value.size(); ++k) {
        check_named(std::string(field.name) + "[" + std::to_string(k) + "]", value[k], prefix);
      }
    }
  };
  visit_fields(FieldsOf<Options>(), check, options);
}

}  // namespace logitless::core

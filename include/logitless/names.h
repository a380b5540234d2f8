// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
/// @file
/// The names of enumerators. Each enumeration has one list, next to its definition, which configs, Python, C
/// and messages use.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>
#include <type_traits>

#include "logitless/export.h"

namespace logitless {

/// The names of an enumeration's values 0, 1, 2, ..., specialised for each enumeration with names. Hidden,
/// because GCC would otherwise export each list from every library that reads it.
template <class Enum>
[[gnu::visibility("hidden")]] inline constexpr std::array<const char*, 0> kNamesOf = {};

/// An enumeration with names.
template <class Enum>
concept Named = std::is_enum_v<Enum> && !kNamesOf<Enum>.empty();

/// Returns the name of a value, e.g. "k3" for KlEstimator::kK3, or "unknown" for an invalid value.
template <Named Enum>
constexpr const char* name_of(Enum value) {
  const auto index = static_cast<size_t>(value);
  return index < kNamesOf<Enum>.size() ? kNamesOf<Enum>[index] : "unknown";
}

/// Returns all values in order.
template <Named Enum>
constexpr auto all_of() {
  std::array<Enum, kNamesOf<Enum>.size()> all = {};
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<Enum>(i);
  return all;
}

/// Returns the value with this name, or nothing.
template <Named Enum>
constexpr std::optional<Enum> named(std::string_view name) {
  for (const Enum value : all_of<Enum>()) {
    if (name == name_of(value)) return value;
  }
  return std::nullopt;
}

}  // namespace logitless

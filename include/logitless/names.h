// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
/// @file
/// The names of enumerators in text: each enumeration has one list, beside its definition. Configs, Python, C
/// and messages read it.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>
#include <type_traits>

#include "logitless/export.h"

namespace logitless {

/// The names of an enumeration's values 0, 1, 2, ... It is specialised for each enumeration that has names.
/// They are hidden, because GCC would otherwise export each list from every library that reads it.
template <class Enum>
[[gnu::visibility("hidden")]] inline constexpr std::array<const char*, 0> kNamesOf = {};

/// An enumeration that has names.
template <class Enum>
concept Named = std::is_enum_v<Enum> && !kNamesOf<Enum>.empty();

/// Returns the name of a value, e.g. "k3" of KlEstimator::kK3, or "unknown" of what is none.
template <Named Enum>
constexpr const char* name_of(Enum value) {
  const auto index = static_cast<size_t>(value);
  return index < kNamesOf<Enum>.size() ? kNamesOf<Enum>[index] : "unknown";
}

/// Returns all values, in their order.
template <Named Enum>
constexpr auto all_of() {
  std::array<Enum, kNamesOf<Enum>.size()> all = {};
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<Enum>(i);
  return all;
}

/// Returns the value of this name, or nothing where there is none.
template <Named Enum>
constexpr std::optional<Enum> named(std::string_view name) {
  for (const Enum value : all_of<Enum>()) {
    if (name == name_of(value)) return value;
  }
  return std::nullopt;
}

}  // namespace logitless

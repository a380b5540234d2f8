// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The types of members: how each is set from an integer, a number, a text or a tensor, and how messages
// describe it. A new type needs overloads of assign() and kind_of().
#pragma once

#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/check_fields.h"
#include "core/checks.h"
#include "core/field_text.h"
#include "core/fields.h"
#include "logitless/run.h"
#include "logitless/workspace.h"
#include "record/keys.h"

namespace logitless::record {

/// ∂L/∂loss: one number, or one per token or entry.
struct OneOrEach {
  double value = 1;
  std::span<const double> each = {};
};

/// Throws InvalidInput that says what the key accepts.
[[noreturn]] void refuse(const Key& key, const Value& value);
/// Returns the number if it is the whole text.
template <class T>
std::optional<T> whole(std::string_view text) {
  T number{};
  const auto [rest, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (status != std::errc() || rest != text.data() + text.size()) return std::nullopt;
  return number;
}
/// The same for a size in bytes, such as 64MiB.
std::optional<int64_t> bytes_in(std::string_view text);
/// Returns the entries of "a,b" or "[a, b]".
std::vector<std::string_view> entries_of(std::string_view text);
/// Returns "a, b, c" of an enumeration's names.
template <Named Enum>
std::string names_of() {
  std::string text;
  for (const char* name : choices_of<Enum>()) text += (text.empty() ? "" : ", ") + std::string(name);
  return text;
}

template <class T>
struct Is {};

// Returns what a key accepts, for messages.

inline std::string kind_of(Is<bool>, const Key&) { return "0 or 1"; }
template <std::integral T>
std::string kind_of(Is<T>, const Key& key) {
  return key.range.text == kFinite.text ? "an integer" : key.range.text;
}
inline std::string kind_of(Is<size_t>, const Key&) { return "a size in bytes, or a text such as 256MiB"; }
inline std::string kind_of(Is<double>, const Key& key) { return key.range.text; }
inline std::string kind_of(Is<std::string>, const Key&) { return "a text"; }
template <Named Enum>
std::string kind_of(Is<Enum>, const Key&) {
  return "one of " + names_of<Enum>();
}
template <class T>
std::string kind_of(Is<std::optional<T>>, const Key& key) {
  return kind_of(Is<T>(), key) + ", or none";
}
template <class T>
std::string kind_of(Is<std::vector<T>>, const Key&) {
  if constexpr (Named<T>) {
    return "a text that lists some of " + names_of<T>();
  } else {
    return "a text that lists numbers";
  }
}
inline std::string kind_of(Is<OneOrEach>, const Key& key) { return "a number, or " + core::text_of(key.role); }
template <class T>  // a view
std::string kind_of(Is<T>, const Key& key) {
  return core::text_of(key.role);
}

// Sets a member to a value.

inline void assign(const Key& key, const Value& value, bool& to) {
  const auto* integer = std::get_if<int64_t>(&value);
  const auto* text = std::get_if<std::string_view>(&value);
  if (integer && (*integer == 0 || *integer == 1)) {
    to = *integer == 1;
  } else if (text && (*text == "true" || *text == "false" || *text == "1" || *text == "0")) {
    to = *text == "true" || *text == "1";
  } else {
    refuse(key, value);
  }
}
template <std::integral T>
void assign(const Key& key, const Value& value, T& to) {
  std::optional<int64_t> given;
  if (const auto* integer = std::get_if<int64_t>(&value)) given = *integer;
  if (const auto* text = std::get_if<std::string_view>(&value)) {
    given = std::is_same_v<T, size_t> ? bytes_in(*text) : whole<int64_t>(*text);
  }
  if (!given || !std::in_range<T>(*given)) refuse(key, value);
  core::check_field(key.name, key.range, static_cast<double>(*given));
  to = static_cast<T>(*given);
}
inline void assign(const Key& key, const Value& value, double& to) {
  std::optional<double> given;
  if (const auto* integer = std::get_if<int64_t>(&value)) given = static_cast<double>(*integer);
  if (const auto* number = std::get_if<double>(&value)) given = *number;
  if (const auto* text = std::get_if<std::string_view>(&value)) given = whole<double>(*text);
  if (!given) refuse(key, value);
  core::check_field(key.name, key.range, *given);
  to = *given;
}
inline void assign(const Key& key, const Value& value, std::string& to) {
  const auto* text = std::get_if<std::string_view>(&value);
  if (!text) refuse(key, value);
  to = *text;
}
template <Named Enum>
void assign(const Key& key, const Value& value, Enum& to) {
  const auto* text = std::get_if<std::string_view>(&value);
  const std::optional<Enum> found = text ? named<Enum>(*text) : std::nullopt;
  if (!found) refuse(key, value);
  to = *found;
}
template <class T>
void assign(const Key& key, const Value& value, std::optional<T>& to) {
  const auto* text = std::get_if<std::string_view>(&value);
  std::optional<T> read;
  if (!text || *text != "none") assign(key, value, read.emplace());
  to = read;
}
template <class T>
void assign(const Key& key, const Value& value, std::vector<T>& to) {
  const auto* text = std::get_if<std::string_view>(&value);
  if (!text) refuse(key, value);
  std::vector<T> read;
  for (const std::string_view entry : entries_of(*text)) assign(key, entry, read.emplace_back());
  to = std::move(read);
}

/// Returns the tensor, checked.
Tensor tensor_in(const Key& key, const Value& value);
template <class Void>
void assign(const Key& key, const Value& value, BasicTensor<Void>& to) {
  to = tensor_in(key, value);
}
template <class T>
void assign(const Key& key, const Value& value, std::span<const T>& to) {
  const Tensor tensor = tensor_in(key, value);
  to = {static_cast<const T*>(tensor.data), static_cast<size_t>(tensor.count())};
}
inline void assign(const Key& key, const Value& value, OneOrEach& to) {
  OneOrEach read;
  if (std::holds_alternative<Tensor>(value)) {
    assign(key, value, read.each);
  } else {
    assign(key, value, read.value);
  }
  to = read;
}

/// Whether the keys of a structure's members have no prefix.
template <class T>
inline constexpr bool kIsFlat =
    std::is_same_v<T, TokenOptions> || std::is_same_v<T, StatsRequest> || std::is_same_v<T, SoftTargets>;

/// Calls visit(field, members...) for each member of a structure with a list; for a task, its tensors and
/// then its options.
template <class Structure, class Visit, class... S>
void visit_members(const Visit& visit, S&&... s) {
  if constexpr (Task<Structure>) visit_fields(TensorsOf<Structure>(), visit, s...);
  visit_fields(FieldsOf<Structure>(), visit, s...);
}

template <class T>
inline constexpr Type kTypeOf = {
    [](const Key& key) { return kind_of(Is<T>(), key); },
    [](const Key& key, const Value& value) { assign(key, value, *static_cast<T*>(key.member)); },
    [](const Key& key) { *static_cast<T*>(key.member) = *static_cast<const T*>(key.by_default); },
    [](const Key& key) {
      if constexpr (std::is_same_v<T, OneOrEach>) return std::string("1");
      if constexpr (requires(const T& of) { text_of(of); }) {
        if (key.role.elements == 0) return text_of(*static_cast<const T*>(key.by_default));
      }
      return std::string();
    }};

template <class T>
void Keys::add(std::string name, T& member, const T& by_default, const Field& field) {
  keys_.push_back({std::move(name), field.range, field.role, field.meaning, &member, &by_default, &kTypeOf<T>});
}

template <class Structure>
void Keys::add_all(Structure& structure, const Structure& by_default, const std::string& prefix, const char* meaning) {
  const auto add_member = [&]<class T>(const Field& field, T& member, const T& of_default) {
    if constexpr (std::is_same_v<T, Workspace*>) {
      return;  // Records create their own (keep_workspace).
    } else if constexpr (kIsFlat<T>) {
      add_all(member, of_default, prefix);
    } else if constexpr (requires {
                           visit_fields(
                               FieldsOf<T>(), [](const Field&, auto&) {}, member);
                         }) {
      add_all(member, of_default, prefix + field.name + ".", field.meaning);
    } else {
      add(prefix + field.name, member, of_default, field.or_meaning(meaning));
    }
  };
  visit_members<Structure>(add_member, structure, by_default);
}

}  // namespace logitless::record

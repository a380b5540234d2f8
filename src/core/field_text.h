// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Options as exact text: two values have the same text exactly if they have the same bits, apart from kinds
// of NaN; for long lists the text is a digest. Ranks use it to compare their options.
#pragma once

#include <charconv>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <ranges>
#include <span>
#include <string>

#include "core/fields.h"

namespace logitless {

/// Returns the names that an option of this type accepts.
template <Named Enum>
constexpr std::span<const char* const> choices_of() {
  return kNamesOf<Enum>;
}
/// Options with an element type are all for rounding logits, so these are their choices.
inline constexpr const char* kRoundings[] = {name_of(DType::kBFloat16), name_of(DType::kFloat16)};
template <>
constexpr std::span<const char* const> choices_of<DType>() {
  return kRoundings;
}

/// Returns "true" or "false".
template <std::same_as<bool> Bool>
std::string text_of(Bool value) {
  return value ? "true" : "false";
}
/// Returns the shortest decimal text that reads back as the same number.
template <class Number>
requires(std::integral<Number> && !std::same_as<Number, bool>) || std::floating_point<Number> std::string
    text_of(Number value) {
  char text[64];
  return std::string(text, std::to_chars(text, text + sizeof text, value).ptr);
}
template <Named Enum>
std::string text_of(Enum value) {
  return name_of(value);
}
inline std::string text_of(const std::string& value) { return value; }
/// Returns the text of the value, or "none".
template <class T>
std::string text_of(const std::optional<T>& value) {
  return value ? text_of(*value) : "none";
}
/// Returns all entries of a short list, e.g. "[sigmoid, sft]", or for more than 32 entries their number and a
/// digest (FNV-1a of their bytes).
template <std::ranges::contiguous_range List>
requires(!std::same_as<List, std::string>) std::string text_of(const List& list) {
  constexpr size_t kMostEntries = 32;
  const size_t size = std::ranges::size(list);
  if (size > kMostEntries) {
    uint64_t digest = 0xcbf29ce484222325;
    const auto* bytes = reinterpret_cast<const unsigned char*>(std::ranges::data(list));
    for (size_t i = 0; i < size * sizeof(*std::ranges::data(list)); ++i) digest = (digest ^ bytes[i]) * 0x100000001b3;
    return text_of(size) + " entries with digest " + text_of(digest);
  }
  std::string text = "[";
  for (const auto& entry : list) text += (text.size() > 1 ? ", " : "") + text_of(entry);
  return text + "]";
}

/// Calls say(name, text) for each option, including the options in `token`. Skips the pointers of a Context.
template <class Options, class Say>
void say_fields(const Options& options, const Say& say) {
  const auto visit = [&](const Field& field, const auto& value) {
    if constexpr (requires { text_of(value); }) say(field.name, text_of(value));
  };
  visit_flat(FieldsOf<Options>(), visit, options);
}

}  // namespace logitless

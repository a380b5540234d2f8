// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "record/types.h"

#include <algorithm>

namespace logitless::record {
namespace {

std::string shown(const Value& value) {
  if (const auto* integer = std::get_if<int64_t>(&value)) return "the integer " + text_of(*integer);
  if (const auto* number = std::get_if<double>(&value)) return "the number " + text_of(*number);
  if (const auto* text = std::get_if<std::string_view>(&value)) {
    return "the text '" + std::string(text->substr(0, 60)) + "'";
  }
  return "a tensor of " + core::text_of(std::get<Tensor>(value));
}

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(' ');
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(' ') - begin + 1);
}

}  // namespace

void refuse(const Key& key, const Value& value) {
  core::fail(key.name, " must be ", key.type->kind(key), ", not ", shown(value));
}

std::optional<int64_t> bytes_in(std::string_view text) {
  static constexpr std::pair<const char*, double> kUnits[] = {
      {"", 1},      {"B", 1},        {"kB", 1e3},     {"MB", 1e6},     {"GB", 1e9},
      {"TB", 1e12}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}};
  const size_t digits = std::min(text.find_first_not_of("0123456789.eE+"), text.size());
  const std::optional<double> number = whole<double>(text.substr(0, digits));
  const std::string_view unit = trimmed(text.substr(digits));
  for (const auto& [name, size] : kUnits) {
    const double bytes = number.value_or(-1) * size;
    if (unit == name && bytes >= 0 && bytes <= 0x1p62) return static_cast<int64_t>(bytes);
  }
  return std::nullopt;
}

std::vector<std::string_view> entries_of(std::string_view text) {
  text = trimmed(text);
  if (text.starts_with('[') && text.ends_with(']')) text = trimmed(text.substr(1, text.size() - 2));
  std::vector<std::string_view> entries;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    entries.push_back(trimmed(text.substr(0, comma)));
    if (comma + 1 == text.size()) entries.emplace_back();  // so that "a," is refused
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return entries;
}

Tensor tensor_in(const Key& key, const Value& value) {
  const auto* tensor = std::get_if<Tensor>(&value);
  if (!tensor) refuse(key, value);
  Tensor taken = *tensor;
  const auto axes = static_cast<size_t>(std::clamp(taken.axes, 0, 3));
  // Strides that are all 0 mean contiguous elements.
  if (std::all_of(taken.strides.begin(), taken.strides.begin() + axes, [](int64_t stride) { return stride == 0; })) {
    int64_t step = 1;
    for (size_t i = axes; i-- > 0;) {
      taken.strides[i] = step;
      step = logitless::detail::saturated_product(step, taken.sizes[i]);
    }
  }
  // Limited here, because offsets and the like are read before their number is compared with the tokens.
  constexpr int64_t kMostPlaces = std::numeric_limits<int32_t>::max();
  if (key.role.elements == only(DType::kInt64) && taken.count() > kMostPlaces) {
    core::fail(key.name, " has ", taken.count(), " entries, which is above ", kMostPlaces);
  }
  core::check_tensor(key.name, taken, key.role);
  return taken;
}

}  // namespace logitless::record

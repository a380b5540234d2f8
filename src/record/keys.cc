// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "record/keys.h"

#include <algorithm>
#include <numeric>

#include "core/checks.h"

namespace logitless::record {
namespace {

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string near_names(std::string_view name, const std::vector<std::string>& names) {
  constexpr size_t kLongest = 100;  // the edit distance takes quadratic time
  constexpr size_t kMost = 3;
  if (name.size() < 2 || name.size() > kLongest) return "";
  const size_t most_slips = std::max<size_t>(1, name.size() / 4);
  std::vector<std::pair<size_t, std::string_view>> near;
  for (const std::string& known : names) {
    const bool holds = known.find(name) != std::string::npos;
    const size_t slips = edit_distance(name, known);
    if (slips <= most_slips) near.emplace_back(slips, known);
    if (slips > most_slips && holds) near.emplace_back(most_slips + 1, known);
  }
  std::stable_sort(near.begin(), near.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::string text;
  for (size_t i = 0; i < std::min(near.size(), kMost); ++i) {
    text += (i == 0 ? "; did you mean " : " or ") + std::string(near[i].second);
  }
  return text.empty() ? text : text + "?";
}

std::string dashed(const char* meaning) { return *meaning ? std::string(" — ") + meaning : ""; }

Key& Keys::find(std::string_view name) {
  for (Key& key : keys_) {
    if (key.name == name) return key;
  }
  std::vector<std::string> names;
  for (const Key& key : keys_) names.push_back(key.name);
  core::fail(owner_, " has no key '", name.substr(0, 100), "'", near_names(name, names));
}

void Keys::set(std::string_view name, const Value& value) {
  Key& key = find(name);
  key.type->assign(key, value);
  key.is_set = true;
}

void Keys::unset(std::string_view name) {
  Key& key = find(name);
  key.type->reset(key);
  key.is_set = false;
}

bool Keys::has(std::string_view name) const {
  return std::any_of(keys_.begin(), keys_.end(), [&](const Key& key) { return key.name == name; });
}
std::string Keys::describe(const std::function<std::string(std::string_view)>& need) const {
  std::string needed, others;
  for (const Key& key : keys_) {
    std::string why = need(key.name);
    std::string& lines = why.empty() ? others : needed;
    if (why.empty()) why = key.type->default_text(key);
    if (&lines == &others && !why.empty()) why += " by default";
    lines.append("  ").append(key.name).append(": ").append(key.type->kind(key));
    if (!why.empty()) lines.append("; ").append(why);
    lines.append(dashed(key.meaning)).append("\n");
  }
  return needed + others;
}

}  // namespace logitless::record

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/sweep.h"

#include <algorithm>
#include <string_view>

#include "io/error.h"

namespace logitless::cli {
namespace {

constexpr size_t kMostPoints = 100'000;

std::string trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(' ');
  if (begin == std::string_view::npos) return "";
  return std::string(text.substr(begin, text.find_last_not_of(' ') + 1 - begin));
}

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> parts;
  size_t begin = 0;
  int depth = 0;
  char quote = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote) {
      if (c == quote) quote = 0;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '[' || c == '{') {
      ++depth;
    } else if (c == ']' || c == '}') {
      --depth;
    } else if (c == ',' && depth == 0) {
      parts.push_back(trimmed(text.substr(begin, i - begin)));
      begin = i + 1;
    }
  }
  parts.push_back(trimmed(text.substr(begin)));
  return parts;
}

bool overlap(const std::string& a, const std::string& b) {
  return a == b || a.starts_with(b + ".") || b.starts_with(a + ".");
}

}  // namespace

SweptKey parse_sweep(const std::string& text) {
  const std::string place = "--sweep " + text;
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    throw io::Error(place + ": must have the form key=value,value..., for example seq_len=256,512");
  }
  SweptKey swept{text.substr(0, equals), split(std::string_view(text).substr(equals + 1))};
  for (size_t i = 0; i < swept.values.size(); ++i) {
    if (swept.values[i].empty()) throw io::Error(place + ": value " + std::to_string(i + 1) + " is empty");
    if (std::find(swept.values.begin(), swept.values.begin() + static_cast<ptrdiff_t>(i), swept.values[i]) !=
        swept.values.begin() + static_cast<ptrdiff_t>(i)) {
      throw io::Error(place + ": " + swept.values[i] + " stands there twice");
    }
  }
  return swept;
}

void check_sweep(std::span<const SweptKey> sweep, std::span<const std::string> assignments) {
  for (size_t i = 0; i < sweep.size(); ++i) {
    const std::string& key = sweep[i].key;
    for (const SweptKey& earlier : sweep.first(i)) {
      if (overlap(key, earlier.key))
        throw io::Error("--sweep " + key + ": --sweep " + earlier.key + " sets it as well");
    }
    for (const std::string& assignment : assignments) {
      const std::string set = assignment.substr(0, assignment.find('='));
      if (set == key || set.starts_with(key + ".")) {
        throw io::Error("--set " + set + " has no effect: --sweep " + key + " sets it as well");
      }
    }
  }
}

std::vector<std::vector<std::string>> assignments_of(std::span<const SweptKey> sweep) {
  std::vector<std::vector<std::string>> points = {{}};
  for (const SweptKey& swept : sweep) {
    if (points.size() > kMostPoints / swept.values.size()) {
      throw io::Error("--sweep " + swept.key + ": the sweep has more than " + std::to_string(kMostPoints) + " points");
    }
    std::vector<std::vector<std::string>> longer;
    for (const std::vector<std::string>& point : points) {
      for (const std::string& value : swept.values) {
        longer.push_back(point);
        longer.back().push_back(swept.key + "=" + value);
      }
    }
    points = std::move(longer);
  }
  return points;
}

}  // namespace logitless::cli

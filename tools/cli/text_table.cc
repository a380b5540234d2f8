// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/text_table.h"

#include <algorithm>

namespace logitless::cli {
namespace {

// Letters, not bytes, of UTF-8.
size_t width(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

}  // namespace

std::string TextTable::text() const {
  const size_t columns = rows_.front().size();
  std::vector<size_t> widths(columns);
  for (const auto& row : rows_) {
    // The last cell of a short row may be long.
    const size_t count = row.size() < columns ? row.size() - 1 : columns;
    for (size_t c = 0; c < count; ++c) widths[c] = std::max(widths[c], width(row[c]));
  }
  std::string text;
  for (const auto& row : rows_) {
    for (size_t c = 0; c < row.size(); ++c) {
      const std::string gap(c == 0 ? 0 : 3, ' ');
      const bool last = c + 1 == row.size(), left = c == 0 || last;
      const std::string fill(left && last ? 0 : widths[c] - std::min(widths[c], width(row[c])), ' ');
      text += gap + (left ? row[c] + fill : fill + row[c]);
    }
    text.erase(text.find_last_not_of(' ') + 1);
    text += "\n";
  }
  return text;
}

}  // namespace logitless::cli

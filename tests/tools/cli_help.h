// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The lists of `logitless --help` and `logitless COMMAND --help`, parsed from their text.
#pragma once

#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace logitless::testing {

/// One entry of a list: its names, and whether it is required.
struct HelpEntry {
  std::vector<std::string> names;  ///< "-o" and "--output", or "CONFIG", or a command's name
  std::string type;                ///< "FILE"; empty for a flag without a value
  bool required = false;
};

/// Returns the entries below a line such as "Options:", or none if the text has no such line.
inline std::vector<HelpEntry> help_list(const std::string& help, const std::string& heading) {
  std::vector<HelpEntry> entries;
  std::istringstream lines(help);
  bool inside = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.empty()) inside = false;
    // An entry is indented by two spaces; its description continues further to the right.
    if (inside && line.size() > 2 && line[2] != ' ') {
      HelpEntry entry;
      const size_t end = std::min(line.find(' ', 2), line.size());
      std::istringstream names(line.substr(2, end - 2));
      for (std::string name; std::getline(names, name, ',');) entry.names.push_back(name);
      // A single space precedes a type; several precede the description.
      if (end + 1 < line.size() && line[end + 1] != ' ') {
        entry.type = line.substr(end + 1, line.find(' ', end + 1) - end - 1);
        const size_t text = line.find("  ", end + 1);
        entry.required = line.substr(end, text - end).find(" REQUIRED") != std::string::npos;
      }
      if (entry.type == "REQUIRED") entry.type.clear();
      entries.push_back(entry);
    }
    if (line == heading) inside = true;
  }
  return entries;
}

inline std::set<std::string> names_in(const std::vector<HelpEntry>& entries) {
  std::set<std::string> names;
  for (const HelpEntry& entry : entries) names.insert(entry.names.begin(), entry.names.end());
  return names;
}

}  // namespace logitless::testing

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "report/page.h"

#include <nlohmann/json.hpp>

namespace logitless::report {

// page.html up to its data and after it; assets.cmake puts them into the program.
extern const char *const kPageBegin, *const kPageEnd;

namespace {

std::string json_of(const BenchRun& run) {
  const nlohmann::ordered_json about = {{"name", run.name}, {"notes", run.notes}};
  std::string text = about.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  text.back() = ',';
  text += "\"lines\":[";
  for (const std::string& line : run.lines) text.append(&line == &run.lines.front() ? "" : ",\n").append(line);
  return text + "]}";
}

}  // namespace

std::string page(const std::vector<BenchRun>& runs) {
  std::string html = kPageBegin;
  html += '[';
  for (const BenchRun& run : runs) {
    if (&run != &runs.front()) html += ",\n";
    // A "<" stands in texts alone: so escaped, none can end the <script> element.
    for (const char c : json_of(run)) html += c == '<' ? std::string("\\u003c") : std::string(1, c);
  }
  return html + ']' + kPageEnd;
}

}  // namespace logitless::report

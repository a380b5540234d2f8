// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "io/json_text.h"

#include <nlohmann/json.hpp>

#include "io/error.h"

namespace logitless::io {

void check_json_depth(std::string_view text, const std::string& place) {
  constexpr size_t kMostLevels = 32;
  size_t depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string && c == '\\') {
      ++i;
    } else if (c == '"') {
      in_string = !in_string;
    } else if (!in_string && (c == '[' || c == '{')) {
      if (++depth > kMostLevels)
        throw Error(place + "is nested deeper than " + std::to_string(kMostLevels) + " levels");
    } else if (!in_string && (c == ']' || c == '}') && depth > 0) {
      --depth;
    }
  }
}

nlohmann::ordered_json parse_json(std::string_view text, const std::string& place) {
  check_json_depth(text, place);
  try {
    return nlohmann::ordered_json::parse(text);
  } catch (const nlohmann::json::parse_error& e) {
    throw Error(place + "is not JSON from byte " + std::to_string(e.byte) + " on");
  } catch (const nlohmann::json::exception&) {
    throw Error(place + "holds a number that is too large");
  }
}

}  // namespace logitless::io

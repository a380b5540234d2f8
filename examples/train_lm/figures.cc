// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "figures.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <stdexcept>

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double largest_difference(const std::vector<double>& first, const std::vector<double>& second) {
  double largest = 0;
  const size_t steps = std::min(first.size(), second.size());
  for (size_t i = 0; i < steps; ++i) {
    const double difference = std::abs(first[i] - second[i]);
    // Negated, so that a NaN is taken and kept
    if (!(difference <= largest)) largest = difference;
    if (std::isnan(difference)) break;
  }
  return largest;
}

void write_json_file(const std::string& path, const nlohmann::json& object) {
  const std::string text = object.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  if (path == "-") {
    std::cout << text;
    return;
  }
  std::ofstream file(path);
  file << text << std::flush;
  if (!file) throw std::runtime_error("cannot write " + path);
}

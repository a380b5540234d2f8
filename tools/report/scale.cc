// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "report/scale.h"

#include <algorithm>
#include <cmath>

namespace logitless::report {
namespace {

constexpr double kSlack = 1e-9;  // Logarithms of exact powers may miss them by an ulp or two.

int floor_log(double value, double base) {
  return static_cast<int>(std::floor(std::log(value) / std::log(base) + kSlack));
}

// base^(first · step), ..., each `step` powers apart, around [low, high].
std::vector<double> power_ticks(double low, double high, double base, int step) {
  std::vector<double> ticks;
  const int first = static_cast<int>(std::floor(static_cast<double>(floor_log(low, base)) / step)) * step;
  for (int power = first; ticks.empty() || ticks.back() < high * (1 - kSlack); power += step) {
    ticks.push_back(std::pow(base, power));
  }
  return ticks;
}

std::vector<double> one_two_five_ticks(double low, double high) {
  std::vector<double> ticks;
  for (int power = floor_log(low, 10);; ++power) {
    for (const double mantissa : {1.0, 2.0, 5.0}) {
      const double tick = mantissa * std::pow(10.0, power);
      if (tick <= low * (1 + kSlack)) ticks.clear();
      ticks.push_back(tick);
      if (tick >= high * (1 - kSlack)) return ticks;
    }
  }
}

}  // namespace

Scale::Scale(double low, double high, double from, double to, bool logarithmic)
    : low_(low), high_(high), from_(from), to_(to), logarithmic_(logarithmic) {}

double Scale::operator()(double value) const {
  if (!(low_ < high_)) return (from_ + to_) / 2;
  const double inside = std::clamp(value, low_, high_);
  const double share =
      logarithmic_ ? std::log(inside / low_) / std::log(high_ / low_) : (inside - low_) / (high_ - low_);
  return from_ + share * (to_ - from_);
}

std::vector<double> linear_ticks(double high, int most, Unit unit) {
  if (!(high > 0)) high = 1;
  const double rough = high / most;
  double step = std::pow(2.0, std::ceil(std::log2(rough) - kSlack));
  if (unit != Unit::kBytes) {
    const double power = std::pow(10.0, floor_log(rough, 10));
    for (const double mantissa : {1.0, 2.0, 5.0, 10.0}) {
      step = mantissa * power;
      if (step >= rough * (1 - kSlack)) break;
    }
  }
  std::vector<double> ticks = {0};
  while (ticks.back() < high * (1 - kSlack)) ticks.push_back(static_cast<double>(ticks.size()) * step);
  return ticks;
}

std::vector<double> log_ticks(double low, double high, int most, Unit unit) {
  const auto fits = [&](const std::vector<double>& ticks) { return ticks.size() <= static_cast<size_t>(most); };
  std::vector<double> ticks;
  if (unit != Unit::kBytes && fits(ticks = one_two_five_ticks(low, high))) return ticks;
  const double base = unit == Unit::kBytes ? 2 : 10;
  for (int step = 1; !fits(ticks = power_ticks(low, high, base, step)); ++step) {
  }
  return ticks;
}

}  // namespace logitless::report

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "golden.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <set>

namespace logitless::testing {
namespace {

double norm(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum);
}

}  // namespace

Golden::Golden(const std::string& name) {
  std::ifstream file(GOLDEN_FOLDER "/" + name);
  const json all = json::parse(file);
  inputs = all.at("inputs");
  for (const json& c : all.at("cases")) cases[c.at("name").get<std::string>()] = c;
}

std::vector<std::string> Golden::names(const std::function<bool(const json&)>& wanted) const {
  std::vector<std::string> out;
  for (const auto& [name, c] : cases) {
    if (wanted(c)) out.push_back(name);
  }
  return out;
}

Tokens::Tokens(const json& values, const std::vector<int64_t>& ids, double temperature,
               const std::function<bool(int64_t)>& takes_part)
    : batch(static_cast<int64_t>(values.size())),
      length(static_cast<int64_t>(values[0].size())),
      vocab(static_cast<int64_t>(values[0][0].size())),
      logits(flat(values)),
      hidden(logits.begin(), logits.end()),
      identity(static_cast<size_t>(vocab * vocab)),
      d_hidden(hidden.size()) {
  for (int64_t v = 0; v < vocab; ++v) identity[static_cast<size_t>(v * vocab + v)] = 1;
  stats.logp.assign(static_cast<size_t>(tokens()), 0);
  stats.entropy = stats.logp;
  for (int64_t row = 0; row < tokens(); ++row) {
    if (!takes_part(row)) continue;
    rows.push_back(row);
    add_statistics(static_cast<size_t>(row), static_cast<size_t>(ids[static_cast<size_t>(row)]), temperature);
  }
}

void Tokens::add_statistics(size_t row, size_t id, double temperature) {
  const auto ids = static_cast<size_t>(vocab);
  const double* const a = &logits[row * ids];
  double sum = 0;
  for (size_t v = 0; v < ids; ++v) sum += std::exp(a[v] / temperature);
  for (size_t v = 0; v < ids; ++v) {
    const double log_p = a[v] / temperature - std::log(sum);
    stats.entropy[row] -= std::exp(log_p) * log_p;
    if (v == id) stats.logp[row] = log_p;
  }
}

std::vector<int64_t> Tokens::offsets() const {
  std::vector<int64_t> out;
  for (int64_t s = 0; s <= batch; ++s) out.push_back(s * length);
  return out;
}

TokenGrads Tokens::zero_grads() const {
  return {.logp = std::vector<double>(stats.logp.size()),
          .lse = {},
          .entropy = std::vector<double>(stats.logp.size()),
          .cross = {}};
}

Gradients Tokens::gradients() {
  std::fill(d_hidden.begin(), d_hidden.end(), std::numeric_limits<float>::quiet_NaN());
  Gradients out;
  out.d_hidden = Matrix(d_hidden.data(), tokens(), vocab);
  return out;
}

LogitsGradient Tokens::logits_gradient() {
  std::fill(d_hidden.begin(), d_hidden.end(), std::numeric_limits<float>::quiet_NaN());
  return {d_hidden.data(), batch, length, vocab};
}

double Tokens::largest_sum() const {
  double largest = 1;
  for (const double logp : stats.logp) largest = std::max(largest, static_cast<double>(length) * std::abs(logp));
  return largest;
}

void expect_all_near(const std::string& what, const std::vector<double>& got, const std::vector<double>& want,
                     double relative, double floor) {
  ASSERT_EQ(got.size(), want.size()) << what;
  double largest = 0;
  for (const double value : want) largest = std::fmax(largest, std::abs(value));
  for (size_t i = 0; i < want.size(); ++i) {
    if (!std::isnan(want[i]))
      expect_near(what + "[" + std::to_string(i) + "]", got[i], want[i], relative * largest + floor);
  }
}

void expect_d_hidden(const Tokens& tokens, const json& expected, double floor) {
  const double unit = expected.at("unit").get<double>();
  const auto ids = static_cast<size_t>(tokens.vocab);
  std::vector<double> want;
  for (const json& sequence : expected.at("values")) {
    for (const json& row : sequence) {
      std::vector<double> values = flat(row);
      values.resize(ids);
      for (const double value : values) want.push_back(value * unit);
    }
  }
  ASSERT_EQ(want.size(), tokens.d_hidden.size());
  std::vector<double> difference(want.size());
  for (size_t i = 0; i < want.size(); ++i) difference[i] = tokens.d_hidden[i] - want[i];
  const double error = norm(difference);
  EXPECT_TRUE(error <= kRelative * norm(want) + floor) << "d_hidden: relative L2 error " << error / norm(want);
  for (int64_t row = 0; row < tokens.tokens(); ++row) {
    if (std::binary_search(tokens.rows.begin(), tokens.rows.end(), row)) continue;
    for (size_t v = 0; v < ids; ++v) EXPECT_EQ(tokens.d_hidden[static_cast<size_t>(row) * ids + v], 0) << row;
  }
}

double loss_tolerance(const Tokens& tokens, const json& expected) {
  const std::vector<double> d_logps = flat(expected.at("d_logps"));
  double floor = 0;
  for (size_t i = 0; i < d_logps.size(); ++i) {
    floor += kLogpError * std::abs(d_logps[i]) * (1 + std::abs(tokens.stats.logp[i]));
  }
  return std::max(floor, kRelative * std::abs(expected.at("loss").get<double>()));
}

void expect_metrics(const std::map<std::string, double>& got, const json& want, double relative, double floor) {
  std::set<std::string> names;
  for (const auto& [name, value] : want.items()) {
    names.insert(name);
    ASSERT_TRUE(got.contains(name)) << name;
    const double number = value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
    expect_near(name, got.at(name), number, relative * std::abs(number) + floor);
  }
  for (const auto& [name, value] : got) EXPECT_TRUE(names.contains(name)) << name << " is not in the file";
}

std::map<std::string, double> as_map(const PolicyMetrics& m) {
  return {{"tokens", static_cast<double>(m.tokens)},  {"mean_ratio", m.mean_ratio},
          {"clip_fraction_low", m.clip_fraction_low}, {"clip_fraction_high", m.clip_fraction_high},
          {"clip_fraction", m.clip_fraction},         {"mean_kl", m.mean_kl},
          {"mean_entropy", m.mean_entropy},           {"mean_logp", m.mean_logp}};
}

std::map<std::string, double> as_map(const PreferenceMetrics& m) {
  return {{"pairs", static_cast<double>(m.pairs)},
          {"tokens", static_cast<double>(m.tokens)},
          {"chosen_reward", m.chosen_reward},
          {"rejected_reward", m.rejected_reward},
          {"margin", m.margin},
          {"accuracy", m.accuracy},
          {"chosen_logp", m.chosen_logp},
          {"rejected_logp", m.rejected_logp},
          {"nll", m.nll},
          {"mean_entropy", m.mean_entropy}};
}

std::map<std::string, double> as_map(const KtoMetrics& m) {
  return {{"desirable", static_cast<double>(m.desirable)},
          {"undesirable", static_cast<double>(m.undesirable)},
          {"tokens", static_cast<double>(m.tokens)},
          {"kl", m.kl},
          {"desirable_reward", m.desirable_reward},
          {"undesirable_reward", m.undesirable_reward},
          {"margin", m.margin},
          {"desirable_logp", m.desirable_logp},
          {"undesirable_logp", m.undesirable_logp},
          {"mean_entropy", m.mean_entropy}};
}

void for_each_plan(const std::function<void(const Context&)>& call) {
  for (const PlanKind kind : {PlanKind::kOnePass, PlanKind::kTwoPass}) {
    SCOPED_TRACE(name_of(kind));
    ContextOptions options;
    options.plan = kind;
    call(Context(options));
  }
}

Context odd_tiles() { return Context({.row_tile = 5, .vocab_tile = 4, .row_block = 5}); }

std::string case_name(const ::testing::TestParamInfo<std::string>& info) { return info.param; }

}  // namespace logitless::testing

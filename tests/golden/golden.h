// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Reads files of golden values, and compares the library's results with them. Tests of a kind of loss run
// each case several times:
//
//   Statistics   the loss on float64 log-probabilities and entropies: ∂loss/∂logp, ∂loss/∂H to eight digits
//   Fused        the public call on float32 hidden states that are the logits, with an identity as the head,
//                so that d_hidden is ∂loss/∂logits
//   FromLogits   the public call on the logits themselves
//
// The public calls run with run(), and with forward() and backward().
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/fields.h"
#include "logitless/logits.h"
#include "support/compare.h"
#include "support/views.h"

namespace logitless::testing {

using nlohmann::json;

// The files hold ten digits, and six for gradients by logits.
inline constexpr double kDigits = 1e-8;
// Relative error of the public calls. Statistics of 11 vocabulary entries with logits below 8 have float32
// errors of a few units of 2^-24 times 8.
inline constexpr double kRelative = 1e-5;
inline constexpr double kLogpError = 1e-6;

/// A file of golden values.
struct Golden {
  json inputs;
  std::map<std::string, json> cases;

  explicit Golden(const std::string& name);
  std::vector<std::string> names(const std::function<bool(const json&)>& wanted) const;
};

/// Appends the numbers of nested arrays; null is NaN.
template <class T = double>
void append(const json& value, std::vector<T>& out) {
  if (value.is_array()) {
    for (const json& element : value) append(element, out);
  } else {
    out.push_back(value.is_null() ? std::numeric_limits<T>::quiet_NaN() : value.get<T>());
  }
}
/// Returns the numbers of nested arrays as one vector.
template <class T = double>
std::vector<T> flat(const json& value) {
  std::vector<T> out;
  append(value, out);
  return out;
}

/// Parses the name of an enumerator.
template <Named Enum>
Enum parse(const json& value) {
  if (const auto found = named<Enum>(value.get<std::string>())) return *found;
  throw std::invalid_argument("no such name: " + value.dump());
}
/// Sets an option to a value from the file.
template <class T>
void assign(T& to, const json& value) {
  if constexpr (Named<T>) {
    to = parse<T>(value);
  } else {
    to = value.get<T>();
  }
}
template <class T>
void assign(std::optional<T>& to, const json& value) {
  if (value.is_null()) {
    to.reset();
  } else {
    assign(to.emplace(), value);
  }
}
/// Returns the options of a case. The entropy is always requested.
template <class Options>
Options read_options(const json& values) {
  Options options;
  options.want_entropy = true;
  for (const auto& [name, value] : values.items()) {
    bool found = false;
    const auto set = [&, &name = name, &value = value](const Field& field, auto& to) {
      if constexpr (
          requires { assign(to, value); } && !requires { to.data(); }) {
        if (name != field.name) return;
        assign(to, value);
        found = true;
      }
    };
    visit_flat(FieldsOf<Options>(), set, options);
    if (!found) throw std::invalid_argument("no such option: " + name);
  }
  return options;
}

/// The logits of a file as hidden states, and exact statistics of given vocabulary entries.
struct Tokens {
  int64_t batch = 0, length = 0, vocab = 0;
  std::vector<double> logits;
  std::vector<float> hidden, identity, d_hidden;
  std::vector<int64_t> rows;  ///< rows that are not ignored
  TokenStats stats;

  Tokens(const json& values, const std::vector<int64_t>& ids, double temperature,
         const std::function<bool(int64_t)>& takes_part);

  int64_t tokens() const { return batch * length; }
  std::vector<int64_t> offsets() const;
  TokenGrads zero_grads() const;
  HiddenStates hidden_states() const { return {ConstMatrix(hidden.data(), tokens(), vocab), batch}; }
  LmHead head() const { return {ConstMatrix(identity.data(), vocab, vocab), HeadLayout::kHiddenVocab}; }
  FinishedLogits finished_logits() const { return {hidden.data(), batch, length, vocab}; }
  /// Return d_hidden, filled with NaN, as the output of a call.
  Gradients gradients();
  LogitsGradient logits_gradient();
  /// Log-probabilities of a sequence add up; this bounds the error of rewards, log ratios and means.
  double largest_sum() const;

 private:
  void add_statistics(size_t row, size_t id, double temperature);
};

/// Expects numbers within `relative` of the larger of the largest number and `floor`. An expected NaN matches
/// anything.
void expect_all_near(const std::string& what, const std::vector<double>& got, const std::vector<double>& want,
                     double relative, double floor = 0);

/// Compares d_hidden by its L2 error, relative except for `floor`, and expects exact zeros for ignored
/// tokens.
void expect_d_hidden(const Tokens& tokens, const json& expected, double floor = 0);

/// Returns the first-order effect on the loss of a float32 error in each log-probability: Σ |∂loss/∂logp_i|
/// |logp_i| ulps.
double loss_tolerance(const Tokens& tokens, const json& expected);

void expect_metrics(const std::map<std::string, double>& got, const json& want, double relative, double floor);

/// Returns metrics by their names in the files.
std::map<std::string, double> as_map(const PolicyMetrics& m);
std::map<std::string, double> as_map(const PreferenceMetrics& m);
std::map<std::string, double> as_map(const KtoMetrics& m);

/// Compares the members that all results have. After a public call, d_hidden of `tokens` holds its gradient.
template <class Result>
void expect_result(const Result& got, const json& expected, const Tokens& tokens, bool public_call) {
  const double loss = expected.at("loss").get<double>();
  expect_near("loss", got.loss, loss, public_call ? loss_tolerance(tokens, expected) : kDigits * std::abs(loss));
  const double floor = public_call ? kLogpError * tokens.largest_sum() : kDigits;
  expect_metrics(as_map(got.metrics), expected.at("metrics"), public_call ? kRelative : kDigits, floor);
  if (!public_call) return;
  for (const int64_t row : tokens.rows) {
    const double logp = tokens.stats.logp[static_cast<size_t>(row)];
    expect_near("per_token_logps[" + std::to_string(row) + "]", got.per_token_logps[static_cast<size_t>(row)], logp,
                kLogpError * (1 + std::abs(logp)));
  }
  expect_d_hidden(tokens, expected.at("d_logits"));
}

/// The loss of a case on given log-probabilities, and its gradients.
struct OfTokens {
  double loss = 0;
  std::vector<double> d_logps;
};

/// Compares `evaluate(batch, case)` for each case with the values of other projects in the file. Constructs
/// Batch(values, unit) for each batch of the file.
template <class Batch, class Evaluate>
void expect_every_case(const std::string& file, const Evaluate& evaluate, double relative, double floor) {
  const Golden golden(file);
  const double unit = golden.inputs.at("unit").get<double>();
  std::vector<Batch> batches;
  for (const json& values : golden.inputs.at("batches")) batches.emplace_back(values, unit);
  EXPECT_GE(golden.cases.size(), 1000U);
  for (const auto& [name, c] : golden.cases) {
    SCOPED_TRACE(name);
    const OfTokens got = evaluate(batches.at(c.at("batch").template get<size_t>()), c);
    const double want = c.at("loss").template get<double>();
    expect_near("loss", got.loss, want, relative * std::abs(want) + floor);
    expect_all_near("d_logps", got.d_logps, flat(c.at("d_logps")), relative, floor);
  }
}

/// Runs `call` under both plans for a loss with gradients.
void for_each_plan(const std::function<void(const Context&)>& call);
/// Returns a context whose tile sizes divide none of the dimensions.
Context odd_tiles();

/// Names a test after its case.
std::string case_name(const ::testing::TestParamInfo<std::string>& info);

}  // namespace logitless::testing

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Parts of commands that their output does not show: the inputs drawn for a config, and the end of a
// measuring process.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>
#include <stdexcept>

#include "cli/common/inputs.h"
#include "cli/common/output.h"
#include "cli/measure/process.h"
#include "io/error.h"

namespace logitless::cli {
namespace commands_test {

Inputs draw(std::vector<std::string> settings) {
  settings.insert(settings.end(), {"model={hidden_size: 4, vocab_size: 5000}", "batch_size=4", "seq_len=5000"});
  return make_seeded_inputs(io::load_config(std::nullopt, settings));
}

template <class T>
std::span<const T> values_of(const Inputs& inputs, const char* name) {
  return inputs.job[name].values<T>();
}

// Expects `count` draws with probability p to hit p · count times, within 6 standard deviations; this fails
// for one seed in 10^9.
void expect_share(int64_t hits, size_t count, double p) {
  const auto n = static_cast<double>(count);
  EXPECT_NEAR(static_cast<double>(hits) / n, p, 6 * std::sqrt(p * (1 - p) / n));
}

TEST(SeededInputs, ShareOfTargetsThatAreIgnored) {
  for (const double fraction : {0.0, 0.25, 1.0}) {
    const Inputs inputs = draw({"ignored_fraction=" + std::to_string(fraction), "ignore_index=-7"});
    const auto targets = values_of<int32_t>(inputs, "targets");
    ASSERT_EQ(targets.size(), 20000u);
    expect_share(std::ranges::count(targets, -7), targets.size(), fraction);
    int64_t high = 0;
    for (const int32_t target : targets) {
      EXPECT_TRUE(target == -7 || (target >= 0 && target < 5000)) << target;
      high += target >= 2500;
    }
    expect_share(high, targets.size(), (1 - fraction) / 2);
  }
}

// Expects a uniform distribution from low to high: its range, mean and variance.
template <class T>
void expect_uniform(std::span<const T> values, double low, double high) {
  double sum = 0, squares = 0;
  for (const T value : values) {
    EXPECT_GE(value, low);
    EXPECT_LT(value, high);
    sum += value;
    squares += value * value;
  }
  const auto n = static_cast<double>(values.size());
  const double mean = sum / n, deviation = (high - low) / std::sqrt(12.0);
  EXPECT_NEAR(mean, (low + high) / 2, 6 * deviation / std::sqrt(n));
  EXPECT_NEAR(std::sqrt(squares / n - mean * mean), deviation, 0.05 * deviation);
}

TEST(RunApart, AFailureWithoutWordsIsAFailure) {
  const Outcome outcome = run_apart([](const OnTurn&) -> Json { throw std::runtime_error(""); }, [](const auto&) {});
  EXPECT_EQ(outcome.result, "");
  EXPECT_EQ(outcome.why, "failed without a message");
  EXPECT_FALSE(outcome.died || outcome.bad_input);
}

TEST(RunApart, AChildThatDiesIsToldApartFromOneThatFails) {
  const auto nobody = [](const auto&) {};
  const Outcome killed = run_apart(
      [](const OnTurn& on_turn) -> Json {
        on_turn("dense", "dense, turn 1 of 2");
        raise(SIGKILL);
        return {};
      },
      nobody);
  EXPECT_TRUE(killed.died);
  EXPECT_EQ(killed.contender, "dense");
  EXPECT_TRUE(killed.why.starts_with("was killed by signal 9")) << killed.why;
  const Outcome refused = run_apart([](const OnTurn&) -> Json { throw io::Error("no such file"); }, nobody);
  EXPECT_TRUE(refused.bad_input && !refused.died);
  EXPECT_EQ(refused.why, "no such file");
  EXPECT_EQ(run_apart([](const OnTurn&) { return Json{{"a", 1}}; }, nobody).result, "{\"a\":1}");
}

TEST(Units, FiguresReadAsPeopleWriteThem) {
  EXPECT_EQ(human_bytes(512), "512 B");
  EXPECT_EQ(human_bytes(9751757), "9.3 MiB");
  EXPECT_EQ(human_bytes(1245540516), "1.16 GiB");
  EXPECT_EQ(human_bytes(int64_t{1} << 62), "4194304.00 TiB");
  EXPECT_EQ(human_seconds(0), "0.00 µs");
  EXPECT_EQ(human_seconds(0.0857), "85.7 ms");
  EXPECT_EQ(human_seconds(0.0009999), "1.00 ms");
  EXPECT_EQ(human_seconds(0.9999), "1.00 s");
  EXPECT_EQ(human_seconds(9.999), "10.0 s");
  EXPECT_EQ(human_seconds(123.4), "123 s");
  EXPECT_EQ(time_ratio(1.006), "1.01×");
  EXPECT_EQ(time_ratio(0.0123), "0.012×");
  EXPECT_EQ(fixed(std::numeric_limits<double>::infinity(), 2), "∞");
  EXPECT_EQ(fixed(std::nan(""), 2), "NaN");
  EXPECT_EQ(fixed(std::numeric_limits<double>::max(), 2).size(), 312u);
}

}  // namespace commands_test
}  // namespace logitless::cli

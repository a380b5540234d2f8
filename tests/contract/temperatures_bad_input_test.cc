// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Per-token temperatures that every call of every task refuses, from hidden states and from finished logits:
// the message names argument, value and rule, and nothing has been written.
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "support/every_task.h"
#include "support/refusal.h"

namespace logitless::testing {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr size_t kPart = 7, kNoPart = 11;  // tokens that take part and do not

struct BadTemperatures {
  std::vector<double> values;
  std::vector<std::string> parts;  // of the message
};

std::vector<BadTemperatures> bad_temperatures() {
  std::vector<BadTemperatures> all;
  for (const size_t count : {size_t{1}, size_t{kBatch}, size_t{kTokens - 1}, size_t{kTokens + 1}}) {
    all.push_back(
        {std::vector<double>(count, 1.0), {"temperatures has " + std::to_string(count) + " entries", " has 20 rows"}});
  }
  for (const auto& [value, shown] : std::vector<std::pair<double, std::string>>{
           {kNaN, "nan"}, {kInfinity, "inf"}, {-kInfinity, "-inf"}, {0.0, "0"}, {-0.5, "-0.5"}}) {
    std::vector<double> values(kTokens, 1.0);
    values[kPart] = value;
    all.push_back({values, {"temperatures[7] = " + shown, "above 0"}});
  }
  return all;
}

template <class Source>
struct TemperaturesBadInput : ::testing::Test {
  Source source;
  Batch batch;
};

using Sources = ::testing::Types<FromHidden, FromLogits>;
TYPED_TEST_SUITE(TemperaturesBadInput, Sources);

TYPED_TEST(TemperaturesBadInput, EveryCallRefusesThem) {
  const Context context;
  visit_every_task(this->source, this->batch, [&](auto task) {
    const auto forward = task.forward(context);
    typename TypeParam::Outputs outputs;
    for (const BadTemperatures& bad : bad_temperatures()) {
      SCOPED_TRACE(std::string(task.name) + ", " + bad.parts[0]);
      task.token().temperatures = bad.values;
      expect_invalid_input(bad.parts, [&] { task.run(context, outputs.views()); });
      expect_invalid_input(bad.parts, [&] { task.run(context); });
      expect_invalid_input(bad.parts, [&] { task.forward(context); });
      expect_invalid_input(bad.parts, [&] { task.backward(context, forward, 1.0, outputs.views()); });
      expect_invalid_input(bad.parts, [&] { task.plan(context, outputs.views()); });
      EXPECT_EQ(outputs.values(), typename TypeParam::Outputs().values());
    }
  });
}

TYPED_TEST(TemperaturesBadInput, ATokenThatTakesNoPartMayHaveAny) {
  const Context context;
  const std::vector<double> good(kTokens, 0.8);
  std::vector<double> other = good;
  other[kNoPart] = kNaN;
  visit_every_task(this->source, this->batch, [&](auto task) {
    SCOPED_TRACE(task.name);
    typename TypeParam::Outputs want, got;
    task.token().temperatures = good;
    const auto result = task.run(context, want.views());
    task.token().temperatures = other;
    EXPECT_TRUE(bytes_of(task.run(context, got.views())) == bytes_of(result));
    EXPECT_EQ(got.values(), want.values());
  });
}

}  // namespace
}  // namespace logitless::testing

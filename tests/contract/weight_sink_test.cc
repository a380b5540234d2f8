// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The weight-gradient sink is called by one thread at a time, and may throw. Drawn calls check its tiles, and
// overwrite the head in it.
#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/calls.h"
#include "support/inputs.h"
#include "support/views.h"

namespace logitless::testing {
namespace weight_sink_test {

struct SinkFailure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Runs with a sink that throws at the tile with `entry`. Returns the number of calls of the sink.
int throw_at(int64_t entry, PlanKind plan, int threads) {
  InputSpec spec;
  spec.tokens = 50;
  spec.vocab = 500;
  Inputs inputs(spec);
  RunSpec run;
  run.d_weight = false;
  GradientOutputs outputs(inputs, run);
  Gradients gradients = outputs.gradients();
  std::atomic<int> calls = 0;
  gradients.weight_sink = [&](int64_t first, int64_t count, const ConstMatrix&) {
    ++calls;
    if (entry >= first && entry < first + count) throw SinkFailure("at vocabulary entry " + std::to_string(first));
  };
  ContextOptions options;
  options.plan = plan;
  options.threads = threads;
  options.row_tile = 16;
  options.vocab_tile = 32;
  const Context context(options);
  try {
    cross_entropy(context, inputs.hidden_view(), inputs.head_view(), inputs.targets_view(), {}, gradients);
    ADD_FAILURE() << "the exception was lost";
  } catch (const SinkFailure& failure) {
    EXPECT_EQ(failure.what(), "at vocabulary entry " + std::to_string(entry / 32 * 32));
  }
  return calls;
}

TEST(WeightSink, ItsExceptionArrivesAndNoCallFollows) {
  for (const PlanKind plan : {PlanKind::kOnePass, PlanKind::kTwoPass}) {
    for (const int threads : {1, 2, 7}) {
      for (const int64_t entry : {0, 33, 250, 499}) EXPECT_EQ(throw_at(entry, plan, threads), entry / 32 + 1);
    }
  }
}

TEST(WeightSink, OneCallAtATime) {
  InputSpec spec;
  spec.vocab = 2000;
  Inputs inputs(spec);
  ContextOptions options;
  options.threads = 7;
  options.vocab_tile = 16;
  std::atomic<int> inside = 0;
  int together = 0;
  Gradients gradients;
  gradients.weight_sink = [&](int64_t, int64_t, const ConstMatrix&) {
    if (++inside > 1) ++together;
    std::vector<double> busy(1000, 1.0);  // long enough for a second call to overlap
    volatile double sum = 0;
    for (const double x : busy) sum = sum + x;
    --inside;
  };
  cross_entropy(Context(options), inputs.hidden_view(), inputs.head_view(), inputs.targets_view(), {}, gradients);
  EXPECT_EQ(together, 0);
}

}  // namespace weight_sink_test
}  // namespace logitless::testing

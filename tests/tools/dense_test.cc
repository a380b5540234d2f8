// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The dense head of comparisons: drawn calls of every loss, compared with the oracle like the library's own.
#include "dense/dense.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "generator/call_run.h"

namespace logitless::testing {
namespace {

template <Task T>
Ran run_dense(const Given<T>& call) {
  Ran ran;
  if constexpr (kHasLoss<T>) {
    // The bits of a library's products depend on its team.
    ContextOptions options = call.context.options();
    options.threads = 2;
    const auto result = dense::run(Context(options), call.logits, call.task, call.gradients);
    ran.plan = ran.planned = result.plan;
    ran.columns = columns_of(result);
    ran.bits = bytes_of(result);
  }
  return ran;
}

// Returns the call without the features that a dense head lacks.
DrawnCall dense_call(DrawnCall call) {
  call.finished = call.in_place = call.accumulate = call.sink = call.halves = call.lora_states = false;
  call.time_first = call.output_time_first = call.reuse = false;
  call.sequence_gap = call.output_sequence_gap = 0;
  if (call.values == Values::kMasked) call.bias = true, call.softcap = 0;
  call.plan = PlanKind::kAuto;
  call.budget = Budget::kDefault;
  call.backward = BackwardMode::kExact;
  call.slices = call.vocab_ranks = call.data_ranks = 1;
  return call;
}

const bool kRunsDense = [] {
  poisons_rows = false;  // all rows are multiplied
  AllTasks::each([]<class T>() {
    if constexpr (!std::is_same_v<T, CustomLoss>) run_here<T> = &run_dense<T>;
  });
  return true;
}();

TEST(Dense, DrawnCallsAgreeWithTheOracle) {
  int64_t accepted = 0;
  for (uint64_t random = 1; random <= 400; ++random) {
    const DrawnCall call = dense_call(draw_call(random));
    if (call.task == IdLogps::kName || call.task == TokenStatistics::kName) continue;
    const Verdict verdict = check(call);
    ASSERT_EQ(verdict.fault, "") << code_of(call);
    accepted += verdict.refusal.empty();
  }
  EXPECT_GT(accepted, 200);
}

TEST(Dense, GradientsHaveThePrecisionOfTheContext) {
  const std::vector<bfloat16> x(2 * 64), w(5 * 64);
  std::vector<float> d_hidden(2 * 64);
  const std::vector<int64_t> ids = {1, 4};
  ContextOptions options;
  options.gradient_precision = GradientPrecision::kFloat32;
  const auto result = dense::run(Context(options), Logits::of(view(x.data(), {2, 64}), view(w.data(), {5, 64})),
                                 CrossEntropy{.targets = ids}, {.d_hidden = view(d_hidden.data(), {2, 64})});
  EXPECT_EQ(result.plan.gradient_dtype, DType::kFloat32);
}

TEST(Dense, WhatItDoesNotHaveIsRefused) {
  for (const auto& [field, reason] : {std::pair(&DrawnCall::accumulate, "dense overwrites"),
                                      {&DrawnCall::sink, "dense has no tiles of d_weight"},
                                      {&DrawnCall::lora_states, "dense takes lora_a"}}) {
    DrawnCall call;
    call.lora_rank = 1;
    call.*field = true;
    EXPECT_NE(check(call).refusal.find(reason), std::string::npos) << reason;
  }
}

}  // namespace
}  // namespace logitless::testing

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Two pass stores the logits of the vocabulary tiles that fit its budget, if the library chooses the plan. No
// bits depend on how many these are.
#include <gtest/gtest.h>

#include <cstring>
#include <utility>
#include <vector>

#include "logitless/logitless.h"
#include "support/every_task.h"
#include "support/host_tensor.h"

namespace logitless::testing {
namespace stored_logits_test {

constexpr int64_t kTokens = 600, kHidden = 256, kVocab = 3000;

std::vector<bfloat16> narrow(size_t count, uint64_t seed, double scale) {
  std::vector<bfloat16> out;
  for (const float value : normal(count, seed, scale)) out.push_back(to_bfloat16(value));
  return out;
}

// One pass in chunks would need [V, H] sums of the bfloat16 gradient, which these budgets have no room for.
struct NarrowCall {
  std::vector<bfloat16> hidden = narrow(kTokens * kHidden, 1, 1), weight = narrow(kVocab * kHidden, 2, 0.05);
  std::vector<bfloat16> teacher_hidden = narrow(kTokens * kHidden, 3, 1);
  std::vector<int64_t> targets;

  NarrowCall() {
    for (int64_t i = 0; i < kTokens; ++i) targets.push_back(i % 7 == 3 ? -100 : (i * 37) % kVocab);
  }
  Logits model(const std::vector<bfloat16>& states) const {
    return Logits::of(view(states.data(), {kTokens, kHidden}), view(weight.data(), {kVocab, kHidden}));
  }

  struct Ran {
    Plan plan;
    double loss;
    std::vector<bfloat16> d_hidden = std::vector<bfloat16>(kTokens * kHidden),
                          d_weight = std::vector<bfloat16>(kVocab * kHidden);
  };
  template <Task T>
  Ran run(const T& task, PlanKind plan, size_t workspace, int threads) const {
    Ran out;
    const Context context({.threads = threads,
                           .workspace_bytes = workspace,
                           .plan = plan,
                           .row_tile = 64,
                           .vocab_tile = 128,
                           .gemm_backend = "openblas"});
    const auto result = logitless::run(context, model(hidden), task,
                                       {.d_hidden = view(out.d_hidden.data(), {kTokens, kHidden}),
                                        .d_weight = view(out.d_weight.data(), {kVocab, kHidden})});
    out.plan = result.plan;
    out.loss = result.loss;
    return out;
  }
  template <Task T>
  void expect_the_same_bits(const T& task) const {
    const Ran want = run(task, PlanKind::kTwoPass, size_t{64} << 20, 1);
    EXPECT_EQ(want.plan.stored_entries, 0);
    const auto is = [](const std::vector<bfloat16>& a, const std::vector<bfloat16>& b) {
      return std::memcmp(a.data(), b.data(), a.size() * sizeof(bfloat16)) == 0;
    };
    const auto budget_of = [&](int threads, size_t more) {
      return run(task, PlanKind::kTwoPass, size_t{64} << 20, threads).plan.workspace_bytes + more;
    };
    for (const auto& [threads, more] : {std::pair{1, size_t{2000} << 10}, {3, size_t{2300} << 10}}) {
      SCOPED_TRACE(::testing::Message() << threads << " threads");
      const size_t budget = budget_of(threads, more);
      const Ran got = run(task, PlanKind::kAuto, budget, threads);
      ASSERT_EQ(got.plan.kind, PlanKind::kTwoPass);
      EXPECT_GT(got.plan.stored_entries, 0);
      EXPECT_LE(got.plan.workspace_bytes, budget);
      EXPECT_EQ(got.loss, want.loss);
      EXPECT_TRUE(is(got.d_hidden, want.d_hidden));
      EXPECT_TRUE(is(got.d_weight, want.d_weight));
    }
  }
};

TEST(StoredLogits, ChangeNoBits) {
  const NarrowCall call;
  call.expect_the_same_bits(CrossEntropy{.targets = call.targets});
  // The divergence reads the logits of both heads a second time before their gradients.
  Distillation task;
  task.targets = call.targets;
  task.teacher = call.model(call.teacher_hidden);
  call.expect_the_same_bits(task);
}

}  // namespace stored_logits_test
}  // namespace logitless::testing

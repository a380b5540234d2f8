// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Calls that use a Workspace: a repeated call allocates only its results, for every task, kind of logits and
// plan, and no bit changes. Without one, the process does not grow.
#include "logitless/workspace.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstddef>
#include <fstream>
#include <functional>
#include <utility>
#include <vector>

#include "support/allocation_counter.h"
#include "support/calls.h"
#include "support/every_task.h"

namespace logitless::testing {
namespace {

ContextOptions small_tiles(PlanKind plan, int threads, Workspace* workspace) {
  ContextOptions options = testing::small_tiles(plan, threads);
  options.row_block = 8;
  options.workspace = workspace;
  return options;
}

template <class Source>
struct WorkspaceCalls : ::testing::Test {
  Source source;
  Batch batch;
};

using Sources = ::testing::Types<FromHidden, FromLogits>;
TYPED_TEST_SUITE(WorkspaceCalls, Sources);

// The results of one call of a task, or of its halves: everything that the caller gets.
struct Left {
  std::vector<std::byte> returned;
  std::vector<float> gradients;
  bool operator==(const Left&) const = default;
};

// Makes one call, or forward() and backward() as in a trainer's step. `settled`: the workspace no longer
// grows, so each call must allocate exactly the columns that it returns.
template <class Task>
Left run(const Task& task, const Context& context, bool halves, bool settled) {
  typename Task::Outputs outputs;
  const auto views = outputs.views();
  const auto expect_made = [settled](int64_t before, int64_t wanted) {
    const int64_t made = allocation_count().news - before;
    if (settled) {
      EXPECT_EQ(made, wanted);
    }
  };
  int64_t before = allocation_count().news;
  if (!halves) {
    const auto result = task.run(context, views);
    expect_made(before, count_columns(result));
    return {bytes_of(result), outputs.values()};
  }
  const auto forward = task.forward(context);
  expect_made(before, count_columns(forward));
  before = allocation_count().news;
  task.backward(context, forward, 1.0, views);
  expect_made(before, 0);
  return {bytes_of(forward), outputs.values()};
}

// Fills all memory that calls of this size use with numbers, including ignored rows.
template <class Source>
void fill_with_numbers(const Source& source, const Context& context) {
  const Batch full(true);
  visit_every_task(source, full, [&](const auto& task) {
    if (cannot_run(task, context.options().plan)) return;
    typename Source::Outputs outputs;
    task.run(context, outputs.views());
  });
}

template <class Task>
void allocates_what_it_returns(const Task& task, PlanKind plan, int threads) {
  for (const bool halves : {false, true}) {
    if (halves ? plan == PlanKind::kOnePass : cannot_run(task, plan)) continue;
    SCOPED_TRACE(::testing::Message() << task.name << (halves ? " in halves, " : ", ") << name_of(plan) << ", "
                                      << threads << " threads");
    const Left plain = run(task, Context(small_tiles(plan, threads, nullptr)), halves, false);
    Workspace workspace;
    const Context context(small_tiles(plan, threads, &workspace));
    fill_with_numbers(task.source, context);
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(run(task, context, halves, false) == plain);
    const size_t held = workspace.bytes();
    EXPECT_GT(held, 0U);
    for (int i = 0; i < 2; ++i) EXPECT_TRUE(run(task, context, halves, true) == plain);
    EXPECT_EQ(workspace.bytes(), held);
  }
}

TYPED_TEST(WorkspaceCalls, AllocateWhatTheyReturn) {
  for (const PlanKind plan : {PlanKind::kAuto, PlanKind::kOnePass, PlanKind::kTwoPass}) {
    for (const int threads : {1, 2}) {
      visit_every_task(this->source, this->batch,
                       [&](const auto& task) { allocates_what_it_returns(task, plan, threads); });
    }
  }
}

// Batches of growing length leave no unused blocks: the Workspace holds at most twice the need of the longest
// one.
TEST(WorkspaceOfACall, FollowsShapesThatGrow) {
  const std::vector<float> logits = normal(400 * kVocab, 5);
  const std::vector<int64_t> targets(400, 7);
  Workspace workspace, of_the_longest;
  const auto run = [&](int64_t tokens, Workspace& own) {
    return cross_entropy(Context(small_tiles(PlanKind::kTwoPass, 1, &own)),
                         FinishedLogits(logits.data(), 1, tokens, kVocab), Targets(targets.data(), tokens))
        .loss;
  };
  for (int64_t tokens = 1; tokens <= 400; ++tokens) run(tokens, workspace);
  run(400, of_the_longest);
  EXPECT_LE(workspace.bytes(), 2 * of_the_longest.bytes() + 4096);
  workspace.release();
  EXPECT_EQ(workspace.bytes(), 0u);
  EXPECT_EQ(run(17, workspace), run(17, of_the_longest));
}

#ifndef __SANITIZE_ADDRESS__  // which keeps freed memory
// A trainer makes thousands of calls and allocates in between: without a Workspace, its process must not grow
// by a workspace per call.
TEST(WorkspaceOfACall, DoesNotGrowTheProcess) {
  const auto resident_bytes = [] {
    std::ifstream file("/proc/self/statm");
    int64_t all = 0, resident = 0;
    file >> all >> resident;
    return resident * sysconf(_SC_PAGESIZE);
  };
  constexpr int64_t kRows = 512, kWidth = 64, kEntries = 8000;
  const std::vector<float> hidden(kRows * kWidth, 0.01F), weight(kEntries * kWidth, 0.02F);
  std::vector<float> d_hidden(hidden.size()), d_weight(weight.size());
  const std::vector<int64_t> targets(kRows, 3);
  const Context context({.workspace_bytes = size_t{12} << 20});
  std::vector<std::vector<char>> kept;
  int64_t settled = 0;
  size_t workspace = 0;
  for (int call = 0; call < 24; ++call) {
    workspace =
        logitless::run(
            context, Logits::of(view(hidden.data(), {kRows, kWidth}), view(weight.data(), {kEntries, kWidth})),
            CrossEntropy{.targets = targets},
            {.d_hidden = view(d_hidden.data(), {kRows, kWidth}), .d_weight = view(d_weight.data(), {kEntries, kWidth})})
            .plan.workspace_bytes;
    kept.emplace_back(40000, 'x');  // the caller's block lands where the workspace was
    if (call == 3) settled = resident_bytes();
  }
  ASSERT_GT(workspace, size_t{8} << 20);
  // If each call leaked its workspace, twenty would be resident. Huge pages and the kernel's own batching
  // account for less than a few.
  EXPECT_LT(resident_bytes() - settled, static_cast<int64_t>(4 * workspace));
}
#endif

// A loss that calls the library again, with the same Workspace, another one and none.
TEST(WorkspaceOfACall, CallsWithinCallsKeepApart) {
  const FromHidden source;
  const Batch batch;
  Workspace first, second;
  class Nested final : public TokenLoss {
   public:
    explicit Nested(std::function<double()> inner) : inner_(std::move(inner)) {}
    StatsRequest needs() const override { return {}; }
    GradsFilled gradients() const override { return {}; }
    void evaluate(std::span<const int64_t> rows, const TokenStats& stats, TokenGrads& grads) override {
      for (const int64_t row : rows)
        grads.logp[static_cast<size_t>(row)] = inner_() * stats.logp[static_cast<size_t>(row)];
    }

   private:
    std::function<double()> inner_;
  };
  std::vector<std::vector<float>> gradients;
  for (Workspace* inner : {static_cast<Workspace*>(nullptr), &first, &second}) {
    const Context inside(small_tiles(PlanKind::kAuto, 1, inner));
    Nested loss([&] { return source.call(cross_entropy, inside, batch.targets()).loss; });
    FromHidden::Outputs outputs;
    source.call(LOGITLESS_TEST_CALL(run_token_loss), Context(small_tiles(PlanKind::kOnePass, 2, &first)),
                batch.targets(), TokenOptions(), loss, outputs.views());
    gradients.push_back(outputs.values());
  }
  EXPECT_EQ(gradients[1], gradients[0]);
  EXPECT_EQ(gradients[2], gradients[0]);
}

}  // namespace
}  // namespace logitless::testing

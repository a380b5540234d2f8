// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Several host threads use one Workspace at once, each for calls of every task, while another thread queries
// its size and frees it: every call gives the bits that it gives alone.
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <thread>
#include <type_traits>
#include <vector>

#include "support/every_task.h"

namespace logitless::testing {
namespace shared_workspace_test {

ContextOptions small_tiles(int threads, Workspace* workspace) {
  ContextOptions options = testing::small_tiles(PlanKind::kAuto, threads);
  options.row_block = 8;
  options.workspace = workspace;
  return options;
}

// Returns the results of all tasks, at once and in halves, for both kinds of logits.
std::vector<std::byte> bytes_of_all_tasks(const Batch& batch, const FromHidden& hidden, const FromLogits& logits,
                                          const Context& context) {
  std::vector<std::byte> bytes;
  const auto append = [&](const std::vector<std::byte>& more) { bytes.insert(bytes.end(), more.begin(), more.end()); };
  const auto visit = [&](const auto& task) {
    typename std::decay_t<decltype(task)>::Outputs at_once, apart;
    append(bytes_of(task.run(context, at_once.views())));
    const auto forward = task.forward(context);
    append(bytes_of(forward));
    task.backward(context, forward, 0.5, apart.views());
    append(bytes_of(at_once.values()));
    append(bytes_of(apart.values()));
  };
  visit_every_task(hidden, batch, visit);
  visit_every_task(logits, batch, visit);
  return bytes;
}

// `teams` has the team size of each thread.
void serve_threads_at_once(const std::vector<int>& teams) {
  const Batch batch, full(true);
  const FromHidden hidden;
  const FromLogits logits;
  const std::vector<std::byte> alone = bytes_of_all_tasks(batch, hidden, logits, Context(small_tiles(1, nullptr)));
  Workspace workspace;
  std::atomic<int> running{static_cast<int>(teams.size())};
  std::vector<int> wrong(teams.size(), 0);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      const Context context(small_tiles(teams[t], &workspace));
      for (int i = 0; i < 4; ++i) {
        // Fills the memory with the results of other calls.
        bytes_of_all_tasks(full, hidden, logits, context);
        wrong[t] += bytes_of_all_tasks(batch, hidden, logits, context) != alone;
      }
      --running;
    });
  }
  threads.emplace_back([&] {
    while (running > 0) {
      if (workspace.bytes() > 0) workspace.release();
      std::this_thread::yield();
    }
  });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(teams.size(), 0));
  workspace.release();
  EXPECT_EQ(workspace.bytes(), 0U);
}

TEST(SharedWorkspace, ServesThreadsAtOnce) { serve_threads_at_once({1, 1, 1}); }
TEST(SharedWorkspace, ServesTeamsAtOnce) { serve_threads_at_once({1, 2, 3}); }

}  // namespace shared_workspace_test
}  // namespace logitless::testing

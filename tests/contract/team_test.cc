// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Teams that are smaller than requested. CMakeLists.txt runs the program with several settings of OpenMP's
// environment.
#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "support/inputs.h"

namespace logitless::testing {
namespace {

constexpr PlanKind kPlans[] = {PlanKind::kOnePass, PlanKind::kTwoPass, PlanKind::kExpectedRow};

// Returns the number of threads that OpenMP gives if it must not choose.
int team_of(int threads) {
  const int dynamic = omp_get_dynamic();
  omp_set_dynamic(0);
  int size = 0;
#pragma omp parallel num_threads(threads)
#pragma omp master
  size = omp_get_num_threads();
  omp_set_dynamic(dynamic);
  return size;
}

// Returns a call with products so large that OpenBLAS would use several threads.
SeededCall large_call(int threads, PlanKind plan = PlanKind::kAuto, DType dtype = DType::kFloat32) {
  return SeededCall({.tokens = 200, .vocab = 1200, .hidden = 100, .dtype = dtype, .poison = false},
                    {.context = {.threads = threads, .plan = plan}});
}

TEST(Team, CallsEndAndHaveTheBitsOfOneThread) {
  for (const PlanKind plan : kPlans) {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
      const std::vector<std::byte> alone = large_call(1, plan, dtype).run().bytes;
      for (const int threads : {2, 3, 5}) {
        EXPECT_EQ(large_call(threads, plan, dtype).run().bytes, alone) << threads;
      }
    }
  }
}

TEST(Team, ThreadsAreThoseOfTheTeam) {
  for (const int threads : {1, 2, 3, 7}) {
    ContextOptions options;
    options.threads = threads;
    EXPECT_EQ(Context(options).threads(), team_of(threads));
  }
  EXPECT_EQ(Context().threads(), team_of(omp_get_max_threads()));
}

TEST(Team, SettingsAreAsBefore) {
  for (const int dynamic : {0, 1}) {
    omp_set_dynamic(dynamic);
    const int threads = omp_get_max_threads();
    for (const PlanKind plan : kPlans) large_call(3, plan).run();
    EXPECT_EQ(omp_get_dynamic(), dynamic);
    EXPECT_EQ(omp_get_max_threads(), threads);
  }
  omp_set_dynamic(0);
}

// Returns the loss of a call, or -1 if it threw.
double loss_of(const SeededCall& call) {
  try {
    return call.run().result.loss;
  } catch (...) {
    return -1;
  }
}

TEST(Team, InsideARegionOfTheCaller) {
  const int levels = omp_get_max_active_levels();
  for (const int most : {1, 2, 3}) {
    omp_set_max_active_levels(std::min(levels, most));
    for (const PlanKind plan : kPlans) {
      const double alone = loss_of(large_call(1, plan));
      std::vector<double> inside(2, alone);
#pragma omp parallel num_threads(2)
      inside[static_cast<size_t>(omp_get_thread_num())] = loss_of(large_call(3, plan));
      for (const double loss : inside) EXPECT_NEAR(loss, alone, 1e-5 * alone);
    }
  }
  omp_set_max_active_levels(levels);
}

TEST(Team, CallsOfOtherSizesAtOnce) {
  const double alone = loss_of(large_call(1));
  std::vector<std::thread> callers;
  std::vector<int> same(3, 0);
  for (int k = 0; k < 3; ++k) {
    callers.emplace_back([&same, k, alone] {
      for (int call = 0; call < 20; ++call) {
        const double loss = loss_of(large_call(1 + 2 * k));
        same[static_cast<size_t>(k)] += std::abs(loss - alone) <= 1e-5 * alone;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(same, std::vector<int>(3, 20));
}

// Far more tasks than the runtime gets at once, all of them short: finds runtimes whose records end too
// early, and tasks that begin too early.
TEST(Team, ManySmallTiles) {
  for (const PlanKind plan : {PlanKind::kOnePass, PlanKind::kTwoPass, PlanKind::kExpectedRow}) {
    const auto bytes = [plan](int threads) {
      return SeededCall({.tokens = 96, .vocab = 4000, .hidden = 8},
                        {.context = {.threads = threads, .plan = plan, .row_tile = 8, .vocab_tile = 16}})
          .run()
          .bytes;
    };
    const std::vector<std::byte> alone = bytes(1);
    for (const int threads : {2, 3, 7}) {
      for (int call = 0; call < 5; ++call) ASSERT_EQ(bytes(threads), alone) << threads << " threads";
    }
  }
}

}  // namespace
}  // namespace logitless::testing

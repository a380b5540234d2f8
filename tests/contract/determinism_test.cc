// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The same inputs and options give the same bits in every run, with any number of threads.
#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "determinism_cases.h"
#include "support/testers.h"

namespace logitless::testing {
namespace {

// Teams of the context and of OpenMP, of which some are smaller than asked for, and runs after others.
TEST(Determinism, OfEveryTeam) {
  for (const DeterminismCase& one : determinism_cases()) {
    SCOPED_TRACE(one.name);
    const std::vector<std::byte> bytes = one.bytes(1);
    EXPECT_TRUE(std::ranges::any_of(bytes, [](std::byte byte) { return byte != std::byte{0}; }));
    const auto parts_of = [&](int threads) {
      const Plan plan = one.plan(threads);
      EXPECT_LE(plan.threads, threads);
      return std::vector<int64_t>{static_cast<int64_t>(plan.kind), plan.row_tile, plan.vocab_tile, plan.hidden_block,
                                  plan.chunk_rows};
    };
    for (const int threads : {1, 2, 3, 7}) {
      SCOPED_TRACE(threads);
      EXPECT_TRUE(one.bytes(threads) == bytes);
      EXPECT_TRUE(one.bytes(threads) == bytes) << "in another run";
      EXPECT_EQ(parts_of(threads), parts_of(1));
      omp_set_dynamic(1);
      EXPECT_TRUE(one.bytes(threads) == bytes) << "with omp_set_dynamic";
      omp_set_dynamic(0);
      const int before = omp_get_max_threads();
      omp_set_num_threads(threads);
      EXPECT_TRUE(one.bytes(0) == bytes) << "with omp_set_num_threads";
      omp_set_num_threads(before);
    }
  }
}

TEST(Determinism, OneContextInThreeThreads) {
  ContextOptions options;
  options.threads = 2;
  options.row_tile = 16;
  options.vocab_tile = 64;
  const Context context(options);
  std::vector<CrossEntropyTester> testers;
  std::vector<std::vector<std::byte>> alone;
  for (int k = 0; k < 3; ++k) {
    CrossEntropyTester tester;
    tester.in(context).seed(k + 1).tokens(60 + k).vocab(401).hidden(70).z_loss(0.01);
    alone.push_back(tester.run_once().bytes);
    testers.push_back(tester);
  }
  std::vector<std::thread> threads;
  std::vector<int> same(3, 0);
  for (int k = 0; k < 3; ++k) {
    threads.emplace_back([&, k] {
      for (int run = 0; run < 10; ++run) same[k] += testers[k].run_once().bytes == alone[k] ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(same, std::vector<int>(3, 10));
}

TEST(Determinism, InsideAParallelRegion) {
  std::vector<int> same(3, 0);
  const std::vector<DeterminismCase> copies(3, determinism_cases()[0]);
  const std::vector<std::byte> want = copies[0].bytes(1);
#pragma omp parallel for num_threads(3)
  for (int k = 0; k < 3; ++k) same[k] = copies[k].bytes(2) == want ? 1 : 0;
  EXPECT_EQ(same, std::vector<int>(3, 1));

  // This also holds if the region is a team of one, and if nested teams are allowed.
  const int levels = omp_get_max_active_levels();
  omp_set_max_active_levels(2);
  std::vector<int> nested(2, 0);
#pragma omp parallel for num_threads(2)
  for (int k = 0; k < 2; ++k) nested[k] = copies[k].bytes(3) == want ? 1 : 0;
  omp_set_max_active_levels(levels);
  EXPECT_EQ(nested, std::vector<int>(2, 1));
  bool alone = false;
#pragma omp parallel num_threads(1)
  alone = copies[0].bytes(0) == want;
  EXPECT_TRUE(alone);
}

// Returns the output of the helper program with these environment settings.
std::string run_helper(const std::string& environment) {
  // With more threads than cores, waiting threads should sleep.
  const std::string command = "OMP_WAIT_POLICY=passive " + environment + " '" DETERMINISM_HASH_PATH "'";
  FILE* pipe = popen(command.c_str(), "r");
  if (!pipe) return "cannot start";
  std::string output;
  char text[256];
  while (fgets(text, sizeof text, pipe)) output += text;
  const int status = pclose(pipe);
  return status == 0 ? output : "status " + std::to_string(status) + ": " + output;
}

TEST(ThreadsOfTheEnvironment, GiveTheSameBits) {
  char expected[32];
  std::snprintf(expected, sizeof expected, " %016llx\n", static_cast<unsigned long long>(hash_of_all_cases(1)));
  // The limits below leave 1 and 2 threads.
  for (const int threads : {3, 7}) {
    EXPECT_EQ(run_helper("OMP_NUM_THREADS=" + std::to_string(threads)), std::to_string(threads) + expected);
  }
  EXPECT_EQ(run_helper("OMP_NUM_THREADS=3 OMP_DYNAMIC=true"), std::string("3") + expected);
  EXPECT_EQ(run_helper("OMP_NUM_THREADS=3 OMP_THREAD_LIMIT=2"), std::string("2") + expected);
  EXPECT_EQ(run_helper("OMP_NUM_THREADS=3 OMP_MAX_ACTIVE_LEVELS=0"), std::string("1") + expected);
  EXPECT_EQ(run_helper("OMP_NUM_THREADS=3 OPENBLAS_NUM_THREADS=2"), std::string("3") + expected);
  EXPECT_EQ(run_helper("OMP_NUM_THREADS=2 OMP_MAX_ACTIVE_LEVELS=3 OMP_PROC_BIND=true"), std::string("2") + expected);
}

}  // namespace
}  // namespace logitless::testing

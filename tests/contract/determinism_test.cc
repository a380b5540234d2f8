// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The same inputs and options give the same bits in every run, with any number of threads.
#include <gtest/gtest.h>
#include <omp.h>

#include <cstdio>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "determinism_cases.h"
#include "support/calls.h"
#include "support/testers.h"
#include "support/views.h"

namespace logitless::testing {
namespace {

constexpr int kThreads[] = {1, 2, 3, 7};

// Sets OpenMP's number of threads for a scope.
class OmpThreads {
 public:
  explicit OmpThreads(int threads) : before_(omp_get_max_threads()) { omp_set_num_threads(threads); }
  ~OmpThreads() { omp_set_num_threads(before_); }
  OmpThreads(const OmpThreads&) = delete;
  OmpThreads& operator=(const OmpThreads&) = delete;

 private:
  int before_;
};

const std::vector<DeterminismCase>& cases() {
  static const std::vector<DeterminismCase> all = determinism_cases();
  return all;
}

// Returns the results of each case on one thread.
const std::vector<std::vector<std::byte>>& bytes_of_cases() {
  static const std::vector<std::vector<std::byte>> all = [] {
    std::vector<std::vector<std::byte>> out;
    for (const DeterminismCase& one : cases()) out.push_back(one.bytes(1));
    return out;
  }();
  return all;
}

void expect_same(const std::string& when, size_t k, int threads) {
  const DeterminismCase& one = cases()[k];
  EXPECT_TRUE(one.bytes(threads) == bytes_of_cases()[k]) << one.name << " has other bits " << when;
}

TEST(Determinism, TheBytesTellResultsApart) {
  for (size_t k = 0; k < bytes_of_cases().size(); ++k) {
    bool some = false;
    for (const std::byte byte : bytes_of_cases()[k]) some = some || byte != std::byte{0};
    EXPECT_TRUE(some);
  }
  CrossEntropyTester tester;
  const std::vector<std::byte> bytes = tester.run_once().bytes;
  EXPECT_FALSE(bytes == tester.loss_scale(1.0000001).run_once().bytes);
}

TEST(Determinism, ContextThreads) {
  for (size_t k = 0; k < cases().size(); ++k) {
    for (const int threads : kThreads) {
      expect_same("with " + std::to_string(threads) + " threads", k, threads);
    }
  }
}

TEST(Determinism, OpenMPThreads) {
  for (size_t k = 0; k < cases().size(); ++k) {
    for (const int threads : kThreads) {
      const OmpThreads scope(threads);
      expect_same("with omp_set_num_threads", k, 0);
    }
  }
}

TEST(Determinism, DynamicTeams) {
  omp_set_dynamic(1);
  for (size_t k = 0; k < cases().size(); ++k) {
    for (const int threads : kThreads) expect_same("with omp_set_dynamic", k, threads);
  }
  omp_set_dynamic(0);
}

TEST(Determinism, RepeatedRuns) {
  for (size_t k = 0; k < cases().size(); ++k) {
    for (int run = 0; run < 3; ++run) expect_same("in another run", k, 3);
  }
}

TEST(Determinism, PlansDifferInThreadsAndMemoryAlone) {
  for (const DeterminismCase& determinism_case : cases()) {
    const Plan one = determinism_case.plan(1);
    for (const int threads : kThreads) {
      const Plan plan = determinism_case.plan(threads);
      EXPECT_EQ(plan.kind, one.kind);
      EXPECT_EQ(plan.row_tile, one.row_tile);
      EXPECT_EQ(plan.vocab_tile, one.vocab_tile);
      EXPECT_EQ(plan.hidden_block, one.hidden_block);
      EXPECT_EQ(plan.chunk_rows, one.chunk_rows);
      EXPECT_LE(plan.threads, threads);
    }
  }
}

// Chunks of one pass affect bits, and the remaining memory is scratch for each thread: every budget must cut
// the same chunks for every team.
TEST(PlanOfEveryBudget, DoesNotDependOnThreads) {
  constexpr int64_t kTokens = 600, kHidden = 256, kVocab = 3000;
  const std::vector<bfloat16> hidden(kTokens * kHidden), weight(kVocab * kHidden);
  std::vector<int32_t> targets(kTokens, 1);
  // Rows are gathered, which needs more scratch.
  for (size_t i = 0; i < targets.size(); i += 3) targets[i] = -100;
  std::vector<float> d_hidden(hidden.size()), d_weight(weight.size());
  Gradients gradients;
  gradients.d_hidden = {d_hidden.data(), kTokens, kHidden};
  gradients.d_weight = {d_weight.data(), kVocab, kHidden};
  std::set<int64_t> chunk_sizes;
  for (const PlanKind kind : {PlanKind::kAuto, PlanKind::kOnePass}) {
    for (size_t kib = 2000; kib < 30000; kib += 250) {
      std::optional<Plan> one;
      for (const int threads : {1, 2, 3, 7, 16}) {
        ContextOptions options;
        options.threads = threads;
        options.plan = kind;
        options.workspace_bytes = kib << 10;
        std::optional<Plan> plan;
        try {
          plan = cross_entropy.plan(Context(options), ConstMatrix(hidden.data(), kTokens, kHidden),
                                    LmHead({weight.data(), kVocab, kHidden}, HeadLayout::kVocabHidden),
                                    std::span<const int32_t>(targets), {}, gradients);
          EXPECT_LE(plan->workspace_bytes, options.workspace_bytes);
        } catch (const InvalidInput&) {
        }
        if (threads == 1) one = plan;
        ASSERT_EQ(plan.has_value(), one.has_value()) << kib << " KiB, " << threads << " threads";
        if (!plan) continue;
        ASSERT_EQ(plan->kind, one->kind) << kib << " KiB, " << threads << " threads";
        ASSERT_EQ(plan->chunk_rows, one->chunk_rows) << kib << " KiB, " << threads << " threads";
        ASSERT_EQ(plan->row_tile, one->row_tile) << kib << " KiB, " << threads << " threads";
        ASSERT_EQ(plan->vocab_tile, one->vocab_tile) << kib << " KiB, " << threads << " threads";
        ASSERT_EQ(plan->hidden_block, one->hidden_block) << kib << " KiB, " << threads << " threads";
        chunk_sizes.insert(plan->chunk_rows);
      }
    }
  }
  EXPECT_GT(chunk_sizes.size(), 3u);  // the budgets did force different chunks
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
  const std::vector<DeterminismCase> copies(3, cases()[0]);
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

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The same inputs and options give the same bits in every run, with any number of threads.
#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "generator/drawn_call.h"
#include "logitless/logitless.h"
#include "segment_calls.h"

namespace logitless::testing {
namespace {

// Returns drawn calls, and larger ones of every task.
std::vector<DrawnCall> calls() {
  std::vector<DrawnCall> calls;
  for (uint64_t random = 1; random <= 200; ++random) calls.push_back(draw_call(random));
  AllTasks::each([&]<class T>() {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64}) {
      for (const PlanKind plan : {PlanKind::kOnePass, PlanKind::kTwoPass, PlanKind::kExpectedRow}) {
        DrawnCall& call = calls.emplace_back();
        call.task = T::kName, call.plan = plan;
        call.sequences = 6, call.time = 33, call.hidden = 71, call.vocab = 517;
        call.row_tile = 32, call.vocab_tile = 96;
        call.states = call.head = dtype;
        call.bias = call.mask = true;
        call.budget = dtype == DType::kBFloat16 ? Budget::kLeast : Budget::kDefault;
        if (plan == PlanKind::kExpectedRow) call.d_weight = call.d_bias = false;
      }
    }
  });
  return calls;
}

// Teams of the context and of OpenMP, of which some are smaller than asked for, and runs after others.
TEST(Determinism, OfEveryTeam) {
  int64_t accepted = 0;
  for (DrawnCall call : calls()) {
    SCOPED_TRACE(code_of(call));
    call.threads = 1;
    const std::vector<std::byte> bytes = bytes_of_call(call);
    if (bytes.empty()) continue;
    ++accepted;
    for (const int threads : {2, 2, 3, 7}) {  // 2 again: another run
      call.threads = threads;
      EXPECT_TRUE(bytes_of_call(call) == bytes) << threads;
    }
    omp_set_dynamic(1);
    EXPECT_TRUE(bytes_of_call(call) == bytes) << "with omp_set_dynamic";
    omp_set_dynamic(0);
    const int before = omp_get_max_threads();
    omp_set_num_threads(3);
    call.threads = 0;
    EXPECT_TRUE(bytes_of_call(call) == bytes) << "with omp_set_num_threads";
    omp_set_num_threads(before);
  }
  EXPECT_GT(accepted, 200);
}

// Returns all gradients of a model's mean cross-entropy.
std::vector<float> gradients_of(const SeededModel& model, const Context& context) {
  Outputs outputs(model);
  run_cross_entropy(model, context, outputs.views(), {.z_loss = 0.01});
  return outputs.values;
}

TEST(Determinism, OneContextInThreeThreads) {
  const Context context({.threads = 2, .row_tile = 16, .vocab_tile = 64});
  std::vector<SeededModel> models;
  for (int64_t k = 0; k < 3; ++k) models.emplace_back(60 + k, 70, 401);
  std::vector<std::thread> threads;
  std::vector<int> same(3, 0);
  for (size_t k = 0; k < 3; ++k) {
    threads.emplace_back([&, k, alone = gradients_of(models[k], context)] {
      for (int run = 0; run < 10; ++run) same[k] += gradients_of(models[k], context) == alone ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(same, std::vector<int>(3, 10));
}

TEST(Determinism, InsideAParallelRegion) {
  const SeededModel model(60, 70, 401);
  const std::vector<float> want = gradients_of(model, Context(options_of(1)));
  const auto same_with = [&](int threads) { return gradients_of(model, Context(options_of(threads))) == want ? 1 : 0; };
  std::vector<int> same(3, 0);
#pragma omp parallel for num_threads(3)
  for (int k = 0; k < 3; ++k) same[static_cast<size_t>(k)] = same_with(2);
  EXPECT_EQ(same, std::vector<int>(3, 1));

  // This also holds if the region is a team of one, and if nested teams are allowed.
  const int levels = omp_get_max_active_levels();
  omp_set_max_active_levels(2);
  std::vector<int> nested(2, 0);
#pragma omp parallel for num_threads(2)
  for (int k = 0; k < 2; ++k) nested[static_cast<size_t>(k)] = same_with(3);
  omp_set_max_active_levels(levels);
  EXPECT_EQ(nested, std::vector<int>(2, 1));
  int alone = 0;
#pragma omp parallel num_threads(1)
  alone = same_with(0);
  EXPECT_EQ(alone, 1);
}

// Returns what fuzz_calls prints in this environment.
std::string hashes_in(const std::string& environment, const std::string& threads = "0") {
  // With more threads than cores, waiting threads should sleep.
  const std::string command =
      "OMP_WAIT_POLICY=passive " + environment + " '" FUZZ_CALLS_PATH "' --bits --calls 200 --threads " + threads;
  FILE* pipe = popen(command.c_str(), "r");
  if (!pipe) return "cannot start";
  std::string output;
  char text[256];
  while (fgets(text, sizeof text, pipe)) output += text;
  const int status = pclose(pipe);
  return status == 0 ? output : "status " + std::to_string(status) + ": " + output;
}

TEST(ThreadsOfTheEnvironment, GiveTheSameBits) {
  const std::string want = hashes_in("", "1");
  EXPECT_EQ(std::ranges::count(want, '\n'), 200);
  for (const char* const environment :
       {"OMP_NUM_THREADS=3", "OMP_NUM_THREADS=7", "OMP_NUM_THREADS=3 OMP_DYNAMIC=true",
        "OMP_NUM_THREADS=3 OMP_THREAD_LIMIT=2", "OMP_NUM_THREADS=3 OMP_MAX_ACTIVE_LEVELS=0",
        "OMP_NUM_THREADS=3 OPENBLAS_NUM_THREADS=2", "OMP_NUM_THREADS=2 OMP_MAX_ACTIVE_LEVELS=3 OMP_PROC_BIND=true"}) {
    EXPECT_EQ(hashes_in(environment), want) << environment;
  }
}

}  // namespace
}  // namespace logitless::testing

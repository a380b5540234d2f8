// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// A call allocates no more than its plan states, and leaks nothing.
#include <gtest/gtest.h>

#ifdef __GLIBC__
#include <malloc.h>
#include <sys/prctl.h>
#endif

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <thread>
#include <vector>

#include "support/allocation_counter.h"
#include "support/calls.h"
#include "support/coupled_loss.h"
#include "support/inputs.h"
#include "support/views.h"

namespace logitless::testing {
namespace {

constexpr PlanKind kPlans[] = {PlanKind::kOnePass, PlanKind::kTwoPass};

// Memory of a call in addition to its plan's workspace. Result vectors: 7 statistics, losses and 4 token
// gradients, of 8 bytes per token. The resolved problem: rows that are not ignored, their targets, sequence
// offsets and the loss's own numbers, 8 more vectors of this size.
int64_t result_bytes(int64_t tokens) { return 20 * 8 * (tokens + 1); }
// The largest number of blocks that hidden is cut into for d_weight.
constexpr int64_t kMostHiddenBlocks = 4;
// The OpenMP runtime keeps a record of each waiting task and its dependencies, of less than 1 KiB. At most
// the tasks of 16 tiles per thread wait, for any shape. A tile needs one task to be computed, and one per
// block of hidden to be added to each of two gradients; d_bias and a finished tile of d_weight need one more.
int64_t task_bytes(const Plan& plan) {
  const int64_t hidden_blocks =
      plan.hidden_block > 0 ? (plan.hidden_size + plan.hidden_block - 1) / plan.hidden_block : 0;
  return 1024 * (16 * plan.threads * (3 + hidden_blocks + kMostHiddenBlocks) + 64);
}

// oneDNN packs into memory that it allocates, as the plan states; OpenBLAS maps its own.
int64_t blas_bytes(const Plan& plan) {
  return plan.gemm_library == "onednn" ? static_cast<int64_t>(plan.blas_bytes) : 0;
}

// A worker of the team frees the memory of its tasks a moment after the call has returned, and later if it is
// descheduled.
void wait_for_workers() { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }

// Returns the count once it is stable, or after two seconds.
AllocationCount resting_count() {
  AllocationCount count = allocation_count();
  for (int i = 0, same = 0; i < 100 && same < 2; ++i) {
    wait_for_workers();
    const AllocationCount next = allocation_count();
    same = next.live_bytes == count.live_bytes && next.live_blocks == count.live_blocks ? same + 1 : 0;
    count = next;
  }
  return count;
}

// Returns the count once it is `wanted`, or after two seconds. A leak never disappears.
AllocationCount settled_count(const AllocationCount& wanted) {
  AllocationCount count = allocation_count();
  for (int i = 0; i < 100 && (count.live_bytes != wanted.live_bytes || count.live_blocks != wanted.live_blocks); ++i) {
    wait_for_workers();
    count = allocation_count();
  }
  return count;
}

// `call` returns the plan that ran, which must not exceed `workspace`.
template <class Call>
void expect_within_plan(int64_t tokens, size_t workspace, const Call& call) {
  // The first call starts the team and allocates the BLAS's buffers, which stay.
  const Plan plan = call();
  const AllocationCount before = resting_count();
  restart_peak();
  call();
  const AllocationCount after = settled_count(before);
  EXPECT_LE(plan.workspace_bytes, workspace);
  EXPECT_LE(after.peak_bytes - before.live_bytes,
            static_cast<int64_t>(plan.workspace_bytes) + result_bytes(tokens) + task_bytes(plan) + blas_bytes(plan));
  EXPECT_EQ(after.live_bytes, before.live_bytes);
  EXPECT_EQ(after.live_blocks, before.live_blocks);
  // The plan must not overstate either: it uses the memory that it states.
  EXPECT_GE(after.peak_bytes - before.live_bytes, static_cast<int64_t>(plan.workspace_bytes));
}

struct Shape {
  const char* name;
  int64_t tokens, hidden, vocab, tile_rows, tile_entries;
  size_t workspace = size_t{64} << 20;
  std::vector<int> threads = {2};
  Rows rows = Rows::kFollowing;  // separated sequences are gathered, and their gradients scattered
};

TEST(Allocations, StayWithinThePlan) {
  const Shape shapes[] = {{"", 300, 64, 3000, 64, 512, size_t{64} << 20, {1, 2, 4}},
                          {"a small budget", 300, 64, 3000, 64, 512, size_t{3} << 20, {1, 2, 4}},
                          {"the library's tiles", 513, 129, 1001, 0, 0},
                          // If all tasks of ten thousand tiles waited at once, they would take some ten MB.
                          {"small tiles", 1600, 16, 1600, 16, 16, size_t{64} << 20, {1, 3}},
                          {"sequences apart", 900, 512, 5000, 0, 0, size_t{64} << 20, {2}, Rows::kSlice},
                          {"transposed", 900, 512, 5000, 0, 0, size_t{64} << 20, {2}, Rows::kTransposed}};
  for (const Shape& shape : shapes) {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat64}) {
      const bool apart = shape.rows != Rows::kFollowing;
      if ((apart && dtype == DType::kFloat64) || (shape.tile_rows == 16 && dtype != DType::kFloat32)) continue;
      InputSpec spec;
      spec.tokens = shape.tokens, spec.hidden = shape.hidden, spec.vocab = shape.vocab;
      spec.dtype = dtype;
      spec.ignored = 0.2;
      spec.hidden_rows = shape.rows;
      if (apart) spec.sequences = 4;
      Inputs inputs(spec);
      for (const PlanKind kind : kPlans) {
        for (const int threads : shape.threads) {
          for (const bool narrow : {false, true}) {
            // One pass needs sums of all entries for a narrow gradient.
            const bool fits = shape.workspace > size_t{4} << 20 || kind == PlanKind::kTwoPass;
            if (narrow && (dtype != DType::kBFloat16 || threads != 2 || !fits)) continue;
            SCOPED_TRACE(::testing::Message() << shape.name << " " << name_of(dtype) << " " << name_of(kind) << ", "
                                              << threads << " threads" << (narrow ? ", narrow" : ""));
            RunSpec run;
            run.d_hidden_rows = shape.rows;
            if (narrow) run.gradient_dtype = dtype;
            GradientOutputs outputs(inputs, run);
            const Gradients gradients = outputs.gradients();
            ContextOptions options;
            options.plan = kind, options.threads = threads;
            options.row_tile = shape.tile_rows, options.vocab_tile = shape.tile_entries;
            options.workspace_bytes = shape.workspace;
            const Context context(options);
            const CrossEntropy loss = {.label_smoothing = 0.1, .want_accuracy = true, .want_entropy = true};
            expect_within_plan(shape.tokens, shape.workspace, [&] {
              return cross_entropy(context, inputs.hidden_view(), inputs.head_view(), inputs.targets_view(), loss,
                                   gradients)
                  .plan;
            });
          }
        }
      }
    }
  }
}

// A LoRA of high rank has its own blocks, so that a tile has only a few tasks, even if the hidden size is
// small.
TEST(Allocations, TasksOfALoraOfAHighRankAreFew) {
  constexpr int64_t kTokens = 100, kHidden = 3, kVocab = 300, kRank = 70;
  const std::vector<float> x(kTokens * kHidden, 0.1F), w(kVocab * kHidden, 0.1F), a(kRank * kHidden, 0.1F),
      b(kVocab * kRank, 0.1F);
  const std::vector<int64_t> targets(kTokens, 1);
  std::vector<float> d_x(x.size()), d_a(a.size()), d_b(b.size());
  const logitless::LmHead head = {.weight = view(w.data(), {kVocab, kHidden}),
                                  .lora = {view(a.data(), {kRank, kHidden}), view(b.data(), {kVocab, kRank})}};
  for (const PlanKind kind : kPlans) {
    for (const int threads : {1, 2}) {
      const Context context({.threads = threads, .plan = kind, .row_tile = 1, .vocab_tile = 3});
      expect_within_plan(kTokens, context.options().workspace_bytes, [&] {
        return run(context, Logits::of(view(x.data(), {kTokens, kHidden}), head), CrossEntropy{.targets = targets},
                   {.d_hidden = view(d_x.data(), {kTokens, kHidden}),
                    .d_lora_a = view(d_a.data(), {kRank, kHidden}),
                    .d_lora_b = view(d_b.data(), {kVocab, kRank})})
            .plan;
      });
    }
  }
}

// Groups decide the chunks, and sequences of different lengths make them unequal.
TEST(Allocations, OfChunksOfGroupsStayWithinThePlan) {
  InputSpec spec;
  spec.tokens = 400;
  spec.vocab = 2000;
  spec.ignored = 0.2;
  Inputs inputs(spec);
  GradientOutputs outputs(inputs, {});
  const Gradients gradients = outputs.gradients();
  std::vector<int64_t> groups(static_cast<size_t>(spec.tokens));
  for (size_t i = 0; i < groups.size(); ++i) groups[i] = i < 90 ? 0 : static_cast<int64_t>(i % 7);
  for (const PlanKind kind : kPlans) {
    ContextOptions options = {.threads = 3, .plan = kind, .row_tile = 32, .vocab_tile = 256};
    CoupledLoss planned(groups, true);
    const size_t least = plan_token_loss(Context(options), inputs.hidden_view(), inputs.head_view(),
                                         inputs.targets_view(), {}, planned, gradients)
                             .least_workspace_bytes;
    for (const double times : {1.0, 1.5, 2.5, 9.0}) {
      SCOPED_TRACE(::testing::Message() << name_of(kind) << " in " << times << " times the least workspace");
      options.workspace_bytes = static_cast<size_t>(times * static_cast<double>(least));
      const Context context(options);
      // The loss's own copies of groups and rows are covered by the result vectors of a cross-entropy.
      expect_within_plan(spec.tokens, options.workspace_bytes, [&] {
        Plan plan;
        CoupledLoss loss(groups, true);
        run_token_loss(context, inputs.hidden_view(), inputs.head_view(), inputs.targets_view(), {}, loss, gradients,
                       &plan);
        return plan;
      });
    }
  }
}

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__)
// Returns the anonymous bytes of this process that are in memory, counted page by page: the counters of statm
// lag by up to a few hundred pages per CPU.
int64_t resident_bytes() {
  std::ifstream rollup("/proc/self/smaps_rollup");
  for (std::string word; rollup >> word;) {
    int64_t kib = 0;
    if (word == "Anonymous:" && rollup >> kib) return kib * 1024;
  }
  return -1;
}

// The reference's part and the call itself allocate one after the other: a freed block that the heap keeps
// must not be resident at the same time as the next one.
TEST(Allocations, AReferencesPartIsNoLongerResident) {
  // A huge page is resident as a whole. If a block ends in one, up to 2 MiB too many would be counted.
  // A kernel without them does not know the call.
  prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
  if (resident_bytes() < 0) GTEST_SKIP() << "this kernel has no /proc/self/smaps_rollup";
  InputSpec spec, reference_spec;
  spec.tokens = reference_spec.tokens = 1024;
  spec.sequences = reference_spec.sequences = 4;
  spec.vocab = reference_spec.vocab = 9000;  // 35 MiB of logits
  spec.hidden = reference_spec.hidden = 32;
  reference_spec.seed = 2;
  Inputs inputs(spec), model(reference_spec);
  RunSpec run;
  run.d_weight = false;
  GradientOutputs outputs(inputs, run);
  Gradients gradients = outputs.gradients();
  int64_t most = 0;
  gradients.weight_sink = [&](int64_t, int64_t, const ConstMatrix&) { most = std::max(most, resident_bytes()); };
  ContextOptions options;
  options.plan = PlanKind::kOnePass;
  options.threads = 1;
  const Context context(options);
  Reference reference;
  reference.hidden = model.hidden_view();
  reference.head = model.head_view();
  const auto call = [&] {
    return preference_loss(context, inputs.hidden_view(), inputs.head_view(), inputs.targets_view(), reference, {},
                           gradients)
        .plan;
  };
  options.plan = PlanKind::kAuto;
  const auto part = static_cast<int64_t>(
      plan_token_stats(Context(options), model.hidden_view(), model.head_view(), inputs.targets_view())
          .workspace_bytes);
  ASSERT_GT(part, 2 << 20);
  // The part's block comes from the heap, which keeps it; the call's own does not.
  ASSERT_EQ(mallopt(M_MMAP_THRESHOLD, static_cast<int>(part) + (1 << 20)), 1);
  ASSERT_EQ(mallopt(M_TRIM_THRESHOLD, 1 << 30), 1);
  call();  // allocates the BLAS's buffers, which stay
  malloc_trim(0);
  const int64_t before = resident_bytes();
  ASSERT_GT(before, 0);
  most = 0;
  const Plan plan = call();
  ASSERT_GT(static_cast<int64_t>(plan.workspace_bytes), part + (2 << 20));
  EXPECT_LE(most - before, static_cast<int64_t>(plan.workspace_bytes) + result_bytes(spec.tokens) + task_bytes(plan));
}
#endif

}  // namespace
}  // namespace logitless::testing

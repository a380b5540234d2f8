// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// No access outside of any buffer, no allocation beyond the plan's figure, no leak.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "logitless/environment.h"
#include "support/allocation_counter.h"
#include "support/coupled_loss.h"
#include "support/guard_pages.h"
#include "support/policy_tester.h"
#include "support/preference_tester.h"
#include "support/testers.h"

namespace logitless::testing {
namespace {

constexpr DType kDTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64};
constexpr HeadLayout kLayouts[] = {HeadLayout::kHiddenVocab, HeadLayout::kVocabHidden};
constexpr PlanKind kPlans[] = {PlanKind::kOnePass, PlanKind::kTwoPass};

// Calls `test` with testers whose every input and output lies against a forbidden page, at its end and at its
// beginning.
template <class TesterType, class Test>
void on_guard_pages(const Test& test) {
  for (const Flush flush : {Flush::kEnd, Flush::kBegin}) {
    SCOPED_TRACE(flush == Flush::kEnd ? "flush with the end" : "flush with the beginning");
    TesterType tester;
    tester.memory([flush](size_t bytes) { return guarded_memory(bytes, flush); });
    test(tester.tiles(16, 64).threads(2));
  }
}

TEST(GuardPages, EveryTypeLayoutAndPlan) {
  on_guard_pages<CrossEntropyTester>([](CrossEntropyTester tester) {
    tester.ignored(0.25).class_weights().label_smoothing(0.1).temperatures().softcap(9);
    for (const DType dtype : kDTypes) {
      for (const HeadLayout layout : kLayouts) {
        for (const int64_t padding : {0, 3}) {
          tester.dtype(dtype).layout(layout).padding(padding);
          for (const PlanKind plan : kPlans) tester.plan(plan).form(Form::kFused).matches_oracle();
          tester.plan(PlanKind::kAuto).form(Form::kSplit).matches_oracle();
        }
      }
    }
  });
}

TEST(GuardPages, OddShapes) {
  struct Shape {
    int64_t tokens, hidden, vocab;
  };
  on_guard_pages<CrossEntropyTester>([](CrossEntropyTester tester) {
    for (const Shape& s :
         {Shape{1, 1, 1}, {1, 7, 65}, {17, 1, 63}, {16, 16, 64}, {33, 31, 129}, {5, 300, 3}, {0, 4, 9}}) {
      for (const DType dtype : kDTypes) {
        for (const HeadLayout layout : kLayouts) {
          tester.tokens(s.tokens).hidden(s.hidden).vocab(s.vocab).dtype(dtype).layout(layout);
          for (const PlanKind plan : kPlans) tester.plan(plan).matches_oracle();
        }
      }
    }
  });
}

TEST(GuardPages, EveryInstructionSet) {
  on_guard_pages<CrossEntropyTester>([](CrossEntropyTester tester) {
    tester.softcap(5).metrics().label_smoothing(0.2).class_weights();
    for (const std::string& target : simd_targets()) {
      for (const DType dtype : kDTypes) tester.dtype(dtype).simd_target(target).matches_oracle();
    }
  });
}

TEST(GuardPages, OutputsInEveryForm) {
  on_guard_pages<CrossEntropyTester>([](CrossEntropyTester tester) {
    for (const HeadLayout layout : kLayouts) {
      tester.layout(layout).ignored(0.3).shift().targets32().dtype(DType::kFloat32);
      for (const PlanKind plan : kPlans) {
        tester.plan(plan).accumulate().matches_oracle();
        tester.accumulate(false).sink().matches_oracle();
        tester.sink(false);
      }
      tester.dtype(DType::kBFloat16).gradient_dtype(DType::kBFloat16);
      for (const PlanKind plan : kPlans) tester.plan(plan).matches_oracle();
      tester.gradient_dtype(std::nullopt);
    }
  });
}

TEST(GuardPages, TwoMatricesOfHiddenStates) {
  on_guard_pages<CrossEntropyTester>([](CrossEntropyTester tester) {
    for (const int64_t second : {0, 1, 15, 37}) {
      for (const double ignored : {0.0, 0.3}) {
        tester.second(second).ignored(ignored);
        for (const PlanKind plan : kPlans) {
          tester.dtype(DType::kFloat32).plan(plan).matches_oracle();
          tester.accumulate().tiles(64, 64).matches_oracle();
          tester.accumulate(false).tiles(16, 64);
          tester.dtype(DType::kBFloat16).gradient_dtype(DType::kBFloat16).matches_oracle();
          tester.gradient_dtype(std::nullopt);
        }
      }
    }
  });
}

TEST(GuardPages, SmallestWorkspace) {
  on_guard_pages<CrossEntropyTester>([](CrossEntropyTester tester) {
    for (const PlanKind plan : kPlans) tester.tokens(70).plan(plan).tightest_workspace().matches_oracle();
  });
}

TEST(GuardPages, Dense) {
  on_guard_pages<CrossEntropyTester>([](CrossEntropyTester tester) {
    tester.dense().class_weights().label_smoothing(0.1).temperatures();
    for (const DType dtype : kDTypes) {
      for (const HeadLayout layout : kLayouts) tester.dtype(dtype).layout(layout).matches_oracle();
    }
  });
}

TEST(GuardPages, TokenStats) {
  on_guard_pages<TokenStatsTester>([](TokenStatsTester tester) {
    tester.prior().temperatures().packed({0, 5, 5, 37}).shift();
    for (const DType dtype : kDTypes) {
      tester.dtype(dtype).statistics_match_oracle();
      tester.backward_matches_oracle();
    }
  });
}

// What belongs to the batch lies on guard pages too: ids, mask, advantages and log-probabilities of other
// policies.
TEST(GuardPages, PolicyLosses) {
  on_guard_pages<PolicyTester>([](PolicyTester tester) {
    for (const PolicyVariant variant : {PolicyVariant::kGrpo, PolicyVariant::kRloo}) {
      tester.packed({0, 4, 4, 5, 17}).vocab(70).variant(variant).temperatures();
      tester.twist("beta with k3").twist("sequence_truncate clip_max").twist("entropy bonus");
      for (const DType dtype : kDTypes) {
        tester.dtype(dtype).batch_dtype(dtype);
        for (const PlanKind plan : kPlans) tester.plan(plan).matches_oracle();
      }
      tester.twist("advantages per token").twist("top entropy quantile");
      for (const DType dtype : {DType::kFloat32, DType::kFloat64}) tester.batch_dtype(dtype).matches_oracle();
    }
  });
}

constexpr ReferenceForm kReferences[] = {ReferenceForm::kSequences, ReferenceForm::kTokens, ReferenceForm::kModel};

TEST(GuardPages, PreferenceLosses) {
  on_guard_pages<PreferenceTester>([](PreferenceTester tester) {
    for (const PreferenceLoss loss : {PreferenceLoss::kSigmoid, PreferenceLoss::kAotUnpaired}) {
      tester.vocab(70).loss(loss);
      for (const ReferenceForm form : kReferences) {
        tester.packed({0, 9, 9, 12, 20, 21, 30}).second(-1).reference(form);
        for (const DType dtype : kDTypes) tester.dtype(dtype).reference_dtype(dtype).matches_oracle();
        tester.second(18).shift().plan(PlanKind::kTwoPass).matches_oracle();
        tester.shift(false).plan(PlanKind::kAuto);
      }
    }
  });
}

TEST(GuardPages, Kto) {
  on_guard_pages<KtoTester>([](KtoTester tester) {
    for (const ReferenceForm form : kReferences) {
      tester.packed({0, 9, 9, 12, 30, 31}).vocab(70).reference(form);
      for (const DType dtype : kDTypes) {
        tester.dtype(dtype).reference_dtype(dtype);
        for (const PlanKind plan : kPlans) tester.plan(plan).matches_oracle();
      }
    }
  });
}

// What a call may hold besides its plan's workspace. Result vectors: 7 statistics, losses and 4 token
// gradients of 8 bytes a token. The resolved problem: rows that take part, their targets, sequence offsets
// and the loss's own numbers, another 8 of the kind.
int64_t result_bytes(int64_t tokens) { return 20 * 8 * (tokens + 1); }
// Counts the blocks that hidden is cut into for d_weight.
constexpr int64_t kMostHiddenBlocks = 4;
// The OpenMP runtime keeps a record of each task that waits, with its dependencies: below 1 KiB. The tasks of
// 16 tiles a thread wait at most, whatever the shape: a tile is made, and each block of hidden is added to
// two gradients; one task more for d_bias and for a finished tile of d_weight.
int64_t task_bytes(const Plan& plan) {
  const int64_t hidden_blocks =
      plan.hidden_block > 0 ? (plan.hidden_size + plan.hidden_block - 1) / plan.hidden_block : 0;
  return 1024 * (16 * plan.threads * (3 + hidden_blocks + kMostHiddenBlocks) + 64);
}

// A parallel GEMM of plan dense: OpenBLAS allocates one table of the parts of its threads, 128 bytes for each
// pair of the most threads that it was built for. On one thread there is none.
int64_t blas_bytes(const Plan& plan) {
  if (plan.kind != PlanKind::kDense || plan.threads == 1) return 0;
  const int64_t most = describe_environment(Context()).blas_max_threads;
  return 128 * most * most;
}

struct Shape {
  int64_t tokens, hidden, vocab, row_tile, vocab_tile;
  size_t workspace;
};

// A worker of the team frees what its tasks took a moment after the call has returned, later when it is
// descheduled.
void wait_for_workers() { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }

// Returns the count once it stays as it is, or after two seconds.
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

// Returns the count once it is `wanted`, or after two seconds: a leak stays however long one waits.
AllocationCount settled_count(const AllocationCount& wanted) {
  AllocationCount count = allocation_count();
  for (int i = 0; i < 100 && (count.live_bytes != wanted.live_bytes || count.live_blocks != wanted.live_blocks); ++i) {
    wait_for_workers();
    count = allocation_count();
  }
  return count;
}

void expect_within_plan(const Shape& shape, DType dtype, PlanKind kind, int threads, bool narrow,
                        Rows rows = Rows::kFollowing) {
  SCOPED_TRACE(::testing::Message() << shape.tokens << " x " << shape.hidden << " x " << shape.vocab << " "
                                    << name_of(dtype) << " " << name_of(kind) << ", " << threads << " threads");
  InputSpec spec;
  spec.tokens = shape.tokens;
  spec.hidden = shape.hidden;
  spec.vocab = shape.vocab;
  spec.dtype = dtype;
  spec.ignored = 0.2;
  spec.hidden_rows = rows;
  if (rows != Rows::kFollowing) spec.sequences = 4;
  Inputs inputs(spec);
  RunSpec run;
  run.d_hidden_rows = rows;
  if (narrow) run.gradient_dtype = dtype;
  GradientOutputs outputs(inputs, run);
  const Gradients gradients = outputs.gradients();
  ContextOptions options;
  options.plan = kind;
  options.threads = threads;
  options.row_tile = shape.row_tile;
  options.vocab_tile = shape.vocab_tile;
  options.workspace_bytes = shape.workspace;
  const Context context(options);
  CrossEntropyOptions loss;
  loss.label_smoothing = 0.1;
  loss.want_entropy = loss.want_accuracy = true;
  const auto call = [&] {
    return cross_entropy(context, inputs.hidden_view(), inputs.head_view(), inputs.targets_view(), loss, gradients);
  };
  // The first call starts the team and the BLAS's buffers, which stay.
  const Plan plan = call().plan;
  const AllocationCount before = resting_count();
  restart_peak();
  call();
  const AllocationCount after = settled_count(before);
  EXPECT_LE(plan.workspace_bytes, shape.workspace);
  EXPECT_LE(after.peak_bytes - before.live_bytes, static_cast<int64_t>(plan.workspace_bytes) +
                                                      result_bytes(shape.tokens) + task_bytes(plan) + blas_bytes(plan));
  EXPECT_EQ(after.live_bytes, before.live_bytes);
  EXPECT_EQ(after.live_blocks, before.live_blocks);
  // The figure is no fantasy either: a plan that claims memory takes it.
  EXPECT_GE(after.peak_bytes - before.live_bytes, static_cast<int64_t>(plan.workspace_bytes));
}

TEST(Allocations, StayWithinThePlan) {
  const Shape shapes[] = {{300, 64, 3000, 64, 512, size_t{64} << 20},
                          {300, 64, 3000, 64, 512, size_t{3} << 20},
                          {513, 129, 1001, 0, 0, size_t{64} << 20}};
  for (const Shape& shape : shapes) {
    for (const PlanKind kind : kPlans) {
      for (const int threads : {1, 2, 4}) {
        expect_within_plan(shape, DType::kFloat32, kind, threads, false);
        expect_within_plan(shape, DType::kBFloat16, kind, threads, false);
      }
      expect_within_plan(shape, DType::kFloat64, kind, 2, false);
      if (shape.workspace > size_t{4} << 20 || kind == PlanKind::kTwoPass) {
        expect_within_plan(shape, DType::kBFloat16, kind, 2, true);
      }
    }
  }
}

TEST(Allocations, OfPlanDenseAreThoseOfThePlan) {
  const Shape shape = {900, 512, 5000, 0, 0, size_t{64} << 20};
  for (const int threads : {1, 4}) {
    expect_within_plan(shape, DType::kFloat32, PlanKind::kDense, threads, false);
    expect_within_plan(shape, DType::kBFloat16, PlanKind::kDense, threads, false);
    expect_within_plan(shape, DType::kBFloat16, PlanKind::kDense, threads, true);
  }
}

// Ten thousand tiles: the tasks of all of them at once would take some ten MB.
TEST(Allocations, WaitingTasksAreFew) {
  const Shape shape = {1600, 16, 1600, 16, 16, size_t{64} << 20};
  for (const PlanKind kind : kPlans) {
    for (const int threads : {1, 3}) expect_within_plan(shape, DType::kFloat32, kind, threads, false);
  }
}

// Sequences that stand apart are gathered, and their gradients scattered.
TEST(Allocations, OfSequencesApartStayWithinThePlan) {
  const Shape shape = {900, 512, 5000, 0, 0, size_t{64} << 20};
  for (const PlanKind kind : {PlanKind::kOnePass, PlanKind::kTwoPass, PlanKind::kDense}) {
    for (const Rows rows : {Rows::kSlice, Rows::kTransposed}) {
      expect_within_plan(shape, DType::kFloat32, kind, 2, false, rows);
      expect_within_plan(shape, DType::kBFloat16, kind, 2, true, rows);
    }
  }
}

// Groups decide about chunks, and sequences of other lengths make unequal ones.
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
    for (const size_t kib : {1000, 1500, 2500, 9000}) {
      SCOPED_TRACE(::testing::Message() << name_of(kind) << " in " << kib << " KiB");
      ContextOptions options;
      options.plan = kind;
      options.threads = 3;
      options.row_tile = 32;
      options.vocab_tile = 256;
      options.workspace_bytes = kib << 10;
      const Context context(options);
      Plan plan;
      const auto call = [&] {
        CoupledLoss loss(groups, true);
        run_token_loss(context, inputs.hidden_view(), inputs.head_view(), inputs.targets_view(), {}, loss, gradients,
                       &plan);
      };
      call();
      const AllocationCount before = resting_count();
      restart_peak();
      call();
      const AllocationCount after = settled_count(before);
      EXPECT_LE(plan.workspace_bytes, options.workspace_bytes);
      EXPECT_GE(after.peak_bytes - before.live_bytes, static_cast<int64_t>(plan.workspace_bytes));
      // The loss's own copies of groups and rows are within the result vectors of a cross-entropy.
      EXPECT_LE(after.peak_bytes - before.live_bytes,
                static_cast<int64_t>(plan.workspace_bytes) + result_bytes(spec.tokens) + task_bytes(plan));
      EXPECT_EQ(after.live_bytes, before.live_bytes);
      EXPECT_EQ(after.live_blocks, before.live_blocks);
    }
  }
}

TEST(Allocations, NothingLeaksWhenASinkThrows) {
  InputSpec spec;
  spec.vocab = 500;
  Inputs inputs(spec);
  RunSpec run;
  run.d_weight = false;
  GradientOutputs outputs(inputs, run);
  Gradients gradients = outputs.gradients();
  gradients.weight_sink = [](int64_t first, int64_t, const ConstMatrix&) {
    if (first >= 192) throw std::runtime_error("enough");
  };
  ContextOptions options;
  options.threads = 3;
  options.row_tile = 16;
  options.vocab_tile = 64;
  for (const PlanKind kind : kPlans) {
    options.plan = kind;
    const Context context(options);
    const auto call = [&] {
      try {
        cross_entropy(context, inputs.hidden_view(), inputs.head_view(), inputs.targets_view(), {}, gradients);
        return false;
      } catch (const std::runtime_error&) {
        return true;
      }
    };
    ASSERT_TRUE(call());
    const AllocationCount before = resting_count();
    bool thrown = true;
    for (int k = 0; k < 10; ++k) thrown = thrown && call();
    const AllocationCount after = settled_count(before);
    EXPECT_TRUE(thrown);
    EXPECT_EQ(after.live_bytes, before.live_bytes);
    EXPECT_EQ(after.live_blocks, before.live_blocks);
  }
}

// Refused calls leave nothing behind either.
TEST(Allocations, NothingLeaksWhenInputIsBad) {
  InputSpec spec;
  spec.targets = {0, 150};
  Inputs inputs(spec);
  const Context context;
  const auto call = [&] {
    EXPECT_THROW(cross_entropy(context, inputs.hidden_view(), inputs.head_view(), inputs.targets_view()), InvalidInput);
  };
  call();
  const AllocationCount before = allocation_count();
  call();
  const AllocationCount after = allocation_count();
  EXPECT_EQ(after.live_bytes, before.live_bytes);
}

TEST(Allocations, TheCounterCounts) {
  const AllocationCount before = allocation_count();
  restart_peak();
  {
    const std::vector<char> block(1 << 20);
    // A compiler may leave out an allocation that nobody looks at.
    const volatile char* looked_at = block.data();
    EXPECT_EQ(looked_at[0], 0);
    EXPECT_GE(allocation_count().live_bytes - before.live_bytes, 1 << 20);
  }
  EXPECT_GE(allocation_count().peak_bytes - before.live_bytes, 1 << 20);
  EXPECT_EQ(allocation_count().live_bytes, before.live_bytes);
}

}  // namespace
}  // namespace logitless::testing

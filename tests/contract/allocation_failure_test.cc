// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Each allocation of a call fails in turn. The caller must catch std::bad_alloc, nothing may leak or hang,
// and the next call must give the usual bits. Covers every task, in one call and in halves, and the other
// features of a call: chunks, 16-bit outputs, sinks, losses that allocate.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "logitless/logitless.h"
#include "support/calls.h"
#include "support/coupled_loss.h"
#include "support/every_task.h"
#include "support/fail_each_allocation.h"
#include "support/inputs.h"
#include "support/rank_of_task.h"
#include "support/thread_ranks.h"
#include "support/views.h"

namespace logitless::testing {
namespace {

constexpr int64_t kRows = 40, kSequences = 4, kWords = 150;

ContextOptions small_tiles(PlanKind plan) {
  ContextOptions options;
  options.threads = 2;
  options.row_tile = 16;
  options.vocab_tile = 48;
  options.plan = plan;
  return options;
}

// The inputs of a call on tensors of any type, and its outputs.
struct TensorCall {
  explicit TensorCall(DType dtype = DType::kFloat32, bool narrow = false) : inputs(spec(dtype)) {
    RunSpec run;
    if (narrow) run.gradient_dtype = dtype;
    outputs.emplace(inputs, run);
  }
  static InputSpec spec(DType dtype) {
    InputSpec spec;
    spec.tokens = kRows;
    spec.sequences = kSequences;
    spec.vocab = kWords;
    spec.dtype = dtype;
    spec.ignored = 0.2;
    spec.poison = false;
    return spec;
  }

  Inputs inputs;
  std::optional<GradientOutputs> outputs;
};

CrossEntropy all_options() {
  CrossEntropy options;
  options.label_smoothing = 0.1;
  options.z_loss = 0.01;
  options.want_accuracy = options.want_entropy = true;
  options.reduction = Reduction::kNone;
  return options;
}

template <class Source>
struct EveryTask : ::testing::Test {
  Source source;
  Batch batch;
};

using Sources = ::testing::Types<FromHidden, FromLogits>;
TYPED_TEST_SUITE(EveryTask, Sources);

ContextOptions smallest_tiles(PlanKind plan) {
  ContextOptions options = small_tiles(plan);
  options.row_tile = options.row_block = 8;
  return options;
}

TYPED_TEST(EveryTask, InOneCall) {
  for (const PlanKind plan : {PlanKind::kOnePass, PlanKind::kTwoPass}) {
    const Context context(smallest_tiles(plan));
    visit_every_task(this->source, this->batch, [&](const auto& task) {
      if (cannot_run(task, plan)) return;
      typename TypeParam::Outputs outputs;
      const auto views = outputs.views();
      fail_each_allocation(
          std::string(task.name) + " " + name_of(plan), [&] { return task.run(context, views); },
          [&] { return bytes_of(outputs.values()); });
    });
  }
}

TYPED_TEST(EveryTask, InHalves) {
  const Context context(smallest_tiles(PlanKind::kAuto));
  visit_every_task(this->source, this->batch, [&](const auto& task) {
    typename TypeParam::Outputs outputs;
    const auto views = outputs.views();
    fail_each_allocation(
        std::string(task.name) + " in halves",
        [&] {
          auto forward = task.forward(context);
          task.backward(context, forward, 0.5, views);
          return forward;
        },
        [&] { return bytes_of(outputs.values()); });
  });
}

// Two calls in one Workspace, which keeps nothing for a failed call.
TYPED_TEST(EveryTask, InAWorkspace) {
  visit_every_task(this->source, this->batch, [&](const auto& task) {
    typename TypeParam::Outputs outputs;
    const auto views = outputs.views();
    fail_each_allocation(
        std::string(task.name) + " in a workspace",
        [&] {
          Workspace workspace;
          ContextOptions options = smallest_tiles(PlanKind::kTwoPass);
          options.workspace = &workspace;
          const Context context(options);
          try {
            task.run(context, views);
            return task.run(context, views);
          } catch (const std::bad_alloc&) {
            workspace.release();
            EXPECT_EQ(workspace.bytes(), 0U);
            throw;
          }
        },
        [&] { return bytes_of(outputs.values()); });
  });
}

void fail_cross_entropy(const std::string& name, TensorCall tensors, const ContextOptions& options,
                        bool gradients = true) {
  const Context context(options);
  const Gradients outputs = gradients ? tensors.outputs->gradients() : Gradients{};
  fail_each_allocation(
      name,
      [&] {
        return cross_entropy(context, tensors.inputs.hidden_view(), tensors.inputs.head_view(),
                             tensors.inputs.targets_view(), all_options(), outputs);
      },
      [&] { return gradients ? tensors.outputs->bytes() : std::vector<std::byte>(); });
}

TEST(AllocationFailure, ManyTilesAndChunks) {
  for (const PlanKind plan : {PlanKind::kOnePass, PlanKind::kTwoPass}) {
    fail_cross_entropy(std::string("cross_entropy ") + name_of(plan), TensorCall(), small_tiles(plan));
  }
  ContextOptions chunks = small_tiles(PlanKind::kOnePass);
  chunks.workspace_bytes = size_t{28} << 10;
  TensorCall tensors;
  const Plan plan = cross_entropy.plan(Context(chunks), tensors.inputs.hidden_view(), tensors.inputs.head_view(),
                                       tensors.inputs.targets_view(), all_options(), tensors.outputs->gradients());
  EXPECT_LT(plan.chunk_rows, plan.active_rows);
  fail_cross_entropy("cross_entropy one_pass in chunks", TensorCall(), chunks);
  fail_cross_entropy("cross_entropy forward only", TensorCall(), small_tiles(PlanKind::kAuto), false);
}

TEST(AllocationFailure, NarrowTypes) {
  for (const PlanKind plan : {PlanKind::kOnePass, PlanKind::kTwoPass}) {
    fail_cross_entropy(std::string("bfloat16 outputs ") + name_of(plan), TensorCall(DType::kBFloat16, true),
                       small_tiles(plan));
  }
}

// A sink that allocates, like one that copies a tile.
TEST(AllocationFailure, WeightSink) {
  for (const PlanKind plan : {PlanKind::kOnePass, PlanKind::kTwoPass}) {
    TensorCall tensors;
    std::vector<float> weight(static_cast<size_t>(tensors.inputs.head_view().weight.rows * kWords));
    Gradients outputs = tensors.outputs->gradients();
    outputs.d_weight = {};
    outputs.weight_sink = [&](int64_t first, int64_t count, const ConstMatrix& tile) {
      for (int64_t r = 0; r < tile.rows; ++r) {
        const float* from = static_cast<const float*>(tile.data) + r * tile.stride;
        const std::vector<float> row(from, from + count);
        std::copy(row.begin(), row.end(), weight.begin() + r * kWords + first);
      }
    };
    const Context context(small_tiles(plan));
    fail_each_allocation(
        std::string("weight_sink ") + name_of(plan),
        [&] {
          return cross_entropy(context, tensors.inputs.hidden_view(), tensors.inputs.head_view(),
                               tensors.inputs.targets_view(), {}, outputs);
        },
        [&] { return bytes_of(weight); });
  }
}

// A caller's own loss that allocates, inside the parallel regions of finished logits and between the regions
// of the fused plans.
template <class Source>
void fail_a_loss_that_allocates(bool declared) {
  const Source source;
  const Batch batch;
  std::vector<int64_t> groups(kTokens);
  for (size_t i = 0; i < groups.size(); ++i) groups[i] = static_cast<int64_t>(i);
  for (const PlanKind plan : {PlanKind::kOnePass, PlanKind::kTwoPass}) {
    ContextOptions options = small_tiles(plan);
    options.row_tile = options.row_block = 3;
    const Context context(options);
    typename Source::Outputs outputs;
    const auto views = outputs.views();
    fail_each_allocation(
        std::string("run_token_loss ") + name_of(plan),
        [&] {
          CoupledLoss loss(groups, true, declared);
          return source.call(LOGITLESS_TEST_CALL(run_token_loss), context, batch.targets(), TokenOptions(), loss,
                             views);
        },
        [&] { return bytes_of(outputs.values()); });
  }
}
TEST(AllocationFailure, ALossThatAllocates) {
  fail_a_loss_that_allocates<FromHidden>(true);
  fail_a_loss_that_allocates<FromLogits>(false);
}

// If any allocation fails on either of two ranks, both calls end, and the next call works as usual.
TEST(AllocationFailure, OfRanks) {
  struct Rank {
    RankOfTask given;
    std::optional<Context> context;
    FromHidden::Outputs outputs;
    Gradients views;
    double loss = 0;
    bool thrown = false;
  };
  ThreadGroup group(2);
  std::vector<Rank> ranks;
  ranks.reserve(2);
  for (int r = 0; r < 2; ++r) {
    Rank& rank = ranks.emplace_back(Rank{RankOfTask(kWorlds[1], static_cast<size_t>(r)), {}, {}, {}});
    ContextOptions options = smallest_tiles(PlanKind::kTwoPass);
    options.threads = 1;
    options.ranks.vocab = &group.of(r);
    options.ranks.slices = rank.given.slices;
    rank.context.emplace(options);
    rank.views = rank.outputs.views(rank.given.source.first_entry, rank.given.source.entries);
  }
  CrossEntropy task;
  task.label_smoothing = 0.1;
  const auto call = [&](Rank& rank) {
    rank.thrown = true;
    try {
      rank.loss = cross_entropy(*rank.context, rank.given.source.states(), rank.given.source.head(),
                                rank.given.batch.targets(), task, rank.views)
                      .loss;
      rank.thrown = false;
    } catch (const std::bad_alloc&) {
    } catch (const RankError&) {
    }
  };
  const auto wait = [&](int r) {
    char mine = 0, all[2];
    group.of(r).all_gather(&mine, all, 1);
  };
  double expected = 0;
  int64_t index = -1;  // -1: no failure
  int64_t failures = 0;
  for (AllocationsSeen seen = {0, 1}; seen.failed > 0; ++index) {
    const auto errors = run_ranks(2, [&](int r) {
      wait(r);
      if (r == 0 && index >= 0) fail_allocation(index, Failing::kOne);
      wait(r);
      call(ranks[static_cast<size_t>(r)]);
      wait(r);
      if (r == 0 && index >= 0) seen = stop_failing();
      wait(r);
    });
    for (const auto& error : errors) ASSERT_EQ(message_of(error), "");
    ASSERT_EQ(ranks[0].thrown, ranks[1].thrown) << "allocation " << index;
    failures += ranks[0].thrown;
    if (index < 0) expected = ranks[0].loss;
    if (!ranks[0].thrown) {
      ASSERT_EQ(ranks[0].loss, expected);
      ASSERT_EQ(ranks[1].loss, expected);
    }
  }
  EXPECT_GT(failures, 30);
}

TEST(AllocationFailure, TheHookFails) {
  fail_allocation(1, Failing::kOne);
  bool first = true, second = false;
  try {
    ::operator delete(::operator new(1));
  } catch (const std::bad_alloc&) {
    first = false;
  }
  try {
    ::operator delete(::operator new(2));
  } catch (const std::bad_alloc&) {
    second = true;
  }
  const AllocationsSeen seen = stop_failing();
  EXPECT_TRUE(first);
  EXPECT_TRUE(second);
  EXPECT_EQ(seen.failed, 1);
}

}  // namespace
}  // namespace logitless::testing

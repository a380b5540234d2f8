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

// Chunks, bfloat16 outputs with ignored rows, and a sink that allocates, like one that copies a tile.
TEST(AllocationFailure, OtherFormsOfACrossEntropy) {
  for (const std::string form : {"chunks", "narrow one_pass", "narrow two_pass", "sink one_pass", "sink two_pass"}) {
    const bool narrow = form.starts_with("narrow"), sink = form.starts_with("sink");
    InputSpec spec;
    spec.tokens = kRows, spec.sequences = kSequences, spec.vocab = kWords;
    spec.ignored = 0.2, spec.poison = false;
    if (narrow) spec.dtype = DType::kBFloat16;
    RunSpec run;
    if (narrow) run.gradient_dtype = DType::kBFloat16;
    run.d_weight = !sink;
    Inputs inputs(spec);
    GradientOutputs outputs(inputs, run);
    Gradients gradients = outputs.gradients();
    std::vector<float> weight(sink ? static_cast<size_t>(spec.hidden * kWords) : 0);
    if (sink) {
      gradients.weight_sink = [&](int64_t first, int64_t count, const ConstMatrix& tile) {
        for (int64_t r = 0; r < tile.rows; ++r) {
          const float* from = static_cast<const float*>(tile.data) + r * tile.stride;
          const std::vector<float> row(from, from + count);
          std::copy(row.begin(), row.end(), weight.begin() + r * kWords + first);
        }
      };
    }
    ContextOptions options = small_tiles(form.ends_with("two_pass") ? PlanKind::kTwoPass : PlanKind::kOnePass);
    if (form == "chunks") options.workspace_bytes = size_t{28} << 10;
    const CrossEntropy task = {.reduction = Reduction::kNone, .label_smoothing = 0.1};
    const Context context(options);
    Plan plan;
    fail_each_allocation(
        form,
        [&] {
          auto result =
              cross_entropy(context, inputs.hidden_view(), inputs.head_view(), inputs.targets_view(), task, gradients);
          plan = result.plan;
          return result;
        },
        [&] {
          std::vector<std::byte> bytes = outputs.bytes();
          const std::vector<std::byte> more = bytes_of(weight);
          bytes.insert(bytes.end(), more.begin(), more.end());
          return bytes;
        });
    EXPECT_EQ(plan.chunk_rows < plan.active_rows, form == "chunks");
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

}  // namespace
}  // namespace logitless::testing

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Plans in any budget. The least workspace: a plan's figure is accepted, and with one byte less the call is
// refused with a message that names the figure.
#include <gtest/gtest.h>

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "support/calls.h"
#include "support/inputs.h"
#include "support/views.h"

namespace logitless::testing {
namespace budget_test {

struct Call {
  int64_t tokens, hidden, vocab;
  DType dtype = DType::kFloat32;
  PlanKind plan = PlanKind::kAuto;
  bool gradients = true, narrow = false;
  ContextOptions options = {};
};

// Holds a plan, or the reason why there is none.
struct Answer {
  std::optional<Plan> plan;
  std::string refusal;
};

// Every third row is ignored. Plans do not read tensors, so addresses of no memory are used for them.
Answer plan_in(const Call& c, size_t workspace, int threads) {
  std::vector<int64_t> targets(static_cast<size_t>(c.tokens), 1);
  for (size_t i = 0; i < targets.size(); i += 3) targets[i] = -100;
  const auto matrix = [&]<class Void>(BasicTensor<Void>&, uintptr_t place, DType dtype, int64_t rows) {
    return BasicTensor<Void>(reinterpret_cast<void*>(place << 40), dtype, {rows, c.hidden});
  };
  const DType sums = c.dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
  Logits logits;
  logits.hidden = matrix(logits.hidden, 1, c.dtype, c.tokens);
  logits.head.weight = matrix(logits.head.weight, 2, c.dtype, c.vocab);
  logitless::Gradients gradients;
  if (c.gradients) {
    gradients.d_hidden = matrix(gradients.d_hidden, 3, c.narrow ? c.dtype : sums, c.tokens);
    gradients.d_weight = matrix(gradients.d_weight, 4, c.narrow ? c.dtype : sums, c.vocab);
  }
  ContextOptions options = c.options;
  options.workspace_bytes = workspace;
  options.threads = threads;
  options.plan = c.plan;
  try {
    return {plan(Context(options), logits, CrossEntropy{.targets = targets}, gradients), ""};
  } catch (const InvalidInput& error) {
    return {{}, error.what()};
  }
}

size_t least_of(const Call& call) { return plan_in(call, size_t{1} << 33, 2).plan.value().least_workspace_bytes; }

TEST(LeastWorkspace, IsAcceptedAndOneByteLessIsNot) {
  std::vector<Call> calls;
  for (const Call& shape : {Call{63, 7, 50257}, {600, 256, 3000}, {1537, 64, 17}}) {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat64}) {
      for (const PlanKind plan : {PlanKind::kAuto, PlanKind::kOnePass, PlanKind::kTwoPass}) {
        calls.push_back({shape.tokens, shape.hidden, shape.vocab, dtype, plan, true, dtype == DType::kBFloat16});
      }
    }
  }
  calls.push_back({600, 256, 3000, DType::kBFloat16, PlanKind::kAuto, true, false});
  calls.push_back({600, 256, 3000, DType::kFloat32, PlanKind::kAuto, false});
  for (const Call& call : calls) {
    SCOPED_TRACE(::testing::Message() << call.tokens << " " << name_of(call.dtype) << " " << name_of(call.plan));
    const size_t least = least_of(call);
    for (const int threads : {1, 2, 7}) {
      const Answer accepted = plan_in(call, least, threads);
      ASSERT_TRUE(accepted.plan) << accepted.refusal;
      EXPECT_LE(accepted.plan->workspace_bytes, least);
      EXPECT_EQ(accepted.plan->least_workspace_bytes, least);
      for (const size_t less : {least - 1, least / 2}) {
        const Answer refused = plan_in(call, less, threads);
        EXPECT_FALSE(refused.plan) << less << " of " << least << " bytes are accepted";
        EXPECT_NE(refused.refusal.find(" needs at least " + std::to_string(least) + " bytes"), std::string::npos)
            << refused.refusal;
      }
    }
  }
  // Only plan() has the time to find it. The automatic plan takes the plan that needs less.
  EXPECT_EQ(SeededCall(InputSpec()).run().result.plan.least_workspace_bytes, 0U);
  EXPECT_EQ(least_of({700, 64, 3000}), least_of({700, 64, 3000, DType::kFloat32, PlanKind::kTwoPass}));
}

// Chunks of one pass and tiles affect bits, and the remaining memory is scratch for each thread: every budget
// must have the same ones for every team.
TEST(SmallWorkspace, HasTheSameChunksAndTilesForEveryTeam) {
  std::set<int64_t> chunks, tiles;
  for (const PlanKind kind : {PlanKind::kAuto, PlanKind::kOnePass}) {
    const Call call{600, 256, 3000, DType::kBFloat16, kind};
    for (size_t kib = 250; kib < 30000; kib += kib < 4000 ? 125 : 500) {
      const Answer one = plan_in(call, kib << 10, 1);
      for (const int threads : {2, 3, 7, 16}) {
        const Answer more = plan_in(call, kib << 10, threads);
        ASSERT_EQ(more.plan.has_value(), one.plan.has_value()) << kib << " KiB, " << threads << " threads";
        if (!one.plan) continue;
        const auto cut = [](const Plan& p) {
          return std::vector<int64_t>{static_cast<int64_t>(p.kind), p.chunk_rows, p.row_tile, p.vocab_tile,
                                      p.hidden_block};
        };
        ASSERT_EQ(cut(*more.plan), cut(*one.plan)) << kib << " KiB, " << threads << " threads";
        EXPECT_LE(more.plan->workspace_bytes, kib << 10);
        chunks.insert(one.plan->chunk_rows), tiles.insert(one.plan->row_tile * one.plan->vocab_tile);
      }
    }
  }
  EXPECT_GT(chunks.size(), 3U);
  EXPECT_GT(tiles.size(), 3U);
}

// Tiles that the caller set do not change.
TEST(SmallWorkspace, FixedTilesAreKept) {
  Call call{300, 19, 2000};
  call.options.row_tile = 64, call.options.vocab_tile = 512;
  EXPECT_NE(plan_in(call, 1, 2).refusal.find("tiles of 64 x 512"), std::string::npos);
}

// Packed hidden states must give the same bits, with separated rows and with consecutive rows. If no backend
// packs them there is nothing to compare.
TEST(PackedHidden, GiveTheSameBits) {
  for (const double ignored : {0.0, 0.3}) {
    const auto run = [ignored](size_t workspace) {
      return SeededCall({.tokens = 700, .vocab = 3000, .hidden = 70, .dtype = DType::kBFloat16, .ignored = ignored},
                        {.context = {.threads = 2, .workspace_bytes = workspace, .plan = PlanKind::kTwoPass}})
          .run();
    };
    const SeededCall::Results with = run(ContextOptions().workspace_bytes);
    const Plan& plan = with.result.plan;
    if (plan.packed_bytes == 0) GTEST_SKIP() << "no backend packs hidden states here";
    EXPECT_GE(plan.packed_bytes, static_cast<size_t>(2 * plan.active_rows * 70));
    const SeededCall::Results without = run(plan.workspace_bytes - 1);
    EXPECT_EQ(without.result.plan.packed_bytes, 0U);
    EXPECT_EQ(without.result.plan.workspace_bytes + plan.packed_bytes, plan.workspace_bytes);
    EXPECT_EQ(with.bytes, without.bytes);
  }
}

// OpenBLAS packs elements in the sums' type: 8 bytes for float64, and 4 for types that are widened to
// float32.
TEST(BlasBytes, FollowTheType) {
  const auto blas_bytes = [](DType dtype) {
    Call call{200, 40, 2100, dtype, PlanKind::kTwoPass};
    call.options.gemm_backend = "openblas", call.options.row_tile = 96, call.options.vocab_tile = 256;
    return plan_in(call, size_t{64} << 20, 2).plan.value().blas_bytes;
  };
  EXPECT_GT(blas_bytes(DType::kFloat32), 0U);
  EXPECT_EQ(blas_bytes(DType::kFloat64), 2 * blas_bytes(DType::kFloat32));
  EXPECT_EQ(blas_bytes(DType::kBFloat16), blas_bytes(DType::kFloat32));
}

}  // namespace budget_test
}  // namespace logitless::testing

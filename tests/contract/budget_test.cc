// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The least workspace: a plan's figure is accepted, and with one byte less the call is refused with a message
// that names the figure.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "support/calls.h"
#include "support/refusal.h"
#include "support/testers.h"
#include "support/views.h"

namespace logitless::testing {
namespace budget_test {

struct Call {
  int64_t tokens, hidden, vocab;
  DType dtype = DType::kFloat32;
  PlanKind plan = PlanKind::kAuto;
  bool d_hidden = true, d_weight = true, narrow = false, ignored = false;
};

std::string describe(const Call& c) {
  return std::to_string(c.tokens) + " x " + std::to_string(c.hidden) + " x " + std::to_string(c.vocab) + " " +
         name_of(c.dtype) + " " + name_of(c.plan) + (c.d_hidden ? " d_hidden" : "") + (c.d_weight ? " d_weight" : "") +
         (c.narrow ? " narrow" : "") + (c.ignored ? " ignored" : "");
}

// All calls of these tests fit into it with the tiles of the table.
constexpr size_t kAmple = size_t{1} << 33;

// Plans do not read tensors, so one aligned byte is used for all of them.
alignas(64) std::byte somewhere[64];

// Holds a plan, or the reason why there is none.
struct Answer {
  std::optional<Plan> plan;
  std::string refusal;
};

Answer plan_in(const Call& c, size_t workspace, int threads) {
  std::vector<int32_t> targets(static_cast<size_t>(c.tokens), 1);
  for (size_t i = 0; c.ignored && i < targets.size(); i += 3) targets[i] = -100;
  const auto address = [](int64_t place) {  // far apart, so that nothing overlaps
    return reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(somewhere) + (static_cast<uintptr_t>(place) << 40));
  };
  const DType sums = c.dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
  const DType out = c.narrow ? c.dtype : sums;
  Gradients gradients;
  if (c.d_hidden) gradients.d_hidden = Matrix(address(3), out, c.tokens, c.hidden);
  if (c.d_weight) gradients.d_weight = Matrix(address(4), out, c.vocab, c.hidden);
  ContextOptions options;
  options.workspace_bytes = workspace;
  options.threads = threads;
  options.plan = c.plan;
  Answer answer;
  try {
    answer.plan =
        cross_entropy.plan(Context(options), ConstMatrix(address(1), c.dtype, c.tokens, c.hidden),
                           LmHead(ConstMatrix(address(2), c.dtype, c.vocab, c.hidden), HeadLayout::kVocabHidden),
                           std::span<const int32_t>(targets), {}, gradients);
  } catch (const InvalidInput& error) {
    answer.refusal = error.what();
  }
  return answer;
}

size_t least_of(const Call& call) { return plan_in(call, kAmple, 2).plan.value().least_workspace_bytes; }

void expect_exact_least(const Call& call) {
  SCOPED_TRACE(describe(call));
  const size_t least = least_of(call);
  ASSERT_GT(least, 1u);
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

TEST(LeastWorkspace, IsAcceptedAndOneByteLessIsNot) {
  struct Shape {
    int64_t tokens, hidden, vocab;
  };
  for (const Shape& s : {Shape{63, 7, 50257}, {600, 256, 3000}, {1537, 64, 17}}) {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat64}) {
      for (const PlanKind plan : {PlanKind::kAuto, PlanKind::kOnePass, PlanKind::kTwoPass}) {
        Call call{s.tokens, s.hidden, s.vocab, dtype, plan};
        call.ignored = true;
        expect_exact_least(call);
        call.narrow = dtype == DType::kBFloat16;
        expect_exact_least(call);
        call.d_hidden = call.d_weight = false;
        expect_exact_least(call);
      }
    }
  }
}

// kAuto takes the plan that needs less, which is two pass unless there are very few rows.
TEST(LeastWorkspace, OfTheAutomaticPlanIsThatOfTheSmallerOne) {
  for (const int64_t tokens : {1, 40, 700}) {
    Call call{tokens, 64, 3000, DType::kFloat32, PlanKind::kTwoPass};
    const size_t two = least_of(call);
    call.plan = PlanKind::kAuto;
    const size_t automatic = least_of(call);
    EXPECT_LE(automatic, two);
    if (tokens > 1) {
      EXPECT_EQ(automatic, two);
    }
  }
}

TEST(SmallWorkspace, GetsSmallerTiles) {
  for (const int64_t tokens : {int64_t{0}, int64_t{63}}) {
    for (const PlanKind plan : {PlanKind::kAuto, PlanKind::kTwoPass}) {
      EXPECT_TRUE(plan_in({tokens, 7, 50257, DType::kFloat64, plan}, size_t{1} << 20, 2).plan);
    }
  }
  // Tiles shrink with the budget, equally for every team. A large budget uses the tiles of the table.
  const Call call{2048, 64, 50257};
  const Plan large = *plan_in(call, size_t{64} << 20, 2).plan;
  const int64_t largest = large.row_tile * large.vocab_tile;
  int64_t last = largest;
  for (size_t kib = 4096; kib >= 256; kib /= 2) {
    const Answer answer = plan_in(call, kib << 10, 2);
    ASSERT_TRUE(answer.plan) << kib << " KiB";
    const int64_t elements = answer.plan->row_tile * answer.plan->vocab_tile;
    EXPECT_LE(elements, last);
    last = elements;
    for (const int threads : {1, 7}) {
      const Plan other = *plan_in(call, kib << 10, threads).plan;
      EXPECT_EQ(other.row_tile, answer.plan->row_tile);
      EXPECT_EQ(other.vocab_tile, answer.plan->vocab_tile);
    }
  }
  EXPECT_LT(last, largest);
}

// Packed hidden states must give the same bits, with separated rows and with consecutive rows. If no backend
// packs them there is nothing to compare.
TEST(PackedHidden, GiveTheSameBits) {
  InputSpec spec;
  spec.tokens = 700;
  spec.hidden = 70;
  spec.vocab = 3000;
  spec.dtype = DType::kBFloat16;
  for (const double ignored : {0.0, 0.3}) {
    spec.ignored = ignored;
    Inputs inputs(spec);
    const auto run = [&](size_t workspace, std::vector<std::byte>& bytes) {
      GradientOutputs outputs(inputs, RunSpec());
      ContextOptions options;
      options.plan = PlanKind::kTwoPass;
      options.threads = 2;
      options.workspace_bytes = workspace;
      const CrossEntropyResult result = cross_entropy(Context(options), inputs.hidden_view(), inputs.head_view(),
                                                      inputs.targets_view(), {}, outputs.gradients());
      bytes = outputs.bytes();
      return result;
    };
    std::vector<std::byte> packed, plain;
    const CrossEntropyResult with = run(size_t{64} << 20, packed);
    if (with.plan.packed_bytes == 0) GTEST_SKIP() << "no backend packs hidden states here";
    EXPECT_GE(with.plan.packed_bytes, static_cast<size_t>(2 * with.plan.active_rows * spec.hidden));
    const CrossEntropyResult without = run(with.plan.workspace_bytes - 1, plain);
    EXPECT_EQ(without.plan.packed_bytes, 0u);
    EXPECT_EQ(without.plan.workspace_bytes + with.plan.packed_bytes, with.plan.workspace_bytes);
    EXPECT_EQ(with.per_token_logps, without.per_token_logps);
    EXPECT_EQ(packed, plain);
  }
}

// plan() has the time to find it; a call that runs does not.
TEST(LeastWorkspace, IsToldByPlanFunctionsOnly) {
  CrossEntropyTester tester;
  EXPECT_GT(tester.planned().least_workspace_bytes, 0u);
  EXPECT_EQ(tester.run_once().result.plan.least_workspace_bytes, 0u);
}

// OpenBLAS packs elements in the sums' type: 8 bytes for float64, and 4 for types that are widened to
// float32.
TEST(BlasBytes, FollowTheType) {
  const auto blas_bytes = [](DType dtype) {
    CrossEntropyTester tester;
    tester.tokens(200).vocab(2100).hidden(40).dtype(dtype).plan(PlanKind::kTwoPass).tiles(96, 256).threads(2);
    tester.gemm_backend("openblas");
    return tester.planned().blas_bytes;
  };
  const size_t wide = blas_bytes(DType::kFloat32);
  EXPECT_GT(wide, 0u);
  EXPECT_EQ(blas_bytes(DType::kFloat64), 2 * wide);
  EXPECT_EQ(blas_bytes(DType::kBFloat16), wide);
}

// Tiles that the caller set do not change.
TEST(SmallWorkspace, FixedTilesAreKept) {
  ContextOptions options;
  options.row_tile = 64;
  options.vocab_tile = 512;
  options.workspace_bytes = 1;
  InputSpec spec;
  spec.tokens = 300;
  spec.vocab = 2000;
  const Inputs inputs(spec);
  expect_invalid_input({"tiles of 64 x 512"}, [&] {
    cross_entropy(Context(options), inputs.hidden_view(), inputs.head_view(), inputs.targets_view());
  });
}

}  // namespace budget_test
}  // namespace logitless::testing

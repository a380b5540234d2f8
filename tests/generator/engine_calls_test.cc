// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Calls that reach the engine's rarer paths, with all the checks of drawn calls. Other machines run this test
// instead of calls_test.
#include <gtest/gtest.h>

#include <string>

#include "generator/expect_call.h"
#include "logitless/logitless.h"

namespace logitless::testing {
namespace {

constexpr DType kDTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64};

// Returns a call of 198 tokens.
DrawnCall many_tokens(DType dtype) {
  DrawnCall call;
  call.sequences = 6;
  call.time = 33;
  call.states = call.head = call.lora = dtype;
  return call;
}

TEST(NamedEngineCalls, OfEveryKind) {
  int64_t accepted = 0;
  for (uint64_t random = 1; random <= 200; ++random) {
    const DrawnCall call = draw_call(random);
    const Verdict verdict = check(call);
    ASSERT_EQ(verdict.fault, "") << code_of(call);
    accepted += verdict.refusal.empty();
  }
  EXPECT_GT(accepted, 120);
}

// Small calls have their own kernels, unless a backend is named.
void of_every_backend_and_precision(DType dtype) {
  for (const bool transposed : {false, true}) {
    DrawnCall call = many_tokens(dtype);
    call.sequences = 2;
    call.hidden = 35;
    call.vocab = 130;
    call.vocab_tile = 64;
    call.threads = 2;
    call.bias = true;
    call.head_transposed = transposed;
    call.states_gap = call.head_gap = call.output_gap = 3;
    for (const PlanKind plan : {PlanKind::kOnePass, PlanKind::kTwoPass, PlanKind::kExpectedRow}) {
      call.plan = plan;
      for (call.backend = 0; call.backend <= static_cast<int64_t>(gemm_backends().size()); ++call.backend) {
        for (const GradientPrecision precision : all_of<GradientPrecision>()) {
          call.precision = precision;
          call.narrow_outputs = precision == GradientPrecision::kSplit;
          call.accumulate = precision == GradientPrecision::kFloat32;
          expect_right(call);
        }
      }
    }
  }
}

TEST(NamedEngineCalls, OfEveryBackendAndPrecision) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kFloat64}) of_every_backend_and_precision(dtype);
}

// The only type that a tile unit multiplies, so CMakeLists.txt also runs this test on emulated ones.
TEST(NamedEngineCalls, OfEveryBackendAndPrecisionInBFloat16) { of_every_backend_and_precision(DType::kBFloat16); }

// Sums over more components than fit a product's block.
TEST(NamedEngineCalls, OfWideStates) {
  for (const DType dtype : kDTypes) {
    DrawnCall call = many_tokens(dtype);
    call.hidden = 515;
    call.vocab = 129;
    call.packed = true;
    call.threads = 3;
    expect_right(call);
    call.vocab_tile = 64;
    call.plan = PlanKind::kTwoPass;
    call.head_transposed = call.sink = call.sink_overwrites = true;
    expect_right(call);
  }
}

// Products of few rows accumulate, and each may have fewer rows than its scratch is sized for.
TEST(NamedEngineCalls, OfFewRowsWithALora) {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16, DType::kFloat32}) {
    for (const int64_t rows : {1, 8, 33}) {
      DrawnCall call;
      call.sequences = 1;
      call.time = rows;
      call.hidden = 1024;
      call.vocab = 130;
      call.states = call.head = call.lora = dtype;
      call.lora_rank = 5;
      call.threads = 2;
      call.precision = GradientPrecision::kFloat32;
      for (call.backend = 0; call.backend <= static_cast<int64_t>(gemm_backends().size()); ++call.backend) {
        expect_right(call);
      }
    }
  }
}

// Gradients in many chunks and tiles must be rounded once, and passed to a sink once.
TEST(NamedEngineCalls, InTheLeastWorkspace) {
  for (const DType dtype : kDTypes) {
    for (const PlanKind plan : {PlanKind::kOnePass, PlanKind::kTwoPass}) {
      DrawnCall call = many_tokens(dtype);
      call.hidden = 17;
      call.vocab = 515;
      call.row_tile = 16;
      call.vocab_tile = 64;
      call.threads = 2;
      call.bias = call.narrow_outputs = call.packed = true;
      call.plan = plan;
      call.budget = Budget::kLeast;
      expect_right(call);
      call.accumulate = true;
      expect_right(call);
      call.sink = true;
      expect_right(call);
    }
  }
}

// Whole numbers are exact in every type and sum, so equal logits are also equal in the second pass.
TEST(NamedEngineCalls, RankEqualLogits) {
  for (const DType dtype : kDTypes) {
    for (const int64_t vocab : {3, 64, 65, 203}) {
      DrawnCall call;
      call.task = TokenStatistics::kName;
      call.options = {{"argmax", "true"}, {"rank", "true"}};
      call.values = Values::kWhole;
      call.time = 5;
      call.hidden = 8;
      call.vocab = vocab;
      call.states = call.head = dtype;
      call.bias = true;
      for (call.kernels = 0; call.kernels <= static_cast<int64_t>(simd_targets().size()); ++call.kernels) {
        call.vocab_tile = call.kernels % 2 == 0 ? 0 : 64;
        call.head_transposed = call.kernels % 3 == 0;
        call.softcap = call.kernels % 4 == 0 ? 30 : 0;
        call.threads = 1 + call.kernels % 3;
        expect_right(call);
      }
      call.finished = true;
      expect_right(call);
    }
  }
}

TEST(NamedEngineCalls, WithoutTokens) {
  AllTasks::each([]<class T>() {
    if (std::string(T::kName) == CustomLoss::kName) return;
    for (const bool accumulate : {false, true}) {
      DrawnCall call;
      call.task = T::kName;
      call.time = 0;
      call.bias = true;
      call.lora_rank = 4;
      call.accumulate = accumulate;
      expect_right(call);
      call.time = 3;
      call.all_ignored = call.mask = true;
      expect_right(call);
      call.sink = true;
      expect_right(call);
    }
  });
}

// The halves are two pass, whatever the losses and the logits.
TEST(NamedEngineCalls, OfHalves) {
  AllTasks::each([]<class T>() {
    if (!kHasLoss<T>) return;
    for (const bool finished : {false, true}) {
      DrawnCall call;
      call.task = T::kName;
      call.finished = finished;
      call.time = 5, call.vocab = 101, call.row_tile = 3, call.vocab_tile = 16;
      call.mask = call.bias = !finished;
      call.plan = PlanKind::kTwoPass;
      expect_right(call);
      call.halves = true;
      expect_right(call);
      call.plan = PlanKind::kOnePass;
      expect_refusal(call, "plan = one_pass cannot run");
    }
  });
}

TEST(NamedEngineCalls, OfALoraThatOverwrites) {
  for (const bool states : {false, true}) {
    DrawnCall call;
    call.lora_rank = 4;
    call.lora_states = states;
    call.accumulate = call.lora_overwrites = true;
    for (call.slices = 1; call.slices <= 3; ++call.slices) expect_right(call);
  }
}

// ignore_index may equal the id of an entry, on any rank. Padding entries have a bias of -inf. Class weights
// and smoothing refer to the whole vocabulary.
TEST(NamedEngineCalls, OfRanksWithPaddingAndIgnoredTargets) {
  for (const std::string ignored : {"0", "21", "37", "64"}) {
    DrawnCall call;
    call.options = {{"ignore_index", ignored}};
    call.values = Values::kMasked;
    call.time = 8;
    call.vocab = 65;
    call.vocab_tile = 16;
    for (call.vocab_ranks = 2; call.vocab_ranks <= 3; ++call.vocab_ranks) {
      expect_right(call);
      DrawnCall smooth = call;
      smooth.values = Values::kNormal;
      smooth.options.emplace_back("label_smoothing", "0.3");
      expect_right(smooth);
      smooth.weights_of_entries = true;
      expect_right(smooth);
    }
  }
}

TEST(NamedEngineCalls, RefuseWhatIsOfAWholeBatch) {
  const std::pair<std::string, std::string> options[] = {
      {"top_entropy_quantile", "0.5"}, {"loss_type", "clip_cov"}, {"loss_type", "kl_cov"}, {"m2_threshold", "0.25"}};
  for (const auto& option : options) {
    DrawnCall call;
    call.task = "policy_loss";
    call.options = {option};
    call.data_ranks = 2;
    expect_refusal(call, option.first + " = " + option.second + " needs the whole batch");
  }
}

}  // namespace
}  // namespace logitless::testing

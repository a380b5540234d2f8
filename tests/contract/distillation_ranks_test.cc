// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// distillation_loss where the vocabulary of both heads, or the batch, is split.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <type_traits>
#include <vector>

#include "logitless/logitless.h"
#include "support/calls.h"
#include "support/distillation_case.h"
#include "support/thread_ranks.h"
#include "support/views.h"

namespace logitless::testing {
namespace {

TEST(Distillation, SlicesOfTheVocabularyMatchTheOracle) {
  for (const DivergenceCase& divergence : divergence_cases()) {
    SCOPED_TRACE(divergence.name);
    DistillationSpec spec;
    spec.teacher.layout = HeadLayout::kHiddenVocab;
    DistillationCase call(spec);
    call.options = divergence.options;
    call.options.hard_weight = 0.5;
    call.options.token.temperature = 1.5;
    call.options.want_entropy = call.options.want_agreement = true;
    for (const PlanKind plan : {PlanKind::kOnePass, PlanKind::kTwoPass}) {
      for (const std::vector<int64_t>& slices : {std::vector<int64_t>{70, 61}, std::vector<int64_t>{1, 0, 100, 30}}) {
        ContextOptions options = small_tiles(plan);
        options.ranks.slices = slices;
        StudentGradients gradients(call.student);
        expect_distilled(call, call.run(Context(options), gradients.views()), &gradients);
        if (HasFailure()) return;
      }
    }
  }
}

// One rank's part of a call: vocabulary entries [first, first + count) of both heads.
template <class AnyMatrix>
AnyMatrix part_of(AnyMatrix matrix, int64_t first, int64_t count) {
  using Byte =
      std::conditional_t<std::is_const_v<std::remove_pointer_t<decltype(matrix.data)>>, const std::byte, std::byte>;
  matrix.data = static_cast<Byte*>(matrix.data) + first * matrix.stride * static_cast<int64_t>(size_of(matrix.dtype));
  matrix.rows = count;
  return matrix;
}
template <class AnyVector>
AnyVector part_of_vector(AnyVector vector, int64_t first, int64_t count) {
  using Byte =
      std::conditional_t<std::is_const_v<std::remove_pointer_t<decltype(vector.data)>>, const std::byte, std::byte>;
  vector.data = static_cast<Byte*>(vector.data) + first * static_cast<int64_t>(size_of(vector.dtype));
  vector.size = count;
  return vector;
}
LmHead part_of_head(LmHead head, int64_t first, int64_t count) {
  head.weight = part_of(head.weight, first, count);
  head.bias = part_of_vector(head.bias, first, count);
  return head;
}

TEST(Distillation, RanksThatShareTheVocabularyHaveTheBitsOfItsSlices) {
  for (const DivergenceCase& divergence : divergence_cases()) {
    for (const int size : {2, 3}) {
      SCOPED_TRACE(divergence.name + " on " + std::to_string(size) + " ranks");
      DistillationCase call((DistillationSpec()));
      call.options = divergence.options;
      call.options.hard_weight = 0.5;
      call.options.want_agreement = true;
      std::vector<int64_t> slices = {60, 40, 31};
      if (size == 2) slices = {100, 31};
      ContextOptions options = small_tiles(PlanKind::kTwoPass, 1);
      options.ranks.slices = slices;
      StudentGradients want(call.student), got(call.student);
      const DistillationResult one = call.run(Context(options), want.views());
      std::vector<StudentGradients> of_ranks(static_cast<size_t>(size), StudentGradients(call.student));
      for (StudentGradients& one_rank : of_ranks) one_rank = StudentGradients(call.student);
      std::vector<DistillationResult> results(static_cast<size_t>(size));
      ThreadGroup group(size);
      const auto errors = run_ranks(size, [&](int rank) {
        int64_t first = 0;
        for (int r = 0; r < rank; ++r) first += slices[static_cast<size_t>(r)];
        const int64_t count = slices[static_cast<size_t>(rank)];
        ContextOptions mine = small_tiles(PlanKind::kTwoPass, 1);
        mine.ranks.vocab = &group.of(rank);
        StudentGradients& out = of_ranks[static_cast<size_t>(rank)];
        Gradients gradients = out.views();
        gradients.d_weight = part_of(gradients.d_weight, first, count);
        gradients.d_bias = part_of_vector(gradients.d_bias, first, count);
        Teacher teacher = call.teacher_view();
        teacher.head = part_of_head(teacher.head, first, count);
        results[static_cast<size_t>(rank)] =
            distillation_loss(Context(mine), call.student.states(), part_of_head(call.student.head(), first, count),
                              teacher, call.targets_view(), call.options, gradients);
      });
      for (const auto& error : errors) EXPECT_EQ(message_of(error), "");
      if (HasFailure()) return;
      for (const DistillationResult& result : results) {
        EXPECT_EQ(result.loss, one.loss);
        EXPECT_EQ(result.per_token_loss, one.per_token_loss);
        EXPECT_EQ(result.per_token_agreement, one.per_token_agreement);
      }
      int64_t first = 0;
      for (size_t r = 0; r < of_ranks.size(); ++r) {
        for (int64_t v = first; v < first + slices[r]; ++v) {
          EXPECT_EQ(of_ranks[r].d_bias.get(0, v), want.d_bias.get(0, v));
          for (int64_t h = 0; h < call.spec.student.hidden; ++h) {
            EXPECT_EQ(of_ranks[r].d_weight.get(v, h), want.d_weight.get(v, h));
          }
        }
        for (int64_t i = 0; i < call.spec.tokens; ++i) {
          EXPECT_EQ(of_ranks[r].d_hidden.get(i, 0), want.d_hidden.get(i, 0));
        }
        first += slices[r];
      }
    }
  }
}

TEST(Distillation, RanksThatShareABatchHaveItsMean) {
  DistillationSpec spec;
  spec.sequences = 4;
  DistillationCase call(spec);
  call.options.hard_weight = 0.5;
  call.options.mean_over = MeanOver::kSequenceMeans;
  const DistillationResult whole = call.run(Context(small_tiles(PlanKind::kTwoPass, 1)));
  std::vector<DistillationResult> results(2);
  ThreadGroup group(2);
  const auto errors = run_ranks(2, [&](int rank) {
    ContextOptions mine = small_tiles(PlanKind::kTwoPass, 1);
    mine.ranks.data = &group.of(rank);
    const int64_t half = call.spec.tokens / 2;
    HiddenStates hidden = call.student.states(), of_teacher = call.teacher.states();
    hidden.states = part_of(hidden.states, rank * half, half);
    of_teacher.states = part_of(of_teacher.states, rank * half, half);
    hidden.sequences = of_teacher.sequences = 2;
    const std::span<const int64_t> ids =
        std::span<const int64_t>(call.ids).subspan(static_cast<size_t>(rank * half), static_cast<size_t>(half));
    results[static_cast<size_t>(rank)] = distillation_loss(
        Context(mine), hidden, call.student.head(), {of_teacher, call.teacher.head(), {}}, Targets(ids), call.options);
  });
  for (const auto& error : errors) EXPECT_EQ(message_of(error), "");
  // Half of the rows may be multiplied by another backend, which rounds the float32 logits differently.
  for (const DistillationResult& result : results) EXPECT_NEAR(result.loss, whole.loss, 1e-6 * std::abs(whole.loss));
  EXPECT_EQ(results[0].loss, results[1].loss);
}

}  // namespace
}  // namespace logitless::testing

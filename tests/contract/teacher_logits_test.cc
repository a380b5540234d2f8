// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Teachers, and students, of finished logits. A head whose states are the unit matrix has its weight as
// logits, exactly: everything must then have the bits of such a head, which the oracle has seen.
#include <gtest/gtest.h>

#include <cstddef>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "logitless/logitless.h"
#include "support/calls.h"
#include "support/distillation_case.h"
#include "support/host_tensor.h"
#include "support/refusal.h"
#include "support/thread_ranks.h"
#include "support/views.h"

namespace logitless::testing {
namespace {

constexpr int64_t kTokens = 24, kSequences = 4, kVocab = 131;

// Logits [4, 6, V] of a type, as a tensor with strides and as a head.
class UnitHead {
 public:
  UnitHead(DType dtype, double scale, uint64_t seed, Rows places = Rows::kFollowing)
      : logits_(dtype, kTokens, kVocab, 3, places, kSequences, heap_memory),
        states_(dtype, kTokens, kTokens),
        weight_(dtype, kTokens, kVocab) {
    std::mt19937_64 random(seed);
    std::normal_distribution<double> normal(0, scale);
    for (int64_t i = 0; i < kTokens; ++i) {
      for (int64_t v = 0; v < kVocab; ++v) {
        logits_.set(i, v, normal(random));
        weight_.set(i, v, logits_.get(i, v));
      }
      for (int64_t h = 0; h < kTokens; ++h) states_.set(i, h, i == h ? 1 : 0);
    }
  }

  FinishedLogits logits() const {
    const ConstMatrix view = logits_.view();
    return FinishedLogits(view.data, view.dtype, kSequences, kTokens / kSequences, kVocab, logits_.batch_stride(),
                          view.stride);
  }
  HiddenStates states() const { return HiddenStates(states_.view(), kSequences); }
  LmHead head() const { return LmHead(weight_.view(), HeadLayout::kHiddenVocab); }
  HostTensor& values() { return logits_; }

 private:
  HostTensor logits_, states_, weight_;
};

template <class T>
void expect_same(const std::vector<T>& a, const std::vector<T>& b, const char* name) {
  ASSERT_EQ(a.size(), b.size()) << name;
  for (size_t i = 0; i < a.size(); ++i) ASSERT_EQ(a[i], b[i]) << name << ' ' << i;
}

void expect_same(const DistillationResult& a, const DistillationResult& b) {
  EXPECT_EQ(a.loss, b.loss);
  expect_same(a.per_token_loss, b.per_token_loss, "loss");
  expect_same(a.per_token_divergence, b.per_token_divergence, "divergence");
  expect_same(a.per_token_acceptance, b.per_token_acceptance, "acceptance");
  expect_same(a.per_token_logps, b.per_token_logps, "logps");
  expect_same(a.per_token_agreement, b.per_token_agreement, "agreement");
  expect_same(a.per_token_entropy, b.per_token_entropy, "entropy");
  expect_same(a.per_token_teacher_entropy, b.per_token_teacher_entropy, "teacher's entropy");
}

// The loss takes part in everything: a hard loss, temperatures, rows that take no part.
struct Batch {
  std::vector<int64_t> ids;
  Distillation options;

  explicit Batch(const Distillation& options_) : options(options_) {
    for (int64_t i = 0; i < kTokens; ++i) ids.push_back(i % 5 == 4 ? -100 : i * 5 % kVocab);
    options.hard_weight = 0.5;
    options.token.temperature = 1.5;
    options.want_entropy = options.want_agreement = true;
  }
  Targets targets() const { return Targets(std::span<const int64_t>(ids)); }
};

struct Types {
  DType student, teacher;
};
constexpr Types kTypes[] = {{DType::kFloat32, DType::kFloat32},  {DType::kFloat64, DType::kFloat64},
                            {DType::kBFloat16, DType::kFloat32}, {DType::kFloat32, DType::kBFloat16},
                            {DType::kFloat32, DType::kFloat16},  {DType::kBFloat16, DType::kBFloat16}};

DistillationSpec spec_of(DType student) {
  DistillationSpec spec;
  spec.tokens = kTokens;
  spec.sequences = kSequences;
  spec.vocab = kVocab;
  spec.student.dtype = student;
  return spec;
}

TEST(TeacherLogits, HaveTheBitsOfAHeadInEveryPlanAndType) {
  for (const Types types : kTypes) {
    const DistillationCase student(spec_of(types.student));
    for (const DivergenceCase& divergence : divergence_cases()) {
      const Batch batch(divergence.options);
      UnitHead unit(types.teacher, 3, 7, Rows::kTransposed);
      // Rows that take no part are not read.
      for (int64_t v = 0; v < kVocab; ++v) unit.values().set(4, v, std::numeric_limits<double>::quiet_NaN());
      for (const PlanKind plan : {PlanKind::kOnePass, PlanKind::kTwoPass}) {
        for (const int threads : {1, 2, 3, 7}) {
          SCOPED_TRACE(divergence.name + ", " + name_of(types.student) + " and " + name_of(types.teacher) + ", plan " +
                       name_of(plan) + ", threads " + std::to_string(threads));
          const Context context(small_tiles(plan, threads));
          const auto run = [&](const Teacher& teacher, StudentGradients& gradients) {
            return distillation_loss(context, student.student.states(), student.student.head(), teacher,
                                     batch.targets(), batch.options, gradients.views());
          };
          StudentGradients of_logits(student.student), of_head(student.student);
          const DistillationResult got = run(unit.logits(), of_logits);
          EXPECT_EQ(got.plan.kind, plan);
          expect_same(got, run({unit.states(), unit.head()}, of_head));
          EXPECT_EQ(of_logits.bytes(), of_head.bytes());
          if (HasFailure()) return;
        }
      }
    }
  }
}

TEST(TeacherLogits, HalvesAndSlicesHaveTheBitsOfOneCall) {
  const DistillationCase student(spec_of(DType::kFloat32));
  const UnitHead unit(DType::kBFloat16, 3, 7, Rows::kSlice);
  for (const DivergenceCase& divergence : divergence_cases()) {
    SCOPED_TRACE(divergence.name);
    const Batch batch(divergence.options);
    ContextOptions options = small_tiles(PlanKind::kTwoPass, 2);
    for (const bool sliced : {false, true}) {
      if (sliced) options.ranks.slices = {60, 40, 0, 31};
      const Context context(options);
      const HiddenStates hidden = student.student.states();
      const LmHead head = student.student.head();
      StudentGradients whole(student.student), halves(student.student), of_head(student.student);
      const DistillationResult result =
          distillation_loss(context, hidden, head, unit.logits(), batch.targets(), batch.options, whole.views());
      const Forward<Distillation> forward =
          distillation_loss.forward(context, hidden, head, unit.logits(), batch.targets(), batch.options);
      expect_same(forward.result, result);
      distillation_loss.backward(context, hidden, head, unit.logits(), batch.targets(), batch.options, forward, 1.0,
                                 halves.views());
      EXPECT_EQ(whole.bytes(), halves.bytes());
      expect_same(result, distillation_loss(context, hidden, head, {unit.states(), unit.head()}, batch.targets(),
                                            batch.options, of_head.views()));
      EXPECT_EQ(whole.bytes(), of_head.bytes());
    }
    if (HasFailure()) return;
  }
}

// Each rank has its columns of the teacher's logits, and may have none.
TEST(TeacherLogits, RanksThatShareTheVocabularyHaveTheBitsOfItsSlices) {
  const DistillationCase student(spec_of(DType::kFloat32));
  const UnitHead unit(DType::kFloat32, 3, 7);
  const std::vector<int64_t> slices = {60, 0, 71}, begins = {0, 60, 60};
  for (const PlanKind plan : {PlanKind::kOnePass, PlanKind::kTwoPass}) {
    const Batch batch({.loss_type = Divergence::kJsd});
    const auto run = [&](const ContextOptions& options, int64_t first, int64_t count, bool is_part, HostTensor& out) {
      LmHead head = student.student.head();
      FinishedLogits logits = unit.logits();
      if (is_part) {
        head.weight.data = static_cast<const float*>(head.weight.data) + first * head.weight.stride;
        head.bias.data = static_cast<const float*>(head.bias.data) + first;
        head.weight.rows = head.bias.size = logits.vocab = count;
        logits.data = count > 0 ? static_cast<const float*>(logits.data) + first : nullptr;
      }
      Gradients gradients;
      gradients.d_hidden = out.output();
      return distillation_loss(Context(options), student.student.states(), head, logits, batch.targets(), batch.options,
                               gradients);
    };
    ContextOptions options = small_tiles(plan, 1);
    options.ranks.slices = slices;
    StudentGradients whole(student.student);
    const DistillationResult one = run(options, 0, kVocab, false, whole.d_hidden);
    ThreadGroup group(3);
    const auto errors = run_ranks(3, [&](int rank) {
      ContextOptions mine = small_tiles(plan, 1);
      mine.ranks.vocab = &group.of(rank);
      const auto r = static_cast<size_t>(rank);
      StudentGradients part(student.student);
      expect_same(one, run(mine, begins[r], slices[r], true, part.d_hidden));
      EXPECT_EQ(part.bytes(), whole.bytes());
    });
    for (const auto& error : errors) EXPECT_EQ(message_of(error), "");
  }
}

// d_weight of a unit head is dL/dlogits.
TEST(TeacherLogits, AndAStudentsHaveTheBitsOfTwoHeads) {
  for (const Types types : kTypes) {
    const UnitHead student(types.student, 2, 3, Rows::kSlice), teacher(types.teacher, 3, 7, Rows::kTransposed);
    for (const DivergenceCase& divergence : divergence_cases()) {
      SCOPED_TRACE(divergence.name + ", " + name_of(types.student) + " and " + name_of(types.teacher));
      const Batch batch(divergence.options);
      const DType sums = types.student == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
      HostTensor d_logits(sums, kTokens, kVocab), halves(sums, kTokens, kVocab), d_weight(sums, kTokens, kVocab);
      const auto output = [&](HostTensor& out) {
        return LogitsGradient(out.output().data, sums, kSequences, kTokens / kSequences, kVocab);
      };
      ContextOptions options;
      options.threads = 3;
      const Context context(options);
      const DistillationResult got = distillation_loss(context, student.logits(), teacher.logits(), batch.targets(),
                                                       batch.options, output(d_logits));
      const Forward<Distillation> forward =
          distillation_loss.forward(context, student.logits(), teacher.logits(), batch.targets(), batch.options);
      expect_same(forward.result, got);
      distillation_loss.backward(context, student.logits(), teacher.logits(), batch.targets(), batch.options, forward,
                                 1.0, output(halves));
      Gradients gradients;
      gradients.d_weight = d_weight.output();
      // One tile holds the small vocabulary.
      options = small_tiles(PlanKind::kTwoPass, 2);
      options.vocab_tile = 0;
      expect_same(
          got, distillation_loss(Context(options), student.states(), student.head(), {teacher.states(), teacher.head()},
                                 batch.targets(), batch.options, gradients));
      for (int64_t i = 0; i < kTokens; ++i) {
        for (int64_t v = 0; v < kVocab; ++v) {
          ASSERT_EQ(d_logits.get(i, v), d_weight.get(i, v)) << i << ' ' << v;
          ASSERT_EQ(d_logits.get(i, v), halves.get(i, v)) << i << ' ' << v;
        }
      }
    }
  }
}

// A student's logits may become their own gradient; a teacher's are never written.
TEST(TeacherLogits, GradientInPlace) {
  UnitHead student(DType::kBFloat16, 2, 3), apart(DType::kBFloat16, 2, 3);
  const UnitHead teacher(DType::kFloat16, 3, 7);
  const Batch batch({.loss_type = Divergence::kJsd});
  const Context context;
  HostTensor d_logits(DType::kBFloat16, kTokens, kVocab);
  distillation_loss(context, apart.logits(), teacher.logits(), batch.targets(), batch.options,
                    LogitsGradient(d_logits.output().data, DType::kBFloat16, kSequences, kTokens / kSequences, kVocab));
  const Matrix own = student.values().output();
  distillation_loss(context, student.logits(), teacher.logits(), batch.targets(), batch.options,
                    LogitsGradient(own.data, own.dtype, kSequences, kTokens / kSequences, kVocab, {}, own.stride));
  for (int64_t i = 0; i < kTokens; ++i) {
    for (int64_t v = 0; v < kVocab; ++v) ASSERT_EQ(student.values().get(i, v), d_logits.get(i, v));
  }
}

TEST(TeacherLogits, AreRoundedWhereThatIsWanted) {
  const DistillationCase student(spec_of(DType::kFloat32));
  const UnitHead unit(DType::kFloat32, 3, 7);
  const Batch batch({.loss_type = Divergence::kJsd});
  const Context context(small_tiles(PlanKind::kTwoPass, 2));
  const auto run = [&](Teacher teacher, std::optional<DType> rounding) {
    teacher.round_logits_to = rounding;
    return distillation_loss(context, student.student.states(), student.student.head(), teacher, batch.targets(),
                             batch.options);
  };
  const DistillationResult rounded = run(unit.logits(), DType::kBFloat16);
  expect_same(rounded, run({unit.states(), unit.head()}, DType::kBFloat16));
  EXPECT_NE(rounded.loss, run(unit.logits(), std::nullopt).loss);
}

TEST(TeacherLogits, WhatIsWrongIsSaid) {
  const DistillationCase student(spec_of(DType::kFloat32));
  UnitHead unit(DType::kFloat32, 3, 7), doubles(DType::kFloat64, 3, 7);
  const Context context;
  const HiddenStates hidden = student.student.states();
  const LmHead head = student.student.head();
  const auto refused = [&](const Teacher& teacher, const std::string& message) {
    StudentGradients gradients(student.student);
    const std::vector<std::byte> before = gradients.bytes();
    expect_invalid_input({message},
                         [&] { distillation_loss(context, hidden, head, teacher, {}, {}, gradients.views()); });
    EXPECT_EQ(gradients.bytes(), before);
  };
  FinishedLogits logits = unit.logits();
  logits.vocab = 130;
  refused(logits, "teacher.logits has 130 vocabulary entries but weight has 131");
  logits = unit.logits();
  logits.batch = 3;
  refused(logits, "teacher.logits has 18 rows but hidden has 24");
  logits = unit.logits();
  logits.row_stride = 100;
  refused(logits, "teacher.logits.row_stride = 100");
  logits = unit.logits();
  logits.data = nullptr;
  refused(logits, "teacher.logits.data is null");
  refused(doubles.logits(), "teacher.logits is float64 but hidden is float32: float64 mixes with no other type");
  Teacher both(unit.states(), unit.head());
  both.logits = unit.logits();
  refused(both, "teacher: logits are given, and hidden states or a head beside them");
  Teacher capped(unit.logits());
  capped.head.softcap = 30;  // it would have no effect
  refused(capped, "teacher: logits are given, and hidden states or a head beside them");
  expect_invalid_input({"teacher has no logits: beside a student of finished logits, a teacher's are finished too"},
                       [&] {
                         distillation_loss(context, unit.logits(), {unit.states(), unit.head()}, {});
                       });
  const Matrix own = unit.values().output();
  const UnitHead other(DType::kFloat32, 2, 3);
  const LogitsGradient over(own.data, own.dtype, kSequences, kTokens / kSequences, kVocab, {}, own.stride);
  expect_invalid_input({"d_logits", "teacher.logits"},
                       [&] { distillation_loss(context, other.logits(), unit.logits(), {}, {}, over); });
}

}  // namespace
}  // namespace logitless::testing

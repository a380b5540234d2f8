// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// distillation_loss against the oracle, in every plan, type and form, and against itself: finite differences
// and threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "logitless/logitless.h"
#include "support/calls.h"
#include "support/distillation_case.h"
#include "support/views.h"

namespace logitless::testing {
namespace {

// Runs a call by a plan and holds it to the oracle; plan forward only has no gradients.
void expect_plan(const DistillationCase& call, PlanKind plan, int threads = 2) {
  const Context context(small_tiles(plan, threads));
  StudentGradients gradients(call.student);
  SCOPED_TRACE(std::string("plan ") + name_of(plan));
  const DistillationResult result = call.run(context, gradients.views());
  EXPECT_EQ(result.plan.kind, plan);
  expect_distilled(call, result, &gradients);
  const DistillationResult forward = call.run(context);
  EXPECT_EQ(forward.plan.kind, plan == PlanKind::kTwoPass ? PlanKind::kForwardOnly : PlanKind::kOnePass);
  expect_distilled(call, forward, nullptr);
}

constexpr PlanKind kPlans[] = {PlanKind::kOnePass, PlanKind::kTwoPass};

TEST(Distillation, EveryDivergenceInEveryPlanAndType) {
  struct Types {
    DType student, teacher;
  };
  for (const Types types : {Types{DType::kFloat32, DType::kFloat32}, Types{DType::kFloat64, DType::kFloat64},
                            Types{DType::kBFloat16, DType::kBFloat16}, Types{DType::kFloat32, DType::kBFloat16},
                            Types{DType::kBFloat16, DType::kFloat32}, Types{DType::kFloat16, DType::kFloat32}}) {
    for (const DivergenceCase& divergence : divergence_cases()) {
      SCOPED_TRACE(divergence.name + " of " + name_of(types.student) + " and " + name_of(types.teacher));
      DistillationSpec spec;
      spec.student.dtype = types.student;
      spec.teacher.dtype = types.teacher;
      DistillationCase call(spec);
      call.options = divergence.options;
      for (const PlanKind plan : kPlans) expect_plan(call, plan);
      if (HasFailure()) return;
    }
  }
}

// Student and teacher differ in everything that a head and an option can.
std::vector<DistillationCase> various_cases() {
  std::vector<DistillationCase> out;
  const auto add = [&](auto change) {
    DistillationSpec spec;
    spec.sequences = 4;
    change(spec);
    out.emplace_back(spec);
    out.back().options.loss_type = Divergence::kJsd;
  };
  add([](DistillationSpec& spec) {
    spec.student.softcap = 5;
    spec.teacher.softcap = 9;
    spec.teacher.layout = HeadLayout::kHiddenVocab;
  });
  add([](DistillationSpec& spec) {
    spec.student.layout = HeadLayout::kHiddenVocab;
    spec.student.bias = false;
    spec.student.rows = Rows::kSlice;
  });
  out.back().options.hard_weight = 0.3;
  out.back().options.hard_temperature = 2;
  out.back().options.token.temperature = 1.5;
  out.back().options.temperature_squared = true;
  add([](DistillationSpec& spec) {
    spec.teacher.bias = false;
    spec.teacher.rows = Rows::kTransposed;
    spec.student.rows = Rows::kSlice;
  });
  out.back().options.hard_weight = 0.5;
  out.back().options.mean_over = MeanOver::kSequences;
  out.back().options.teacher_temperature = 0.8;
  add([](DistillationSpec& spec) {  // sequences of student and teacher end at different rows
    spec.student.rows = spec.teacher.rows = Rows::kSlice;
    spec.teacher.sequences = 3;
  });
  add([](DistillationSpec& spec) { spec.teacher.rows = Rows::kSlice; });
  out.back().options.mean_over = MeanOver::kSequenceMeans;
  out.back().options.num_items_in_batch = 11;
  out.back().options.divergence_weight = 0.25;
  out.back().options.hard_weight = 2;
  out.back().options.token.temperature = 0.9;
  add([](DistillationSpec&) {});
  out.back().options.mean_over = MeanOver::kSequenceMeans;
  add([](DistillationSpec& spec) { spec.targets = false; });
  out.back().options.num_items_in_batch = 7;
  out.back().options.loss_scale = -3;
  add([](DistillationSpec&) {});
  out.back().options.token.shift = 1;
  out.back().options.reduction = Reduction::kSum;
  out.back().options.hard_weight = 1;
  add([](DistillationSpec& spec) {
    spec.tokens = 12;  // a backend of its own
    spec.student.rows = Rows::kTransposed;
  });
  out.back().options.reduction = Reduction::kNone;
  return out;
}

TEST(Distillation, HeadsAndOptionsMayDifferInEverything) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    std::vector<DistillationCase> cases = various_cases();
    for (size_t c = 0; c < cases.size(); ++c) {
      DistillationSpec spec = cases[c].spec;
      spec.student.dtype = spec.teacher.dtype = dtype;
      DistillationCase call(spec);
      call.options = cases[c].options;
      call.options.want_entropy = call.options.want_agreement = true;
      for (const bool temperatures : {false, true}) {
        if (temperatures) call.set_temperatures();
        SCOPED_TRACE("case " + std::to_string(c) + (temperatures ? " with temperatures" : ""));
        for (const PlanKind plan : kPlans) expect_plan(call, plan);
        if (HasFailure()) return;
      }
    }
  }
}

// At most 32 rows have a backend of their own.
TEST(Distillation, FewRowsOfEveryType) {
  const DType types[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16};
  for (const DType student : types) {
    for (const DType teacher : types) {
      SCOPED_TRACE(std::string(name_of(student)) + " and " + name_of(teacher));
      DistillationSpec spec;
      spec.tokens = 12;
      spec.student.dtype = student;
      spec.teacher.dtype = teacher;
      DistillationCase call(spec);
      call.options.loss_type = Divergence::kJsd;
      for (const PlanKind plan : kPlans) expect_plan(call, plan);
    }
  }
}

TEST(Distillation, GradientsOfBfloat16MayBeNarrow) {
  DistillationSpec spec;
  spec.student.dtype = spec.teacher.dtype = DType::kBFloat16;
  for (const DivergenceCase& divergence : divergence_cases()) {
    SCOPED_TRACE(divergence.name);
    DistillationCase call(spec);
    call.options = divergence.options;
    call.options.hard_weight = 0.5;
    for (const PlanKind plan : kPlans) {
      for (const GradientPrecision precision : {GradientPrecision::kNative, GradientPrecision::kSplit}) {
        ContextOptions options = small_tiles(plan);
        options.gradient_precision = precision;
        StudentGradients gradients(call.student);
        const DistillationResult result = call.run(Context(options), gradients.views());
        // bfloat16 has 8 bits, and two terms have 16.
        expect_distilled(call, result, &gradients, result.plan.gradient_terms == 2 ? 0x1p-16 : 0x1p-8);
        if (HasFailure()) return;
      }
    }
  }
}

TEST(Distillation, ForwardAndBackwardAreTheOneCall) {
  for (const DivergenceCase& divergence : divergence_cases()) {
    SCOPED_TRACE(divergence.name);
    DistillationCase call((DistillationSpec()));
    call.options = divergence.options;
    call.options.hard_weight = 0.5;
    call.options.token.temperature = 2;
    const Context context(small_tiles(PlanKind::kTwoPass));
    StudentGradients at_once(call.student), apart(call.student);
    const DistillationResult result = call.run(context, at_once.views());
    const Forward<Distillation> forward = distillation_loss.forward(
        context, call.student.states(), call.student.head(), call.teacher_view(), call.targets_view(), call.options);
    distillation_loss.backward(context, call.student.states(), call.student.head(), call.teacher_view(),
                               call.targets_view(), call.options, forward, 1.0, apart.views());
    EXPECT_EQ(result.loss, forward.result.loss);
    EXPECT_EQ(result.per_token_loss, forward.result.per_token_loss);
    EXPECT_TRUE(at_once.bytes() == apart.bytes());
  }
}

TEST(Distillation, EachTokenHasItsUpstreamGradientUnderReductionNone) {
  DistillationCase call((DistillationSpec()));
  call.options.reduction = Reduction::kNone;
  call.options.hard_weight = 0.5;
  const Context context(small_tiles(PlanKind::kTwoPass));
  std::vector<double> upstream;
  for (int64_t i = 0; i < call.spec.tokens; ++i) upstream.push_back(i % 3 == 0 ? 0 : 0.25 * static_cast<double>(i));
  const auto backward = [&](std::span<const double> of, Gradients gradients) {
    const Forward<Distillation> forward = distillation_loss.forward(
        context, call.student.states(), call.student.head(), call.teacher_view(), call.targets_view(), call.options);
    distillation_loss.backward(context, call.student.states(), call.student.head(), call.teacher_view(),
                               call.targets_view(), call.options, forward, of, gradients);
  };
  StudentGradients all(call.student), one(call.student);
  backward(upstream, all.views());
  backward(std::vector<double>(upstream.size(), 1), one.views());
  for (int64_t i = 0; i < call.spec.tokens; ++i) {
    const double factor = upstream[static_cast<size_t>(i)];
    // Both are sums of a hundred float32 products, some of which cancel: their rounding follows the largest.
    double largest = 0;
    for (int64_t h = 0; h < call.spec.student.hidden; ++h) {
      largest = std::max(largest, std::abs(one.d_hidden.get(i, h)));
    }
    for (int64_t h = 0; h < call.spec.student.hidden; ++h) {
      EXPECT_NEAR(all.d_hidden.get(i, h), factor * one.d_hidden.get(i, h), 1e-5 * factor * largest);
    }
  }
}

TEST(Distillation, ThreadsChangeNoBit) {
  for (const DivergenceCase& divergence : divergence_cases()) {
    SCOPED_TRACE(divergence.name);
    DistillationCase call((DistillationSpec()));
    call.options = divergence.options;
    call.options.hard_weight = 0.5;
    call.options.token.temperature = 1.5;
    for (const PlanKind plan : {PlanKind::kOnePass, PlanKind::kTwoPass}) {
      StudentGradients first(call.student);
      const DistillationResult want = call.run(Context(small_tiles(plan, 1)), first.views());
      for (const int threads : {2, 3, 7}) {
        StudentGradients gradients(call.student);
        const DistillationResult got = call.run(Context(small_tiles(plan, threads)), gradients.views());
        EXPECT_EQ(got.per_token_loss, want.per_token_loss) << threads;
        EXPECT_EQ(got.loss, want.loss) << threads;
        EXPECT_TRUE(gradients.bytes() == first.bytes()) << threads << " threads, plan " << name_of(plan);
      }
    }
  }
}

// A chunk of one pass that holds all rows has the tiles of two pass.
TEST(Distillation, OnePassAndTwoPassAgreeToTheBit) {
  for (const DivergenceCase& divergence : divergence_cases()) {
    SCOPED_TRACE(divergence.name);
    DistillationCase call((DistillationSpec()));
    call.options = divergence.options;
    StudentGradients one(call.student), two(call.student);
    const DistillationResult a = call.run(Context(small_tiles(PlanKind::kOnePass)), one.views());
    const DistillationResult b = call.run(Context(small_tiles(PlanKind::kTwoPass)), two.views());
    EXPECT_EQ(a.per_token_divergence, b.per_token_divergence);
    EXPECT_EQ(a.loss, b.loss);
    EXPECT_TRUE(one.bytes() == two.bytes());
  }
}

// Central differences of float64 losses: of the h² f''' that they leave out nothing can be said in
// general, so two steps say how large it is.
TEST(Distillation, GradientsAreThoseOfFiniteDifferences) {
  for (const DivergenceCase& divergence : divergence_cases()) {
    SCOPED_TRACE(divergence.name);
    DistillationSpec spec;
    spec.tokens = 4;
    spec.vocab = 19;
    spec.student = {.hidden = 5, .dtype = DType::kFloat64, .softcap = 7};
    spec.teacher = {.hidden = 3, .dtype = DType::kFloat64};
    DistillationCase call(spec);
    call.options = divergence.options;
    call.options.hard_weight = 0.3;
    call.options.token.temperature = 1.3;
    call.options.temperature_squared = true;
    // κ of lk_hybrid has no gradient: with η = 0 it is a constant.
    if (divergence.options.loss_type == Divergence::kLkHybrid) call.options.acceptance_decay = 0;
    const Context context(small_tiles(PlanKind::kTwoPass, 1));
    StudentGradients gradients(call.student);
    call.run(context, gradients.views());
    const auto check = [&](HostTensor& tensor, int64_t r, int64_t c, double got) {
      const double before = tensor.get(r, c);
      const auto slope = [&](double h) {
        tensor.set(r, c, before + h);
        const double above = call.run(context).loss;
        tensor.set(r, c, before - h);
        const double below = call.run(context).loss;
        tensor.set(r, c, before);
        return (above - below) / (2 * h);
      };
      const double coarse = slope(2e-5), fine = slope(1e-5);
      EXPECT_NEAR(got, fine, std::abs(coarse - fine) + 1e-9) << r << ", " << c;
    };
    for (int64_t h = 0; h < 5; ++h) check(call.student.hidden, 1, h, gradients.d_hidden.get(1, h));
    for (int64_t v = 0; v < spec.vocab; ++v) check(call.student.weight, v, v % 5, gradients.d_weight.get(v, v % 5));
    for (int64_t v = 0; v < spec.vocab; ++v) check(call.student.bias, 0, v, gradients.d_bias.get(0, v));
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace logitless::testing

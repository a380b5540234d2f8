// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// distillation_loss on extreme numbers, infinities and NaN: equal logits, distributions without overlap,
// large offsets, the ends of parameter ranges, masked vocabulary entries.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "logitless/logitless.h"
#include "oracle/distillation_oracle.h"
#include "support/calls.h"
#include "support/divergence_cases.h"
#include "support/host_tensor.h"
#include "support/refusal.h"
#include "support/views.h"

namespace logitless::testing {
namespace distillation_numerics_test {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr PlanKind kPlans[] = {PlanKind::kOnePass, PlanKind::kTwoPass};
constexpr int64_t kRows = 20, kVocab = 37;

// Hidden states are the logits, and heads are identities, so that d_hidden is exactly dL/dlogits.
struct Call {
  explicit Call(DType dtype)
      : student(dtype, kRows, kVocab),
        teacher(dtype, kRows, kVocab),
        identity(dtype, kVocab, kVocab),
        student_bias(dtype, 1, kVocab),
        teacher_bias(dtype, 1, kVocab),
        d_hidden(dtype == DType::kFloat64 ? dtype : DType::kFloat32, kRows, kVocab) {
    std::mt19937_64 random(1);
    std::normal_distribution<double> normal(0, 2);
    fill([&](int64_t, int64_t) { return normal(random); }, [&](int64_t, int64_t) { return 1.5 * normal(random); });
    for (int64_t v = 0; v < kVocab; ++v) {
      for (int64_t u = 0; u < kVocab; ++u) identity.set(v, u, u == v);
      student_bias.set(0, v, 0), teacher_bias.set(0, v, 0);
    }
  }
  using Logit = std::function<double(int64_t row, int64_t entry)>;
  void fill(const Logit& of_student, const Logit& of_teacher) {
    for (int64_t i = 0; i < kRows; ++i) {
      for (int64_t v = 0; v < kVocab; ++v) {
        student.set(i, v, of_student(i, v));
        teacher.set(i, v, of_teacher(i, v));
      }
    }
  }
  DistillationResult run(PlanKind plan) {
    ContextOptions context;
    context.plan = plan, context.threads = 2, context.row_tile = 8, context.vocab_tile = 16;
    const auto head = [&](const HostTensor& bias) {
      LmHead out(identity.view());
      out.bias = bias.vector_view();
      return out;
    };
    Gradients gradients;
    gradients.d_hidden = d_hidden.output();
    return distillation_loss(Context(context), HiddenStates(student.view()), head(student_bias),
                             {HiddenStates(teacher.view()), head(teacher_bias)}, {}, options, gradients);
  }
  /// Returns the largest gradient, or infinity if one is NaN.
  double largest() const {
    double most = 0;
    for (int64_t i = 0; i < kRows; ++i) {
      for (int64_t v = 0; v < kVocab; ++v) {
        const double value = std::abs(d_hidden.get(i, v));
        most = std::isnan(value) ? kInfinity : std::max(most, value);
      }
    }
    return most;
  }

  HostTensor student, teacher, identity, student_bias, teacher_bias, d_hidden;
  Distillation options;
};

// Calls visit(call, plan) for every divergence and plan, in float32 and float64.
void for_every_call(const std::function<void(Call&, PlanKind)>& visit) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    for (const DivergenceCase& divergence : divergence_cases()) {
      for (const PlanKind plan : kPlans) {
        SCOPED_TRACE(divergence.name + " " + name_of(dtype) + " " + name_of(plan));
        Call call(dtype);
        call.options = divergence.options;
        visit(call, plan);
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

// Student and teacher have the same logits bit by bit: the loss is 0, and each gradient is a difference of
// equal numbers.
TEST(DistillationNumerics, AStudentThatIsItsTeacherHasNoLossAndNoGradient) {
  for_every_call([](Call& call, PlanKind plan) {
    call.teacher = call.student;
    const DistillationResult result = call.run(plan);
    // The largest gradient of a softmax alone is about 1 / N.
    const double u = call.student.dtype() == DType::kFloat64 ? 0x1p-52 : 0x1p-23;
    EXPECT_GE(result.loss, 0);
    EXPECT_LE(result.loss, 4 * u);
    EXPECT_NEAR(result.metrics.mean_acceptance, 1, 4 * u);
    EXPECT_LE(call.largest(), 4 * u);
  });
}

// Entries that are likely for one side have log p = −10⁴ for the other.
TEST(DistillationNumerics, DistributionsThatShareNothingStayFinite) {
  for_every_call([](Call& call, PlanKind plan) {
    for (int64_t v = 0; v < kVocab; ++v) {
      call.student_bias.set(0, v, v % 2 == 0 ? -1e4 : 0);
      call.teacher_bias.set(0, v, v % 2 == 1 ? -1e4 : 0);
    }
    const DistillationResult result = call.run(plan);
    EXPECT_TRUE(std::isfinite(result.loss));
    EXPECT_LT(call.largest(), kInfinity);
    for (const double acceptance : result.per_token_acceptance) EXPECT_GE(acceptance, 0);
  });
}

// Student and teacher are certain of different tokens. The gradient that pulls them together is s − t; all
// other gradients are differences of equal numbers, and must be 0 for any temperature and any weights of the
// loss.
TEST(DistillationNumerics, WhereAllMassIsInOneEntrySlopesCancel) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64}) {
    for (const DivergenceCase& divergence : divergence_cases()) {
      for (const double temperature : {0.05, 0.03, 0.01}) {
        Call call(dtype);
        call.fill([](int64_t, int64_t v) { return v == 7 ? 60 : 0; },
                  [](int64_t, int64_t v) { return v == 20 ? 60 : 0; });
        call.options = divergence.options;
        call.options.divergence_weight = 0.7;
        call.options.token.temperature = temperature;
        oracle::VectorXd s = oracle::VectorXd::Zero(kVocab), t = s;
        s[7] = t[20] = 60;
        const double slope =
            oracle::divergence_row(oracle::DivergenceFormula(call.options), oracle::log_softmax(s, temperature),
                                   oracle::log_softmax(t, temperature))
                .gradient.cwiseAbs()
                .maxCoeff();
        // A weight below the smallest normal number may count as 0 or as that number.
        const double lost = static_cast<double>(kVocab) * 0x1p-126 * (120 / temperature) / temperature;
        if (slope / temperature > lost) continue;
        for (const PlanKind plan : kPlans) {
          SCOPED_TRACE(divergence.name + " " + name_of(dtype) + " " + name_of(plan) + " " +
                       std::to_string(temperature));
          call.run(plan);
          EXPECT_LE(call.largest(), lost);
        }
        if (HasFailure()) return;
      }
    }
  }
}

// A common offset of all logits has no effect. Integers below 2²⁴ are exact in float32, and so are these
// logits, with and without the offset.
TEST(DistillationNumerics, ACommonOffsetCostsNoDigits) {
  for_every_call([](Call& call, PlanKind plan) {
    std::mt19937_64 random(2);
    std::uniform_int_distribution<int> small(-6, 6);
    const Call::Logit draw = [&](int64_t, int64_t) { return small(random); };
    call.fill(draw, draw);
    const DistillationResult want = call.run(plan);
    const std::vector<std::byte> before(call.d_hidden.bytes().begin(), call.d_hidden.bytes().end());
    const double offset = call.student.dtype() == DType::kFloat64 ? 0x1p40 : 0x1p23;
    for (int64_t v = 0; v < kVocab; ++v) call.student_bias.set(0, v, offset), call.teacher_bias.set(0, v, offset);
    EXPECT_EQ(call.run(plan).per_token_divergence, want.per_token_divergence);
    EXPECT_TRUE(std::ranges::equal(call.d_hidden.bytes(), before));
  });
}

// At an end of its parameter's range a family equals another divergence, bit by bit.
TEST(DistillationNumerics, EndsAreTheTwoKl) {
  Call call(DType::kFloat32);
  const auto run = [&](Divergence kind, double Distillation::*parameter = nullptr, double value = 0) {
    call.options = {};
    call.options.loss_type = kind;
    if (parameter) call.options.*parameter = value;
    const std::vector<double> divergence = call.run(PlanKind::kTwoPass).per_token_divergence;
    return std::pair(divergence, std::vector(call.d_hidden.bytes().begin(), call.d_hidden.bytes().end()));
  };
  const auto forward = run(Divergence::kForwardKl), reverse = run(Divergence::kReverseKl);
  EXPECT_TRUE(forward != reverse);
  EXPECT_TRUE(run(Divergence::kJsd, &Distillation::beta, 0) == forward);
  EXPECT_TRUE(run(Divergence::kJsd, &Distillation::beta, 1) == reverse);
  EXPECT_TRUE(run(Divergence::kSkewKl, &Distillation::skew, 0) == forward);
  EXPECT_TRUE(run(Divergence::kSkewReverseKl, &Distillation::skew, 0) == reverse);
  EXPECT_TRUE(run(Divergence::kMixedKl, &Distillation::forward_weight, 1) == forward);
  EXPECT_TRUE(run(Divergence::kMixedKl, &Distillation::forward_weight, 0) == reverse);
}

// Towards the ends the JSD vanishes like β KL(t ‖ s) and (1 − β) KL(s ‖ t); it does not approach a KL.
TEST(DistillationNumerics, NearItsEndsTheJsdVanishes) {
  Call call(DType::kFloat64);
  const auto loss = [&](Divergence kind, double beta) {
    call.options.loss_type = kind;
    call.options.beta = kind == Divergence::kJsd ? beta : Distillation().beta;
    return call.run(PlanKind::kTwoPass).loss;
  };
  const double forward = loss(Divergence::kForwardKl, 0), reverse = loss(Divergence::kReverseKl, 0);
  for (const double beta : {1e-8, 1e-9, 1e-12}) {
    EXPECT_NEAR(loss(Divergence::kJsd, beta) / beta, forward, 1e-3 * forward) << beta;
    EXPECT_NEAR(loss(Divergence::kJsd, 1 - beta) / beta, reverse, 1e-3 * reverse) << beta;
  }
}

// A vocabulary entry masked by both has no effect. An entry masked only by the student makes the forward KL
// infinite, and nothing else.
TEST(DistillationNumerics, MaskedEntriesWeighNothing) {
  for_every_call([](Call& call, PlanKind plan) {
    call.student_bias.set(0, 3, -kInfinity);
    call.teacher_bias.set(0, 3, -kInfinity);
    EXPECT_TRUE(std::isfinite(call.run(plan).loss));
    EXPECT_LT(call.largest(), kInfinity);
    for (int64_t i = 0; i < kRows; ++i) EXPECT_EQ(call.d_hidden.get(i, 3), 0);

    call.teacher_bias.set(0, 3, 0);
    const Distillation& o = call.options;
    const Divergence kind = o.loss_type;
    const bool infinite = kind == Divergence::kForwardKl || (kind == Divergence::kJsd && o.beta == 0) ||
                          (kind == Divergence::kSkewKl && o.skew == 0) ||
                          (kind == Divergence::kMixedKl && o.forward_weight > 0) || kind == Divergence::kLkHybrid;
    EXPECT_EQ(std::isinf(call.run(plan).loss), infinite);
  });
}

TEST(DistillationNumerics, NanIsOfItsRowAlone) {
  for_every_call([](Call& call, PlanKind plan) {
    call.teacher.set(2, 0, std::numeric_limits<double>::quiet_NaN());
    call.options.reduction = Reduction::kNone;
    const DistillationResult result = call.run(plan);
    for (int64_t i = 0; i < kRows; ++i) {
      EXPECT_EQ(std::isnan(result.per_token_divergence[static_cast<size_t>(i)]), i == 2) << i;
      EXPECT_EQ(std::isnan(call.d_hidden.get(i, 0)), i == 2) << i;
    }
  });
}

// Central differences of float64 losses. Their neglected term h² f''' has no general bound, so two steps
// estimate it.
TEST(DistillationNumerics, GradientsAreThoseOfFiniteDifferences) {
  for (const DivergenceCase& divergence : divergence_cases()) {
    SCOPED_TRACE(divergence.name);
    Call call(DType::kFloat64);
    call.options = divergence.options;
    call.options.token.temperature = 1.3;
    call.options.temperature_squared = true;
    // κ of lk_hybrid has no gradient; with η = 0 it is a constant.
    if (divergence.options.loss_type == Divergence::kLkHybrid) call.options.acceptance_decay = 0;
    call.run(PlanKind::kTwoPass);
    const HostTensor gradients = call.d_hidden;
    call.d_hidden = HostTensor(DType::kFloat64, kRows, kVocab);
    for (int64_t v = 0; v < kVocab; ++v) {
      const double before = call.student.get(1, v);
      const auto slope = [&](double h) {
        call.student.set(1, v, before + h);
        const double above = call.run(PlanKind::kTwoPass).loss;
        call.student.set(1, v, before - h);
        const double below = call.run(PlanKind::kTwoPass).loss;
        call.student.set(1, v, before);
        return (above - below) / (2 * h);
      };
      const double coarse = slope(2e-5), fine = slope(1e-5);
      EXPECT_NEAR(gradients.get(1, v), fine, std::abs(coarse - fine) + 1e-9) << v;
    }
  }
}

TEST(DistillationNumerics, WhatIsWrongWithLogitsIsSaid) {
  Call call(DType::kFloat32);
  const ConstMatrix matrix = call.student.view(), of_teacher = call.teacher.view();
  const FinishedLogits student(matrix.data, matrix.dtype, 1, kRows, kVocab),
      teacher(of_teacher.data, of_teacher.dtype, 1, kRows, kVocab);
  const HiddenStates hidden(matrix);
  const LmHead head(call.identity.view());
  const auto refused = [&](const Teacher& wrong, const std::string& message) {
    expect_invalid_input({message}, [&] { distillation_loss(Context(), hidden, head, wrong, {}); });
  };
  FinishedLogits narrow = teacher;
  narrow.vocab = 30;
  refused(narrow, "teacher.logits has 30 vocabulary entries but weight has 37");
  Teacher both(HiddenStates(of_teacher), head);
  both.logits = teacher;
  refused(both, "teacher: logits are given together with hidden states or a head");
  Teacher capped(teacher);
  capped.head.softcap = 30;  // It would have no effect.
  refused(capped, "teacher: logits are given together with hidden states or a head");
  expect_invalid_input({"teacher has no logits: if the student's logits are finished, the teacher's must be too"}, [&] {
    distillation_loss(Context(), student, {HiddenStates(of_teacher), head}, {});
  });
  const Matrix own = call.teacher.output();
  expect_invalid_input({"d_logits", "teacher.logits"}, [&] {
    distillation_loss(Context(), student, teacher, {}, {}, LogitsGradient(own.data, own.dtype, 1, kRows, kVocab));
  });
}

}  // namespace distillation_numerics_test
}  // namespace logitless::testing

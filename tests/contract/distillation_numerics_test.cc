// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// distillation_loss where numbers are extreme or not numbers: equal heads, distributions that share nothing,
// large offsets, the ends of parameters, masked vocabulary entries.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "logitless/logitless.h"
#include "support/distillation_case.h"

namespace logitless::testing {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Context context_of(PlanKind plan, const std::string& simd = "auto") {
  ContextOptions options;
  options.plan = plan;
  options.threads = 1;
  options.row_tile = 8;
  options.vocab_tile = 32;
  options.simd_target = simd;
  return Context(options);
}

constexpr PlanKind kPlans[] = {PlanKind::kOnePass, PlanKind::kTwoPass};

// Calls visit(call, plan) for every divergence and plan, in float32 and float64.
template <class Visit>
void for_every_call(DistillationSpec spec, const Visit& visit) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    spec.student.dtype = spec.teacher.dtype = dtype;
    for (const DivergenceCase& divergence : divergence_cases()) {
      for (const PlanKind plan : kPlans) {
        SCOPED_TRACE(divergence.name + " " + name_of(dtype) + " " + name_of(plan));
        DistillationCase call(spec);
        call.options = divergence.options;
        visit(call, plan);
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

double largest(const HostTensor& tensor) {
  double most = 0;
  for (int64_t r = 0; r < tensor.rows(); ++r) {
    for (int64_t c = 0; c < tensor.cols(); ++c) {
      const double value = std::abs(tensor.get(r, c));
      most = std::isnan(value) ? kInfinity : std::max(most, value);
    }
  }
  return most;
}

// One product makes both logits, so that they have the same bits: the loss is 0, and each gradient is a
// difference of equal numbers.
TEST(DistillationNumerics, AStudentThatIsItsTeacherHasNoLossAndNoGradient) {
  for_every_call({}, [](DistillationCase& call, PlanKind plan) {
    call.teacher = call.student;
    StudentGradients gradients(call.student);
    const DistillationResult result = call.run(context_of(plan), gradients.views());
    // The largest gradient of a softmax alone is about 1 / N.
    const double u = call.spec.student.dtype == DType::kFloat64 ? 0x1p-52 : 0x1p-23;
    EXPECT_GE(result.loss, 0);
    EXPECT_LE(result.loss, 4 * u);
    EXPECT_NEAR(result.metrics.mean_acceptance, 1, 4 * u);
    EXPECT_LE(largest(gradients.d_hidden), 16 * u);
    EXPECT_LE(largest(gradients.d_weight), 16 * u);
  });
}

// A bias for each of the two: what one finds likely has log p = −10⁴ with the other.
void set_disjoint(DistillationCase& call, double distance) {
  for (int64_t v = 0; v < call.spec.vocab; ++v) {
    call.student.bias.set(0, v, v % 2 == 0 ? -distance : 0);
    call.teacher.bias.set(0, v, v % 2 == 1 ? -distance : 0);
  }
}

TEST(DistillationNumerics, DistributionsThatShareNothingStayFinite) {
  for_every_call({}, [](DistillationCase& call, PlanKind plan) {
    set_disjoint(call, 1e4);
    StudentGradients gradients(call.student);
    const DistillationResult result = call.run(context_of(plan), gradients.views());
    expect_distilled(call, result, &gradients, 0x1p-18);
    EXPECT_TRUE(std::isfinite(result.loss));
    EXPECT_LT(largest(gradients.d_hidden), kInfinity);
    EXPECT_LT(largest(gradients.d_weight), kInfinity);
    for (const double acceptance : result.per_token_acceptance) EXPECT_GE(acceptance, 0);
  });
}

// Both are certain of the same token but for 10⁻⁷: the gradient is of that size, and keeps its digits.
TEST(DistillationNumerics, PeakedDistributionsKeepTheirDigits) {
  for_every_call({}, [](DistillationCase& call, PlanKind plan) {
    for (int64_t v = 0; v < call.spec.vocab; ++v) {
      call.student.bias.set(0, v, v == 7 ? 29 : 0.25 * std::sin(static_cast<double>(v)));
      call.teacher.bias.set(0, v, v == 7 ? 31 : 0.25 * std::cos(static_cast<double>(v)));
    }
    StudentGradients gradients(call.student);
    const DistillationResult result = call.run(context_of(plan), gradients.views());
    expect_distilled(call, result, &gradients);
  });
}

// Student and teacher are each certain of another token. What pulls them together is s − t; each other
// gradient is a difference of equal numbers, and so 0 whatever the temperature, the mean and the loss's
// weights.
TEST(DistillationNumerics, WhereAllMassIsInOneEntrySlopesCancel) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64}) {
    for (const DivergenceCase& divergence : divergence_cases()) {
      for (const double temperature : {0.05, 0.03, 0.01}) {
        DistillationSpec spec;
        spec.student.dtype = spec.teacher.dtype = dtype;
        DistillationCase call(spec);
        for (int64_t v = 0; v < spec.vocab; ++v) {
          call.student.bias.set(0, v, v == 7 ? 60 : 0);
          call.teacher.bias.set(0, v, v == 20 ? 60 : 0);
        }
        call.options = divergence.options;
        call.options.divergence_weight = 0.7;
        call.options.token.temperature = temperature;
        // What weighs less than the least normal number may count as 0 or as that.
        const double lost = static_cast<double>(spec.vocab) * 0x1p-126 * (2 * 120 / temperature) / temperature;
        const oracle::DistillationTruth truth = oracle::distillation_truth(call.inputs());
        if (truth.d_bias.cwiseAbs().maxCoeff() > lost) continue;
        for (const PlanKind plan : kPlans) {
          SCOPED_TRACE(divergence.name + " " + name_of(dtype) + " " + name_of(plan) + " at " +
                       std::to_string(temperature));
          StudentGradients gradients(call.student);
          call.run(context_of(plan), gradients.views());
          EXPECT_LE(largest(gradients.d_bias), lost);
          EXPECT_LE(largest(gradients.d_hidden), lost * 2 * 120);
          EXPECT_LE(largest(gradients.d_weight), lost * 2 * 120);
          if (HasFailure()) return;
        }
      }
    }
  }
}

// A common offset of all logits changes nothing: integers below 2²⁴ are exact in float32, and so are these
// logits with the offset and without.
TEST(DistillationNumerics, ACommonOffsetCostsNoDigits) {
  for_every_call({}, [](DistillationCase& call, PlanKind plan) {
    const double offset = call.spec.student.dtype == DType::kFloat64 ? 0x1p40 : 0x1p23;
    std::uniform_int_distribution<int> small(-1, 1);
    for (Model* model : {&call.student, &call.teacher}) {
      for (int64_t v = 0; v < call.spec.vocab; ++v) {
        for (int64_t h = 0; h < model->spec.hidden; ++h) model->weight.set(v, h, small(call.random));
        model->bias.set(0, v, small(call.random));
      }
      for (int64_t i = 0; i < call.spec.tokens; ++i) {
        for (int64_t h = 0; h < model->spec.hidden; ++h) model->hidden.set(i, h, small(call.random));
      }
    }
    StudentGradients before(call.student), after(call.student);
    const DistillationResult want = call.run(context_of(plan), before.views());
    for (Model* model : {&call.student, &call.teacher}) {
      for (int64_t v = 0; v < call.spec.vocab; ++v) model->bias.set(0, v, model->bias.get(0, v) + offset);
    }
    const DistillationResult got = call.run(context_of(plan), after.views());
    EXPECT_EQ(got.per_token_divergence, want.per_token_divergence);
    EXPECT_TRUE(after.bytes() == before.bytes());
  });
}

// At an end of its parameter a family is another divergence, bit for bit.
TEST(DistillationNumerics, EndsAreTheTwoKl) {
  DistillationCase call((DistillationSpec()));
  const auto run = [&](Divergence kind, double beta, double skew, double forward) {
    call.options = {};
    call.options.loss_type = kind;
    if (kind == Divergence::kJsd) call.options.beta = beta;
    if (kind == Divergence::kSkewKl || kind == Divergence::kSkewReverseKl) call.options.skew = skew;
    if (kind == Divergence::kMixedKl) call.options.forward_weight = forward;
    StudentGradients gradients(call.student);
    const DistillationResult result = call.run(context_of(PlanKind::kTwoPass), gradients.views());
    return std::pair(result.per_token_divergence, gradients.bytes());
  };
  const auto forward = run(Divergence::kForwardKl, 0, 0, 0), reverse = run(Divergence::kReverseKl, 0, 0, 0);
  EXPECT_TRUE(forward != reverse);
  EXPECT_TRUE(run(Divergence::kJsd, 0, 0, 0) == forward);
  EXPECT_TRUE(run(Divergence::kJsd, 1, 0, 0) == reverse);
  EXPECT_TRUE(run(Divergence::kSkewKl, 0, 0, 0) == forward);
  EXPECT_TRUE(run(Divergence::kSkewReverseKl, 0, 0, 0) == reverse);
  EXPECT_TRUE(run(Divergence::kMixedKl, 0, 0, 1) == forward);
  EXPECT_TRUE(run(Divergence::kMixedKl, 0, 0, 0) == reverse);
}

// Between the ends the JSD vanishes towards them, as β KL(t ‖ s) and (1 − β) KL(s ‖ t) do: it is no KL there.
TEST(DistillationNumerics, NearItsEndsTheJsdVanishes) {
  DistillationSpec spec;
  spec.student.dtype = spec.teacher.dtype = DType::kFloat64;
  DistillationCase call(spec);
  const auto loss = [&](Divergence kind, double beta) {
    call.options.loss_type = kind;
    call.options.beta = kind == Divergence::kJsd ? beta : Distillation().beta;
    return call.run(context_of(PlanKind::kTwoPass)).loss;
  };
  const double forward = loss(Divergence::kForwardKl, 0), reverse = loss(Divergence::kReverseKl, 0);
  for (const double beta : {1e-8, 1e-9, 1e-12}) {
    EXPECT_NEAR(loss(Divergence::kJsd, beta) / beta, forward, 1e-3 * forward) << beta;
    EXPECT_NEAR(loss(Divergence::kJsd, 1 - beta) / beta, reverse, 1e-3 * reverse) << beta;
  }
}

// A vocabulary entry that both mask has no part in anything; one that only the student has masked makes the
// forward KL infinite, and nothing else.
TEST(DistillationNumerics, MaskedEntriesWeighNothing) {
  for_every_call({}, [](DistillationCase& call, PlanKind plan) {
    call.student.bias.set(0, 3, -kInfinity);
    call.teacher.bias.set(0, 3, -kInfinity);
    StudentGradients gradients(call.student);
    const DistillationResult both = call.run(context_of(plan), gradients.views());
    EXPECT_TRUE(std::isfinite(both.loss));
    EXPECT_EQ(gradients.d_bias.get(0, 3), 0);
    EXPECT_LT(largest(gradients.d_hidden), kInfinity);

    call.teacher.bias.set(0, 3, 0);
    const Distillation& o = call.options;
    const Divergence kind = o.loss_type;
    const bool infinite = kind == Divergence::kForwardKl || (kind == Divergence::kJsd && o.beta == 0) ||
                          (kind == Divergence::kSkewKl && o.skew == 0) ||
                          (kind == Divergence::kMixedKl && o.forward_weight > 0) || kind == Divergence::kLkHybrid;
    EXPECT_EQ(std::isinf(call.run(context_of(plan)).loss), infinite);
  });
}

TEST(DistillationNumerics, NanIsOfItsRowAlone) {
  for_every_call({}, [](DistillationCase& call, PlanKind plan) {
    call.teacher.hidden.set(2, 0, std::numeric_limits<double>::quiet_NaN());
    call.options.reduction = Reduction::kNone;
    StudentGradients gradients(call.student);
    const DistillationResult result = call.run(context_of(plan), gradients.views());
    for (int64_t i = 0; i < call.spec.tokens; ++i) {
      EXPECT_EQ(std::isnan(result.per_token_divergence[static_cast<size_t>(i)]), i == 2) << i;
      EXPECT_EQ(std::isnan(gradients.d_hidden.get(i, 0)), i == 2) << i;
    }
  });
}

TEST(DistillationNumerics, EveryInstructionSetMatchesTheOracle) {
  for (const std::string& target : simd_targets()) {
    for (const DivergenceCase& divergence : divergence_cases()) {
      SCOPED_TRACE(target + " " + divergence.name);
      DistillationSpec spec;
      spec.student.softcap = 6;
      DistillationCase call(spec);
      call.options = divergence.options;
      call.options.hard_weight = 0.5;
      StudentGradients gradients(call.student);
      expect_distilled(call, call.run(context_of(PlanKind::kTwoPass, target), gradients.views()), &gradients);
      if (HasFailure()) return;
    }
  }
}

TEST(DistillationNumerics, ShapesThatFindMistakes) {
  for (const int64_t tokens : {0, 1, 2, 17}) {
    for (const int64_t vocab : {1, 2, 31, 33}) {
      SCOPED_TRACE(std::to_string(tokens) + " tokens of " + std::to_string(vocab));
      DistillationSpec spec;
      spec.tokens = tokens;
      spec.vocab = vocab;
      spec.student.hidden = 1;
      DistillationCase call(spec);
      call.options.loss_type = Divergence::kJsd;
      call.options.hard_weight = 1;
      for (const PlanKind plan : kPlans) {
        StudentGradients gradients(call.student);
        const DistillationResult result = call.run(context_of(plan), gradients.views());
        if (tokens == 0) {
          EXPECT_EQ(result.loss, 0);
        } else {
          expect_distilled(call, result, &gradients);
        }
      }
    }
  }
}

}  // namespace
}  // namespace logitless::testing

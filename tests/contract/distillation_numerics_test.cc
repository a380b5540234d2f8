// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// distillation_loss on extreme numbers, infinities and NaN: equal logits, distributions without overlap,
// large offsets, the ends of parameter ranges, masked vocabulary entries.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "logitless/logitless.h"
#include "oracle/distillation_oracle.h"
#include "support/refusal.h"

namespace logitless::testing {
namespace distillation_numerics_test {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr PlanKind kPlans[] = {PlanKind::kOnePass, PlanKind::kTwoPass};
constexpr int64_t kRows = 20, kVocab = 37;

// Hidden states are the logits, and heads are identities, so that d_hidden is exactly dL/dlogits.
template <class F>
struct Call {
  std::vector<F> student = std::vector<F>(kRows * kVocab), teacher = student, d_hidden = student;
  std::vector<F> identity = std::vector<F>(kVocab * kVocab), student_bias = std::vector<F>(kVocab),
                 teacher_bias = student_bias;
  Distillation task;

  Call() {
    std::mt19937_64 random(1);
    std::normal_distribution<double> normal(0, 2);
    for (F& logit : student) logit = static_cast<F>(normal(random));
    for (F& logit : teacher) logit = static_cast<F>(1.5 * normal(random));
    for (size_t v = 0; v < kVocab; ++v) identity[v * (kVocab + 1)] = 1;
  }
  static constexpr double unit() { return std::numeric_limits<F>::epsilon(); }
  DistillationResult run(PlanKind plan) {
    const auto logits = [&](const std::vector<F>& of, const std::vector<F>& bias) {
      return Logits::of(view(of.data(), {kRows, kVocab}),
                        {.weight = view(identity.data(), {kVocab, kVocab}), .bias = bias});
    };
    Distillation full = task;
    full.teacher = logits(teacher, teacher_bias);
    return logitless::run(Context({.threads = 2, .plan = plan, .row_tile = 8, .vocab_tile = 16}),
                          logits(student, student_bias), full, {.d_hidden = view(d_hidden.data(), {kRows, kVocab})});
  }
  // Returns the largest gradient, or infinity if one is NaN.
  double largest() const {
    double most = 0;
    for (const F value : d_hidden) most = std::isnan(value) ? kInfinity : std::max(most, std::abs(double(value)));
    return most;
  }
};

// Returns every divergence, and the limits of those that have a parameter.
std::vector<Distillation> divergences() {
  std::vector<Distillation> all;
  for (const Divergence kind : all_of<Divergence>()) {
    const auto add = [&](double Distillation::*parameter, const std::vector<double>& values) {
      for (const double value : values) {
        all.emplace_back().loss_type = kind;
        all.back().*parameter = value;
      }
    };
    const std::vector<double> skews = {0, 1e-6, 0.1, 0.5, 1 - 1e-6, 1};
    if (kind == Divergence::kJsd) {
      add(&Distillation::beta, {0, 1e-6, 0.1, 0.5, 0.9, 1 - 1e-6, 1});
    } else if (kind == Divergence::kSkewKl || kind == Divergence::kSkewReverseKl) {
      add(&Distillation::skew, skews);
    } else if (kind == Divergence::kMixedKl) {
      add(&Distillation::forward_weight, {0, 0.3, 1});
    } else {
      all.emplace_back().loss_type = kind;
    }
  }
  return all;
}

std::string name_of_case(const Distillation& task) {
  return std::string(name_of(task.loss_type)) + " " + std::to_string(task.beta) + " " + std::to_string(task.skew) +
         " " + std::to_string(task.forward_weight);
}

// Calls visit(call, plan) for every divergence and plan, in float32 and float64.
void for_every_call(const auto& visit) {
  for (const Distillation& task : divergences()) {
    for (const PlanKind plan : kPlans) {
      SCOPED_TRACE(name_of_case(task) + " " + name_of(plan));
      Call<float> single;
      single.task = task;
      visit(single, plan);
      Call<double> wide;
      wide.task = task;
      visit(wide, plan);
      if (::testing::Test::HasFailure()) return;
    }
  }
}

// Student and teacher have the same logits bit by bit: the loss is 0, and each gradient is a difference of
// equal numbers.
TEST(DistillationNumerics, AStudentThatIsItsTeacherHasNoLossAndNoGradient) {
  for_every_call([](auto& call, PlanKind plan) {
    call.teacher = call.student;
    const DistillationResult result = call.run(plan);
    // The largest gradient of a softmax alone is about 1 / N.
    EXPECT_GE(result.loss, 0);
    EXPECT_LE(result.loss, 4 * call.unit());
    EXPECT_NEAR(result.metrics.mean_acceptance, 1, 4 * call.unit());
    EXPECT_LE(call.largest(), 4 * call.unit());
  });
}

// Entries that are likely for one side have log p = −10⁴ for the other.
TEST(DistillationNumerics, DistributionsThatShareNothingStayFinite) {
  for_every_call([](auto& call, PlanKind plan) {
    for (size_t v = 0; v < kVocab; ++v) {
      call.student_bias[v] = v % 2 == 0 ? -1e4 : 0;
      call.teacher_bias[v] = v % 2 == 1 ? -1e4 : 0;
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
  for_every_call([](auto& call, PlanKind plan) {
    oracle::VectorXd s = oracle::VectorXd::Zero(kVocab), t = s;
    s[7] = t[20] = 60;
    for (size_t i = 0; i < kRows * kVocab; ++i) {
      call.student[i] = s[static_cast<int64_t>(i % kVocab)];
      call.teacher[i] = t[static_cast<int64_t>(i % kVocab)];
    }
    call.task.divergence_weight = 0.7;
    for (const double temperature : {0.05, 0.03, 0.01}) {
      call.task.token.temperature = temperature;
      const double slope =
          oracle::divergence_row(oracle::DivergenceFormula(call.task), oracle::log_softmax(s, temperature),
                                 oracle::log_softmax(t, temperature))
              .gradient.cwiseAbs()
              .maxCoeff();
      // A weight below the smallest normal number may count as 0 or as that number.
      const double lost = static_cast<double>(kVocab) * 0x1p-126 * (120 / temperature) / temperature;
      if (slope / temperature > lost) continue;
      call.run(plan);
      EXPECT_LE(call.largest(), lost) << temperature;
    }
  });
}

// A common offset of all logits has no effect. Integers below 2²⁴ are exact in float32, and so are these
// logits, with and without the offset.
TEST(DistillationNumerics, ACommonOffsetCostsNoDigits) {
  for_every_call([](auto& call, PlanKind plan) {
    std::mt19937_64 random(2);
    std::uniform_int_distribution<int> small(-6, 6);
    for (auto& logit : call.student) logit = small(random);
    for (auto& logit : call.teacher) logit = small(random);
    const DistillationResult want = call.run(plan);
    const auto before = call.d_hidden;
    const double offset = call.unit() < 1e-10 ? 0x1p40 : 0x1p23;
    std::fill(call.student_bias.begin(), call.student_bias.end(), offset);
    call.teacher_bias = call.student_bias;
    EXPECT_EQ(call.run(plan).per_token_divergence, want.per_token_divergence);
    EXPECT_EQ(call.d_hidden, before);
  });
}

// At an end of its parameter's range a family equals another divergence, bit by bit.
TEST(DistillationNumerics, EndsAreTheTwoKl) {
  Call<float> call;
  const auto run = [&](const Distillation& task) {
    call.task = task;
    const std::vector<double> divergence = call.run(PlanKind::kTwoPass).per_token_divergence;
    return std::pair(divergence, call.d_hidden);
  };
  const auto forward = run({.loss_type = Divergence::kForwardKl}), reverse = run({.loss_type = Divergence::kReverseKl});
  EXPECT_TRUE(forward != reverse);
  EXPECT_TRUE(run({.loss_type = Divergence::kJsd, .beta = 0}) == forward);
  EXPECT_TRUE(run({.loss_type = Divergence::kJsd, .beta = 1}) == reverse);
  EXPECT_TRUE(run({.loss_type = Divergence::kSkewKl, .skew = 0}) == forward);
  EXPECT_TRUE(run({.loss_type = Divergence::kSkewReverseKl, .skew = 0}) == reverse);
  EXPECT_TRUE(run({.loss_type = Divergence::kMixedKl, .forward_weight = 1}) == forward);
  EXPECT_TRUE(run({.loss_type = Divergence::kMixedKl, .forward_weight = 0}) == reverse);
}

// A vocabulary entry masked by both has no effect. An entry masked only by the student makes the forward KL
// infinite, and nothing else. A NaN changes only its row.
TEST(DistillationNumerics, MaskedEntriesWeighNothingAndNanIsOfItsRowAlone) {
  for_every_call([](auto& call, PlanKind plan) {
    call.student_bias[3] = call.teacher_bias[3] = -kInfinity;
    EXPECT_TRUE(std::isfinite(call.run(plan).loss));
    EXPECT_LT(call.largest(), kInfinity);
    for (size_t i = 0; i < kRows; ++i) EXPECT_EQ(call.d_hidden[i * kVocab + 3], 0);

    call.teacher_bias[3] = 0;
    const Distillation& o = call.task;
    const Divergence kind = o.loss_type;
    const bool infinite = kind == Divergence::kForwardKl || (kind == Divergence::kJsd && o.beta == 0) ||
                          (kind == Divergence::kSkewKl && o.skew == 0) ||
                          (kind == Divergence::kMixedKl && o.forward_weight > 0) || kind == Divergence::kLkHybrid;
    EXPECT_EQ(std::isinf(call.run(plan).loss), infinite);

    call.student_bias[3] = 0;
    call.teacher[2 * kVocab] = std::numeric_limits<float>::quiet_NaN();
    call.task.reduction = Reduction::kNone;
    const DistillationResult result = call.run(plan);
    for (size_t i = 0; i < kRows; ++i) {
      EXPECT_EQ(std::isnan(result.per_token_divergence[i]), i == 2) << i;
      EXPECT_EQ(std::isnan(call.d_hidden[i * kVocab]), i == 2) << i;
    }
  });
}

// Central differences of float64 losses. Their neglected term h² f''' has no general bound, so two steps
// estimate it.
TEST(DistillationNumerics, GradientsAreThoseOfFiniteDifferences) {
  for (const Distillation& task : divergences()) {
    SCOPED_TRACE(name_of_case(task));
    Call<double> call;
    call.task = task;
    call.task.token.temperature = 1.3;
    call.task.temperature_squared = true;
    // κ of lk_hybrid has no gradient; with η = 0 it is a constant.
    if (task.loss_type == Divergence::kLkHybrid) call.task.acceptance_decay = 0;
    call.run(PlanKind::kTwoPass);
    const std::vector<double> gradients = call.d_hidden;
    for (size_t i = kVocab; i < 2 * kVocab; ++i) {
      const auto slope = [&](double h) {
        const double before = std::exchange(call.student[i], call.student[i] + h);
        const double above = call.run(PlanKind::kTwoPass).loss;
        call.student[i] = before - h;
        const double below = call.run(PlanKind::kTwoPass).loss;
        call.student[i] = before;
        return (above - below) / (2 * h);
      };
      const double coarse = slope(2e-5), fine = slope(1e-5);
      EXPECT_NEAR(gradients[i], fine, std::abs(coarse - fine) + 1e-9) << i;
    }
  }
}

TEST(DistillationNumerics, FinishedLogitsNeedFinishedOnesOfTheTeacher) {
  const std::vector<float> numbers(kRows * kVocab, 0.5F);
  const ConstTensor logits = view(numbers.data(), {kRows, kVocab});
  const auto refused = [&](const Logits& student, const Logits& teacher, const char* words) {
    expect_invalid_input({words}, [&] { run(Context(), student, Distillation{.teacher = teacher}); });
  };
  const Logits states = Logits::of(logits, {.weight = logits});
  refused(Logits::given(logits), states,
          "teacher has no logits: if the student's logits are finished, the teacher's must be too");
  Logits capped = Logits::given(logits);
  capped.head.softcap = 30;  // It would have no effect.
  refused(Logits::given(logits), capped, "teacher: logits are given together with hidden states or a head");
}

}  // namespace distillation_numerics_test
}  // namespace logitless::testing

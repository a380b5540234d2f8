// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Gradients of chosen segments that depend on more than one softmax: a teacher's distribution, and target
// distributions.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "logitless/logitless.h"
#include "segment_calls.h"
#include "support/calls.h"
#include "support/views.h"

namespace logitless::testing {
namespace segment_losses_test {

// A student, and a similar teacher of another width: it has the student's states and head with noise, and
// some components of its own.
struct Pupil {
  SeededModel student;
  int64_t width;
  std::vector<float> states, weight;

  Pupil(int64_t tokens, int64_t hidden, int64_t vocab, double scale, double apart = 0.3)
      : student(tokens, hidden, vocab, scale), width(hidden + 2) {
    states = widened(student.states, tokens, 11, scale * apart);
    weight = widened(student.weight, vocab, 12, apart);
  }

  Teacher teacher() const {
    return {HiddenStates(states.data(), 1, student.tokens, width),
            LmHead(ConstMatrix(weight.data(), student.vocab, width))};
  }
  Caller distillation(const Distillation& options) const {
    return [this, options](const Context& context, const Gradients& gradients) {
      return distillation_loss(context, student.hidden_states(), student.head(), teacher(), student.ids(), options,
                               gradients)
          .plan;
    };
  }

 private:
  std::vector<float> widened(const std::vector<float>& narrow, int64_t rows, unsigned seed, double noise) const {
    std::vector<float> out = normal(static_cast<size_t>(rows * width), seed, noise);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < student.hidden; ++c) {
        out[static_cast<size_t>(r * width + c)] += narrow[static_cast<size_t>(r * student.hidden + c)];
      }
    }
    return out;
  }
};

Distillation of_kind(Divergence kind) {
  Distillation options;
  options.loss_type = kind;
  return options;
}

constexpr Divergence kKinds[] = {Divergence::kForwardKl, Divergence::kReverseKl,      Divergence::kJsd,
                                 Divergence::kSkewKl,    Divergence::kSkewReverseKl,  Divergence::kMixedKl,
                                 Divergence::kLkHybrid,  Divergence::kTotalVariation, Divergence::kAcceptance};

TEST(SegmentLosses, TheMeanOfEveryDivergenceIsExact) {
  const Pupil pupil(8, 5, 1000, 0.2);
  for (const Divergence kind : kKinds) {
    SCOPED_TRACE(name_of(kind));
    expect_unbiased(pupil.student, pupil.distillation(of_kind(kind)), 0.3);
  }
}

TEST(SegmentLosses, TheMeanIsExactBesideHardTargetsAndOtherTemperatures) {
  Pupil pupil(8, 5, 1000, 0.2);
  pupil.student.softcap = 3;
  Distillation options = of_kind(Divergence::kForwardKl);
  options.hard_weight = 0.5;
  options.token.temperature = 2;
  options.teacher_temperature = 1.5;
  options.temperature_squared = true;
  expect_unbiased(pupil.student, pupil.distillation(options), 0.25);
}

TEST(SegmentLosses, TheMeanOfSoftTargetsIsExact) {
  const SeededModel model(8, 5, 1000, 0.2);
  std::vector<float> rows = normal(static_cast<size_t>(model.tokens * model.vocab), 31, 2);
  for (float& x : rows) x = std::exp(x) / 8000;
  expect_unbiased(
      model,
      [&](const Context& context, const Gradients& gradients) {
        return soft_cross_entropy(context, model.hidden_states(), model.head(),
                                  SoftTargets(ConstMatrix(rows.data(), model.tokens, model.vocab)), {}, gradients)
            .plan;
      },
      0.5);
}

TEST(SegmentLosses, CertifiedErrorsAreBelowTheirBounds) {
  const Pupil pupil(40, 9, 2000, 2);
  for (const Divergence kind : kKinds) {
    SCOPED_TRACE(name_of(kind));
    for (const double hard : {0.0, 0.5}) {
      Distillation options = of_kind(kind);
      options.hard_weight = hard;
      const Caller run = pupil.distillation(options);
      const Outputs exact = outputs_of(pupil.student, run, {}, nullptr, options_of(1, PlanKind::kTwoPass));
      Plan plan;
      const Outputs got = outputs_of(pupil.student, run, certified(0.05), &plan);
      ASSERT_LT(plan.kept_share, 0.5);
      EXPECT_GT(got.norms(&exact)[0], 0);
      EXPECT_LT(got.norms(&exact)[0], plan.d_hidden_bound);
      EXPECT_LT(got.norms(&exact)[1], plan.d_weight_bound);
    }
  }
}

TEST(SegmentLosses, TheNoiseIsTheOneThatIsAskedFor) {
  const Pupil pupil(300, 24, 6000, 0.7);
  for (const Divergence kind : {Divergence::kForwardKl, Divergence::kJsd}) {
    SCOPED_TRACE(name_of(kind));
    expect_noise(pupil.student, pupil.distillation(of_kind(kind)), 0.1);
  }
}

TEST(SegmentLosses, HalvesAndTeamsHaveTheBitsOfOneCall) {
  const Pupil pupil(40, 9, 2000, 2);
  const SeededModel& student = pupil.student;
  Distillation options = of_kind(Divergence::kJsd);
  options.hard_weight = 0.25;
  options.token.temperature = 2;
  const Context context(options_of(2));
  const auto forward = distillation_loss.forward(context, student.hidden_states(), student.head(), pupil.teacher(),
                                                 student.ids(), options);
  for (const BackwardOptions& backward : {sampled(0.1, 5), by_noise(0.3, 5), certified(0.2)}) {
    Plan plan;
    const Outputs want = outputs_of(student, pupil.distillation(options), backward, &plan);
    EXPECT_LT(plan.kept_share, 0.5) << name_of(backward.mode);
    const Caller apart = [&](const Context& in, const Gradients& views) {
      return distillation_loss.backward(in, student.hidden_states(), student.head(), pupil.teacher(), student.ids(),
                                        options, forward, 1.0, views);
    };
    EXPECT_EQ(outputs_of(student, apart, backward, nullptr, options_of(3)).values, want.values);
  }
}

// Where the teacher's probability is 0, the reverse divergence is infinite, and so are gradients.
TEST(SegmentLosses, AnEntryThatTheTeacherRulesOutIsNeverDropped) {
  const SeededModel model(6, 5, 1000, 0.2);
  std::vector<float> logits = normal(static_cast<size_t>(model.tokens * model.vocab), 21, 0.5);
  logits[static_cast<size_t>(2 * model.vocab + 700)] = -std::numeric_limits<float>::infinity();
  const Caller run = [&](const Context& context, const Gradients& gradients) {
    return distillation_loss(context, model.hidden_states(), model.head(),
                             Teacher(FinishedLogits(logits.data(), 1, model.tokens, model.vocab)), model.ids(),
                             of_kind(Divergence::kReverseKl), gradients)
        .plan;
  };
  const Outputs exact = outputs_of(model, run, {}, nullptr, options_of(1, PlanKind::kTwoPass));
  const Outputs got = outputs_of(model, run, sampled(0.2, 1));
  for (int64_t row = 0; row < model.tokens; ++row) {
    const auto at = static_cast<size_t>(row * model.hidden);
    EXPECT_EQ(std::isfinite(got.values[at]), std::isfinite(exact.values[at])) << row;
    EXPECT_EQ(std::isfinite(got.values[at]), row != 2);
  }
}

}  // namespace segment_losses_test
}  // namespace logitless::testing

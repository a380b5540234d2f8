// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Distillation from a teacher's log-probabilities at sets of ids, for vanishing masses and shares. Drawn
// calls compare it with the oracle.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "logitless/logitless.h"
#include "support/refusal.h"
#include "support/views.h"

namespace logitless::testing {
namespace set_distillation_test {

constexpr double kNothing = -std::numeric_limits<double>::infinity();

// A row of logits, and what the teacher gives.
struct SetRow {
  std::vector<double> logits;
  std::vector<int64_t> ids;
  std::vector<double> logps = {}, outside_logps = {};
  std::vector<int64_t> targets = {};
  std::vector<float> narrow_logps = {};  ///< in place of logps
  mutable std::vector<double> d_logits = {};

  /// Returns the loss, and sets d_logits.
  double loss(SetDistillation task) const {
    const auto vocab = static_cast<int64_t>(logits.size());
    const std::vector<int64_t> offsets = {0, static_cast<int64_t>(ids.size())};
    task.teacher.sets = IdSets(ConstTensor(ids), offsets);
    task.teacher.logps = narrow_logps.empty() ? ConstTensor(logps) : ConstTensor(narrow_logps);
    if (!outside_logps.empty()) task.teacher.outside_logps = ConstTensor(outside_logps);
    if (!targets.empty()) task.targets = targets;
    d_logits.assign(logits.size(), 99);
    return run(Context(), Logits::given(view(logits.data(), {1, vocab})), task,
               {.d_logits = view(d_logits.data(), {1, vocab})})
        .loss;
  }
  void expect_finite(const SetDistillation& task) const {
    EXPECT_TRUE(std::isfinite(loss(task)));
    for (const double d : d_logits) EXPECT_TRUE(std::isfinite(d)) << d;
  }
};

// Calls test(task) for each set of outside entries with each of these divergences.
template <class Test>
void for_every_outside(const std::vector<Divergence>& kinds, const Test& test) {
  for (const OutsideSet outside : all_of<OutsideSet>()) {
    for (const Divergence kind : kinds) {
      SCOPED_TRACE(std::string(name_of(kind)) + ", " + name_of(outside));
      SetDistillation task;
      task.outside = outside, task.loss_type = kind;
      test(task);
    }
  }
}
const std::vector<Divergence> kKinds = {Divergence::kForwardKl, Divergence::kReverseKl,     Divergence::kJsd,
                                        Divergence::kSkewKl,    Divergence::kSkewReverseKl, Divergence::kTotalVariation,
                                        Divergence::kMixedKl};

TEST(SetDistillation, AStudentThatIsTheTeacherHasNoLossAndNoGradient) {
  SetRow row = {{0.5, -1, 0.25, 2, 0, 1}, {4, 0, 3}};
  double sum = 0;
  for (const double logit : row.logits) sum += std::exp(logit);
  for (const int64_t id : row.ids) row.logps.push_back(row.logits[static_cast<size_t>(id)] - std::log(sum));
  for_every_outside(kKinds, [&](const SetDistillation& task) {
    if (task.outside == OutsideSet::kTeacherRenormalised || task.outside == OutsideSet::kTruncated) return;
    const double loss = row.loss(task);
    EXPECT_GE(loss, 0);
    EXPECT_LE(loss, 1e-14);
    if (task.loss_type == Divergence::kTotalVariation) return;  // it has a corner there
    for (const double d : row.d_logits) EXPECT_NEAR(d, 0, 1e-14);
  });
}

TEST(SetDistillation, StaysFiniteWhereStudentAndTeacherAreFarApart) {
  SetRow row = {{}, {2, 0, 7}, {-9000, -9001, -9002}};
  for (int v = 0; v < 9; ++v) row.logits.push_back(v == 4 ? 0 : -10000 - v);
  for_every_outside(kKinds, [&](const SetDistillation& task) { row.expect_finite(task); });
}

// A probability that underflows has no effect, even if the other side's is 0.
TEST(SetDistillation, ProbabilitiesThatUnderflowWeighNothing) {
  const SetRow student = {{0, 1, kNothing, 0}, {0, 1, 2}, {-1, -1, -800}};
  const SetRow teacher = {{0, 1, -2000, 0}, {0, 1, 2}, {-1, -1, kNothing}};
  for_every_outside({Divergence::kForwardKl}, [&](const SetDistillation& task) { student.expect_finite(task); });
  for_every_outside({Divergence::kReverseKl}, [&](const SetDistillation& task) { teacher.expect_finite(task); });
}

// The tail has two entries, one of which is the target. Its probability underflows, and its slope is
// infinite.
TEST(SetDistillation, AHardTargetInTheTail) {
  const SetRow row = {{0, 1, -2000, -2000}, {0, 1}, {std::log(0.4), std::log(0.5)}, {}, {2}};
  SetDistillation task;
  task.hard_weight = 0.5;
  row.expect_finite(task);
  const double whole = std::log(1 + std::exp(1));
  const double want = 0.4 * (std::log(0.4) + whole) + 0.5 * (std::log(0.5) - 1 + whole) +
                      0.1 * (std::log(0.1 / 2) + 2000 + whole) + 0.5 * (2000 + whole);
  EXPECT_NEAR(row.loss(task), want, 1e-9);
}

// If the student has nothing outside the set, the rounding residual of 1 - T must not count as a probability:
// the loss equals the loss of renormalised sets. The same holds if the set is the whole vocabulary.
TEST(SetDistillation, ATailThatIsEmpty) {
  for (const bool masked : {false, true}) {
    for (const double more : {-3e-8, 0.0, 3e-8}) {
      SetRow row = {{0.5, -1, 0.25, 2, 0}, {0, 1, 2, 3, 4}};
      if (masked) row.logits.push_back(kNothing);
      for (const double p : {0.1, 0.2, 0.3, 0.15, 0.25})
        row.narrow_logps.push_back(static_cast<float>(std::log(p) + more));
      for (const Divergence kind : {Divergence::kForwardKl, Divergence::kReverseKl}) {
        if (masked && kind == Divergence::kReverseKl) continue;  // refused before the student is known
        SCOPED_TRACE(std::string(name_of(kind)) + (masked ? " masked " : " ") + std::to_string(more * 1e8));
        SetDistillation task;
        task.loss_type = kind;
        const double loss = row.loss(task);
        const std::vector<double> d = row.d_logits;
        task.outside = OutsideSet::kRenormalised;
        EXPECT_NEAR(loss, row.loss(task), 1e-6);
        for (size_t v = 0; v < d.size(); ++v) EXPECT_NEAR(d[v], row.d_logits[v], 1e-6);
      }
    }
  }
}

// Probabilities that rounding brings to a sum of 1, or above it, leave no tail. The reverse KL is then
// infinite, and finite with a floor.
TEST(SetDistillation, AFloorKeepsATailOfTheTeacher) {
  for (const double excess : {0.0, 2e-11, 1e-7}) {
    for (const Divergence kind : {Divergence::kReverseKl, Divergence::kMixedKl, Divergence::kJsd,
                                  Divergence::kSkewReverseKl, Divergence::kForwardKl}) {
      SCOPED_TRACE(std::string(name_of(kind)) + ", excess " + std::to_string(excess * 1e8));
      SetRow row = {{0.5, -1, 0.25, 2, 0, 1}, {0, 2, 5}};
      for (const double p : {0.25, 0.25, 0.5 + excess}) row.logps.push_back(std::log(p));
      SetDistillation task;
      task.loss_type = kind;
      if (kind == Divergence::kJsd) task.beta = 1;
      if (kind == Divergence::kSkewReverseKl) task.skew = 0;
      if (kind != Divergence::kForwardKl) {
        expect_invalid_input({"Set tail_floor"}, [&] { row.loss(task); });
        EXPECT_EQ(row.d_logits, std::vector<double>(6, 99));
      }
      task.tail_floor = 1e-7;
      const double loss = row.loss(task);
      EXPECT_TRUE(std::isfinite(loss));
      // A given tail of that mass is the same tail.
      const std::vector<double> d = row.d_logits;
      row.outside_logps = {std::log(task.tail_floor)};
      task.tail_floor = 0;
      EXPECT_EQ(row.loss(task), loss);
      EXPECT_EQ(row.d_logits, d);
    }
  }
}

// A tiny share of one side is not lost if the other side has nothing.
TEST(SetDistillation, SmallSharesOfAMixture) {
  const SetRow row = {{kNothing, 0.5, 0}, {0, 1}, {std::log(0.3), std::log(0.6)}};
  const double whole = std::exp(0.5) + 1;
  for (const double share : {1e-15, 1e-17}) {
    SetDistillation task;
    task.loss_type = Divergence::kSkewKl;
    task.skew = share;
    const double want =
        -0.3 * std::log(share) + 0.6 * std::log(0.6 * whole / std::exp(0.5)) + 0.1 * std::log(0.1 * whole);
    EXPECT_NEAR(row.loss(task), want, 1e-12) << share;
  }
}

// The set has all except 1e-12 of the mass: 1 - S would have four digits.
TEST(SetDistillation, TheTailIsASumOfItsOwn) {
  const double others = std::exp(-27.6) + std::exp(-28.0), whole = std::log(1 + std::exp(1.0) + others);
  const double tail = std::log(others) - whole;
  const SetRow row = {{0, 1, -27.6, -28}, {0, 1}, {-whole, 1 - whole}, {tail - 1}};
  SetDistillation task;
  task.loss_type = Divergence::kReverseKl;
  row.loss(task);
  // s_r (log s_r - log t_r - KL), shared by the two: log s_r - log t_r is 1, and the KL is far smaller.
  EXPECT_NEAR(row.d_logits[2] / (std::exp(tail) * std::exp(-27.6) / others), 1, 1e-9);
}

TEST(SetDistillation, ASetOfNoIdsTakesNoPart) {
  const std::vector<double> logits(2 * 37, 0.5);
  SetDistillation task;
  task.teacher.sets.ids = view(static_cast<const int64_t*>(nullptr), {2, 0});
  std::vector<double> d_logits(logits.size(), 99);
  const auto got =
      run(Context(), Logits::given(view(logits.data(), {2, 37})), task, {.d_logits = view(d_logits.data(), {2, 37})});
  EXPECT_EQ(got.loss, 0);
  EXPECT_EQ(got.metrics.tokens, 0);
  EXPECT_EQ(d_logits, std::vector<double>(logits.size(), 0));
}

}  // namespace set_distillation_test
}  // namespace logitless::testing

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Distillation from a teacher's log-probabilities at sets of ids, compared with its formulas in float64 and
// their differences, also for vanishing masses.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "logitless/error.h"
#include "logitless/logits.h"
#include "logitless/set_distillation.h"
#include "support/calls.h"
#include "support/views.h"

namespace logitless::testing {
namespace set_distillation_test {

// A few rows of logits, and a teacher that is known at sets of token ids.
constexpr int64_t kN = 12, kV = 37;

struct SetCase {
  std::vector<double> logits;  // [N, V]
  std::vector<int64_t> offsets = {0}, ids, targets;
  std::vector<double> logps;  // of the teacher

  SetCase() {
    std::mt19937 random(3);
    std::normal_distribution<double> normal;
    for (int64_t i = 0; i < kN * kV; ++i) logits.push_back(2 * normal(random));
    for (int64_t row = 0; row < kN; ++row) {
      std::vector<int64_t> all(kV);
      std::vector<double> t(kV);
      double sum = 0;
      for (int64_t v = 0; v < kV; ++v) {
        all[v] = v;
        t[v] = logits[row * kV + v] / 2 + normal(random);
        sum += std::exp(t[v]);
      }
      std::shuffle(all.begin(), all.end(), random);
      const int64_t count = row == 4 ? 0 : 1 + row % 5 * 3;  // row 4 is ignored
      for (int64_t k = 0; k < count; ++k) {
        ids.push_back(all[k]);
        logps.push_back(t[all[k]] - std::log(sum));
      }
      offsets.push_back(static_cast<int64_t>(ids.size()));
      targets.push_back(row == 7 ? -100 : row % 2 ? all[0] : all[kV - 1]);  // in the set, or not
    }
  }
  SetTeacher teacher() const {
    SetTeacher out;
    out.sets = IdSets(Targets(std::span(ids)), offsets);
    out.logps = ConstVector(logps.data(), static_cast<int64_t>(logps.size()));
    return out;
  }
  Targets target_ids() const { return Targets(std::span(targets)); }
};

// Returns the sum of f over cells with masses s and t; `whole` means generalised KL.
double cells(const SetDistillation& o, const std::vector<double>& s, const std::vector<double>& t, bool whole) {
  const auto kl = [whole](double x, double y) { return (x > 0 ? x * std::log(x / y) : 0) + (whole ? y - x : 0); };
  double sum = 0;
  for (size_t k = 0; k < s.size(); ++k) {
    switch (o.loss_type) {
      case Divergence::kForwardKl:
        sum += kl(t[k], s[k]);
        break;
      case Divergence::kReverseKl:
        sum += kl(s[k], t[k]);
        break;
      case Divergence::kJsd: {
        const double m = o.beta * t[k] + (1 - o.beta) * s[k];
        if (o.beta == 0 || o.beta == 1) {
          sum += o.beta == 0 ? kl(t[k], s[k]) : kl(s[k], t[k]);
        } else {
          sum += o.beta * kl(t[k], m) + (1 - o.beta) * kl(s[k], m);
        }
        break;
      }
      case Divergence::kSkewKl:
        sum += kl(t[k], o.skew * t[k] + (1 - o.skew) * s[k]);
        break;
      case Divergence::kSkewReverseKl:
        sum += kl(s[k], o.skew * s[k] + (1 - o.skew) * t[k]);
        break;
      case Divergence::kTotalVariation:
        sum += std::abs(s[k] - t[k]) / 2;
        break;
      case Divergence::kMixedKl:
        sum += o.forward_weight * kl(t[k], s[k]) + (1 - o.forward_weight) * kl(s[k], t[k]);
        break;
      default:
        ADD_FAILURE();
    }
  }
  return sum;
}

// Returns the loss of one row, before taking the mean.
double loss_of_row(const SetCase& c, const SetDistillation& o, int64_t row, const std::vector<double>& logits) {
  const double T = o.token.temperature;
  std::vector<double> p(kV);
  double sum = 0;
  for (int64_t v = 0; v < kV; ++v) sum += std::exp(logits[v] / T);
  for (int64_t v = 0; v < kV; ++v) p[v] = std::exp(logits[v] / T) / sum;
  std::vector<double> s, t;
  double S = 0, Tm = 0;
  for (int64_t k = c.offsets[row]; k < c.offsets[row + 1]; ++k) {
    s.push_back(p[c.ids[k]]);
    t.push_back(std::exp(c.logps[k]));
    S += s.back();
    Tm += t.back();
  }
  if (o.outside == OutsideSet::kTail) {
    s.push_back(1 - S);
    t.push_back(std::max(1 - Tm, o.tail_floor));
  }
  for (double& x : t)
    x /= o.outside == OutsideSet::kRenormalised || o.outside == OutsideSet::kTeacherRenormalised ? Tm : 1;
  for (double& x : s) x /= o.outside == OutsideSet::kRenormalised ? S : 1;
  const bool whole = o.outside == OutsideSet::kGeneralised || o.outside == OutsideSet::kTail;
  double loss = o.divergence_weight * (o.temperature_squared ? T * T : 1) * cells(o, s, t, whole);
  if (o.hard_weight > 0) loss -= o.hard_weight * std::log(p[c.targets[row]]);
  return loss;
}

struct Truth {
  double loss = 0;
  std::vector<double> per_token, d_logits;
};

Truth truth_of(const SetCase& c, const SetDistillation& o, bool with_targets) {
  Truth out;
  out.per_token.resize(kN);
  out.d_logits.resize(kN * kV);
  std::vector<bool> active(kN);
  int64_t tokens = 0;
  for (int64_t row = 0; row < kN; ++row) {
    active[row] = c.offsets[row] < c.offsets[row + 1] && !(with_targets && c.targets[row] < 0);
    tokens += active[row];
  }
  const double scale = o.loss_scale / (o.reduction == Reduction::kMean ? o.num_items_in_batch.value_or(tokens) : 1);
  for (int64_t row = 0; row < kN; ++row) {
    if (!active[row]) continue;
    std::vector<double> logits(c.logits.begin() + row * kV, c.logits.begin() + (row + 1) * kV);
    out.per_token[row] = o.loss_scale * loss_of_row(c, o, row, logits);
    out.loss += scale / o.loss_scale * out.per_token[row];
    for (int64_t v = 0; v < kV; ++v) {
      constexpr double kStep = 1e-5;
      const double at = logits[v];
      logits[v] = at + kStep;
      const double above = loss_of_row(c, o, row, logits);
      logits[v] = at - kStep;
      out.d_logits[row * kV + v] = scale * (above - loss_of_row(c, o, row, logits)) / (2 * kStep);
      logits[v] = at;
    }
  }
  return out;
}

void expect_near(const char* what, const std::vector<double>& got, const std::vector<double>& want, double error) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], error) << what << "[" << i << "]";
}

std::vector<SetDistillation> all_options() {
  std::vector<SetDistillation> out;
  for (const OutsideSet outside : all_of<OutsideSet>()) {
    for (const Divergence kind : all_of<Divergence>()) {
      if (kind == Divergence::kAcceptance || kind == Divergence::kLkHybrid) continue;
      SetDistillation o;
      o.outside = outside;
      o.loss_type = kind;
      if (kind == Divergence::kJsd) o.beta = 0.3;
      if (kind == Divergence::kMixedKl) o.forward_weight = 0.25;
      out.push_back(o);
      o.token.temperature = 1.7;
      o.temperature_squared = true;
      o.loss_scale = 0.5;
      o.num_items_in_batch = 5;
      out.push_back(o);
      if (outside == OutsideSet::kRenormalised) continue;
      o = out[out.size() - 2];
      o.hard_weight = 0.4;
      o.divergence_weight = 0.6;
      out.push_back(o);
    }
    for (const double end : {0.0, 1.0}) {
      SetDistillation o;
      o.outside = outside;
      o.loss_type = Divergence::kJsd;
      o.beta = end;
      out.push_back(o);
    }
    if (outside != OutsideSet::kTail) continue;
    for (const Divergence kind : {Divergence::kForwardKl, Divergence::kReverseKl, Divergence::kMixedKl,
                                  Divergence::kSkewKl, Divergence::kSkewReverseKl}) {
      SetDistillation o;
      o.loss_type = kind;
      o.tail_floor = 0.4;
      out.push_back(o);
    }
  }
  return out;
}

std::string name(const SetDistillation& o) {
  return std::string(name_of(o.loss_type)) + ", " + name_of(o.outside) + ", beta " + std::to_string(o.beta) +
         ", hard " + std::to_string(o.hard_weight) + ", floor " + std::to_string(o.tail_floor) + ", temperature " +
         std::to_string(o.token.temperature);
}

TEST(SetDistillation, FinishedLogitsMatchTheFormulas) {
  const SetCase c;
  for (const SetDistillation& o : all_options()) {
    SCOPED_TRACE(name(o));
    const bool hard = o.hard_weight > 0;
    const Truth truth = truth_of(c, o, hard);
    const Targets targets = hard ? c.target_ids() : Targets();
    std::vector<double> d_logits(kN * kV, 99);
    const FinishedLogits logits(c.logits.data(), 1, kN, kV);
    const LogitsGradient out(d_logits.data(), 1, kN, kV);
    const SetDistillationResult got = set_distillation_loss(Context(), logits, c.teacher(), targets, o, out);
    EXPECT_NEAR(got.loss, truth.loss, 1e-12 * kN);
    expect_near("per_token_loss", got.per_token_loss, truth.per_token, 1e-12 * kN);
    expect_near("d_logits", d_logits, truth.d_logits, 1e-8);
  }
}

TEST(SetDistillation, AStudentThatIsTheTeacherHasNoLossAndNoGradient) {
  SetCase c;
  for (int64_t row = 0; row < kN; ++row) {
    double sum = 0;
    for (int64_t v = 0; v < kV; ++v) sum += std::exp(c.logits[row * kV + v]);
    for (int64_t k = c.offsets[row]; k < c.offsets[row + 1]; ++k) {
      c.logps[k] = c.logits[row * kV + c.ids[k]] - std::log(sum);
    }
  }
  for (SetDistillation o : all_options()) {
    if (o.hard_weight > 0 || o.token.temperature != 1 || o.outside == OutsideSet::kTeacherRenormalised ||
        o.outside == OutsideSet::kTruncated || o.tail_floor > 0) {
      continue;
    }
    SCOPED_TRACE(name(o));
    std::vector<double> d_logits(kN * kV, 99);
    const SetDistillationResult got =
        set_distillation_loss(Context(), FinishedLogits(c.logits.data(), 1, kN, kV), c.teacher(), {}, o,
                              LogitsGradient(d_logits.data(), 1, kN, kV));
    EXPECT_GE(got.loss, 0);
    EXPECT_LE(got.loss, 1e-14);
    if (o.loss_type == Divergence::kTotalVariation) continue;  // it has a corner there
    for (const double d : d_logits) ASSERT_NEAR(d, 0, 1e-14);
  }
}

TEST(SetDistillation, StaysFiniteWhereStudentAndTeacherAreFarApart) {
  SetCase c;
  for (int64_t row = 0; row < kN; ++row) {
    for (int64_t v = 0; v < kV; ++v) c.logits[row * kV + v] = v == row ? 0 : -10000 - static_cast<double>(v);
    for (int64_t k = c.offsets[row]; k < c.offsets[row + 1]; ++k) c.logps[k] = -9000 - static_cast<double>(k);
  }
  for (const OutsideSet outside : all_of<OutsideSet>()) {
    for (const Divergence kind : {Divergence::kForwardKl, Divergence::kReverseKl, Divergence::kJsd, Divergence::kSkewKl,
                                  Divergence::kTotalVariation}) {
      SetDistillation o;
      o.outside = outside;
      o.loss_type = kind;
      SCOPED_TRACE(name(o));
      std::vector<double> d_logits(kN * kV, 99);
      const SetDistillationResult got =
          set_distillation_loss(Context(), FinishedLogits(c.logits.data(), 1, kN, kV), c.teacher(), {}, o,
                                LogitsGradient(d_logits.data(), 1, kN, kV));
      EXPECT_TRUE(std::isfinite(got.loss)) << got.loss;
      for (const double d : d_logits) ASSERT_TRUE(std::isfinite(d)) << d;
    }
  }
}

// A probability that underflows has no effect, even if the other side's is 0.
TEST(SetDistillation, ProbabilitiesThatUnderflowWeighNothing) {
  constexpr double kNothing = -std::numeric_limits<double>::infinity();
  const std::vector<int64_t> ids = {0, 1, 2}, offsets = {0, 3};
  const auto expect_finite = [&](std::vector<double> logits, std::vector<double> logps, Divergence kind) {
    SetTeacher teacher;
    teacher.sets = IdSets(Targets(std::span(ids)), offsets);
    teacher.logps = ConstVector(logps.data(), 3);
    for (const OutsideSet outside : all_of<OutsideSet>()) {
      SetDistillation o;
      o.outside = outside;
      o.loss_type = kind;
      SCOPED_TRACE(name(o));
      std::vector<double> d(4, 99);
      const SetDistillationResult got = set_distillation_loss(Context(), FinishedLogits(logits.data(), 1, 1, 4),
                                                              teacher, {}, o, LogitsGradient(d.data(), 1, 1, 4));
      EXPECT_TRUE(std::isfinite(got.loss)) << got.loss;
      for (const double x : d) EXPECT_TRUE(std::isfinite(x)) << x;
    }
  };
  expect_finite({0, 1, kNothing, 0}, {-1, -1, -800}, Divergence::kForwardKl);
  expect_finite({0, 1, -2000, 0}, {-1, -1, kNothing}, Divergence::kReverseKl);
}

// If the student has nothing outside the set, the rounding residual of 1 - T must not count as a probability:
// the loss is that of renormalised sets. The same holds if the set is the whole vocabulary.
TEST(SetDistillation, ATailThatIsEmpty) {
  constexpr double kNothing = -std::numeric_limits<double>::infinity();
  const std::vector<int64_t> ids = {0, 1, 2, 3, 4}, offsets = {0, 5};
  for (const bool masked : {false, true}) {
    for (const double more : {-3e-8, 0.0, 3e-8}) {
      std::vector<double> logits = {0.5, -1, 0.25, 2, 0};
      if (masked) logits.push_back(kNothing);
      const auto vocab = static_cast<int64_t>(logits.size());
      std::vector<float> logps;
      for (const double p : {0.1, 0.2, 0.3, 0.15, 0.25}) logps.push_back(static_cast<float>(std::log(p) + more));
      SetTeacher teacher;
      teacher.sets = IdSets(Targets(std::span(ids)), offsets);
      teacher.logps = ConstVector(logps.data(), 5);
      for (const Divergence kind : {Divergence::kForwardKl, Divergence::kReverseKl}) {
        if (masked && kind == Divergence::kReverseKl) continue;  // refused before the student is known
        SetDistillation o;
        o.loss_type = kind;
        SCOPED_TRACE(name(o) + (masked ? " masked " : " ") + std::to_string(more * 1e8));
        std::vector<double> d(logits.size(), 99), d_set(logits.size(), 99);
        const FinishedLogits given(logits.data(), 1, 1, vocab);
        const double loss =
            set_distillation_loss(Context(), given, teacher, {}, o, LogitsGradient(d.data(), 1, 1, vocab)).loss;
        o.outside = OutsideSet::kRenormalised;
        const double of_set =
            set_distillation_loss(Context(), given, teacher, {}, o, LogitsGradient(d_set.data(), 1, 1, vocab)).loss;
        EXPECT_NEAR(loss, of_set, 1e-6);
        expect_near("d_logits", d, d_set, 1e-6);
      }
    }
  }
}

// Probabilities that rounding brings to a sum of 1, or above it, leave no tail. The reverse KL is then
// infinite, and finite with a floor.
TEST(SetDistillation, AFloorKeepsATailOfTheTeacher) {
  const std::vector<int64_t> ids = {0, 2, 5}, offsets = {0, 3};
  const std::vector<double> logits = {0.5, -1, 0.25, 2, 0, 1};
  const FinishedLogits given(logits.data(), 1, 1, 6);
  for (const double excess : {0.0, 2e-11, 1e-7}) {
    const std::vector<double> logps = {std::log(0.25), std::log(0.25), std::log(0.5 + excess)};
    SetTeacher teacher;
    teacher.sets = IdSets(Targets(std::span(ids)), offsets);
    teacher.logps = ConstVector(logps.data(), 3);
    for (const Divergence kind : {Divergence::kReverseKl, Divergence::kMixedKl, Divergence::kJsd,
                                  Divergence::kSkewReverseKl, Divergence::kForwardKl}) {
      SetDistillation o;
      o.loss_type = kind;
      if (kind == Divergence::kJsd) o.beta = 1;
      if (kind == Divergence::kSkewReverseKl) o.skew = 0;
      SCOPED_TRACE(name(o) + ", excess " + std::to_string(excess * 1e8));
      const auto run = [&](std::vector<double>& d) {
        d.assign(6, 99);
        return set_distillation_loss(Context(), given, teacher, {}, o, LogitsGradient(d.data(), 1, 1, 6)).loss;
      };
      std::vector<double> d, d_given;
      if (kind != Divergence::kForwardKl) {
        try {
          run(d);
          ADD_FAILURE() << "nothing was thrown";
        } catch (const InvalidInput& error) {
          EXPECT_NE(std::string(error.what()).find("Set tail_floor"), std::string::npos) << error.what();
        }
        EXPECT_EQ(d, std::vector<double>(6, 99));
      }
      o.tail_floor = 1e-7;
      const double loss = run(d);
      EXPECT_TRUE(std::isfinite(loss));
      // A given tail of that mass is the same tail.
      const double outside = std::log(o.tail_floor);
      teacher.outside_logps = ConstVector(&outside, 1);
      o.tail_floor = 0;
      EXPECT_EQ(run(d_given), loss);
      EXPECT_EQ(d_given, d);
      teacher.outside_logps = {};
    }
  }
}

// A tiny share of one side is not lost if the other side has nothing.
TEST(SetDistillation, SmallSharesOfAMixture) {
  const std::vector<int64_t> ids = {0, 1}, offsets = {0, 2};
  const std::vector<double> logits = {-std::numeric_limits<double>::infinity(), 0.5, 0},
                            logps = {std::log(0.3), std::log(0.6)};
  SetTeacher teacher;
  teacher.sets = IdSets(Targets(std::span(ids)), offsets);
  teacher.logps = ConstVector(logps.data(), 2);
  const double whole = std::exp(0.5) + 1;
  for (const double share : {1e-15, 1e-17}) {
    SetDistillation o;
    o.loss_type = Divergence::kSkewKl;
    o.skew = share;
    const double got = set_distillation_loss(Context(), FinishedLogits(logits.data(), 1, 1, 3), teacher, {}, o).loss;
    const double want =
        -0.3 * std::log(share) + 0.6 * std::log(0.6 * whole / std::exp(0.5)) + 0.1 * std::log(0.1 * whole);
    EXPECT_NEAR(got, want, 1e-12) << share;
  }
}

TEST(SetDistillation, TheTailIsASumOfItsOwn) {
  // The set has all except 1e-12 of the mass: 1 - S would have four digits.
  std::vector<double> logits = {0, 1, -27.6, -28};
  const std::vector<int64_t> ids = {0, 1}, offsets = {0, 2};
  const double whole = std::log(std::exp(0.0) + std::exp(1.0) + std::exp(-27.6) + std::exp(-28.0));
  const double tail = std::log(std::exp(-27.6) + std::exp(-28.0)) - whole;
  const std::vector<double> logps = {-whole, 1 - whole}, outside = {tail - 1};
  SetTeacher teacher;
  teacher.sets = IdSets(Targets(std::span(ids)), offsets);
  teacher.logps = ConstVector(logps.data(), 2);
  teacher.outside_logps = ConstVector(outside.data(), 1);
  SetDistillation o;
  o.loss_type = Divergence::kReverseKl;
  std::vector<double> d(4, 99);
  set_distillation_loss(Context(), FinishedLogits(logits.data(), 1, 1, 4), teacher, {}, o,
                        LogitsGradient(d.data(), 1, 1, 4));
  // s_r (log s_r - log t_r - KL), shared by the two: log s_r - log t_r is 1, and the KL is far smaller.
  const double share = std::exp(-27.6) / (std::exp(-27.6) + std::exp(-28.0));
  EXPECT_NEAR(d[2] / (std::exp(tail) * share), 1, 1e-9);
}

TEST(SetDistillation, ASetOfNoIdsTakesNoPart) {
  const std::vector<double> logits(2 * kV, 0.5);
  SetTeacher teacher;
  teacher.sets = IdSets(Targets(static_cast<const int64_t*>(nullptr), 0));  // [2, 0]
  std::vector<double> d_logits(2 * kV, 99);
  const SetDistillationResult got = set_distillation_loss(Context(), FinishedLogits(logits.data(), 1, 2, kV), teacher,
                                                          {}, {}, LogitsGradient(d_logits.data(), 1, 2, kV));
  EXPECT_EQ(got.loss, 0);
  EXPECT_EQ(got.metrics.tokens, 0);
  EXPECT_EQ(d_logits, std::vector<double>(2 * kV, 0));
}

}  // namespace set_distillation_test
}  // namespace logitless::testing

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// What a loss against a teacher's log-probabilities at sets of token ids refuses, and by which words.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "logitless/error.h"
#include "logitless/logits.h"
#include "set_distillation_case.h"
#include "support/calls.h"

namespace logitless::testing {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Refusal {
  const char* message;
  std::function<void(SetCase&, SetTeacher&, SetDistillation&, Targets&)> spoil;
};

TEST(SetDistillationBadInput, RefusesWhatIsWrongAndWritesNothing) {
  using O = SetDistillation;
  const Refusal refusals[] = {
      {"must be a log-probability: at most 0, and no probability",
       [](SetCase& c, SetTeacher&, O&, Targets&) { c.logps[3] = 0.4; }},
      {"must be a log-probability", [](SetCase& c, SetTeacher&, O&, Targets&) { c.logps[3] = std::nan(""); }},
      {"twice: a teacher's set has each id once", [](SetCase& c, SetTeacher&, O&, Targets&) { c.ids[2] = c.ids[1]; }},
      {"which is more than 1",
       [](SetCase& c, SetTeacher&, O&, Targets&) { c.logps[1] = c.logps[2] = c.logps[3] = -0.1; }},
      {"is outside [0, 37)", [](SetCase& c, SetTeacher&, O&, Targets&) { c.ids[2] = 37; }},
      {"teacher.logps has", [](SetCase&, SetTeacher& t, O&, Targets&) { --t.logps.sizes[0]; }},
      {"teacher.outside_logps has 3 entries",
       [](SetCase& c, SetTeacher& t, O&, Targets&) { t.outside_logps = ConstVector(c.logps.data(), 3); }},
      {" and teacher.logps of row 1 are of probabilities that sum to 1.",
       [](SetCase& c, SetTeacher& t, O&, Targets&) {
         static const std::vector<double> outside(kN, -0.01);
         c.logps[1] = -0.1;
         t.outside_logps = ConstVector(outside.data(), kN);
       }},
      {"tail_floor = 0.001 has no meaning for outside = truncated",
       [](SetCase&, SetTeacher&, O& o, Targets&) {
         o.tail_floor = 0.001;
         o.outside = OutsideSet::kTruncated;
       }},
      {"tail_floor = 1 must be", [](SetCase&, SetTeacher&, O& o, Targets&) { o.tail_floor = 1; }},
      {"tail_floor = -0.5 must be", [](SetCase&, SetTeacher&, O& o, Targets&) { o.tail_floor = -0.5; }},
      {"none is left for the tail",
       [](SetCase& c, SetTeacher&, O& o, Targets&) {
         c.logps[0] = 0;
         o.loss_type = Divergence::kReverseKl;
       }},
      {"loss_type = acceptance is not a sum over token ids",
       [](SetCase&, SetTeacher&, O& o, Targets&) { o.loss_type = Divergence::kAcceptance; }},
      {"hard_weight = 0.5 needs targets",
       [](SetCase&, SetTeacher&, O& o, Targets& t) {
         o.hard_weight = 0.5;
         t = Targets();
       }},
      {"needs a temperature of 1",
       [](SetCase&, SetTeacher&, O& o, Targets&) {
         o.hard_weight = 0.5;
         o.token.temperature = 2;
       }},
      {"outside = renormalised are both set",
       [](SetCase&, SetTeacher&, O& o, Targets&) {
         o.hard_weight = 0.5;
         o.outside = OutsideSet::kRenormalised;
       }},
      {"teacher.outside_logps is given, but outside = truncated does not read it",
       [](SetCase& c, SetTeacher& t, O& o, Targets&) {
         t.outside_logps = ConstVector(c.logps.data(), kN);
         o.outside = OutsideSet::kTruncated;
       }},
      {"ignore_index = 5 has no meaning here: there are no targets",
       [](SetCase&, SetTeacher&, O& o, Targets& t) {
         o.token.ignore_index = 5;
         t = Targets();
       }},
      {"beta = 0.25 has no meaning", [](SetCase&, SetTeacher&, O& o, Targets&) { o.beta = 0.25; }},
      {"beta = 2 must be", [](SetCase&, SetTeacher&, O& o, Targets&) { o.beta = 2; }},
      {"num_items_in_batch = 3 needs reduction mean",
       [](SetCase&, SetTeacher&, O& o, Targets&) {
         o.num_items_in_batch = 3;
         o.reduction = Reduction::kSum;
       }},
      {"are all -inf",
       [](SetCase& c, SetTeacher&, O& o, Targets&) {
         c.logps[0] = -kInfinity;
         o.outside = OutsideSet::kRenormalised;
       }},
  };
  for (const Refusal& refusal : refusals) {
    SCOPED_TRACE(refusal.message);
    SetCase c;
    SetTeacher teacher = c.teacher();
    SetDistillation o;
    Targets targets = c.target_ids();
    refusal.spoil(c, teacher, o, targets);
    std::vector<double> d_logits(kN * kV, 99);
    try {
      set_distillation_loss(Context(), FinishedLogits(c.logits.data(), 1, kN, kV), teacher, targets, o,
                            LogitsGradient(d_logits.data(), 1, kN, kV));
      ADD_FAILURE() << "nothing was thrown";
    } catch (const InvalidInput& error) {
      EXPECT_NE(std::string(error.what()).find(refusal.message), std::string::npos) << error.what();
    }
    EXPECT_EQ(d_logits, std::vector<double>(kN * kV, 99));
  }
}

}  // namespace
}  // namespace logitless::testing

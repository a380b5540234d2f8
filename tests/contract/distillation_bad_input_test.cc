// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Everything that distillation_loss refuses: the message names argument, value and rule, and nothing has been
// written.
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "logitless/logitless.h"
#include "support/calls.h"
#include "support/distillation_case.h"
#include "support/refusal.h"
#include "support/views.h"

namespace logitless::testing {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A good call, for a case to spoil: 6 tokens, 9 vocabulary entries, H = 4 and 3.
struct Call {
  static DistillationSpec spec() {
    DistillationSpec spec;
    spec.tokens = 6;
    spec.sequences = 2;
    spec.vocab = 9;
    spec.student.hidden = 4;
    spec.teacher.hidden = 3;
    return spec;
  }
  Call() : of(spec()), outputs(of.student), before(outputs.bytes()) {
    hidden = of.student.states();
    head = of.student.head();
    teacher = of.teacher_view();
    targets = of.targets_view();
    gradients = outputs.views();
  }

  DistillationCase of;
  StudentGradients outputs;
  std::vector<std::byte> before;
  HiddenStates hidden;
  LmHead head;
  Teacher teacher;
  Targets targets;
  Gradients gradients;
  Distillation options;
  std::vector<double> temperatures = std::vector<double>(6, 1);
  ContextOptions context;
};

using BadCase = testing::BadCase<Call>;

void expect_all_refused(const std::vector<BadCase>& cases) {
  for (const BadCase& bad : cases) {
    SCOPED_TRACE(bad.name);
    Call call;
    call.context.threads = 1;
    bad.spoil(call);
    const auto refused = [&](const std::function<void()>& run) {
      expect_invalid_input(bad.parts, run);
      EXPECT_TRUE(call.outputs.bytes() == call.before) << "an output was written";
    };
    const Context context(call.context);
    refused([&] {
      distillation_loss(context, call.hidden, call.head, call.teacher, call.targets, call.options, call.gradients);
    });
    refused([&] {
      distillation_loss.plan(context, call.hidden, call.head, call.teacher, call.targets, call.options, call.gradients);
    });
  }
}

TEST(DistillationBadInput, Teachers) {
  expect_all_refused({
      {"another vocabulary",
       [](Call& c) {
         c.teacher.head.weight.rows = 8;
         c.teacher.head.bias.size = 8;
       },
       {"teacher.weight has 8 vocabulary entries but weight has 9"}},
      {"a larger vocabulary",
       [](Call& c) {
         c.head.weight.rows = 8;
         c.head.bias = {};
         c.gradients = {};
       },
       {"teacher.weight has 9 vocabulary entries but weight has 8"}},
      {"student and teacher swapped",
       [](Call& c) { std::swap(c.head, c.teacher.head); },
       {"weight is [9, 3] but hidden has 4"}},
      {"other rows",
       [](Call& c) {
         c.teacher.hidden.states.rows = 5;
         c.teacher.hidden.sequences = 1;
       },
       {"teacher.hidden has 5 rows but hidden has 6"}},
      {"no teacher", [](Call& c) { c.teacher = {}; }, {"teacher: "}},
      {"states of another width",
       [](Call& c) { c.teacher.hidden.states.cols = 2; },
       {"teacher: weight is [9, 3] but hidden has 2"}},
      {"a bias of another size",
       [](Call& c) { c.teacher.head.bias.size = 8; },
       {"teacher: bias has 8 entries but the vocabulary has 9"}},
      {"softcap", [](Call& c) { c.teacher.head.softcap = -1; }, {"teacher: softcap = -1"}},
      {"rounding",
       [](Call& c) { c.teacher.round_logits_to = DType::kFloat32; },
       {"teacher_round_logits_to = float32 must be bfloat16 or float16"}},
      {"an output over its weight",
       [](Call& c) { c.gradients.d_weight.data = const_cast<void*>(c.teacher.head.weight.data); },
       {"d_weight", "teacher.weight"}},
  });
  DistillationSpec spec = Call::spec();
  spec.teacher.dtype = DType::kFloat64;
  const DistillationCase mixed(spec);
  expect_invalid_input({"teacher.hidden is float64 but hidden is float32: float64 mixes with no other type"},
                       [&] { mixed.run(Context()); });
}

TEST(DistillationBadInput, Options) {
  const auto number = [](double Distillation::*member, double value) {
    return [member, value](Call& c) { c.options.*member = value; };
  };
  using O = Distillation;
  std::vector<BadCase> cases;
  for (const double value : {-0.1, 1.1, kNaN, kInfinity}) {
    cases.push_back({"beta", number(&O::beta, value), {"beta = ", "a number from 0 to 1"}});
    cases.push_back({"skew", number(&O::skew, value), {"skew = ", "a number from 0 to 1"}});
    cases.push_back({"forward_weight", number(&O::forward_weight, value), {"forward_weight = ", "from 0 to 1"}});
  }
  for (const double value : {-1.0, kNaN, kInfinity}) {
    cases.push_back({"decay", number(&O::acceptance_decay, value), {"acceptance_decay = ", "at least 0"}});
    cases.push_back({"weight", number(&O::divergence_weight, value), {"divergence_weight = ", "at least 0"}});
    cases.push_back({"hard weight", number(&O::hard_weight, value), {"hard_weight = ", "at least 0"}});
    cases.push_back({"teacher_temperature",
                     [value](Call& c) { c.options.teacher_temperature = value; },
                     {"teacher_temperature = ", "above 0"}});
    cases.push_back({"hard_temperature", number(&O::hard_temperature, value), {"hard_temperature = ", "above 0"}});
    cases.push_back({"temperature", [value](Call& c) { c.options.token.temperature = value; }, {"temperature = "}});
    cases.push_back(
        {"num_items_in_batch", [value](Call& c) { c.options.num_items_in_batch = value; }, {"num_items_in_batch = "}});
  }
  cases.push_back({"loss_scale", number(&O::loss_scale, kNaN), {"loss_scale = nan"}});
  expect_all_refused(cases);
  expect_all_refused({
      {"beta without jsd", number(&O::beta, 0.25), {"beta = 0.25 has no meaning for divergence forward_kl"}},
      {"skew without a skew KL", number(&O::skew, 0.25), {"skew = 0.25 has no meaning for divergence forward_kl"}},
      {"forward_weight", number(&O::forward_weight, 0.25), {"forward_weight = 0.25 has no meaning"}},
      {"acceptance_decay", number(&O::acceptance_decay, 1), {"acceptance_decay = 1 has no meaning"}},
      {"hard_temperature", number(&O::hard_temperature, 2), {"hard_temperature = 2 is set but hard_weight = 0"}},
      {"no targets",
       [](Call& c) {
         c.targets = {};
         c.options.hard_weight = 1;
       },
       {"hard_weight = 1 needs targets"}},
      {"nothing to shift",
       [](Call& c) {
         c.targets = {};
         c.options.token.shift = 1;
       },
       {"shift = 1", "no targets"}},
      {"a negative shift", [](Call& c) { c.options.token.shift = -1; }, {"shift = -1"}},
      {"scale_logp",
       [](Call& c) { c.options.token.temperature_meaning = TemperatureMeaning::kScaleLogp; },
       {"token.temperature_meaning = scale_logp"}},
      {"num_items_in_batch of a sum",
       [](Call& c) {
         c.options.reduction = Reduction::kSum;
         c.options.num_items_in_batch = 2;
       },
       {"num_items_in_batch = 2 needs reduction mean"}},
      {"mean_over of a sum",
       [](Call& c) {
         c.options.reduction = Reduction::kSum;
         c.options.mean_over = MeanOver::kSequences;
       },
       {"mean_over = sequences needs reduction mean"}},
      {"temperatures of another size",
       [](Call& c) {
         c.temperatures.resize(5);
         c.options.token.temperatures = c.temperatures;
         c.options.hard_weight = 1;
       },
       {"temperatures has 5 entries but hidden has 6"}},
      {"a temperature that is none",
       [](Call& c) {
         c.temperatures[1] = kNaN;
         c.options.token.temperatures = c.temperatures;
         c.options.hard_weight = 1;
       },
       {"temperatures[1] = nan"}},
      {"a target outside", [](Call& c) { c.of.ids[0] = 9; }, {"targets[0] = 9 is outside [0, 9)"}},
      {"too few targets", [](Call& c) { c.targets.size = 5; }, {"targets"}},
      {"a slice that meets nobody",
       [](Call& c) {
         c.context.ranks.slice = VocabSlice{};
         c.context.ranks.slice->vocab_size = 9;
       },
       {"a divergence is wanted: it takes a second walk"}},
  });
}

TEST(DistillationBadInput, ForwardHalvesOfOtherCalls) {
  Call call;
  const Context context;
  const Forward<Distillation> good =
      distillation_loss.forward(context, call.hidden, call.head, call.teacher, call.targets, call.options);
  const auto backward = [&](const Forward<Distillation>& forward, std::span<const double> upstream) {
    distillation_loss.backward(context, call.hidden, call.head, call.teacher, call.targets, call.options, forward,
                               upstream, call.gradients);
  };
  const std::vector<double> one = {1}, two = {1, 1}, nan = {kNaN};
  expect_invalid_input({"upstream has 2 entries but must have 1"}, [&] { backward(good, two); });
  expect_invalid_input({"upstream = nan"}, [&] { backward(good, nan); });
  Forward<Distillation> short_stats = good;
  short_stats.stats.divergence.mean.pop_back();
  expect_invalid_input({"stats.divergence has 5 entries but hidden has 6 rows"}, [&] { backward(short_stats, one); });
  call.options.reduction = Reduction::kNone;
  expect_invalid_input({"upstream has 2 entries but must have 6"}, [&] { backward(good, two); });
  EXPECT_TRUE(call.outputs.bytes() == call.before);
  // A call without a teacher has no divergence to go back from.
  TokenGrads grads;
  grads.divergence.assign(6, 1);
  const TokenStats stats = compute_token_stats(context, call.hidden, call.head, call.targets);
  expect_invalid_input({"grads.divergence is given but the call has no teacher"}, [&] {
    backpropagate_token_grads(context, call.hidden, call.head, call.targets, {}, {}, stats, grads, call.gradients);
  });
}

}  // namespace
}  // namespace logitless::testing

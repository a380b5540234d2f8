// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Every kind of bad input of preference_loss and kto_loss: the message names argument, value and rule, and
// nothing has been written. What is wrong with a reference stands in reference_bad_input_test.cc.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "preference_call.h"
#include "support/calls.h"

namespace logitless::testing {
namespace {

using L = PreferenceLossType;
using Call = PreferenceCall;
using BadCase = testing::BadCase<Call>;

TEST(PreferenceBadInput, TheCallThatTheCasesSpoilIsGood) {
  for (const bool model : {false, true}) {
    for (const auto& function : {run_preference, run_kto}) {
      Call call;
      if (model) call.use_model();
      EXPECT_NO_THROW(function(call));
      EXPECT_FALSE(call.outputs.bytes() == call.before);
    }
  }
}

TEST(PreferenceBadInput, Sequences) {
  const std::vector<BadCase> of_pairs = {
      {"odd batch", [](Call& c) { c.hidden.sequences = 3; }, {"3 sequences", "even"}},
      {"one sequence", [](Call& c) { c.hidden.sequences = 1; }, {"1 sequence", "even"}},
      {"odd packed batch",
       [](Call& c) {
         c.hidden.offsets = c.integers = {0, 2, 2, 12};
       },
       {"3 sequences", "even"}},
  };
  expect_refused_by({run_preference}, of_pairs);
  const std::vector<BadCase> of_both = {
      {"batch", [](Call& c) { c.hidden.sequences = 8; }, {"targets has 12 entries but hidden has 8 rows"}},
      {"offsets",
       [](Call& c) {
         c.hidden.offsets = c.integers = {0, 5, 11};
       },
       {"offsets[2] = 11", "12"}},
      {"targets", [](Call& c) { c.targets.size = 11; }, {"targets has 11", "12"}},
      {"null targets", [](Call& c) { c.targets.data64 = nullptr; }, {"targets", "null"}},
      {"a vocabulary entry too many",
       [](Call& c) {
         c.integers.assign(12, 0);
         c.integers[7] = 5;
         c.targets = Targets(std::span<const int64_t>(c.integers));
       },
       {"targets[7] = 5", "[0, 5)", "ignore_index (-100)"}},
      {"hidden", [](Call& c) { c.hidden.states.data = nullptr; }, {"hidden", "null"}},
      {"weight", [](Call& c) { c.head.weight.rows = 3; }, {"weight is [5, 3]", "4"}},
      {"d_hidden", [](Call& c) { c.gradients.d_hidden.rows = 6; }, {"d_hidden is [4, 4]", "[12, 4]"}},
      {"workspace", [](Call& c) { c.context.workspace_bytes = 10; }, {"workspace_bytes = 10"}},
  };
  expect_refused_by({run_preference, run_kto}, of_both);
}

TEST(PreferenceBadInput, Losses) {
  const std::vector<BadCase> of_pairs = {
      {"none", [](Call& c) { c.options.loss_type.clear(); }, {"loss_type is empty"}},
      {"weight",
       [](Call& c) {
         c.options.loss_type = {L::kSigmoid, L::kIpo};
         c.options.loss_weights = {1, kNaN};
       },
       {"loss_weights[1] = nan"}},
      {"weight", [](Call& c) { c.options.loss_weights = {kInfinity}; }, {"loss_weights[0] = inf"}},
      {"number of weights",
       [](Call& c) {
         c.options.loss_weights = {1, 2};
       },
       {"loss_weights has 2", "loss_type has 1"}},
  };
  expect_refused_by({run_preference}, of_pairs);
}

TEST(PreferenceBadInput, Numbers) {
  const std::vector<double> not_positive = {0, -1, kNaN, kInfinity}, not_finite = {kNaN, kInfinity, -kInfinity},
                            negative = {-0.5, kNaN, kInfinity};
  const Functions of_pairs = {run_preference}, of_kto = {run_kto}, of_both = {run_preference, run_kto};
  const auto refused = expect_values_refused_by;
  refused(of_both, "beta", not_positive, [](Call& c, double x) { c.options.beta = c.kto.beta = x; });
  refused(of_both, "loss_scale", not_finite, [](Call& c, double x) { c.options.loss_scale = c.kto.loss_scale = x; });
  refused(of_both, "temperature", not_positive,
          [](Call& c, double x) { c.options.token.temperature = c.kto.token.temperature = x; });
  refused(of_pairs, "discopop_tau", not_positive, [](Call& c, double x) { c.options.discopop_tau = x; });
  refused(of_pairs, "simpo_gamma", not_finite, [](Call& c, double x) { c.options.simpo_gamma = x; });
  refused(of_pairs, "f_alpha", not_finite, [](Call& c, double x) {
    c.options.f_divergence = FDivergence::kAlpha;
    c.options.f_alpha = x;
  });
  refused(of_pairs, "ld_alpha", {-0.1, 1.1, kNaN}, [](Call& c, double x) { c.options.ld_alpha = x; });
  refused(of_pairs, "reward_alpha", not_finite, [](Call& c, double x) {
    c.use_loss(L::kSimpo, 0);
    c.options.reward_alpha = x;
  });
  refused(of_kto, "bco_delta", not_finite, [](Call& c, double x) {
    c.kto.loss_type = KtoLossType::kBco;
    c.kto.bco_delta = x;
  });
  refused(of_pairs, "nll_weight", negative, [](Call& c, double x) { c.options.nll_weight = x; });
  refused(of_kto, "desirable_weight", negative, [](Call& c, double x) { c.kto.desirable_weight = x; });
  refused(of_kto, "undesirable_weight", negative, [](Call& c, double x) { c.kto.undesirable_weight = x; });
}

TEST(PreferenceBadInput, OptionsWithoutAMeaningForTheLoss) {
  std::vector<BadCase> cases;
  for (const L loss : every_preference_loss()) {
    const bool takes_scores = loss == L::kSigmoid || loss == L::kHinge || loss == L::kIpo || loss == L::kExoPair ||
                              loss == L::kRobust || loss == L::kDiscopop || loss == L::kSigmoidNorm || loss == L::kSft;
    const double smoothing = loss == L::kExoPair ? 0.1 : 0;
    const auto add = [&](const std::string& option, const std::function<void(PreferenceLoss&)>& set) {
      cases.push_back({name_of(loss) + (" with " + option),
                       [=](Call& c) { c.use_loss(loss, smoothing), set(c.options); },
                       {option, name_of(loss)}});
    };
    if (!takes_scores) add("f_divergence = js_divergence", [](auto& o) { o.f_divergence = FDivergence::kJs; });
    if (loss == L::kAot || loss == L::kAotUnpaired || loss == L::kSft) {
      add("use_weighting", [](auto& o) { o.use_weighting = true; });
    }
    if (loss == L::kAot || loss == L::kAotUnpaired) {
      add("use_weighting", [](auto& o) { o.use_weighting = true, o.loss_type.push_back(L::kSigmoid); });
    }
    if (loss != L::kSimpo && loss != L::kCpo) add("reward_alpha = 0.5", [](auto& o) { o.reward_alpha = 0.5; });
  }
  cases.push_back({"sft alone, ld_alpha",
                   [](Call& c) { c.use_loss(L::kSft, 0), c.options.ld_alpha = 0.5; },
                   {"ld_alpha = 0.5", "sft"}});
  cases.push_back({"sft alone, f_divergence",
                   [](Call& c) { c.use_loss(L::kSft, 0), c.options.f_divergence = FDivergence::kJs; },
                   {"f_divergence = js_divergence", "sft"}});
  cases.push_back({"no loss",
                   [](Call& c) { c.options.loss_type = {PreferenceLossType{99}}; },
                   {"loss_type[0] = 99", "enumerators"}});
  cases.push_back({"f_alpha alone", [](Call& c) { c.options.f_alpha = 2; }, {"f_alpha = 2", "reverse_kl"}});
  expect_refused_by({run_preference}, cases);
}

TEST(PreferenceBadInput, LabelSmoothing) {
  for (const L loss : every_preference_loss()) {
    const bool smooths = loss == L::kExoPair || loss == L::kRobust || loss == L::kAot || loss == L::kAotUnpaired ||
                         loss == L::kSimpo || loss == L::kCpo;
    SCOPED_TRACE(name_of(loss));
    std::vector<double> bad = {-0.25, 1.0, 1.5, kNaN};
    if (!smooths) bad.push_back(0.1);
    if (loss == L::kRobust) bad.insert(bad.end(), {0.5, 0.75});
    if (loss == L::kExoPair) bad.push_back(0);
    expect_values_refused_by({run_preference}, "label_smoothing", bad,
                             [loss](Call& c, double x) { c.use_loss(loss, x); });
    std::vector<double> good = smooths ? std::vector<double>{0.1, 0.25} : std::vector<double>{0};
    for (const double smoothing : good) {
      Call call;
      call.use_loss(loss, smoothing);
      EXPECT_NO_THROW(run_preference(call)) << smoothing;
    }
  }
  const std::vector<BadCase> of_pairs = {
      {"named", [](Call& c) { c.use_loss(L::kSigmoid, 0.125); }, {"label_smoothing = 0.125", "sigmoid"}},
      {"robust", [](Call& c) { c.use_loss(L::kRobust, 0.5); }, {"label_smoothing = 0.5", "robust", "0.5"}},
      {"exo_pair", [](Call& c) { c.use_loss(L::kExoPair, 0); }, {"label_smoothing = 0", "exo_pair"}},
      // The range of every loss holds, whatever the others allow.
      {"of a sum",
       [](Call& c) {
         c.options.loss_type = {L::kAot, L::kSigmoid, L::kRobust};
         c.options.label_smoothing = 0.75;
       },
       {"label_smoothing = 0.75", "robust"}},
      {"of another sum",
       [](Call& c) {
         c.options.loss_type = {L::kSigmoid, L::kExoPair};
       },
       {"label_smoothing = 0", "exo_pair"}},
  };
  expect_refused_by({run_preference}, of_pairs);
}

// A weight of 0 changes what a loss adds, not what it asks for.
TEST(PreferenceBadInput, ALossOfWeight0AsksForItsReferenceAndSmoothing) {
  const std::vector<BadCase> of_pairs = {
      {"reference",
       [](Call& c) {
         c.options.loss_type = {L::kSft, L::kSigmoid};
         c.options.loss_weights = {1, 0};
         c.reference = {};
       },
       {"reference"}},
      {"label_smoothing",
       [](Call& c) {
         c.options.loss_type = {L::kSigmoid, L::kExoPair};
         c.options.loss_weights = {1, 0};
       },
       {"label_smoothing = 0", "exo_pair"}},
  };
  expect_refused_by({run_preference}, of_pairs);
  Call call;
  const auto loss_of = [&](std::vector<L> losses, std::vector<double> weights) {
    call.options.loss_type = std::move(losses);
    call.options.loss_weights = std::move(weights);
    return preference_loss(Context(), call.hidden, call.head, call.targets, call.reference, call.options).loss;
  };
  EXPECT_EQ(loss_of({L::kSigmoid, L::kIpo}, {1, 0}), loss_of({L::kSigmoid}, {}));
  EXPECT_EQ(loss_of({L::kSigmoid}, {0}), 0);
}

TEST(PreferenceBadInput, KtoBatches) {
  const auto baseline = [](int64_t policy, int64_t reference) {
    return [=](Call& c) {
      c.kl_logps = ConstVector(c.doubles.data(), policy);
      c.kl_ref_logps = ConstVector(c.doubles.data() + 32, reference);
    };
  };
  const auto with = [baseline](int64_t at, double value) {
    return [=](Call& c) {
      c.doubles[at] = value;
      baseline(3, 3)(c);
    };
  };
  const std::vector<BadCase> of_kto = {
      {"a label too few", [](Call& c) { c.labels.pop_back(); }, {"labels has 3", "4"}},
      {"a label a token", [](Call& c) { c.labels.resize(12); }, {"labels has 12", "4"}},
      {"a label of 255", [](Call& c) { c.labels[3] = 255; }, {"labels[3] = 255 must be 0 or 1"}},
      {"no labels", [](Call& c) { c.labels.clear(); }, {"labels is not given", "4"}},
      {"kl_logps alone", baseline(3, 0), {"kl_logps has 3", "kl_ref_logps has 0"}},
      {"kl_ref_logps alone", baseline(0, 2), {"kl_logps is not given", "kl_ref_logps has 2"}},
      {"unequal", baseline(3, 4), {"kl_logps has 3", "kl_ref_logps has 4"}},
      {"NaN", with(1, kNaN), {"kl_logps[1] = nan", "finite"}},
      {"infinity", with(34, kInfinity), {"kl_ref_logps[2] = inf", "finite"}},
      {"null",
       [baseline](Call& c) {
         baseline(3, 3)(c);
         c.kl_logps.data = nullptr;
       },
       {"kl_logps", "null"}},
  };
  expect_refused_by({run_kto}, of_kto);
}

TEST(PreferenceBadInput, Overlaps) {
  const std::vector<BadCase> of_both = {
      {"targets", [](Call& c) { c.write_over(c.targets.data64); }, {"d_hidden", "overlaps", "targets"}},
      {"hidden", [](Call& c) { c.write_over(c.hidden.states.data); }, {"d_hidden", "overlaps", "hidden"}},
      {"ref_logps",
       [](Call& c) {
         c.reference.logps = ConstVector(c.doubles.data(), 4);
         c.write_over(c.doubles.data());
       },
       {"d_hidden", "overlaps", "ref_logps"}},
      {"reference.hidden",
       [](Call& c) {
         c.use_model();
         c.write_over(c.reference.hidden.states.data);
       },
       {"d_hidden", "overlaps", "reference.hidden"}},
      {"reference.weight",
       [](Call& c) {
         c.use_model();
         c.write_over(c.reference.head.weight.data);
       },
       {"d_hidden", "overlaps", "reference.weight"}},
      {"the reference's bias",
       [](Call& c) {
         c.use_model();
         c.gradients.d_bias.data = const_cast<void*>(c.reference.head.bias.data);
       },
       {"d_bias", "overlaps", "reference.bias"}},
  };
  expect_refused_by({run_preference, run_kto}, of_both);
  const std::vector<BadCase> of_kto = {
      {"labels", [](Call& c) { c.write_over(c.labels.data()); }, {"d_hidden", "overlaps", "labels"}},
      {"kl_ref_logps",
       [](Call& c) {
         c.kl_logps = ConstVector(c.sums.data(), 4);
         c.kl_ref_logps = ConstVector(c.doubles.data(), 4);
         c.write_over(c.doubles.data());
       },
       {"d_hidden", "overlaps", "kl_ref_logps"}},
  };
  expect_refused_by({run_kto}, of_kto);
}

}  // namespace
}  // namespace logitless::testing

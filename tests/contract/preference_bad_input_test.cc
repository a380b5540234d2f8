// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Every kind of bad input of preference_loss and kto_loss: the message names argument, value and rule, and
// nothing has been written.
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "support/preference_cases.h"
#include "support/refusal.h"
#include "support/testers.h"

namespace logitless::testing {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
using L = PreferenceLoss;

// A good call of both functions, for a case to spoil: 4 sequences of 3 tokens, 5 words, H = 4; the
// reference's H is 12, so that a d_hidden that is put over its head ends within it.
struct Call {
  static InputSpec spec(int64_t hidden_size, uint64_t seed) {
    InputSpec spec;
    spec.tokens = 12;
    spec.sequences = 4;
    spec.vocab = 5;
    spec.hidden = hidden_size;
    spec.seed = seed;
    return spec;
  }
  Call() : inputs(spec(4, 1)), model(spec(12, 2)), outputs(inputs, {}), before(outputs.bytes()) {
    hidden = inputs.hidden_view();
    head = inputs.head_view();
    targets = inputs.targets_view();
    gradients = outputs.gradients();
    reference.logps = ConstVector(sums.data(), 4);
  }
  // Gives the reference as hidden states and a head.
  void use_model() {
    reference = {};
    reference.hidden = model.hidden_view();
    reference.head = model.head_view();
  }
  void write_over(const void* data) { gradients.d_hidden.data = const_cast<void*>(data); }
  void use_term(PreferenceLoss loss, double smoothing) {
    options.terms = {{loss, 1.0}};
    options.label_smoothing = smoothing;
    if (!oracle::compares_with_reference(loss)) reference = {};
  }
  KtoBatch kto_batch() const {
    KtoBatch batch;
    batch.targets = targets;
    batch.labels = labels;
    batch.reference = reference;
    batch.kl_logps = kl_logps;
    batch.kl_ref_logps = kl_ref_logps;
    return batch;
  }

  Inputs inputs, model;
  GradientOutputs outputs;
  std::vector<std::byte> before;
  HiddenStates hidden;
  LmHead head;
  Targets targets;
  Gradients gradients;
  Reference reference;
  PreferenceOptions options;
  KtoOptions kto;
  ContextOptions context;
  std::vector<double> sums = {-3, -4, -5, -6};
  std::vector<uint8_t> labels = {1, 0, 1, 0};
  ConstVector kl_logps, kl_ref_logps;
  // What views of a case point to.
  std::vector<double> doubles = std::vector<double>(64, -1.0);
  std::vector<int64_t> integers;
};

using BadCase = testing::BadCase<Call>;

// `function` refuses the call with all parts in one line, and leaves the outputs as they were.
void expect_refused(const Call& call, const std::vector<std::string>& parts, const std::function<void()>& function) {
  expect_invalid_input(parts, function);
  EXPECT_TRUE(call.outputs.bytes() == call.before) << "an output was written";
}

void run_preference(const Call& call) {
  preference_loss(Context(call.context), call.hidden, call.head, call.targets, call.reference, call.options,
                  call.gradients);
}
void run_kto(const Call& call) {
  kto_loss(Context(call.context), call.hidden, call.head, call.kto_batch(), call.kto, call.gradients);
}

using Functions = std::vector<std::function<void(const Call&)>>;

void expect_refused_by(const Functions& functions, const std::vector<BadCase>& cases) {
  for (const BadCase& bad : cases) {
    SCOPED_TRACE(bad.name);
    for (const auto& function : functions) {
      Call call;
      bad.spoil(call);
      expect_refused(call, bad.parts, [&] { function(call); });
    }
  }
}

// Sets an option to each of these values.
void expect_values_refused_by(const Functions& functions, const std::string& name, const std::vector<double>& values,
                              const std::function<void(Call&, double)>& set) {
  for (const double value : values) {
    const auto spoil = [&](Call& c) { set(c, value); };
    expect_refused_by(functions, {{name + " " + std::to_string(value), spoil, {name + " = "}}});
  }
}

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
      {"batch", [](Call& c) { c.hidden.sequences = 8; }, {"12 rows", "8 sequences"}},
      {"offsets",
       [](Call& c) {
         c.hidden.offsets = c.integers = {0, 5, 11};
       },
       {"offsets[2] = 11", "12"}},
      {"targets", [](Call& c) { c.targets.size = 11; }, {"targets has 11", "12"}},
      {"null targets", [](Call& c) { c.targets.data64 = nullptr; }, {"targets", "null"}},
      {"a word too many",
       [](Call& c) {
         c.integers.assign(12, 0);
         c.integers[7] = 5;
         c.targets = Targets(std::span<const int64_t>(c.integers));
       },
       {"targets[7] = 5", "[0, 5)", "ignore_index (-100)"}},
      {"hidden", [](Call& c) { c.hidden.states.data = nullptr; }, {"hidden", "null"}},
      {"lm_head", [](Call& c) { c.head.weight.rows = 3; }, {"lm_head has 3 rows", "4"}},
      {"d_hidden", [](Call& c) { c.gradients.d_hidden.rows = 6; }, {"d_hidden is [6, 4]", "[12, 4]"}},
      {"workspace", [](Call& c) { c.context.workspace_bytes = 10; }, {"workspace_bytes = 10"}},
  };
  expect_refused_by({run_preference, run_kto}, of_both);
}

TEST(PreferenceBadInput, Terms) {
  const std::vector<BadCase> of_pairs = {
      {"no term", [](Call& c) { c.options.terms.clear(); }, {"terms"}},
      {"weight",
       [](Call& c) {
         c.options.terms = {{L::kSigmoid, 1}, {L::kIpo, kNaN}};
       },
       {"terms[1]", "weight", "nan"}},
      {"weight",
       [](Call& c) {
         c.options.terms = {{L::kSigmoid, kInfinity}};
       },
       {"terms[0]", "weight", "inf"}},
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
  refused(of_pairs, "nll_weight", negative, [](Call& c, double x) { c.options.nll_weight = x; });
  refused(of_kto, "desirable_weight", negative, [](Call& c, double x) { c.kto.desirable_weight = x; });
  refused(of_kto, "undesirable_weight", negative, [](Call& c, double x) { c.kto.undesirable_weight = x; });
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
                             [loss](Call& c, double x) { c.use_term(loss, x); });
    std::vector<double> good = smooths ? std::vector<double>{0.1, 0.25} : std::vector<double>{0};
    for (const double smoothing : good) {
      Call call;
      call.use_term(loss, smoothing);
      EXPECT_NO_THROW(run_preference(call)) << smoothing;
    }
  }
  const std::vector<BadCase> of_pairs = {
      {"named", [](Call& c) { c.use_term(L::kSigmoid, 0.125); }, {"label_smoothing = 0.125", "sigmoid"}},
      {"robust", [](Call& c) { c.use_term(L::kRobust, 0.5); }, {"label_smoothing = 0.5", "robust", "0.5"}},
      {"exo_pair", [](Call& c) { c.use_term(L::kExoPair, 0); }, {"label_smoothing = 0", "exo_pair"}},
      // The range of every term holds, whatever the others allow.
      {"of a sum",
       [](Call& c) {
         c.options.terms = {{L::kAot, 1}, {L::kSigmoid, 1}, {L::kRobust, 1}};
         c.options.label_smoothing = 0.75;
       },
       {"label_smoothing = 0.75", "robust"}},
      {"of another sum",
       [](Call& c) {
         c.options.terms = {{L::kSigmoid, 1}, {L::kExoPair, 1}};
       },
       {"label_smoothing = 0", "exo_pair"}},
  };
  expect_refused_by({run_preference}, of_pairs);
}

TEST(PreferenceBadInput, ReferenceMissingOrNotNeeded) {
  for (const L loss : every_preference_loss()) {
    SCOPED_TRACE(name_of(loss));
    for (const bool model : {false, true}) {
      Call call;
      const Reference given = call.reference;
      call.use_term(loss, loss == L::kExoPair ? 0.1 : 0.0);
      call.reference = given;
      if (model) call.use_model();
      if (oracle::compares_with_reference(loss)) call.reference = {};
      expect_refused(call, {"reference"}, [&] { run_preference(call); });
    }
  }
  expect_refused_by({run_kto}, {{"missing", [](Call& c) { c.reference = {}; }, {"reference"}}});
}

TEST(PreferenceBadInput, References) {
  const auto numbers = [](int64_t size) {
    return [size](Call& c) { c.reference.logps = ConstVector(c.doubles.data(), size); };
  };
  const auto entry = [](int64_t size, int64_t at, double value) {
    return [=](Call& c) {
      c.doubles[at] = value;
      c.reference.logps = ConstVector(c.doubles.data(), size);
    };
  };
  const auto model = [](const std::function<void(Reference&)>& spoil) {
    return [spoil](Call& c) {
      c.use_model();
      spoil(c.reference);
    };
  };
  const std::vector<BadCase> of_both = {
      {"both forms",
       [](Call& c) {
         const ConstVector logps = c.reference.logps;
         c.use_model();
         c.reference.logps = logps;
       },
       {"reference.logps", "reference.hidden", "both"}},
      {"hidden states beside numbers",
       [](Call& c) { c.reference.hidden = c.model.hidden_view(); },
       {"reference.logps", "reference.hidden", "both"}},
      {"a second matrix beside numbers",
       [](Call& c) { c.reference.hidden.second = c.model.hidden_view().states; },
       {"reference.logps", "reference.hidden.second", "both"}},
      {"a head beside numbers",
       [](Call& c) { c.reference.head = c.model.head_view(); },
       {"reference.logps", "reference.head", "both"}},
      {"a bias beside numbers",
       [](Call& c) { c.reference.head.bias = c.model.head_view().bias; },
       {"reference.logps", "reference.head.bias", "both"}},
      {"one too few", numbers(3), {"reference.logps has 3", "4", "12"}},
      {"one too many", numbers(13), {"reference.logps has 13", "4", "12"}},
      {"a pair's number", numbers(2), {"reference.logps has 2", "4", "12"}},
      {"null", [](Call& c) { c.reference.logps.data = nullptr; }, {"reference.logps", "null"}},
      {"negative size", [](Call& c) { c.reference.logps.size = -4; }, {"reference.logps", "-4"}},
      {"NaN of a sequence", entry(4, 2, kNaN), {"reference.logps[2] = nan", "finite"}},
      {"infinity of a sequence", entry(4, 0, -kInfinity), {"reference.logps[0] = -inf", "finite"}},
      {"NaN of a token", entry(12, 11, kNaN), {"reference.logps[11] = nan", "finite"}},
      {"rows", model([](Reference& r) { r.hidden.states.rows = 9; }), {"reference.hidden has 9", "12"}},
      {"words", model([](Reference& r) { r.head.weight.cols = 4; }), {"reference.head has 4", "5"}},
      {"width", model([](Reference& r) { r.hidden.states.cols = 6; }), {"reference", "6", "12"}},
      {"no head", model([](Reference& r) { r.head = {}; }), {"reference.head"}},
      {"null head", model([](Reference& r) { r.head.weight.data = nullptr; }), {"reference", "head", "null"}},
      {"no hidden states", model([](Reference& r) { r.hidden = {}; }), {"reference.hidden"}},
      {"stride", model([](Reference& r) { r.hidden.states.stride = 2; }), {"reference", "stride", "2", "12"}},
      {"bias", model([](Reference& r) { r.head.bias.size = 3; }), {"reference", "bias has 3", "5"}},
      {"softcap", model([](Reference& r) { r.head.softcap = -1; }), {"reference", "softcap = -1"}},
  };
  expect_refused_by({run_preference, run_kto}, of_both);
}

// What takes no part is not read.
TEST(PreferenceBadInput, AReferenceMayHoldAnythingWhereNothingTakesPart) {
  for (const int64_t size : {4, 12}) {
    for (const auto& function : {run_preference, run_kto}) {
      Call call;
      call.integers = {0, 1, -100, -100, -100, -100, 2, 3, 4, -100, -100, -100};
      call.targets = Targets(std::span<const int64_t>(call.integers));
      for (int64_t i = 0; i < 12; ++i) {
        if (size == 4 ? i == 1 || i == 3 : call.integers[i] == -100) call.doubles[i] = kNaN;
      }
      call.reference.logps = ConstVector(call.doubles.data(), size);
      EXPECT_NO_THROW(function(call)) << size;
    }
  }
}

// A weight of 0 changes what a term adds, not what it asks for.
TEST(PreferenceBadInput, ATermOfWeight0AsksForItsReferenceAndSmoothing) {
  const std::vector<BadCase> of_pairs = {
      {"reference",
       [](Call& c) {
         c.options.terms = {{L::kSft, 1}, {L::kSigmoid, 0}};
         c.reference = {};
       },
       {"reference"}},
      {"label_smoothing",
       [](Call& c) {
         c.options.terms = {{L::kSigmoid, 1}, {L::kExoPair, 0}};
       },
       {"label_smoothing = 0", "exo_pair"}},
  };
  expect_refused_by({run_preference}, of_pairs);
  Call call;
  const auto loss_of = [&](std::vector<PreferenceTerm> terms) {
    call.options.terms = std::move(terms);
    return preference_loss(Context(), call.hidden, call.head, call.targets, call.reference, call.options).loss;
  };
  EXPECT_EQ(loss_of({{L::kSigmoid, 1}, {L::kIpo, 0}}), loss_of({{L::kSigmoid, 1}}));
  EXPECT_EQ(loss_of({{L::kSigmoid, 0}}), 0);
}

// Packed sequences of 0, 2, 0 and 2 tokens: four numbers are what the caller says.
TEST(PreferenceBadInput, AReferenceOfAsManyTokensAsSequences) {
  const std::vector<int64_t> offsets = {0, 0, 2, 2, 4};
  const std::vector<double> sums = {kNaN, -3, kNaN, -6};
  Call call;
  call.hidden.states.rows = call.targets.size = 4;
  call.hidden.offsets = offsets;
  call.gradients = {};
  call.reference.logps = ConstVector(sums.data(), 4);
  KtoOptions options;
  options.beta = 1;
  const std::vector<std::string> parts = {"reference.logps has 4 entries", "reference.logps_per"};
  expect_refused(call, parts, [&] { kto_loss(Context(), call.hidden, call.head, call.kto_batch(), options); });
  expect_refused(call, parts, [&] {
    preference_loss(Context(), call.hidden, call.head, call.targets, call.reference, call.options);
  });
  call.reference.logps_per = EntriesPer::kSequence;
  const KtoResult result = kto_loss(Context(), call.hidden, call.head, call.kto_batch(), options);
  EXPECT_EQ(result.metrics.undesirable, 2);
  EXPECT_NEAR(result.metrics.undesirable_reward, (result.sequence_logps[1] + 3 + result.sequence_logps[3] + 6) / 2,
              1e-12);
  // The pairs are (0, 2) and (1, 3).
  const PreferenceResult pairs =
      preference_loss(Context(), call.hidden, call.head, call.targets, call.reference, call.options);
  EXPECT_EQ(pairs.metrics.pairs, 1);
  EXPECT_NEAR(pairs.metrics.rejected_reward, call.options.beta * (pairs.sequence_logps[3] + 6), 1e-12);
  // The numbers are one a token: the two of each sequence are added.
  const std::vector<double> logps = {-1, -2, -2.5, -3.5};
  call.reference.logps = ConstVector(logps.data(), 4);
  call.reference.logps_per = EntriesPer::kToken;
  const KtoResult of_tokens = kto_loss(Context(), call.hidden, call.head, call.kto_batch(), options);
  EXPECT_EQ(of_tokens.loss, result.loss);
  // What is said must fit.
  call.hidden.offsets = {};
  call.hidden.sequences = 2;
  call.reference.logps_per = EntriesPer::kSequence;
  expect_refused(call, {"reference.logps has 4 entries", "one a sequence (2)"}, [&] {
    preference_loss(Context(), call.hidden, call.head, call.targets, call.reference, call.options);
  });
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
      {"no labels", [](Call& c) { c.labels.clear(); }, {"labels has 0", "4"}},
      {"kl_logps alone", baseline(3, 0), {"kl_logps has 3", "kl_ref_logps has 0"}},
      {"kl_ref_logps alone", baseline(0, 2), {"kl_logps has 0", "kl_ref_logps has 2"}},
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
      {"reference.logps",
       [](Call& c) {
         c.reference.logps = ConstVector(c.doubles.data(), 4);
         c.write_over(c.doubles.data());
       },
       {"d_hidden", "overlaps", "reference.logps"}},
      {"reference.hidden",
       [](Call& c) {
         c.use_model();
         c.write_over(c.reference.hidden.states.data);
       },
       {"d_hidden", "overlaps", "reference.hidden"}},
      {"reference.head",
       [](Call& c) {
         c.use_model();
         c.write_over(c.reference.head.weight.data);
       },
       {"d_hidden", "overlaps", "reference.head"}},
      {"the reference's bias",
       [](Call& c) {
         c.use_model();
         c.gradients.d_bias.data = const_cast<void*>(c.reference.head.bias.data);
       },
       {"d_bias", "overlaps", "reference.head"}},
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

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Every kind of bad reference of preference_loss and kto_loss: the message names argument, value and rule,
// and nothing has been written.
#include <gtest/gtest.h>

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "preference_call.h"
#include "support/calls.h"
#include "support/views.h"

namespace logitless::testing {
namespace {

using L = PreferenceLossType;
using Call = PreferenceCall;
using BadCase = testing::BadCase<Call>;

TEST(ReferenceBadInput, ReferenceMissingOrNotNeeded) {
  for (const L loss : every_preference_loss()) {
    SCOPED_TRACE(name_of(loss));
    for (const bool model : {false, true}) {
      Call call;
      const Reference given = call.reference;
      call.use_loss(loss, loss == L::kExoPair ? 0.1 : 0.0);
      call.reference = given;
      if (model) call.use_model();
      if (oracle::compares_with_reference(loss)) call.reference = {};
      expect_refused(call, {"reference"}, [&] { run_preference(call); });
    }
  }
  const char* remedy = "log-probabilities of 0 make it reference-free";
  expect_refused_by({run_kto}, {{"missing", [](Call& c) { c.reference = {}; }, {"kto compares with it", remedy}}});
  expect_refused_by({run_preference},
                    {{"missing", [](Call& c) { c.reference = {}; }, {"sigmoid compares with it", remedy}}});
}

TEST(ReferenceBadInput, References) {
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
       {"ref_logps", "reference.hidden", "both"}},
      {"hidden states beside numbers",
       [](Call& c) { c.reference.hidden = c.model.hidden_view(); },
       {"ref_logps", "reference.hidden", "both"}},
      {"a head beside numbers",
       [](Call& c) { c.reference.head = c.model.head_view(); },
       {"ref_logps", "reference.weight", "both"}},
      {"a bias beside numbers",
       [](Call& c) { c.reference.head.bias = c.model.head_view().bias; },
       {"ref_logps", "reference.bias", "both"}},
      {"one too few", numbers(3), {"ref_logps has 3", "4", "12"}},
      {"one too many", numbers(13), {"ref_logps has 13", "4", "12"}},
      {"a pair's number", numbers(2), {"ref_logps has 2", "4", "12"}},
      {"null", [](Call& c) { c.reference.logps.data = nullptr; }, {"ref_logps", "null"}},
      {"negative size", [](Call& c) { c.reference.logps.size = -4; }, {"ref_logps", "-4"}},
      {"NaN of a sequence", entry(4, 2, kNaN), {"ref_logps[2] = nan", "finite"}},
      {"infinity of a sequence", entry(4, 0, -kInfinity), {"ref_logps[0] = -inf", "finite"}},
      {"NaN of a token", entry(12, 11, kNaN), {"ref_logps[11] = nan", "finite"}},
      {"rows", model([](Reference& r) { r.hidden.states.rows = 8; }), {"reference.hidden has 8", "12"}},
      {"entries", model([](Reference& r) { r.head.weight.cols = 4; }), {"reference.weight has 4", "5"}},
      {"width", model([](Reference& r) { r.hidden.states.cols = 6; }), {"reference", "6", "12"}},
      {"no head", model([](Reference& r) { r.head = {}; }), {"reference.weight"}},
      {"null head", model([](Reference& r) { r.head.weight.data = nullptr; }), {"reference: weight.data is null"}},
      {"no hidden states", model([](Reference& r) { r.hidden = {}; }), {"reference.hidden"}},
      {"stride", model([](Reference& r) { r.hidden.states.stride = 2; }), {"reference", "stride", "2", "12"}},
      {"bias", model([](Reference& r) { r.head.bias.size = 3; }), {"reference", "bias has 3", "5"}},
      {"softcap", model([](Reference& r) { r.head.softcap = -1; }), {"reference", "softcap = -1"}},
  };
  expect_refused_by({run_preference, run_kto}, of_both);
}

// What takes no part is not read.
TEST(ReferenceBadInput, AReferenceMayHoldAnythingWhereNothingTakesPart) {
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

TEST(ReferenceBadInput, AveragesNeedOneEntryPerSequence) {
  const auto averages = [](Call& c) { c.options.ref_logps_are = c.kto.ref_logps_are = SequenceLogps::kAverages; };
  const auto of_tokens = [=](Call& c) { averages(c), c.reference.logps = ConstVector(c.doubles.data(), 12); };
  const auto of_model = [=](Call& c) { averages(c), c.use_model(); };
  const auto without = [=](Call& c) { averages(c), c.use_loss(L::kSimpo, 0); };
  expect_refused_by({run_preference, run_kto},
                    {{"one per token", of_tokens, {"ref_logps_are = averages", "has one entry per token"}},
                     {"a model", of_model, {"ref_logps_are = averages", "ref_logps is not given"}}});
  expect_refused_by({run_preference},
                    {{"no reference", without, {"ref_logps_are = averages", "ref_logps is not given"}}});
}

// Packed sequences of 0, 2, 0 and 2 tokens: four numbers are what the caller says.
TEST(ReferenceBadInput, AReferenceOfAsManyTokensAsSequences) {
  const std::vector<int64_t> offsets = {0, 0, 2, 2, 4};
  const std::vector<double> sums = {kNaN, -3, kNaN, -6};
  Call call;
  call.hidden.states.rows = call.targets.size = 4;
  call.hidden.offsets = offsets;
  call.gradients = {};
  call.reference.logps = ConstVector(sums.data(), 4);
  KtoLoss options;
  options.beta = 1;
  const std::vector<std::string> parts = {"ref_logps has 4 entries", "ref_logps_per"};
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
  // The numbers are one per token: the two of each sequence are added.
  const std::vector<double> logps = {-1, -2, -2.5, -3.5};
  call.reference.logps = ConstVector(logps.data(), 4);
  call.reference.logps_per = EntriesPer::kToken;
  const KtoResult of_tokens = kto_loss(Context(), call.hidden, call.head, call.kto_batch(), options);
  EXPECT_EQ(of_tokens.loss, result.loss);
  // What is said must fit.
  call.hidden.offsets = {};
  call.hidden.sequences = 2;
  call.reference.logps_per = EntriesPer::kSequence;
  expect_refused(call, {"ref_logps has 4 entries", "one per sequence (2)"}, [&] {
    preference_loss(Context(), call.hidden, call.head, call.targets, call.reference, call.options);
  });
}

}  // namespace
}  // namespace logitless::testing

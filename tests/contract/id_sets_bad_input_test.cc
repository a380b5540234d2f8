// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Everything that id_logps() and soft_cross_entropy() refuse: the message names argument, value and rule, and
// nothing has been written.
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "logitless/logitless.h"
#include "support/calls.h"
#include "support/refusal.h"
#include "support/views.h"

namespace logitless::testing {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// A good call of either kind, for a case to spoil: 3 tokens, 5 vocabulary entries, H = 2.
struct Call {
  std::vector<float> hidden = {1, 2, 3, 4, 5, 6}, weight = std::vector<float>(10, 0.5F);
  std::vector<int64_t> ids = {4, 0, 1, 1}, offsets = {0, 1, 2, 4}, counts;
  std::vector<float> weights = {1, 0.5F, 0.25F, 0.25F}, rows = std::vector<float>(15, 0.2F);
  std::vector<uint8_t> mask;
  std::vector<float> out = std::vector<float>(10, 77);
  std::vector<double> upstream = {1, 1, 1, 1};
  bool has_offsets = true, has_weights = true, has_rows = false;
  DType rows_type = DType::kFloat32;
  int64_t rows_entries = 5;
  IdLogps options;
  SoftCrossEntropy soft;
  ContextOptions context;

  Call() { context.threads = 1; }
  HiddenStates states() const { return HiddenStates(ConstMatrix(hidden.data(), 3, 2)); }
  LmHead head() const { return LmHead(ConstMatrix(weight.data(), 5, 2)); }
  IdSets sets() const {
    const auto size = static_cast<int64_t>(ids.size());
    IdSets result{has_offsets || size % 3 != 0 ? Targets(ids.data(), size) : Targets(ids.data(), 3, size / 3)};
    if (has_offsets) result.offsets = offsets;
    result.counts = counts;
    return result;
  }
  SoftTargets targets() const {
    SoftTargets result;
    if (has_weights) {
      result.sets = sets();
      result.weights = weights;
    }
    if (has_rows) result.rows = ConstMatrix(rows.data(), rows_type, 3, rows_entries);
    result.mask = mask;
    return result;
  }
  Gradients gradients() {
    Gradients result;
    result.d_weight = {out.data(), 5, 2};
    return result;
  }
};

using Case = BadCase<Call>;

void expect_refused(const std::vector<Case>& cases, const std::function<void(Call&)>& run) {
  Call good;
  run(good);
  for (const Case& bad : cases) {
    SCOPED_TRACE(bad.name);
    Call call;
    bad.spoil(call);
    expect_invalid_input(bad.parts, [&] { run(call); });
    EXPECT_EQ(call.out, std::vector<float>(10, 77)) << "something was written";
  }
}

const std::vector<Case> kSets = {
    {"an id below 0", [](Call& c) { c.ids[3] = -1; }, {"sets.ids", "row 2", "entry 1", "-1", "[0, 5)"}},
    {"an id above the vocabulary", [](Call& c) { c.ids[0] = 5; }, {"sets.ids", "row 0", "entry 0", "= 5"}},
    {"offsets do not begin with 0", [](Call& c) { c.offsets[0] = 1; }, {"sets.offsets[0] = 1", "must be 0"}},
    {"offsets fall", [](Call& c) { c.offsets[1] = 3; }, {"sets.offsets[2] = 2", "sets.offsets[1] = 3"}},
    {"offsets end early", [](Call& c) { c.offsets[3] = 3; }, {"sets.offsets[3] = 3", "number of sets.ids, 4"}},
    {"offsets are too few", [](Call& c) { c.offsets.pop_back(); }, {"sets.offsets has 3 entries", "4"}},
    {"offsets and counts",
     [](Call& c) {
       c.counts = {1, 1, 1};
     },
     {"sets.offsets and sets.counts"}},
    {"ids are no rectangle", [](Call& c) { c.has_offsets = false; }, {"sets.ids has 4 entries", "3 rows"}},
    {"a count above K",
     [](Call& c) {
       c.has_offsets = false;
       c.ids = {1, 2, 3, 4, 0, 1};
       c.weights = std::vector<float>(6, 1);
       c.counts = {2, 3, 0};
     },
     {"sets.counts[1] = 3", "K = 2"}},
    {"counts are too few",
     [](Call& c) {
       c.has_offsets = false;
       c.ids = {1, 2, 3};
       c.weights = std::vector<float>(3, 1);
       c.counts = {1};
     },
     {"sets.counts has 1 entries", "3 rows"}},
};

TEST(IdSetsBadInput, SetLogps) {
  std::vector<Case> cases = kSets;
  cases.push_back({"shift", [](Call& c) { c.options.token.shift = 1; }, {"shift = 1"}});
  cases.push_back({"ignore_index", [](Call& c) { c.options.token.ignore_index = 0; }, {"ignore_index = 0"}});
  cases.push_back({"temperature", [](Call& c) { c.options.token.temperature = 0; }, {"temperature = 0"}});
  for (const NormaliseOver over : {NormaliseOver::kVocabulary, NormaliseOver::kSet}) {
    expect_refused(cases, [&](Call& call) {
      call.options.normalise_over = over;
      id_logps(Context(call.context), call.states(), call.head(), call.sets(), call.options);
    });
  }
}

TEST(IdSetsBadInput, IdLogpsOverSetsOfACutVocabulary) {
  const std::vector<Case> cases = {
      {"slices",
       [](Call& c) {
         c.context.ranks.slices = {2, 3};
       },
       {"normalise_over = set", "ranks.slices"}},
      {"no room", [](Call& c) { c.context.workspace_bytes = 100; }, {"workspace_bytes = 100"}},
  };
  expect_refused(cases, [](Call& call) {
    call.options.normalise_over = NormaliseOver::kSet;
    id_logps(Context(call.context), call.states(), call.head(), call.sets(), call.options);
  });
}

TEST(IdSetsBadInput, IdLogpsBackward) {
  const std::vector<Case> cases = {
      {"upstream is too short", [](Call& c) { c.upstream.pop_back(); }, {"upstream has 3 entries", "4"}},
      {"the forward of other sets",
       [](Call& c) {
         c.ids.push_back(2);
         c.offsets[3] = 5;
         c.upstream.push_back(1);
       },
       {"forward.stats.logp", "5"}},
  };
  for (const NormaliseOver over : {NormaliseOver::kVocabulary, NormaliseOver::kSet}) {
    Call good;
    good.options.normalise_over = over;
    const auto forward = id_logps.forward(Context(good.context), good.states(), good.head(), good.sets(), good.options);
    for (const Case& bad : cases) {
      SCOPED_TRACE(bad.name);
      Call call;
      call.options.normalise_over = over;
      bad.spoil(call);
      expect_invalid_input(bad.parts, [&] {
        id_logps.backward(Context(call.context), call.states(), call.head(), call.sets(), call.options, forward,
                          call.upstream, call.gradients());
      });
      EXPECT_EQ(call.out, std::vector<float>(10, 77));
    }
  }
}

void run_soft(Call& call) {
  soft_cross_entropy(Context(call.context), call.states(), call.head(), call.targets(), call.soft, call.gradients());
}

TEST(IdSetsBadInput, SparseTargets) {
  std::vector<Case> cases = kSets;
  cases.push_back({"a logarithm", [](Call& c) { c.weights[3] = -0.5F; }, {"row 2", "entry 1", "-0.5", "logarithm"}});
  cases.push_back({"NaN", [](Call& c) { c.weights[1] = kNaN; }, {"row 1", "entry 0", "nan"}});
  cases.push_back({"infinity", [](Call& c) { c.weights[2] = kInfinity; }, {"row 2", "entry 0", "inf"}});
  cases.push_back({"too few", [](Call& c) { c.weights.pop_back(); }, {"targets.weights has 3 entries", "4"}});
  cases.push_back({"a mask too short", [](Call& c) { c.mask = {1}; }, {"mask has 1 entries", "3 rows"}});
  cases.push_back({"both forms", [](Call& c) { c.has_rows = true; }, {"targets.rows", "dense or sparse"}});
  cases.push_back({"neither form", [](Call& c) { c.has_weights = false; }, {"targets is empty"}});
  cases.push_back({"shift", [](Call& c) { c.soft.token.shift = 1; }, {"shift = 1"}});
  cases.push_back({"num_items_in_batch without mean",
                   [](Call& c) {
                     c.soft.reduction = Reduction::kSum;
                     c.soft.num_items_in_batch = 3;
                   },
                   {"num_items_in_batch = 3", "mean"}});
  cases.push_back({"num_items_in_batch 0", [](Call& c) { c.soft.num_items_in_batch = 0; }, {"num_items_in_batch = 0"}});
  cases.push_back({"loss_scale", [](Call& c) { c.soft.loss_scale = kNaN; }, {"loss_scale"}});
  expect_refused(cases, run_soft);
}

TEST(IdSetsBadInput, DenseTargets) {
  const auto dense = [](const std::function<void(Call&)>& spoil) {
    return [spoil](Call& c) {
      c.has_rows = true;
      c.has_weights = false;
      spoil(c);
    };
  };
  expect_refused(
      {
          {"a logarithm", dense([](Call& c) { c.rows[7] = -1; }), {"row 1", "vocabulary entry 2", "-1", "logarithm"}},
          {"the first of two", dense([](Call& c) { c.rows[14] = c.rows[3] = kNaN; }), {"row 0", "entry 3", "nan"}},
          {"too narrow", dense([](Call& c) { c.rows_entries = 4; }), {"targets.rows is [3, 4]", "[3, 5]"}},
          {"another type", dense([](Call& c) { c.rows_type = DType::kBFloat16; }), {"bfloat16", "must be float32"}},
      },
      run_soft);
}

TEST(IdSetsBadInput, WhatTakesNoPartIsNotRead) {
  Call call;
  call.has_rows = true;
  call.has_weights = false;
  call.rows[7] = kNaN;
  call.mask = {1, 0, 1};
  EXPECT_EQ(soft_cross_entropy(Context(call.context), call.states(), call.head(), call.targets()).metrics.tokens, 2);
  call.has_rows = false;
  call.has_weights = true;
  call.weights[1] = kNaN;
  call.ids[1] = -7;
  EXPECT_EQ(soft_cross_entropy(Context(call.context), call.states(), call.head(), call.targets()).metrics.tokens, 2);
}

}  // namespace
}  // namespace logitless::testing

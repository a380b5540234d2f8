// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Losses whose rows depend on each other get all rows of a group at once, in every plan that may run.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "logitless/logitless.h"
#include "seeded_model.h"
#include "support/calls.h"
#include "support/coupled_loss.h"
#include "support/refusal.h"
#include "support/views.h"

namespace logitless::testing {
namespace coupled_loss_test {

struct Ran {
  Plan plan;
  std::vector<std::vector<int64_t>> calls;  // rows of each call of evaluate()
  std::vector<float> gradients;             // d_hidden, then d_weight
};

// A wide vocabulary, so that the logits of a chunk are most of one pass's memory.
class Coupled : public SeededModel {
 public:
  using GroupOf = std::function<int64_t(int64_t row)>;
  explicit Coupled(const GroupOf& group_of, int64_t ignored_from = 96, int64_t ignored_to = 96, int64_t rows = 96)
      : SeededModel(rows, 19, 300) {
    for (int64_t i = 0; i < rows; ++i) groups.push_back(group_of(i));
    std::fill(targets.begin() + ignored_from, targets.begin() + ignored_to, -100);
  }

  Ran run(PlanKind plan, size_t workspace = size_t{64} << 20, bool declared = true) const {
    Ran ran;
    ran.gradients.assign(states.size() + weight.size(), 99);
    CoupledLoss loss(groups, true, declared);
    run_token_loss(context_of(plan, workspace), hidden_states(), head(), ids(), {}, loss, views(ran.gradients),
                   &ran.plan);
    ran.calls = loss.calls();
    return ran;
  }
  size_t least_of_one_pass() const {
    std::vector<float> gradients(states.size() + weight.size());
    const CoupledLoss loss(groups, true);
    return plan_token_loss(context_of(PlanKind::kOnePass, size_t{64} << 20), hidden_states(), head(), ids(), {}, loss,
                           views(gradients))
        .least_workspace_bytes;
  }

  // Expects whole groups in each call of evaluate(), and the gradients of two pass, which calls it once.
  void expect_right(const Ran& ran) const {
    std::map<int64_t, size_t> call_of;
    std::vector<int64_t> seen, active;
    for (int64_t i = 0; i < tokens; ++i) {
      if (targets[static_cast<size_t>(i)] >= 0) active.push_back(i);
    }
    for (size_t c = 0; c < ran.calls.size(); ++c) {
      EXPECT_TRUE(std::is_sorted(ran.calls[c].begin(), ran.calls[c].end()));
      EXPECT_LE(static_cast<int64_t>(ran.calls[c].size()), ran.plan.chunk_rows);
      for (const int64_t row : ran.calls[c]) {
        EXPECT_EQ(call_of.emplace(groups[static_cast<size_t>(row)], c).first->second, c)
            << "the group of row " << row << " was parted";
        seen.push_back(row);
      }
    }
    std::sort(seen.begin(), seen.end());
    EXPECT_EQ(seen, active);
    const Ran whole = run(PlanKind::kTwoPass);
    EXPECT_EQ(whole.calls, std::vector<std::vector<int64_t>>{active});
    double most = 0, off = 0;
    for (size_t i = 0; i < whole.gradients.size(); ++i) {
      most = std::max(most, std::abs(double(whole.gradients[i])));
      off = std::max(off, std::abs(double(whole.gradients[i]) - double(ran.gradients[i])));
    }
    EXPECT_LE(off, 1e-5 * most);
  }

  std::vector<int64_t> groups;

 private:
  static Context context_of(PlanKind plan, size_t workspace) {
    return Context({.threads = 2, .workspace_bytes = workspace, .plan = plan, .row_tile = 16, .vocab_tile = 64});
  }
  Gradients views(std::vector<float>& gradients) const {
    Gradients out;
    out.d_hidden = {gradients.data(), tokens, hidden};
    out.d_weight = {gradients.data() + states.size(), vocab, hidden};
    return out;
  }
};

// The smallest possible chunk is the largest group, without its ignored rows.
TEST(CoupledLoss, ChunksOfWholeGroups) {
  const std::pair<Coupled, int64_t> calls[] = {{Coupled([](int64_t i) { return i / 16; }), 16},
                                               {Coupled([](int64_t i) { return i / 12 % 4; }, 12, 24), 24},
                                               {Coupled([](int64_t) { return -3; }), 96},
                                               {Coupled([](int64_t i) { return (i * 7 % 11 - 5) << 40; }, 90, 96), 9},
                                               // All rows of two groups are ignored.
                                               {Coupled([](int64_t i) { return i / 12; }, 12, 36), 12},
                                               {Coupled([](int64_t i) { return i % 2 ? 0 : i; }), 49}};
  for (const auto& [call, largest] : calls) {
    const Ran ran = call.run(PlanKind::kOnePass, call.least_of_one_pass());
    EXPECT_EQ(ran.plan.chunk_rows, largest);
    call.expect_right(ran);
    const Ran whole = call.run(PlanKind::kAuto);
    EXPECT_EQ(whole.plan.kind, PlanKind::kOnePass);
    EXPECT_EQ(whole.calls.size(), 1U);
    call.expect_right(whole);
  }
}

// Groups of one row each couple nothing.
TEST(CoupledLoss, SingletonsAreUncoupled) {
  const Coupled call([](int64_t i) { return -7 * i; });
  const Ran coupled = call.run(PlanKind::kOnePass, 120 << 10);
  const Ran uncoupled = call.run(PlanKind::kOnePass, 120 << 10, false);
  EXPECT_GT(coupled.calls.size(), 1U);
  EXPECT_EQ(coupled.calls, uncoupled.calls);
  EXPECT_EQ(coupled.gradients, uncoupled.gradients);
}

// Auto leaves small chunks, in which one pass would be slow, to two pass. But if the smallest chunk is a
// large group and fits, one pass runs.
TEST(CoupledLoss, AGroupThatDoesNotFitMeansTwoPass) {
  const Coupled call([](int64_t i) { return i / 150; }, 600, 600, 600);
  const size_t least = call.least_of_one_pass();
  const Ran ran = call.run(PlanKind::kAuto, least);
  EXPECT_EQ(ran.plan.kind, PlanKind::kOnePass);
  EXPECT_EQ(ran.plan.chunk_rows, 150);
  EXPECT_EQ(call.run(PlanKind::kAuto, least - 1).plan.kind, PlanKind::kTwoPass);
  expect_invalid_input({"needs at least " + std::to_string(least) + " bytes", "couples 150 rows"},
                       [&] { call.run(PlanKind::kOnePass, least - 1); });
}

// There must be one group per row.
TEST(CoupledLoss, GroupsOfAnotherSize) {
  for (const size_t entries : {1, 95, 97}) {
    Coupled call([](int64_t) { return 1; });
    call.groups.resize(entries);
    expect_invalid_input({"groups() has " + std::to_string(entries) + " entries"}, [&] { call.run(PlanKind::kAuto); });
  }
}

class FailingLoss final : public TokenLoss {
 public:
  StatsRequest needs() const override { return {}; }
  GradsFilled gradients() const override { return {}; }
  void evaluate(std::span<const int64_t> rows, const TokenStats&, TokenGrads&) override {
    if (rows.back() >= 20) throw std::runtime_error("the loss failed");
  }
};

TEST(RunTokenLoss, ItsExceptionArrives) {
  const SeededModel model(37, 19, 150);
  const std::vector<float> finished(37 * 150, 1);
  std::vector<float> d_hidden(model.states.size()), d_logits(finished.size());
  FailingLoss loss;
  const CustomLoss task{model.targets, {}, &loss};
  for (const int threads : {1, 3}) {
    ContextOptions options = {.threads = threads, .row_tile = 16, .vocab_tile = 64, .row_block = 4};
    EXPECT_THROW(run(Context(options), Logits::given(view(finished.data(), {37, 150})), task,
                     {.d_logits = view(d_logits.data(), {37, 150})}),
                 std::runtime_error);
    for (const PlanKind plan : {PlanKind::kOnePass, PlanKind::kTwoPass}) {
      options.plan = plan;
      EXPECT_THROW(run(Context(options), logits_of(model.hidden_states(), model.head()), task,
                       {.d_hidden = view(d_hidden.data(), {37, 19})}),
                   std::runtime_error);
    }
  }
}

}  // namespace coupled_loss_test
}  // namespace logitless::testing

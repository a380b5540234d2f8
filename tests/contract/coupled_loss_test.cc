// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Losses that couple rows: every plan passes them whole groups, and a plan that cannot is not chosen.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <set>
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

constexpr size_t kRoomy = size_t{64} << 20;

/// The results of one run.
struct CoupledRun {
  Plan plan;
  std::vector<std::vector<int64_t>> calls;  ///< rows of each call of evaluate()
  std::vector<float> gradients;             ///< d_hidden, then d_weight
  std::vector<double> logp;
};

/// How the call runs.
struct Setting {
  PlanKind plan = PlanKind::kAuto;
  size_t workspace = kRoomy;
  bool entropy = false, declared = true;

  Context context() const {
    ContextOptions options;
    options.plan = plan, options.workspace_bytes = workspace, options.threads = 2;
    options.row_tile = options.row_block = 16, options.vocab_tile = 64;
    return Context(options);
  }
};

// 96 rows and a wide vocabulary, so that the logits of a chunk are most of one pass's memory.
class Coupled : public SeededModel {
 public:
  using GroupOf = std::function<int64_t(int64_t row)>;
  explicit Coupled(const GroupOf& group_of, int64_t rows = 96) : SeededModel(rows, 19, 300) {
    for (int64_t i = 0; i < rows; ++i) groups.push_back(group_of(i));
  }
  Coupled& ignore(const std::function<bool(int64_t row)>& ignored) {
    for (int64_t i = 0; i < tokens; ++i) {
      if (ignored(i)) targets[static_cast<size_t>(i)] = -100;
    }
    return *this;
  }

  CoupledRun run(const Setting& setting) const {
    CoupledRun out;
    out.gradients.assign(states.size() + weight.size(), 99);
    CoupledLoss loss(groups, setting.entropy, setting.declared);
    out.logp =
        run_token_loss(setting.context(), hidden_states(), head(), ids(), {}, loss, views(out.gradients), &out.plan)
            .logp;
    out.calls = loss.calls();
    return out;
  }
  Plan planned(const Setting& setting) const {
    std::vector<float> gradients(states.size() + weight.size());
    const CoupledLoss loss(groups, setting.entropy, setting.declared);
    return plan_token_loss(setting.context(), hidden_states(), head(), ids(), {}, loss, views(gradients));
  }
  /// The least workspace of one pass.
  size_t least_of_one_pass(bool declared = true) const {
    return planned({.plan = PlanKind::kOnePass, .declared = declared}).least_workspace_bytes;
  }
  std::vector<int64_t> active_rows() const {
    std::vector<int64_t> rows;
    for (int64_t i = 0; i < tokens; ++i) {
      if (targets[static_cast<size_t>(i)] >= 0) rows.push_back(i);
    }
    return rows;
  }
  /// Returns the size of the largest group, without ignored rows.
  int64_t largest_group() const {
    std::map<int64_t, int64_t> sizes;
    int64_t largest = 0;
    for (const int64_t row : active_rows()) largest = std::max(largest, ++sizes[groups[static_cast<size_t>(row)]]);
    return largest;
  }

  /// Runs, and compares with gradients computed from the statistics of all rows.
  CoupledRun is_right(const Setting& setting) const {
    const CoupledRun got = run(setting);
    EXPECT_LE(got.plan.workspace_bytes, setting.workspace);
    if (setting.plan != PlanKind::kAuto) {
      EXPECT_EQ(got.plan.kind, setting.plan);
    }
    expect_whole_groups(got);
    const std::vector<float> want = gradients_of_statistics(setting.entropy);
    double most = 0;
    for (const float value : want) most = std::max(most, std::abs(static_cast<double>(value)));
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_NEAR(got.gradients[i], want[i], 1e-5 * most) << i;
      if (::testing::Test::HasFailure()) break;
    }
    return got;
  }

  std::vector<int64_t> groups;

 private:
  Gradients views(std::vector<float>& gradients) const {
    Gradients out;
    out.d_hidden = {gradients.data(), tokens, hidden};
    out.d_weight = {gradients.data() + states.size(), vocab, hidden};
    return out;
  }
  std::vector<float> gradients_of_statistics(bool entropy) const {
    const Context context(Setting{.plan = PlanKind::kTwoPass}.context());
    const StatsRequest request = {.entropy = entropy};
    const TokenStats stats = compute_token_stats(context, hidden_states(), head(), ids(), {}, request);
    TokenGrads grads;
    grads.logp.assign(static_cast<size_t>(tokens), 0);
    if (entropy) grads.entropy = grads.logp;
    CoupledLoss(groups, entropy).evaluate(active_rows(), stats, grads);
    std::vector<float> out(states.size() + weight.size(), 99);
    backpropagate_token_grads(context, hidden_states(), head(), ids(), {}, request, stats, grads, views(out));
    return out;
  }
  void expect_whole_groups(const CoupledRun& run) const {
    std::map<int64_t, size_t> call_of;
    std::vector<int64_t> seen;
    for (size_t c = 0; c < run.calls.size(); ++c) {
      const std::vector<int64_t>& rows = run.calls[c];
      EXPECT_TRUE(std::is_sorted(rows.begin(), rows.end())) << "call " << c;
      if (run.plan.kind == PlanKind::kOnePass) {
        EXPECT_LE(static_cast<int64_t>(rows.size()), run.plan.chunk_rows) << "call " << c;
      }
      for (const int64_t row : rows) {
        EXPECT_EQ(call_of.emplace(groups[static_cast<size_t>(row)], c).first->second, c)
            << "the group of row " << row << " was parted";
        seen.push_back(row);
      }
    }
    std::sort(seen.begin(), seen.end());
    EXPECT_EQ(seen, active_rows());
    if (run.plan.kind != PlanKind::kOnePass) {
      EXPECT_EQ(run.calls.size(), 1u);
    }
  }
};

// Ways to group rows.
std::vector<Coupled> groupings() {
  const auto third = [](int64_t i) { return i % 3 == 1; };
  return {
      Coupled([](int64_t i) { return i / 16; }),
      Coupled([](int64_t i) { return i / 12 % 4; }).ignore([](int64_t i) { return i % 12 == 11; }),
      Coupled([](int64_t i) { return i < 60 ? i / 15 : (i - 60) / 9; }).ignore(third),
      Coupled([](int64_t) { return -3; }),
      Coupled([](int64_t i) { return i % 3; }),
      Coupled([](int64_t i) { return (i * 7 % 11 - 5) << 40; }).ignore(third),
      // All rows of two groups are ignored.
      Coupled([](int64_t i) { return i / 12; }).ignore([](int64_t i) { return i >= 12 && i < 36; }),
      Coupled([](int64_t i) {
        return i < 31 ? 0 : i < 40 ? 2 : i < 41 ? 3 : i < 90 ? 4 : 5;
      }),
      Coupled([](int64_t i) { return i % 2 ? 0 : i; }),
  };
}

TEST(CoupledLoss, EveryGroupingAndPlan) {
  for (const Coupled& call : groupings()) {
    for (const bool entropy : {false, true}) {
      call.is_right({.plan = PlanKind::kTwoPass, .entropy = entropy});
      EXPECT_EQ(call.is_right({.plan = PlanKind::kOnePass, .entropy = entropy}).calls.size(), 1u);
      EXPECT_EQ(call.is_right({.entropy = entropy}).plan.kind, PlanKind::kOnePass);
    }
  }
}

TEST(CoupledLoss, ChunksOfWholeGroups) {
  for (const Coupled& call : groupings()) {
    const CoupledRun run = call.is_right({.plan = PlanKind::kOnePass, .workspace = call.least_of_one_pass()});
    // The smallest possible chunk is the largest group.
    EXPECT_EQ(run.plan.chunk_rows, call.largest_group());
    EXPECT_EQ(run.calls.size() == 1, run.plan.chunk_rows == run.plan.active_rows);
  }
}

TEST(CoupledLoss, ChunksOfEveryBudget) {
  std::set<size_t> chunk_counts;
  const Coupled call([](int64_t i) { return i / 4; });
  const size_t least = call.least_of_one_pass();
  size_t before = std::numeric_limits<size_t>::max();
  for (size_t bytes = least; bytes < 6 * least; bytes += least / 64) {
    const CoupledRun run = call.is_right({.plan = PlanKind::kOnePass, .workspace = bytes});
    EXPECT_LE(run.calls.size(), before) << "more chunks in " << bytes << " bytes";
    before = run.calls.size();
    chunk_counts.insert(run.calls.size());
  }
  EXPECT_GT(chunk_counts.size(), 3u);
  EXPECT_EQ(*chunk_counts.rbegin(), 24u);
}

TEST(CoupledLoss, SingletonsAreUncoupled) {
  const Coupled call = Coupled([](int64_t i) { return -7 * i; }).ignore([](int64_t i) { return i % 5 == 2; });
  for (const PlanKind plan : {PlanKind::kOnePass, PlanKind::kTwoPass}) {
    for (const size_t kib : {80, 120, 1000}) {
      const CoupledRun coupled = call.is_right({.plan = plan, .workspace = kib << 10});
      const CoupledRun uncoupled = call.is_right({.plan = plan, .workspace = kib << 10, .declared = false});
      EXPECT_EQ(coupled.gradients, uncoupled.gradients);
      EXPECT_EQ(coupled.logp, uncoupled.logp);
      EXPECT_EQ(coupled.calls, uncoupled.calls);
    }
  }
}

TEST(CoupledLoss, AGroupThatDoesNotFitMeansTwoPass) {
  const Coupled call([](int64_t i) { return i / 24; });
  const size_t least = call.least_of_one_pass();
  EXPECT_EQ(call.run({.plan = PlanKind::kOnePass, .workspace = least}).calls.size(), 4u);
  EXPECT_EQ(call.is_right({.workspace = least - 1}).plan.kind, PlanKind::kTwoPass);
  expect_invalid_input({"needs at least " + std::to_string(least) + " bytes", "couples 24 rows"},
                       [&] { call.run({.plan = PlanKind::kOnePass, .workspace = least - 1}); });
}

// Auto leaves small chunks, in which one pass would be slow, to two pass. But if the smallest chunk is a
// large group and fits, one pass runs.
TEST(CoupledLoss, AutoTakesOnePassWhenTheLargestGroupFits) {
  const Coupled call([](int64_t i) { return i / 150; }, 600);
  const size_t least = call.least_of_one_pass();
  const CoupledRun run = call.is_right({.workspace = least});
  EXPECT_EQ(run.plan.kind, PlanKind::kOnePass);
  EXPECT_EQ(run.plan.chunk_rows, 150);
  EXPECT_EQ(call.run({.workspace = least - 1}).plan.kind, PlanKind::kTwoPass);
}

// Checks that these tests would notice: in this budget, rows that are not declared as a group are split.
TEST(CoupledLoss, TheBudgetsPartRowsThatAreNotCoupled) {
  const Coupled call([](int64_t) { return 1; });
  EXPECT_EQ(call.run({.plan = PlanKind::kOnePass, .workspace = call.least_of_one_pass()}).calls.size(), 1u);
  const Setting uncoupled = {.plan = PlanKind::kOnePass, .workspace = call.least_of_one_pass(false), .declared = false};
  EXPECT_GT(call.run(uncoupled).calls.size(), 1u);
}

// The number of groups must be one per row; otherwise the call is refused and nothing is written.
TEST(CoupledLoss, GroupsOfAnotherSize) {
  for (const size_t entries : {1, 95, 97}) {
    Coupled call([](int64_t) { return 1; });
    call.groups.resize(entries);
    std::vector<float> d_hidden(call.states.size(), 99);
    for (const bool wanted : {true, false}) {
      CoupledLoss loss(call.groups, false);
      Gradients gradients;
      if (wanted) gradients.d_hidden = {d_hidden.data(), call.tokens, call.hidden};
      expect_invalid_input({"groups() has " + std::to_string(entries) + " entries"}, [&] {
        run_token_loss(Context(), call.hidden_states(), call.head(), call.ids(), {}, loss, gradients);
      });
    }
    EXPECT_EQ(d_hidden, std::vector<float>(d_hidden.size(), 99));
  }
}

class FailingLoss : public TokenLoss {
 public:
  StatsRequest needs() const override { return {}; }
  GradsFilled gradients() const override { return {}; }
  void evaluate(std::span<const int64_t>, const TokenStats&, TokenGrads&) override {
    throw std::runtime_error("the loss failed");
  }
};

TEST(RunTokenLoss, ItsExceptionArrives) {
  const SeededModel model(37, 19, 150);
  std::vector<float> d_hidden(model.states.size());
  Gradients gradients;
  gradients.d_hidden = {d_hidden.data(), model.tokens, model.hidden};
  for (const PlanKind plan : {PlanKind::kOnePass, PlanKind::kTwoPass}) {
    FailingLoss loss;
    EXPECT_THROW(run_token_loss(Setting{.plan = plan}.context(), model.hidden_states(), model.head(), model.ids(), {},
                                loss, gradients),
                 std::runtime_error);
  }
}

}  // namespace coupled_loss_test
}  // namespace logitless::testing

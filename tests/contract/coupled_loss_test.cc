// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Losses that couple rows: every plan hands them whole groups, and a plan that cannot is not taken.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/calls.h"
#include "support/coupled_loss.h"
#include "support/refusal.h"
#include "support/testers.h"
#include "support/views.h"

namespace logitless::testing {
namespace {

/// What one run left.
struct CoupledRun {
  Plan plan;
  std::vector<std::vector<int64_t>> calls;  ///< rows of each call of evaluate()
  std::vector<std::byte> bytes;             ///< gradients and logp
};

class CoupledLossTester : public Tester<CoupledLossTester> {
 public:
  /// `group` names the group of a row.
  CoupledLossTester& groups(const std::string& name, std::function<int64_t(int64_t row)> group) {
    return input("groups", name, group_, std::move(group));
  }
  CoupledLossTester& entropy(bool on) { return input("entropy", on, entropy_, on); }
  /// The engine does not hear of the groups.
  CoupledLossTester& uncoupled(bool on = true) { return run("uncoupled", on, uncoupled_, on); }

  std::vector<int64_t> group_ids() const {
    std::vector<int64_t> ids(static_cast<size_t>(spec_.tokens));
    for (int64_t i = 0; i < spec_.tokens; ++i) ids[i] = group_(i);
    return ids;
  }
  std::vector<int64_t> active_rows() {
    std::vector<int64_t> rows;
    for (int64_t i = 0; i < spec_.tokens; ++i) {
      if (reference().expected.problem.takes_part(i)) rows.push_back(i);
    }
    return rows;
  }
  /// Counts the rows of the largest group that take part.
  int64_t largest_group() {
    std::map<int64_t, int64_t> sizes;
    int64_t largest = 0;
    for (const int64_t row : active_rows()) largest = std::max(largest, ++sizes[group_(row)]);
    return largest;
  }

  CoupledRun run_once() {
    Reference& own = reference();
    GradientOutputs outputs(own.inputs, run_);
    return call(own, outputs);
  }

  /// Runs, compares with the oracle, and looks at what evaluate() got.
  CoupledRun matches_oracle() {
    SCOPED_TRACE(describe());
    Reference& truth = reference();
    GradientOutputs outputs(truth.inputs, run_);
    const CoupledRun run = call(truth, outputs);
    EXPECT_LE(run.plan.workspace_bytes, run_.context.workspace_bytes);
    if (run_.context.plan != PlanKind::kAuto) {
      EXPECT_EQ(run.plan.kind, run_.context.plan);
    }
    expect_gradients_near(outputs, truth.expected, run_, spec_.layout);
    expect_whole_groups(run);
    return run;
  }

  Plan planned() {
    Reference& own = reference();
    GradientOutputs outputs(own.inputs, run_);
    const CoupledLoss loss(group_ids(), entropy_, !uncoupled_);
    return plan_token_loss(context(), own.inputs.hidden_view(), own.inputs.head_view(), own.inputs.targets_view(),
                           own.options, loss, outputs.gradients());
  }

  /// Runs one pass in the least that it needs.
  CoupledLossTester& tightest_one_pass() { return plan(PlanKind::kOnePass).tightest_workspace(); }

 private:
  struct Reference {
    explicit Reference(const InputSpec& spec) : inputs(spec) {}
    Inputs inputs;
    HostArray<double> temperatures;
    TokenOptions options;
    Expected expected;
  };

  void forget() override { reference_.reset(); }

  Reference& reference() {
    if (reference_) return *reference_;
    auto made = std::make_shared<Reference>(spec_);
    made->options = token_options(made->temperatures);
    Expected& expected = made->expected;
    expected = expect_statistics(oracle::read_problem(made->inputs.hidden_view(), made->inputs.head_view(),
                                                      made->inputs.targets_view(), made->options),
                                 arithmetic_for(spec_.dtype, context()));
    reference_ = made;
    add_group_gradients(expected);
    return *made;
  }

  // Sums over a group: the errors of the statistics add up, and n terms in fp64 err by n · 2^-53 of their
  // absolute sum, in the engine's loss and here. S + E is one more term.
  void add_group_gradients(Expected& expected) const {
    struct Sums {
      double logp = 0, entropy = 0, absolute = 0, error = 0, terms = 1;
    };
    std::map<int64_t, Sums> groups;
    for (int64_t i = 0; i < spec_.tokens; ++i) {
      if (!expected.problem.takes_part(i)) continue;
      Sums& group = groups[group_(i)];
      group.logp += expected.stats.logp[i];
      group.absolute += std::abs(expected.stats.logp[i]);
      group.error += expected.stat_bounds.logp[i];
      group.terms += 1;
      if (!entropy_) continue;
      group.entropy += expected.stats.entropy[i];
      group.absolute += std::abs(expected.stats.entropy[i]);
      group.error += expected.stat_bounds.entropy[i];
    }
    oracle::TokenGradients grads(spec_.tokens), errors(spec_.tokens);
    for (int64_t i = 0; i < spec_.tokens; ++i) {
      if (!expected.problem.takes_part(i)) continue;
      const Sums& group = groups[group_(i)];
      const double error = group.error + 2 * group.terms * 0x1p-53 * (group.absolute + group.error);
      grads.logp[i] = group.logp + group.entropy;
      errors.logp[i] = error;
      if (!entropy_) continue;
      grads.entropy[i] = group.logp;
      errors.entropy[i] = error;
    }
    add_gradients(expected, grads, errors);
  }

  CoupledRun call(Reference& reference, GradientOutputs& outputs) const {
    const Inputs& inputs = reference.inputs;
    CoupledLoss loss(group_ids(), entropy_, !uncoupled_);
    CoupledRun run;
    const TokenStats stats = run_token_loss(context(), inputs.hidden_view(), inputs.head_view(), inputs.targets_view(),
                                            reference.options, loss, outputs.gradients(), &run.plan);
    run.calls = loss.calls();
    run.bytes = outputs.bytes();
    const auto* logp = reinterpret_cast<const std::byte*>(stats.logp.data());
    run.bytes.insert(run.bytes.end(), logp, logp + stats.logp.size() * sizeof(double));
    return run;
  }

  void expect_whole_groups(const CoupledRun& run) {
    std::map<int64_t, size_t> call_of;
    std::vector<int64_t> seen;
    for (size_t c = 0; c < run.calls.size(); ++c) {
      const std::vector<int64_t>& rows = run.calls[c];
      EXPECT_TRUE(std::is_sorted(rows.begin(), rows.end())) << "call " << c;
      if (run.plan.kind == PlanKind::kOnePass) {
        EXPECT_LE(static_cast<int64_t>(rows.size()), run.plan.chunk_rows) << "call " << c;
      }
      for (const int64_t row : rows) {
        EXPECT_EQ(call_of.emplace(group_(row), c).first->second, c) << "the group of row " << row << " was parted";
        seen.push_back(row);
      }
    }
    std::sort(seen.begin(), seen.end());
    EXPECT_EQ(seen, active_rows());
    if (run.plan.kind != PlanKind::kOnePass) {
      EXPECT_EQ(run.calls.size(), 1u);
    }
  }

  std::function<int64_t(int64_t)> group_ = [](int64_t) { return 0; };
  bool entropy_ = false;
  bool uncoupled_ = false;
  std::shared_ptr<Reference> reference_;
};

// 96 rows: wide enough a vocabulary that the logits of a chunk are most of what one pass needs.
CoupledLossTester small() { return CoupledLossTester().tokens(96).vocab(300).tiles(16, 64).threads(2); }

// Ways in which rows hang together, with inputs to match.
const std::vector<std::function<void(CoupledLossTester&)>>& groupings() {
  static const std::vector<std::function<void(CoupledLossTester&)>> all = {
      [](auto& t) { t.batch(6).groups("sequences", [](int64_t i) { return i / 16; }); },
      [](auto& t) {  // chosen answers, then rejected ones
        t.batch(8).shift().groups("pairs in two halves", [](int64_t i) { return i / 12 % 4; });
      },
      [](auto& t) {  // packed answers of two lengths
        t.packed({0, 15, 30, 45, 60, 69, 78, 87, 96})
            .shift()
            .ignored(0.1)
            .groups("pairs of two lengths", [](int64_t i) { return i < 60 ? i / 15 : (i - 60) / 9; });
      },
      [](auto& t) { t.groups("one", [](int64_t) { return -3; }); },
      [](auto& t) { t.groups("interleaved", [](int64_t i) { return i % 3; }); },
      [](auto& t) { t.ignored(0.3).groups("any ids, ignored rows", [](int64_t i) { return (i * 7 % 11 - 5) << 40; }); },
      [](auto& t) {  // all rows of two sequences are ignored
        std::vector<int64_t> targets(96, 7);
        std::fill_n(targets.begin() + 12, 24, -100);
        t.batch(8).targets(targets).groups("some without a row", [](int64_t i) { return i / 12; });
      },
      [](auto& t) {
        t.packed({0, 31, 31, 40, 41, 90, 96}).shift().groups("packed sequences", [](int64_t i) {
          return i < 31 ? 0 : i < 40 ? 2 : i < 41 ? 3 : i < 90 ? 4 : 5;
        });
      },
      [](auto& t) { t.groups("one large, the others single", [](int64_t i) { return i % 2 ? 0 : i; }); },
  };
  return all;
}

void for_each_grouping(const std::function<void(CoupledLossTester&)>& check) {
  for (const auto& grouping : groupings()) {
    CoupledLossTester tester = small();
    grouping(tester);
    check(tester);
  }
}

TEST(CoupledLoss, EveryGroupingAndPlan) {
  for_each_grouping([](CoupledLossTester& tester) {
    for (const bool entropy : {false, true}) {
      tester.entropy(entropy).workspace(size_t{64} << 20);
      tester.plan(PlanKind::kTwoPass).matches_oracle();
      EXPECT_EQ(tester.plan(PlanKind::kOnePass).matches_oracle().calls.size(), 1u);
      EXPECT_EQ(tester.plan(PlanKind::kAuto).matches_oracle().plan.kind, PlanKind::kOnePass);
    }
  });
}

TEST(CoupledLoss, ChunksOfWholeGroups) {
  for_each_grouping([](CoupledLossTester& tester) {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat64}) {
      const CoupledRun run = tester.dtype(dtype).entropy(true).tightest_one_pass().matches_oracle();
      // The smallest chunk there can be is the largest group.
      EXPECT_EQ(run.plan.chunk_rows, tester.largest_group());
      EXPECT_EQ(run.calls.size() == 1, run.plan.chunk_rows == run.plan.active_rows);
    }
  });
}

TEST(CoupledLoss, ChunksOfEveryBudget) {
  std::set<size_t> chunk_counts;
  CoupledLossTester tester = small().batch(24).groups("sequences of 4", [](int64_t i) { return i / 4; });
  const size_t least = tester.tightest_one_pass().run_spec().context.workspace_bytes;
  size_t before = std::numeric_limits<size_t>::max();
  for (size_t bytes = least; bytes < 6 * least; bytes += least / 64) {
    const CoupledRun run = tester.workspace(bytes).matches_oracle();
    EXPECT_LE(run.calls.size(), before) << "more chunks in " << bytes << " bytes";
    before = run.calls.size();
    chunk_counts.insert(run.calls.size());
  }
  EXPECT_GT(chunk_counts.size(), 3u);
  EXPECT_EQ(*chunk_counts.rbegin(), 24u);
}

TEST(CoupledLoss, SingletonsAreUncoupled) {
  CoupledLossTester tester = small().ignored(0.2).groups("single", [](int64_t i) { return -7 * i; });
  for (const PlanKind plan : {PlanKind::kOnePass, PlanKind::kTwoPass}) {
    for (const size_t kib : {80, 120, 1000}) {
      tester.plan(plan).workspace(kib << 10).uncoupled(false);
      const CoupledRun coupled = tester.matches_oracle();
      const CoupledRun uncoupled = tester.uncoupled().matches_oracle();
      EXPECT_TRUE(coupled.bytes == uncoupled.bytes);
      EXPECT_EQ(coupled.calls, uncoupled.calls);
    }
  }
}

TEST(CoupledLoss, AGroupThatDoesNotFitMeansTwoPass) {
  CoupledLossTester tester = small().batch(4).groups("sequences", [](int64_t i) { return i / 24; });
  const size_t least = tester.tightest_one_pass().run_spec().context.workspace_bytes;
  EXPECT_EQ(tester.run_once().calls.size(), 4u);
  tester.workspace(least - 1);
  EXPECT_EQ(tester.plan(PlanKind::kAuto).matches_oracle().plan.kind, PlanKind::kTwoPass);
  expect_invalid_input({"needs at least " + std::to_string(least) + " bytes", "couples 24 rows"},
                       [&] { tester.plan(PlanKind::kOnePass).run_once(); });
}

// Auto keeps chunks that one pass would rather be slow in to two pass, but a large group that fits is one
// pass's.
TEST(CoupledLoss, AutoTakesOnePassWhenTheLargestGroupFits) {
  CoupledLossTester tester = small().tokens(600).batch(4).groups("sequences", [](int64_t i) { return i / 150; });
  const size_t least = tester.tightest_one_pass().run_spec().context.workspace_bytes;
  const CoupledRun run = tester.plan(PlanKind::kAuto).workspace(least).matches_oracle();
  EXPECT_EQ(run.plan.kind, PlanKind::kOnePass);
  EXPECT_EQ(run.plan.chunk_rows, 150);
  EXPECT_EQ(tester.workspace(least - 1).run_once().plan.kind, PlanKind::kTwoPass);
}

// These tests would see it: in this budget rows that the engine believes to stand alone are parted.
TEST(CoupledLoss, TheBudgetsPartRowsThatAreNotCoupled) {
  CoupledLossTester tester = small().groups("one", [](int64_t) { return 1; });
  EXPECT_EQ(tester.tightest_one_pass().matches_oracle().calls.size(), 1u);
  EXPECT_GT(tester.uncoupled().tightest_one_pass().run_once().calls.size(), 1u);
}

// Any number of groups but one a row is a mistake, and nothing is written.
TEST(CoupledLoss, GroupsOfAnotherSize) {
  Inputs inputs{InputSpec()};
  GradientOutputs outputs(inputs, {});
  const std::vector<std::byte> before = outputs.bytes();
  for (const size_t entries : {1, 36, 38}) {
    for (const bool wanted : {true, false}) {
      CoupledLoss loss(std::vector<int64_t>(entries), false);
      expect_invalid_input({"groups() has " + std::to_string(entries) + " entries"}, [&] {
        run_token_loss(Context(), inputs.hidden_view(), inputs.head_view(), inputs.targets_view(), {}, loss,
                       wanted ? outputs.gradients() : Gradients());
      });
    }
  }
  EXPECT_TRUE(outputs.bytes() == before);
}

}  // namespace
}  // namespace logitless::testing

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The largest logits to the last tie: whole-numbered hidden states and heads, whose logits every type and
// every GEMM gets exactly. token_stats_test and logits_test hold those of other numbers to derived bounds.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "support/calls.h"
#include "support/logits_tester.h"
#include "support/refusal.h"
#include "support/testers.h"

namespace logitless::testing {
namespace {

constexpr DType kDTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64};
constexpr HeadLayout kLayouts[] = {HeadLayout::kHiddenVocab, HeadLayout::kVocabHidden};
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// A loss whose rows all have a gradient, and which reads the lists.
class ListLoss final : public TokenLoss {
 public:
  explicit ListLoss(int64_t top_k) : top_k_(top_k) {}
  StatsRequest needs() const override { return {.top_k = top_k_}; }
  GradsFilled gradients() const override { return {}; }
  void evaluate(std::span<const int64_t> rows, const TokenStats& stats, TokenGrads& grads) override {
    for (const int64_t row : rows) {
      without_list += stats.top_ids[static_cast<size_t>(row * top_k_)] < 0;
      grads.logp[static_cast<size_t>(row)] = 1;
    }
  }
  int64_t without_list = 0;

 private:
  int64_t top_k_;
};

// Logits are sums of `hidden` products from -4 to 4, and a bias from -3 to 3: many ties.
Inputs whole_inputs(const InputSpec& spec) {
  Inputs inputs(spec);
  const auto whole = [](double value, double most) { return std::clamp(std::round(value), -most, most); };
  for (HostTensor* tensor : {&inputs.hidden, &inputs.weight, &inputs.bias}) {
    const double most = tensor == &inputs.bias ? 3 : 2;
    for (int64_t r = 0; r < tensor->rows(); ++r) {
      for (int64_t c = 0; c < tensor->cols(); ++c) {
        if (!std::isnan(tensor->get(r, c))) tensor->set(r, c, whole(tensor->get(r, c), most));
      }
    }
  }
  return inputs;
}

class TopKTester : public Tester<TopKTester> {
 public:
  TopKTester& top_k(int64_t count) { return run("top_k", count, top_k_, count); }

  /// Compares the lists of every call that gives some with the oracle's: ids without any tolerance.
  void matches_oracle() {
    SCOPED_TRACE(describe());
    Inputs inputs = whole_inputs(spec_);
    HostArray<double> temperatures;
    const TokenOptions options = token_options(temperatures);
    const oracle::Problem problem =
        oracle::read_problem(inputs.hidden_view(), inputs.head_view(), inputs.targets_view(), options);
    const std::vector<int64_t> want = largest(problem, oracle::compute_statistics(problem));
    const auto expect = [&](const TokenStats& stats) {
      EXPECT_EQ(stats.top_ids, want);
      expect_logps(stats, problem);
    };
    const StatsRequest request = {.argmax = true, .top_k = top_k_};
    expect(compute_token_stats(context(), inputs.hidden_view(), inputs.head_view(), inputs.targets_view(), options,
                               request));
    for (const PlanKind plan : {PlanKind::kOnePass, PlanKind::kTwoPass}) {
      SCOPED_TRACE(name_of(plan));
      ContextOptions in_plan = run_.context;
      in_plan.plan = plan;
      GradientOutputs outputs(inputs, run_);
      ListLoss loss(top_k_);
      expect(run_token_loss(Context(in_plan), inputs.hidden_view(), inputs.head_view(), inputs.targets_view(), options,
                            loss, outputs.gradients()));
      EXPECT_EQ(loss.without_list, 0) << "evaluated before it had its list";
    }
  }

 private:
  std::vector<int64_t> largest(const oracle::Problem& problem, const oracle::Statistics& truth) const {
    std::vector<int64_t> out;
    for (int64_t i = 0; i < problem.tokens(); ++i) {
      std::vector<int64_t> ids(problem.takes_part(i) ? static_cast<size_t>(problem.vocab()) : 0);
      std::iota(ids.begin(), ids.end(), int64_t{0});
      std::stable_sort(ids.begin(), ids.end(),
                       [&](int64_t a, int64_t b) { return truth.shifted(i, a) > truth.shifted(i, b); });
      ids.resize(static_cast<size_t>(top_k_), -1);
      out.insert(out.end(), ids.begin(), ids.end());
    }
    return out;
  }

  // A row's first entry is its argmax, and a target's log-probability is logp to the bit.
  void expect_logps(const TokenStats& stats, const oracle::Problem& problem) const {
    ASSERT_EQ(stats.top_logps.size(), stats.top_ids.size());
    for (int64_t i = 0; i < problem.tokens(); ++i) {
      const auto row = static_cast<size_t>(i), begin = row * static_cast<size_t>(top_k_);
      if (!stats.argmax.empty()) {
        EXPECT_EQ(stats.top_ids[begin], stats.argmax[row]);
      }
      for (size_t at = begin; at < begin + static_cast<size_t>(top_k_); ++at) {
        if (!problem.takes_part(i)) {
          EXPECT_EQ(stats.top_logps[at], 0);
        } else if (stats.top_ids[at] < 0) {
          EXPECT_EQ(stats.top_logps[at], -kInfinity);
        } else if (stats.top_ids[at] == problem.labels[i]) {
          EXPECT_EQ(stats.top_logps[at], stats.logp[row]);
        }
        if (at > begin) {
          EXPECT_LE(stats.top_logps[at], stats.top_logps[at - 1]);
        }
      }
    }
  }

  void forget() override {}

  int64_t top_k_ = 9;
};

TopKTester small() { return TopKTester().tiles(16, 64).threads(2); }

TEST(TopK, EveryTypeAndLayout) {
  for (const DType dtype : kDTypes) {
    for (const HeadLayout layout : kLayouts) {
      TopKTester tester = small().dtype(dtype).layout(layout);
      tester.matches_oracle();
      tester.bias(false).padding(3).ignored(0.3).matches_oracle();
      tester.tokens(40).batch(5).shift().matches_oracle();
    }
  }
}

TEST(TopK, EveryInstructionSet) {
  for (const std::string& target : simd_targets()) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
      for (const int64_t top_k : {1, 3, 64, 256})
        small().dtype(dtype).simd_target(target).top_k(top_k).matches_oracle();
    }
    small().softcap(30).simd_target(target).matches_oracle();
  }
}

TEST(TopK, VocabulariesAroundTileEdges) {
  for (const int64_t vocab : {1, 2, 63, 64, 65, 128, 199, 2049}) {
    for (const int64_t tokens : {1, 17}) {
      for (const int64_t top_k : {1, 64, 256}) {
        small().vocab(vocab).tokens(tokens).top_k(top_k).matches_oracle();
        small().vocab(vocab).tokens(tokens).top_k(top_k).tiles(0, 0).matches_oracle();
      }
    }
  }
}

TEST(TopK, EveryOption) {
  small().temperatures().matches_oracle();
  small().temperatures().temperature_meaning(TemperatureMeaning::kScaleLogp).matches_oracle();
  // Capped logits tie where raw ones do: no column's tanh may depend on where it stands in a vector.
  for (const DType dtype : kDTypes) small().dtype(dtype).vocab(203).softcap(30).matches_oracle();
  // Sums of 600 products reach hundreds, where bfloat16 keeps even numbers alone: new ties.
  small().hidden(600).matches_oracle();
  small().hidden(600).round_to(DType::kBFloat16).matches_oracle();
}

TEST(TopK, AllLogitsAreEqual) {
  // Hidden states of 0 leave nothing but equal biases, or none: the lowest ids win, whoever comes first.
  for (const int64_t top_k : {1, 5, 256}) small().vocab(2049).hidden(1).bias(false).top_k(top_k).matches_oracle();
}

TEST(TopK, SlicesOfTheVocabulary) {
  for (const int64_t top_k : {1, 9, 64, 256}) {
    small().slices({70, 80}).top_k(top_k).matches_oracle();
    small().slices({40, 0, 37, 73}).top_k(top_k).matches_oracle();
    small().slices({1, 148, 1}).dtype(DType::kFloat64).top_k(top_k).matches_oracle();
  }
}

// Rounding decides which of these are the largest, and their bits.
TEST(TopK, ThreadsChangeNoBit) {
  for (const int64_t tokens : {1, 3, 70}) {
    for (const int64_t top_k : {1, 64, 256}) {
      InputSpec spec;
      spec.tokens = tokens;
      spec.vocab = 6007;
      spec.peaked = false;
      const Inputs inputs(spec);
      const auto run = [&](int threads) {
        ContextOptions options;
        options.threads = threads;
        options.row_tile = 16;
        options.vocab_tile = 128;
        return compute_token_stats(Context(options), inputs.hidden_view(), inputs.head_view(), inputs.targets_view(),
                                   {}, {.top_k = top_k});
      };
      const TokenStats one = run(1);
      for (const int threads : {2, 3, 7}) {
        SCOPED_TRACE(std::to_string(tokens) + " tokens, top " + std::to_string(top_k) + ", " + std::to_string(threads) +
                     " threads");
        const TokenStats stats = run(threads);
        EXPECT_EQ(stats.top_ids, one.top_ids);
        EXPECT_EQ(stats.top_logps, one.top_logps);
      }
    }
  }
}

TEST(TopK, OfLogitsThatTheCallerHolds) {
  // Row by row: all different, all equal, masks, nothing but masks, a NaN, +inf, ignored.
  const float inf = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  const std::vector<float> logits = {1,    2,    3, 0, 5,   5, 5, 5, -inf, 2,   -inf, 1, -inf, -inf,
                                     -inf, -inf, 1, 9, nan, 3, 1, 2, inf,  3.0, 1,    2, 3,    4};
  const std::vector<int64_t> targets = {2, 3, 1, 0, 1, 0, -100};
  const auto lists = [&](const std::string& target, int64_t top_k) {
    ContextOptions options;
    options.vocab_tile = 3;
    options.simd_target = target;
    return compute_token_stats(Context(options), FinishedLogits(logits.data(), 1, 7, 4), Targets(std::span(targets)),
                               {}, {.top_k = top_k});
  };
  for (const std::string& target : simd_targets()) {
    SCOPED_TRACE(target);
    const TokenStats three = lists(target, 3);
    EXPECT_EQ(three.top_ids,
              (std::vector<int64_t>{2, 1, 0, 0, 1, 2, 1, 3, 0, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1}));
    EXPECT_EQ(three.top_logps[8], -kInfinity) << "a masked entry";
    for (size_t at = 9; at < 18; ++at) EXPECT_TRUE(std::isnan(three.top_logps[at])) << at;
    for (size_t at = 18; at < 21; ++at) EXPECT_EQ(three.top_logps[at], 0) << at;
    const TokenStats six = lists(target, 6);  // of 4 entries
    EXPECT_EQ(std::vector(six.top_ids.begin(), six.top_ids.begin() + 6), (std::vector<int64_t>{2, 1, 0, 3, -1, -1}));
    EXPECT_EQ(six.top_logps[4], -kInfinity);
    EXPECT_NEAR(top_masses(six)[0], 1, 1e-6);
  }
}

TEST(TopK, WrongCountsAreRefused) {
  InputSpec spec;
  const Inputs inputs(spec);
  const std::vector<float> logits(12);
  const std::vector<int64_t> targets = {0, 1, 2};
  constexpr int64_t kWrong[] = {-1, 257, std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()};
  for (const int64_t top_k : kWrong) {
    const StatsRequest request = {.top_k = top_k};
    const std::string value = top_k == 257 ? "257" : top_k > 0 ? "9223372036854775808" : "-";
    const std::vector<std::string> message = {"top_k = " + value, "an integer from 0 to 256"};
    expect_invalid_input(message, [&] {
      compute_token_stats(Context(), inputs.hidden_view(), inputs.head_view(), inputs.targets_view(), {}, request);
    });
    expect_invalid_input(message, [&] {
      plan_token_stats(Context(), inputs.hidden_view(), inputs.head_view(), inputs.targets_view(), {}, request);
    });
    expect_invalid_input(message, [&] {
      compute_token_stats(Context(), FinishedLogits(logits.data(), 1, 3, 4), Targets(std::span(targets)), {}, request);
    });
    expect_invalid_input(message, [&] { slice_bytes_per_token(DType::kFloat32, request); });
    expect_invalid_input(message, [&] {
      ListLoss loss(top_k);
      run_token_loss(Context(), inputs.hidden_view(), inputs.head_view(), inputs.targets_view(), {}, loss, {});
    });
  }
}

TEST(TopK, MassesAddWhatTheListsHold) {
  TokenStats stats;
  stats.lse = {1, 2, 3, 4};
  stats.top_ids = {7, 3, -1, -1, -1, -1, 5, -1};
  stats.top_logps = {std::log(0.5), std::log(0.25), 0, 0, kNaN, kNaN, std::log(0.125), -kInfinity};
  const std::vector<double> masses = top_masses(stats);
  EXPECT_DOUBLE_EQ(masses[0], 0.75);
  EXPECT_EQ(masses[1], 0) << "takes no part";
  EXPECT_TRUE(std::isnan(masses[2]));
  EXPECT_DOUBLE_EQ(masses[3], 0.125);
  EXPECT_TRUE(top_masses(TokenStats()).empty());
  stats.top_logps.pop_back();
  expect_invalid_input({"stats.top_logps has 7 entries", "8"}, [&] { top_masses(stats); });
  stats.top_ids.clear();
  expect_invalid_input({"stats.top_ids is empty", "top_k = 0"}, [&] { top_masses(stats); });
}

TEST(TopK, UnionsHaveEachIdOnce) {
  const std::vector<int64_t> a = {3, 1, 2, 9, -1, -1}, b = {2, 7, 9, 4};
  const TopUnions got = top_unions(a, b, 2);
  EXPECT_EQ(got.ids, (std::vector<int64_t>{3, 1, 2, 7, 9, 4}));
  EXPECT_EQ(got.offsets, (std::vector<int64_t>{0, 4, 6}));
  EXPECT_EQ(top_unions(a, {}, 2).offsets, (std::vector<int64_t>{0, 3, 4}));
  EXPECT_EQ(top_unions({}, {}, 0).offsets, std::vector<int64_t>{0});
  expect_invalid_input({"b has 4 ids", "3 rows"}, [&] { top_unions(a, b, 3); });
  expect_invalid_input({"rows = -1"}, [&] { top_unions(a, b, -1); });
}

TEST(TopK, OverlapsCountSharedIds) {
  const std::vector<int64_t> a = {4, 2, 9, 7, -1, -1}, b = {9, 1, 4, 8, -1, 7, -1, -1};
  EXPECT_EQ(top_overlaps(a, b, 2), (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(top_overlaps(b, a, 2), (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(top_overlaps(a, {}, 2), (std::vector<int64_t>{0, 0}));
  EXPECT_TRUE(top_overlaps({}, {}, 0).empty());
  expect_invalid_input({"b has 8 ids", "3 rows"}, [&] { top_overlaps(a, b, 3); });
  expect_invalid_input({"a has 6 ids", "0 rows"}, [&] { top_overlaps(a, b, 0); });
  expect_invalid_input({"rows = -1"}, [&] { top_overlaps(a, b, -1); });
}

// Lists that do not fit are made chunk by chunk, with the same result.
TEST(TopK, AnyBudgetThatIsAcceptedGivesTheSameLists) {
  for (const int64_t top_k : {1, 64, 256}) {
    InputSpec spec;
    spec.tokens = 700;
    spec.vocab = 900;
    spec.hidden = 5;
    spec.ignored = 0.2;
    const Inputs inputs = whole_inputs(spec);
    const auto run = [&](size_t bytes, Plan& plan) {
      ContextOptions options;
      options.workspace_bytes = bytes;
      options.threads = 2;
      return compute_token_stats(Context(options), inputs.hidden_view(), inputs.head_view(), inputs.targets_view(), {},
                                 {.top_k = top_k}, &plan);
    };
    Plan whole;
    const TokenStats want = run(size_t{1} << 30, whole);
    EXPECT_EQ(whole.chunk_rows, whole.active_rows);
    const size_t least = plan_token_stats(Context(), inputs.hidden_view(), inputs.head_view(), inputs.targets_view(),
                                          {}, {.top_k = top_k})
                             .least_workspace_bytes;
    for (size_t bytes = least; bytes < 2 * whole.workspace_bytes; bytes += 1 + bytes / 3) {
      SCOPED_TRACE(std::to_string(bytes) + " bytes, top " + std::to_string(top_k));
      Plan plan;
      EXPECT_EQ(run(bytes, plan).top_ids, want.top_ids);
      EXPECT_LE(plan.workspace_bytes, bytes);
      if (top_k == 256 && bytes == least) {
        EXPECT_LT(plan.chunk_rows, plan.active_rows);
      }
    }
    Plan plan;
    EXPECT_THROW(run(least - 1, plan), InvalidInput);
  }
}

TEST(TopK, WhoDoesNotAskDoesNotPay) {
  InputSpec spec;
  const Inputs inputs(spec);
  const auto workspace = [&](int64_t top_k) {
    return plan_token_stats(Context(), inputs.hidden_view(), inputs.head_view(), inputs.targets_view(), {},
                            {.top_k = top_k})
        .workspace_bytes;
  };
  // A list has 16 bytes an entry and gathers up to 2 k + 16, however many stretches the vocabulary has.
  const size_t cache_lines = 2 * 64, lists = 37 * (216 * 16 + 24);
  EXPECT_GE(workspace(100), workspace(0) + lists);
  EXPECT_LE(workspace(100), workspace(0) + lists + cache_lines);
}

}  // namespace
}  // namespace logitless::testing

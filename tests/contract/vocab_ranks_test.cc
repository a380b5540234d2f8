// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Ranks that hold parts of the vocabulary: every task has the same bits however many ranks share its slices.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "support/calls.h"
#include "support/inputs.h"
#include "support/policy_tester.h"
#include "support/preference_tester.h"
#include "support/rank_of_task.h"
#include "support/testers.h"
#include "support/thread_ranks.h"
#include "support/views.h"

namespace logitless::testing {
namespace {

// What a world of ranks leaves: everything that is returned, and d_hidden, which are the same on all
// ranks, and d_weight and d_bias of all vocabulary entries.
struct WorldRun {
  std::vector<std::vector<std::byte>> returned;
  std::vector<typename FromHidden::Outputs> at_once, apart;
};

// Runs task number `number` of the list on all ranks.
WorldRun run_world(const std::vector<size_t>& world, size_t number, ContextOptions options) {
  const size_t size = world.size();
  WorldRun run = {std::vector<std::vector<std::byte>>(size), std::vector<FromHidden::Outputs>(size),
                  std::vector<FromHidden::Outputs>(size)};
  ThreadGroup group(static_cast<int>(size));
  const auto errors = run_ranks(static_cast<int>(size), [&](int rank) {
    const auto r = static_cast<size_t>(rank);
    const RankOfTask given(world, r);
    ContextOptions mine = options;
    if (size > 1) mine.ranks.vocab = &group.of(rank);
    mine.ranks.slices = given.slices;
    const Context context(mine);
    run.returned[r] = run_rank(number, context, given, run.at_once[r], run.apart[r]);
  });
  for (const auto& error : errors) EXPECT_EQ(message_of(error), "");
  for (size_t r = 1; r < size; ++r) {
    const RankOfTask given(world, r);
    EXPECT_TRUE(run.returned[r] == run.returned[0]) << "rank " << r;
    for (auto* outputs : {&run.at_once, &run.apart}) {
      const auto begin = (*outputs)[r].values().begin();
      EXPECT_TRUE(std::equal(begin, begin + kTokens * kHidden, (*outputs)[0].values().begin())) << "rank " << r;
      (*outputs)[0].take_entries((*outputs)[r], given.source.first_entry, given.source.entries);
    }
  }
  return run;
}

// Tells whether the task of this number runs a plan.
bool runs(size_t number, PlanKind plan) {
  const FromHidden source;
  const Batch batch;
  bool accepted = false;
  size_t at = 0;
  visit_every_task(source, batch, [&](const auto& task) {
    if (at++ != number) return;
    ContextOptions options;
    options.plan = plan;
    FromHidden::Outputs outputs;
    try {
      task.plan(Context(options), outputs.views());
      accepted = true;
    } catch (const InvalidInput&) {
    }
  });
  return accepted;
}

TEST(VocabRanks, HaveTheBitsOfOneProcess) {
  const std::vector<std::string> names = task_names();
  int with_expected_rows = 0;
  for (size_t number = 0; number < names.size(); ++number) {
    for (const PlanKind plan : {PlanKind::kOnePass, PlanKind::kTwoPass, PlanKind::kExpectedRow}) {
      if (plan == PlanKind::kExpectedRow && !runs(number, plan)) continue;
      with_expected_rows += plan == PlanKind::kExpectedRow;
      ContextOptions options;
      options.plan = plan;
      options.row_tile = 3;
      options.vocab_tile = 16;
      options.threads = 1;
      const WorldRun one = run_world(kWorlds[0], number, options);
      for (const std::vector<size_t>& world : kWorlds) {
        for (const int threads : {1, 2}) {
          SCOPED_TRACE(names[number] + " " + name_of(plan) + " on " + std::to_string(world.size()) + " ranks of " +
                       std::to_string(threads) + " threads");
          options.threads = threads;
          const WorldRun run = run_world(world, number, options);
          EXPECT_TRUE(run.returned[0] == one.returned[0]);
          EXPECT_EQ(run.at_once[0].values(), one.at_once[0].values());
          EXPECT_EQ(run.apart[0].values(), one.apart[0].values());
        }
      }
    }
  }
  EXPECT_GE(with_expected_rows, 5);
}

// A call in every form that its tensors can have.
struct Form {
  const char* name;
  DType dtype = DType::kFloat32;
  HeadLayout layout = HeadLayout::kVocabHidden;
  std::optional<DType> gradients = std::nullopt;
  bool accumulate = false, sink = false;
  Rows d_hidden_rows = Rows::kFollowing;
};

template <class AnyMatrix>
AnyMatrix entries_of(const AnyMatrix& matrix, HeadLayout layout, int64_t first, int64_t count) {
  AnyMatrix out = matrix;
  const bool hidden_vocab = layout == HeadLayout::kHiddenVocab;
  (hidden_vocab ? out.cols : out.rows) = count;
  const int64_t offset = hidden_vocab ? first : first * out.stride;
  using Byte =
      std::conditional_t<std::is_const_v<std::remove_pointer_t<decltype(out.data)>>, const std::byte, std::byte>;
  // A rank without vocabulary entries may have no tensors.
  out.data = count == 0 ? nullptr : static_cast<Byte*>(out.data) + offset * static_cast<int64_t>(size_of(out.dtype));
  return out;
}

// What a rank leaves: per-token values, d_hidden, and the elements of d_weight and d_bias of its vocabulary
// entries.
struct FormRun {
  std::vector<double> values, d_weight, d_bias;
  std::vector<std::byte> d_hidden;
};

FormRun run_form(const Form& form, const std::vector<size_t>& world, size_t rank, Communicator* communicator) {
  InputSpec spec;
  spec.tokens = 20;
  spec.sequences = 2;
  spec.vocab = kVocab;
  spec.hidden = 9;
  spec.dtype = form.dtype;
  spec.layout = form.layout;
  spec.softcap = 12;
  spec.ignored = 0.3;
  RunSpec run;
  run.gradient_dtype = form.gradients;
  run.accumulate = form.accumulate;
  run.d_hidden_rows = form.d_hidden_rows;
  Inputs inputs(spec);
  GradientOutputs outputs(inputs, run);
  const RankOfTask of_rank(world, rank);
  const int64_t first = of_rank.source.first_entry, entries = of_rank.source.entries;
  LmHead head = inputs.head_view();
  head.weight = entries_of(head.weight, form.layout, first, entries);
  const auto bias_bytes = static_cast<int64_t>(size_of(head.bias.dtype));
  head.bias = entries == 0 ? ConstVector()
                           : ConstVector(static_cast<const std::byte*>(head.bias.data) + first * bias_bytes,
                                         head.bias.dtype, entries);
  Gradients gradients = outputs.gradients();
  gradients.d_weight = entries_of(gradients.d_weight, form.layout, first, entries);
  const auto d_bias_bytes = static_cast<int64_t>(size_of(gradients.d_bias.dtype));
  gradients.d_bias = entries == 0 ? Vector()
                                  : Vector(static_cast<std::byte*>(gradients.d_bias.data) + first * d_bias_bytes,
                                           gradients.d_bias.dtype, entries);
  FormRun left;
  if (form.sink) {
    if (entries > 0) {
      gradients.d_weight = {};
      left.d_weight.assign(static_cast<size_t>(entries * spec.hidden), 0);
      gradients.weight_sink = [&](int64_t entry, int64_t count, const ConstMatrix& tile) {
        for (int64_t v = 0; v < count; ++v) {
          for (int64_t h = 0; h < spec.hidden; ++h) {
            left.d_weight[static_cast<size_t>((entry + v) * spec.hidden + h)] =
                static_cast<const float*>(tile.data)[v * tile.stride + h];
          }
        }
      };
    }
  }
  ContextOptions options;
  options.threads = 2;
  options.row_tile = 4;
  options.vocab_tile = 16;
  options.ranks.vocab = communicator;
  options.ranks.slices = of_rank.slices;
  CrossEntropy task;
  task.label_smoothing = 0.1;
  task.want_entropy = task.want_accuracy = true;
  const CrossEntropyResult result =
      cross_entropy(Context(options), inputs.hidden_view(), head, inputs.targets_view(), task, gradients);
  left.values = result.per_token_loss;
  left.values.push_back(result.loss);
  left.values.push_back(result.metrics.accuracy);
  const HostTensor d_hidden = outputs.d_hidden();
  left.d_hidden.assign(d_hidden.bytes().begin(), d_hidden.bytes().end());
  EXPECT_TRUE(outputs.d_hidden().padding_is_intact());
  for (int64_t v = first; v < first + entries; ++v) {
    left.d_bias.push_back(outputs.d_bias().get(0, v));
    for (int64_t h = 0; !form.sink && h < spec.hidden; ++h) {
      const bool hidden_vocab = form.layout == HeadLayout::kHiddenVocab;
      left.d_weight.push_back(hidden_vocab ? outputs.d_weight().get(h, v) : outputs.d_weight().get(v, h));
    }
  }
  return left;
}

TEST(VocabRanks, HaveTheBitsOfOneProcessInEveryForm) {
  const Form forms[] = {
      {.name = "hidden_vocab", .layout = HeadLayout::kHiddenVocab},
      {.name = "bfloat16", .dtype = DType::kBFloat16},
      {.name = "bfloat16 gradients", .dtype = DType::kBFloat16, .gradients = DType::kBFloat16},
      {.name = "float16", .dtype = DType::kFloat16, .layout = HeadLayout::kHiddenVocab},
      {.name = "float64", .dtype = DType::kFloat64},
      {.name = "accumulate", .accumulate = true},
      {.name = "sink", .sink = true},
      {.name = "d_hidden a slice", .d_hidden_rows = Rows::kSlice},
      {.name = "d_hidden a transpose", .d_hidden_rows = Rows::kTransposed},
  };
  for (const Form& form : forms) {
    const FormRun one = run_form(form, kWorlds[0], 0, nullptr);
    for (const std::vector<size_t>& world : kWorlds) {
      SCOPED_TRACE(std::string(form.name) + " on " + std::to_string(world.size()) + " ranks");
      ThreadGroup group(static_cast<int>(world.size()));
      std::vector<FormRun> left(world.size());
      const auto errors = run_ranks(static_cast<int>(world.size()), [&](int rank) {
        const auto r = static_cast<size_t>(rank);
        left[r] = run_form(form, world, r, &group.of(rank));
      });
      std::vector<double> d_weight, d_bias;
      for (size_t r = 0; r < world.size(); ++r) {
        ASSERT_EQ(message_of(errors[r]), "");
        EXPECT_EQ(left[r].values, one.values);
        EXPECT_TRUE(left[r].d_hidden == one.d_hidden);
        d_weight.insert(d_weight.end(), left[r].d_weight.begin(), left[r].d_weight.end());
        d_bias.insert(d_bias.end(), left[r].d_bias.begin(), left[r].d_bias.end());
      }
      EXPECT_EQ(d_weight, one.d_weight);
      EXPECT_EQ(d_bias, one.d_bias);
    }
  }
}

// The values are those of a call without ranks and cuts, to rounding.
TEST(VocabRanks, ComputeWhatOneProcessDoes) {
  FromHidden source;
  const Batch batch;
  FromHidden::Outputs plain, cut;
  CrossEntropy options;
  options.label_smoothing = 0.1;
  options.z_loss = 0.01;
  ContextOptions of_cut;
  of_cut.ranks.slices = kCut;
  const double want =
      cross_entropy(Context(), source.states(), source.head(), batch.targets(), options, plain.views()).loss;
  const double got =
      cross_entropy(Context(of_cut), source.states(), source.head(), batch.targets(), options, cut.views()).loss;
  EXPECT_NEAR(got, want, 1e-6);
  for (size_t i = 0; i < plain.values().size(); ++i) EXPECT_NEAR(cut.values()[i], plain.values()[i], 1e-6);
}

// What heads of others that are split over ranks got wrong.
CrossEntropyResult of_three_ranks(const FromHidden& whole, const std::vector<int64_t>& ids, const CrossEntropy& options,
                                  FromHidden::Outputs& outputs) {
  const std::vector<size_t>& world = kWorlds[2];
  ThreadGroup group(3);
  std::vector<CrossEntropyResult> results(3);
  std::vector<FromHidden::Outputs> left(3);
  const auto errors = run_ranks(3, [&](int rank) {
    const auto r = static_cast<size_t>(rank);
    const RankOfTask given(world, r);
    FromHidden source = whole;
    source.first_entry = given.source.first_entry;
    source.entries = given.source.entries;
    ContextOptions of_rank;
    of_rank.ranks.vocab = &group.of(rank);
    results[r] = cross_entropy(Context(of_rank), source.states(), source.head(), {ids.data(), kBatch, kTime}, options,
                               left[r].views(source.first_entry, source.entries));
  });
  for (size_t r = 0; r < 3; ++r) {
    const RankOfTask given(world, r);
    EXPECT_EQ(message_of(errors[r]), "");
    EXPECT_EQ(results[r].loss, results[0].loss);
    EXPECT_TRUE(
        std::equal(left[r].values().begin(), left[r].values().begin() + kTokens * kHidden, left[0].values().begin()))
        << "rank " << r << " has another d_hidden";
    left[0].take_entries(left[r], given.source.first_entry, given.source.entries);
  }
  outputs = left[0];
  return results[0];
}

// Smoothing and class weights mean the whole vocabulary, and not the vocabulary entries of a rank.
TEST(VocabRanks, SmoothOverTheWholeVocabulary) {
  const FromHidden source;
  const Batch batch;
  std::vector<float> classes(kVocab);
  for (size_t v = 0; v < classes.size(); ++v) classes[v] = 0.5F + static_cast<float>(v % 7) / 7;
  CrossEntropy options;
  options.label_smoothing = 0.3;
  for (const bool weighted : {false, true}) {
    if (weighted) options.class_weights = classes;
    FromHidden::Outputs plain, split;
    const CrossEntropyResult want =
        cross_entropy(Context(), source.states(), source.head(), batch.targets(), options, plain.views());
    EXPECT_NEAR(of_three_ranks(source, batch.ids, options, split).loss, want.loss, 1e-6);
    for (size_t i = 0; i < plain.values().size(); ++i) EXPECT_NEAR(split.values()[i], plain.values()[i], 1e-6);
  }
}

// Words that pad the last rank are masked by their bias. A target that is ignored may be the number of one of
// them, or of a vocabulary entry that another rank holds, and counts nowhere.
TEST(VocabRanks, KnowPaddingAndIgnoredTargets) {
  constexpr int64_t kPadded = 6, kReal = kVocab - kPadded;
  FromHidden source;
  std::fill(source.bias.begin() + kReal, source.bias.end(), -std::numeric_limits<float>::infinity());
  FromHidden unpadded = source;
  unpadded.entries = kReal;
  for (const int64_t ignored : {int64_t{-100}, int64_t{kVocab - 1}, int64_t{45}, int64_t{0}}) {
    std::vector<int64_t> ids;
    for (int64_t i = 0; i < kTokens; ++i) ids.push_back(i % 3 == 2 ? ignored : (i * 37 + 1) % kReal);
    CrossEntropy options;
    options.token.ignore_index = ignored;
    FromHidden::Outputs plain, split;
    const CrossEntropyResult want = cross_entropy(Context(), unpadded.states(), unpadded.head(),
                                                  {ids.data(), kBatch, kTime}, options, plain.views(0, kReal));
    const CrossEntropyResult got = of_three_ranks(source, ids, options, split);
    EXPECT_NEAR(got.loss, want.loss, 1e-6) << ignored;
    EXPECT_EQ(got.metrics.tokens, want.metrics.tokens);
    for (int64_t i = 0; i < kTokens * kHidden; ++i) {
      EXPECT_NEAR(split.values()[static_cast<size_t>(i)], plain.values()[static_cast<size_t>(i)], 1e-6);
    }
    for (int64_t v = kReal; v < kVocab; ++v) {
      EXPECT_EQ(split.values()[static_cast<size_t>((kTokens + kVocab) * kHidden + v)], 0);  // d_bias
    }
  }
}

// 16 bytes of statistics a token and rank, 8 H of d_hidden times (P - 1) / P, and little beside.
TEST(VocabRanks, SendWhatTheyMust) {
  constexpr int64_t kRows = 4000, kColumns = 48, kWords = 90;
  struct Case {
    bool gradients;
    DType dtype;
    WriteMode mode;
    double bytes_of_d_hidden;  // of each of its elements that a rank gives away: parts, and what they sum to
  };
  for (const Case& c : {Case{false, DType::kFloat32, WriteMode::kOverwrite, 0},
                        {true, DType::kFloat32, WriteMode::kOverwrite, 4 + 4},
                        {true, DType::kBFloat16, WriteMode::kOverwrite, 4 + 2},
                        {true, DType::kBFloat16, WriteMode::kAccumulate, 4 + 4}}) {
    const auto filled = [&](int64_t rows) {
      HostTensor out(c.dtype, rows, kColumns);
      for (int64_t i = 0; i < rows * kColumns; ++i)
        out.set(i / kColumns, i % kColumns, std::sin(static_cast<double>(i)));
      return out;
    };
    const HostTensor hidden = filled(kRows), weight = filled(kWords);
    const std::vector<int64_t> ids(kRows, 3);
    ThreadGroup group(3);
    const auto errors = run_ranks(3, [&](int rank) {
      ContextOptions options;
      options.threads = 1;
      options.ranks.vocab = &group.of(rank);
      HostTensor d_hidden = filled(kRows);
      Gradients outputs;
      outputs.d_hidden_mode = c.mode;
      if (c.gradients) outputs.d_hidden = d_hidden.output();
      const auto* entries = static_cast<const std::byte*>(weight.view().data);
      cross_entropy(
          Context(options), hidden.view(),
          LmHead({entries + static_cast<size_t>(rank * 30 * kColumns) * size_of(c.dtype), c.dtype, 30, kColumns}),
          {ids.data(), kRows}, {}, outputs);
    });
    for (const auto& error : errors) EXPECT_EQ(message_of(error), "");
    const double bytes = static_cast<double>(group.sent_bytes()) / 3 / kRows;
    const double needed = 16 * 2 + c.bytes_of_d_hidden * kColumns * 2 / 3;
    EXPECT_GE(bytes, needed);
    EXPECT_LE(bytes, 1.02 * needed + 1);
  }
}

// What ranks compute follows from the slices, and not from who holds them: here one process has all of
// them, and the float64 oracle none.
TEST(VocabRanks, AreRightWithEverythingOn) {
  const std::vector<int64_t> cut = {50, 1, 0, 66, 33};
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat64}) {
    for (const PlanKind plan : {PlanKind::kOnePass, PlanKind::kTwoPass}) {
      for (const HeadLayout layout : {HeadLayout::kHiddenVocab, HeadLayout::kVocabHidden}) {
        CrossEntropyTester tester;
        tester.dtype(dtype).layout(layout).tiles(16, 32).plan(plan).slices(cut).ignored(0.2).softcap(15);
        tester.label_smoothing(0.1).z_loss(0.01).class_weights().metrics();
        tester.matches_oracle();
        tester.accumulate().matches_oracle();
      }
      TokenStatsTester statistics;
      statistics.dtype(dtype).tiles(16, 32).plan(plan).slices(cut).cross().token_loss_matches_oracle();
      for (const PolicyLossType variant : {PolicyLossType::kGrpo, PolicyLossType::kDapo}) {
        PolicyTester policy;
        policy.dtype(dtype).vocab(150).tiles(16, 32).plan(plan).slices(cut);
        policy.loss_type(variant).twist("beta with k3").twist("entropy bonus").matches_oracle();
      }
      PreferenceTester pairs;
      pairs.dtype(dtype).tokens(8 * 9).batch(8).hidden(33).vocab(150).tiles(16, 32).plan(plan).slices(cut);
      pairs.loss(PreferenceLossType::kSigmoid).reference(ReferenceForm::kModel).matches_oracle();
    }
  }
}

}  // namespace
}  // namespace logitless::testing

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// A rank that is wrong, makes another call, or dies: all ranks end, and know why.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/rank_of_task.h"
#include "support/thread_ranks.h"

namespace logitless::testing {
namespace {

// What a rank is given, for one of them to be wrong.
struct GivenToRank {
  FromHidden source;
  Batch batch;
  ContextOptions context;
  CrossEntropyOptions options;
  FromHidden::Outputs outputs;
  Gradients gradients;
  std::vector<float> class_weights;
  bool in_double = false;
};

struct Mistake {
  const char* what;
  std::function<void(GivenToRank&)> make;
  const char* message;
};

class ThrowingLoss final : public TokenLoss {
 public:
  explicit ThrowingLoss(bool throws) : throws_(throws) {}
  GradsFilled gradients() const override { return {}; }
  StatsRequest needs() const override { return {}; }
  void evaluate(std::span<const int64_t> rows, const TokenStats&, TokenGrads& grads) override {
    for (const int64_t row : rows) grads.logp[static_cast<size_t>(row)] = -1;
    if (throws_ && rows.back() > kTokens / 2) throw std::length_error("the loss does not like this row");
  }

 private:
  bool throws_;
};

// Runs `call` on three ranks, of which rank 1 makes the mistake: it throws its own exception, and the others
// say which rank has thrown what.
void expect_one_ends_all(const Mistake& mistake, const std::function<void(GivenToRank&, int rank)>& call) {
  SCOPED_TRACE(mistake.what);
  const std::vector<size_t>& world = kWorlds[2];
  ThreadGroup group(3);
  const auto errors = run_ranks(3, [&](int rank) {
    const RankOfTask of_rank(world, static_cast<size_t>(rank));
    GivenToRank given = {of_rank.source, of_rank.batch, {}, {}, {}, {}, {}, false};
    given.context.row_tile = 3;
    given.context.vocab_tile = 16;
    given.context.ranks.vocab = &group.of(rank);
    given.context.ranks.slices = of_rank.slices;
    given.gradients = given.outputs.views(of_rank.source.first_entry, of_rank.source.entries);
    if (rank == 1) mistake.make(given);
    call(given, rank);
  });
  const std::string own = message_of(errors[1]);
  EXPECT_NE(own.find(mistake.message), std::string::npos) << own;
  for (const size_t other : {size_t{0}, size_t{2}}) {
    EXPECT_THROW(std::rethrow_exception(errors[other]), RankError);
    EXPECT_EQ(message_of(errors[other]), "rank 1 of ranks.vocab: " + own);
  }
}

TEST(RankErrors, EndTogetherWhereOneIsWrong) {
  const Mistake mistakes[] = {
      {"a target", [](GivenToRank& g) { g.batch.ids[7] = kVocab; }, "targets[7] = 101 is outside [0, 101)"},
      {"class weights of its own vocabulary entries", [](GivenToRank& g) { g.class_weights.assign(37, 1.0F); },
       "class_weights has 37 entries but the vocabulary has 101"},
      {"hidden size", [](GivenToRank& g) { g.gradients.d_hidden.cols = 6; }, "d_hidden"},
      {"slices",
       [](GivenToRank& g) {
         g.context.ranks.slices = {30, 8};
       },
       "ranks.slices has 38 vocabulary entries but lm_head has 37"},
      {"a negative slice",
       [](GivenToRank& g) {
         g.context.ranks.slices = {40, -3};
       },
       "ranks.slices[1] = -3"},
      {"a null head", [](GivenToRank& g) { g.source.entries = -1; }, "lm_head.rows = -1"},
      {"the budget", [](GivenToRank& g) { g.context.workspace_bytes = 1; }, "workspace_bytes = 1 is too small"},
      {"plan dense", [](GivenToRank& g) { g.context.plan = PlanKind::kDense; }, "plan = dense cannot run"},
      {"temperature", [](GivenToRank& g) { g.options.token.temperature = -1; }, "temperature = -1"},
      {"d_weight of all vocabulary entries", [](GivenToRank& g) { g.gradients.d_weight.rows = kVocab; },
       "d_weight is [101, 7] but lm_head is [37, 7]"},
  };
  for (const Mistake& mistake : mistakes) {
    expect_one_ends_all(mistake, [](GivenToRank& given, int) {
      given.options.class_weights = given.class_weights;
      cross_entropy(Context(given.context), given.source.states(), given.source.head(), given.batch.targets(),
                    given.options, given.gradients);
    });
  }
  expect_one_ends_all({"a sink that throws", [](GivenToRank&) {}, "bad_alloc"}, [](GivenToRank& given, int rank) {
    given.gradients.d_weight = {};
    given.gradients.weight_sink = [rank](int64_t, int64_t, const ConstMatrix&) {
      if (rank == 1) throw std::bad_alloc();
    };
    cross_entropy(Context(given.context), given.source.states(), given.source.head(), given.batch.targets(), {},
                  given.gradients);
  });
  expect_one_ends_all({"a loss that throws", [](GivenToRank&) {}, "the loss does not like this row"},
                      [](GivenToRank& given, int rank) {
                        ThrowingLoss loss(rank == 1);
                        run_token_loss(Context(given.context), given.source.states(), given.source.head(),
                                       given.batch.targets(), {}, loss, given.gradients);
                      });
  expect_one_ends_all(
      {"a reference's head", [](GivenToRank& g) { g.batch.model.hidden[3] = 0; }, "reference.hidden has 10 rows"},
      [](GivenToRank& given, int rank) {
        Reference reference = given.batch.reference_model();
        if (rank == 1) reference.hidden = HiddenStates(given.batch.model.hidden.data(), 2, kTime, kHidden);
        preference_loss(Context(given.context), given.source.states(), given.source.head(), given.batch.targets(),
                        reference, {}, given.gradients);
      });
}

// A difference: what ranks 0 and 2 have, and what rank 1 has, as messages say it.
struct Difference {
  const char* what;
  std::function<void(GivenToRank&)> make;
  const char* here;
  const char* there;
};

// Runs `call` on three ranks, of which rank 1 has the difference: all name it and both values.
void expect_noticed(
    const Difference& difference, const std::function<void(GivenToRank&)>& call,
    const std::function<void(GivenToRank&)>& prepare = [](GivenToRank&) {}) {
  SCOPED_TRACE(difference.what);
  ThreadGroup group(3);
  const auto errors = run_ranks(3, [&](int rank) {
    const RankOfTask of_rank(kWorlds[2], static_cast<size_t>(rank));
    GivenToRank given = {of_rank.source, of_rank.batch, {}, {}, {}, {}, {}, false};
    given.context.vocab_tile = 16;
    given.context.ranks.vocab = &group.of(rank);
    given.context.ranks.slices = of_rank.slices;
    given.gradients = given.outputs.views(of_rank.source.first_entry, of_rank.source.entries);
    prepare(given);
    if (rank == 1) difference.make(given);
    call(given);
  });
  const std::string begin = "the ranks of ranks.vocab do not make the same call: ";
  const std::string here = difference.here, there = difference.there;
  // "reduction = mean" or "d_hidden is float32": the value stands behind the verb, "row 3 of hidden" has
  // none.
  const auto value = [](const std::string& text) {
    const size_t verb = text.find(" = ") != std::string::npos ? text.find(" = ") + 3 : text.find(" is ") + 4;
    return text.substr(verb);
  };
  for (int rank = 0; rank < 3; ++rank) {
    const auto& error = errors[static_cast<size_t>(rank)];
    ASSERT_TRUE(error) << rank;
    EXPECT_THROW(std::rethrow_exception(error), RankError);
    const std::string other = rank == 1 ? "rank 0" : "rank 1";
    if (there.empty()) {
      EXPECT_EQ(message_of(error), begin + here + " here than on " + other);
    } else {
      EXPECT_EQ(message_of(error), begin + (rank == 1 ? there + " here, where rank 0 has " + value(here)
                                                      : here + " here, where rank 1 has " + value(there)));
    }
  }
}

void run_cross_entropy(GivenToRank& given) {
  given.options.class_weights = given.class_weights;
  cross_entropy(Context(given.context), given.source.states(), given.source.head(), given.batch.targets(),
                given.options, given.gradients);
}

// What each rank may do by itself, but not otherwise than the others.
TEST(RankErrors, NameWhatDiffersAndBothValues) {
  const Difference differences[] = {
      {"a target", [](GivenToRank& g) { g.batch.ids[7] = 3; }, "the target of token 7 = 57",
       "the target of token 7 = 3"},
      {"a token", [](GivenToRank& g) { g.batch.ids[7] = -100; }, "the target of token 7 = 57",
       "the target of token 7 = none"},
      {"an option", [](GivenToRank& g) { g.options.reduction = Reduction::kSum; }, "reduction = mean",
       "reduction = sum"},
      {"statistics", [](GivenToRank& g) { g.options.want_entropy = true; }, "want_entropy = false",
       "want_entropy = true"},
      {"softcap", [](GivenToRank& g) { g.source.softcap = 30; }, "softcap = 0", "softcap = 30"},
      {"hidden states", [](GivenToRank& g) { g.source.hidden[5] += 1; }, "row 0 of hidden has other values", ""},
      {"plans", [](GivenToRank& g) { g.context.plan = PlanKind::kTwoPass; }, "plan = one_pass", "plan = two_pass"},
      {"tiles", [](GivenToRank& g) { g.context.vocab_tile = 32; }, "vocab_tile = 16", "vocab_tile = 32"},
      {"precision", [](GivenToRank& g) { g.context.gradient_precision = GradientPrecision::kSplit; },
       "gradient_precision = native", "gradient_precision = split"},
      {"outputs", [](GivenToRank& g) { g.gradients.d_hidden = {}; }, "d_hidden is float32", "d_hidden is not wanted"},
      {"gradients", [](GivenToRank& g) { g.gradients = {}; }, "d_weight is float32", "d_weight is none"},
      {"sampling", [](GivenToRank& g) { g.gradients.backward = {.mode = BackwardMode::kSampled, .theta = 1}; },
       "backward.mode = exact", "backward.mode = sampled"},
      {"what is left out", [](GivenToRank& g) { g.gradients.backward.mode = BackwardMode::kCertified; },
       "backward.mode = exact", "backward.mode = certified"},
      {"modes", [](GivenToRank& g) { g.gradients.d_hidden_mode = WriteMode::kAccumulate; },
       "d_hidden_mode is overwrite", "d_hidden_mode is accumulate"},
  };
  for (const Difference& difference : differences) expect_noticed(difference, run_cross_entropy);
  expect_noticed({"an entry", [](GivenToRank& g) { g.class_weights[70] = 0.5F; }, "class_weights[70] = 1",
                  "class_weights[70] = 0.5"},
                 run_cross_entropy, [](GivenToRank& g) { g.class_weights.assign(kVocab, 1.0F); });
  expect_noticed({"a type",
                  [](GivenToRank& g) {
                    g.gradients = {};
                    g.in_double = true;
                  },
                  "hidden is float32", "hidden is float64"},
                 [](GivenToRank& given) {
                   if (!given.in_double) return run_cross_entropy(given);
                   const FromHidden& source = given.source;
                   const std::vector<double> hidden(source.hidden.begin(), source.hidden.end());
                   const std::vector<double> weight(source.weight.begin(), source.weight.end());
                   const LmHead head(ConstMatrix(weight.data(), source.entries, kHidden));
                   cross_entropy(Context(given.context), HiddenStates(hidden.data(), kBatch, kTime, kHidden), head,
                                 given.batch.targets(), given.options);
                 });
  // A call is named first.
  expect_noticed({"calls", [](GivenToRank& g) { g.in_double = true; }, "call is cross_entropy", "call is token_stats"},
                 [](GivenToRank& given) {
                   if (!given.in_double) return run_cross_entropy(given);
                   compute_token_stats(Context(given.context), given.source.states(), given.source.head(),
                                       given.batch.targets());
                 });
}

TEST(RankErrors, NameWhatDiffersAmongGradientsOfASample) {
  const auto prepare = [](GivenToRank& g) { g.gradients.backward = {.mode = BackwardMode::kSampled, .theta = 1}; };
  const Difference differences[] = {
      {"the mode", [](GivenToRank& g) { g.gradients.backward.mode = BackwardMode::kCertified; },
       "backward.mode = sampled", "backward.mode = certified"},
      {"no mode", [](GivenToRank& g) { g.gradients.backward = {}; }, "backward.mode = sampled",
       "backward.mode = exact"},
      {"the threshold", [](GivenToRank& g) { g.gradients.backward.theta = 0.5; }, "backward.theta = 1",
       "backward.theta = 0.5"},
      {"the seed", [](GivenToRank& g) { g.gradients.backward.seed = 7; }, "backward.seed = 0", "backward.seed = 7"},
  };
  for (const Difference& difference : differences) expect_noticed(difference, run_cross_entropy, prepare);
}

// One rank has an option that another one has not: both are named, with their values.
TEST(RankErrors, NameBothWhereOptionsAreNotTheSame) {
  const std::vector<float> a(2 * kHidden, 0.5F), b(kVocab * 2, 0.25F), states(kTokens * 2, 0.5F);
  const LoraAdapter none, of_a = {.a = {a.data(), 2, kHidden}, .b = {b.data(), kVocab, 2}};
  const LoraAdapter of_states = {.a = {}, .b = of_a.b, .states = {states.data(), kTokens, 2}};
  const auto message = [](const LoraAdapter& of_first, const LoraAdapter& of_second) {
    ThreadGroup group(2);
    const auto errors = run_ranks(2, [&](int rank) {
      const FromHidden source;
      const Batch batch(true);
      ContextOptions options;
      options.ranks.data = &group.of(rank);
      LmHead head = source.head();
      head.lora = rank == 0 ? of_first : of_second;
      cross_entropy(Context(options), source.states(), head, batch.targets());
    });
    return message_of(errors[0]);
  };
  const std::string begin = "the ranks of ranks.data do not make the same call: ";
  EXPECT_EQ(message(none, of_a), begin + "lora = none here, and lora.a is float32 on rank 1");
  EXPECT_EQ(message(of_a, none), begin + "lora.a is float32 here, and lora = none on rank 1");
  EXPECT_EQ(message(of_states, of_a), begin + "lora.states is float32 here, and lora.a is float32 on rank 1");
}

// What a loss is given beside its options.
TEST(RankErrors, NameTheEntryOfABatchThatDiffers) {
  const auto policy = [](GivenToRank& given) {
    PolicyOptions options;
    options.beta = 0.04;
    policy_loss(Context(given.context), given.source.states(), given.source.head(), given.batch.policy_with_reference(),
                options, given.gradients);
  };
  expect_noticed({"an advantage", [](GivenToRank& g) { g.batch.advantages[1] = 3; }, "the advantage of token 6 = -0.5",
                  "the advantage of token 6 = 3"},
                 policy);
  expect_noticed({"a log-probability", [](GivenToRank& g) { g.batch.ref_logps[7] = -1; },
                  "the entry of ref_logps of token 7 = -4.199999809265137", "the entry of ref_logps of token 7 = -1"},
                 policy);
  const auto kto = [](GivenToRank& given) {
    kto_loss(Context(given.context), given.source.states(), given.source.head(),
             given.batch.kto(given.batch.reference()), {}, given.gradients);
  };
  expect_noticed({"a label", [](GivenToRank& g) { g.batch.labels[2] = 1; }, "labels[2] = 0", "labels[2] = 1"}, kto);
  expect_noticed({"a reference", [](GivenToRank& g) { g.batch.sums[3] = -2; }, "reference.logps[3] = -17",
                  "reference.logps[3] = -2"},
                 kto);
  expect_noticed({"a reference's hidden states", [](GivenToRank& g) { g.batch.model.hidden[2] = 9; },
                  "row 0 of reference.hidden has other values", ""},
                 [](GivenToRank& given) {
                   preference_loss(Context(given.context), given.source.states(), given.source.head(),
                                   given.batch.targets(), given.batch.reference_model(), {}, given.gradients);
                 });
}

// Ranks of a batch have other tokens, and the same head.
TEST(RankErrors, OfABatchNameWhatDiffers) {
  const auto differ = [](const std::function<void(FromHidden&, ContextOptions&)>& edit) {
    ThreadGroup group(2);
    const auto errors = run_ranks(2, [&](int rank) {
      FromHidden source;
      Batch batch(rank == 0);  // other tokens take part
      for (int64_t& id : batch.ids) id = std::min<int64_t>(id, 89);
      source.hidden = normal(kTokens * kHidden, static_cast<uint64_t>(rank) + 7);
      ContextOptions options;
      options.ranks.data = &group.of(rank);
      options.ranks.sum_d_weight = true;
      if (rank == 1) edit(source, options);
      FromHidden::Outputs outputs;
      cross_entropy(Context(options), source.states(), source.head(), batch.targets(), {},
                    outputs.views(0, source.entries));
    });
    return message_of(errors[0]);
  };
  const std::string begin = "the ranks of ranks.data do not make the same call: ";
  EXPECT_EQ(differ([](FromHidden&, ContextOptions&) {}), "");
  EXPECT_EQ(differ([](FromHidden& source, ContextOptions&) { source.softcap = 20; }),
            begin + "softcap = 0 here, where rank 1 has 20");
  EXPECT_EQ(differ([](FromHidden&, ContextOptions& options) { options.ranks.sum_d_weight = false; }),
            begin + "sum_d_weight = true here, where rank 1 has false");
  EXPECT_EQ(differ([](FromHidden& source, ContextOptions&) { source.entries = 90; }),
            begin + "the size of the vocabulary = 101 here, where rank 1 has 90");
  EXPECT_EQ(differ([](FromHidden& source, ContextOptions&) { source.weight[3] = 1; }),
            begin + "row 0 of lm_head has other values here than on rank 1");
}

// A rank dies before each of its exchanges: the others end by what their communicator throws.
TEST(RankErrors, EndWhereOneDies) {
  bool died = true;
  int dies_at = 0;
  for (; died; ++dies_at) {
    SCOPED_TRACE(dies_at);
    ThreadGroup group(3);
    died = false;
    group.before_exchange = [&](int rank, int exchange) {
      if (rank != 1 || exchange != dies_at) return;
      died = true;
      group.break_down();
      throw std::runtime_error("this rank has died");
    };
    const auto errors = run_ranks(3, [&](int rank) {
      const RankOfTask given(kWorlds[2], static_cast<size_t>(rank));
      ContextOptions options;
      options.ranks = {&group.of(rank), given.slices};
      FromHidden::Outputs outputs;
      cross_entropy(Context(options), given.source.states(), given.source.head(), given.batch.targets(), {},
                    outputs.views(given.source.first_entry, given.source.entries));
    });
    for (size_t rank = 0; rank < 3; ++rank) {
      const char* message = !died ? "" : rank == 1 ? "this rank has died" : "the group has broken down";
      EXPECT_EQ(message_of(errors[rank]), message);
    }
  }
  EXPECT_GT(dies_at, 10);
}

// Logits that a rank has gathered already would be counted once a rank, which adds log P.
TEST(RankErrors, RefuseFinishedLogits) {
  ThreadGroup group(2);
  const auto errors = run_ranks(2, [&](int rank) {
    const FromLogits source;
    const Batch batch;
    ContextOptions options;
    options.ranks.vocab = &group.of(rank);
    cross_entropy(Context(options), Logits(source.data.data(), kBatch, kTime, kVocab), batch.targets());
  });
  EXPECT_EQ(message_of(errors[0]),
            "ranks.vocab or ranks.slices is set: vocabulary entries of finished logits are not split");
}

}  // namespace
}  // namespace logitless::testing

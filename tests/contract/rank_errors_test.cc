// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// A rank that is wrong, makes another call, or dies: all ranks end, and know why.
#include <gtest/gtest.h>

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
    GivenToRank given = {of_rank.source, of_rank.batch, {}, {}, {}, {}, {}};
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

// What each rank may do by itself, but not otherwise than the others.
TEST(RankErrors, NoticeThatTheyDoNotMakeTheSameCall) {
  const Mistake differences[] = {
      {"targets", [](GivenToRank& g) { g.batch.ids[7] = 3; }, "a digest of targets"},
      {"rows", [](GivenToRank& g) { g.batch.ids[7] = -100; }, "rows that take part = 17 where rank 1 has 16"},
      {"statistics", [](GivenToRank& g) { g.options.want_entropy = true; }, "statistics = 0 where rank 1 has 1"},
      {"plans", [](GivenToRank& g) { g.context.plan = PlanKind::kTwoPass; }, "plan = "},
      {"tiles", [](GivenToRank& g) { g.context.vocab_tile = 32; }, "vocab_tile = 16 where rank 1 has 32"},
      {"outputs", [](GivenToRank& g) { g.gradients.d_hidden = {}; }, "a wish for d_hidden = 1 where rank 1 has 0"},
      {"gradients", [](GivenToRank& g) { g.gradients = {}; }, "type of d_weight = 0 where rank 1 has -1"},
  };
  for (const Mistake& difference : differences) {
    SCOPED_TRACE(difference.what);
    ThreadGroup group(3);
    const auto errors = run_ranks(3, [&](int rank) {
      const RankOfTask of_rank(kWorlds[2], static_cast<size_t>(rank));
      GivenToRank given = {of_rank.source, of_rank.batch, {}, {}, {}, {}, {}};
      given.context.vocab_tile = 16;
      given.context.ranks = {&group.of(rank), of_rank.slices};
      given.gradients = given.outputs.views(of_rank.source.first_entry, of_rank.source.entries);
      if (rank == 1) difference.make(given);
      cross_entropy(Context(given.context), given.source.states(), given.source.head(), given.batch.targets(),
                    given.options, given.gradients);
    });
    for (const auto& error : errors) {
      EXPECT_THROW(std::rethrow_exception(error), RankError);
      EXPECT_NE(message_of(error).find(difference.message), std::string::npos) << message_of(error);
    }
  }
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

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// A rank has an error, makes a different call, or dies: all ranks end, and know why.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/calls.h"
#include "support/rank_of_task.h"
#include "support/thread_ranks.h"
#include "support/views.h"

namespace logitless::testing {
namespace rank_errors_test {

// The inputs of a rank, one of which a test spoils.
struct GivenToRank {
  FromHidden source;
  Batch batch;
  ContextOptions context;
  CrossEntropy options;
  FromHidden::Outputs outputs;
  Gradients gradients;
  std::vector<float> class_weights;
  bool in_double = false;
  bool is_other = false;
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

// Runs `call` on three ranks. Rank 1 makes the mistake: it throws its own exception, and the others report
// which rank threw what.
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
       "ranks.slices has 38 vocabulary entries but weight has 37"},
      {"a negative slice",
       [](GivenToRank& g) {
         g.context.ranks.slices = {40, -3};
       },
       "ranks.slices[1] = -3"},
      {"a null head", [](GivenToRank& g) { g.source.entries = -1; }, "weight.sizes[0] = -1"},
      {"the budget", [](GivenToRank& g) { g.context.workspace_bytes = 1; }, "workspace_bytes = 1 is too small"},
      {"temperature", [](GivenToRank& g) { g.options.token.temperature = -1; }, "temperature = -1"},
      {"d_weight of all vocabulary entries", [](GivenToRank& g) { g.gradients.d_weight.rows = kVocab; },
       "d_weight is [101, 7] but weight is [37, 7]"},
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

// A difference of rank 1, and the end of the message after the field's name, the group's name and a colon.
struct Difference {
  const char* what;
  std::function<void(GivenToRank&)> make;
  const char* field;
  const char* values;
};
constexpr const char* kDiffer = "the values of rank 0 and rank 1 differ";

std::string message_about(const std::string& field, const std::string& group, const std::string& values) {
  return field + " must be the same on all ranks of ranks." + group + ": " + values;
}

// Runs `call` on three ranks, with the difference on rank 1, and returns the exception of each.
std::vector<std::exception_ptr> errors_of(const std::function<void(GivenToRank&)>& make,
                                          const std::function<void(GivenToRank&)>& call) {
  ThreadGroup group(3);
  return run_ranks(3, [&](int rank) {
    const RankOfTask of_rank(kWorlds[2], static_cast<size_t>(rank));
    GivenToRank given = {of_rank.source, of_rank.batch, {}, {}, {}, {}, {}};
    given.context.vocab_tile = 16;
    given.context.ranks.vocab = &group.of(rank);
    given.context.ranks.slices = of_rank.slices;
    given.gradients = given.outputs.views(of_rank.source.first_entry, of_rank.source.entries);
    if (rank == 1) make(given);
    call(given);
  });
}

// All ranks name the field, two ranks, and both values if the field has a single value.
void expect_noticed(
    const Difference& difference, const std::function<void(GivenToRank&)>& call,
    const std::function<void(GivenToRank&)>& prepare = [](GivenToRank&) {}) {
  SCOPED_TRACE(difference.what);
  const auto errors = errors_of([](GivenToRank& given) { given.is_other = true; },
                                [&](GivenToRank& given) {
                                  prepare(given);
                                  if (given.is_other) difference.make(given);
                                  call(given);
                                });
  for (const auto& error : errors) {
    ASSERT_TRUE(error);
    EXPECT_THROW(std::rethrow_exception(error), RankError);
    EXPECT_EQ(message_of(error), message_about(difference.field, "vocab", difference.values));
  }
}

void run_cross_entropy(GivenToRank& given) {
  given.options.class_weights = given.class_weights;
  cross_entropy(Context(given.context), given.source.states(), given.source.head(), given.batch.targets(),
                given.options, given.gradients);
}

// Settings that each rank may choose, but that must be equal on all ranks. rank_arguments_test.cc has all
// arguments, rank_options_test.cc all options.
TEST(RankErrors, NameTheFieldThatDiffersAndBothRanks) {
  const Difference differences[] = {
      {"a token", [](GivenToRank& g) { g.batch.ids[7] = -100; }, "targets", kDiffer},
      {"plans", [](GivenToRank& g) { g.context.plan = PlanKind::kTwoPass; }, "plan",
       "rank 0 has one_pass where rank 1 has two_pass"},
      {"tiles", [](GivenToRank& g) { g.context.vocab_tile = 32; }, "vocab_tile", "rank 0 has 16 where rank 1 has 32"},
      {"precision", [](GivenToRank& g) { g.context.gradient_precision = GradientPrecision::kSplit; },
       "gradient_precision", "rank 0 has native where rank 1 has split"},
      {"class weights", [](GivenToRank& g) { g.class_weights.assign(kVocab, 1.0F); }, "class_weights",
       "rank 0 has none where rank 1 has 101 values"},
  };
  for (const Difference& difference : differences) expect_noticed(difference, run_cross_entropy);
  expect_noticed({"an entry", [](GivenToRank& g) { g.class_weights[70] = 0.5F; }, "class_weights", kDiffer},
                 run_cross_entropy, [](GivenToRank& g) { g.class_weights.assign(kVocab, 1.0F); });
  expect_noticed({"the sign of zero", [](GivenToRank& g) { g.options.z_loss = -0.0; }, "z_loss",
                  "rank 0 has 0 where rank 1 has -0"},
                 run_cross_entropy);
  expect_noticed({"a type",
                  [](GivenToRank& g) {
                    g.gradients = {};
                    g.in_double = true;
                  },
                  "hidden.dtype", "rank 0 has float32 where rank 1 has float64"},
                 [](GivenToRank& given) {
                   if (!given.in_double) return run_cross_entropy(given);
                   const FromHidden& source = given.source;
                   const std::vector<double> hidden(source.hidden.begin(), source.hidden.end());
                   const std::vector<double> weight(source.weight.begin(), source.weight.end());
                   const LmHead head(ConstMatrix(weight.data(), source.entries, kHidden));
                   cross_entropy(Context(given.context), HiddenStates(hidden.data(), kBatch, kTime, kHidden), head,
                                 given.batch.targets(), given.options);
                 });
  // A different call is reported first.
  expect_noticed({"calls", [](GivenToRank& g) { g.in_double = true; }, "call",
                  "rank 0 has cross_entropy where rank 1 has token_stats"},
                 [](GivenToRank& given) {
                   if (!given.in_double) return run_cross_entropy(given);
                   compute_token_stats(Context(given.context), given.source.states(), given.source.head(),
                                       given.batch.targets());
                 });
}

// Runs a call on two ranks of a batch, with this head and its gradients.
template <class Edit>
std::vector<std::string> messages_of_batch(const Edit& edit) {
  ThreadGroup group(2);
  const auto errors = run_ranks(2, [&](int rank) {
    FromHidden source;
    Batch batch(rank == 0);  // the ranks ignore different tokens
    for (int64_t& id : batch.ids) id = std::min<int64_t>(id, 89);
    source.hidden = normal(kTokens * kHidden, static_cast<uint64_t>(rank) + 7);
    ContextOptions options;
    options.ranks.data = &group.of(rank);
    options.ranks.sum_d_weight = true;
    LmHead head = source.head();
    FromHidden::Outputs outputs;
    Gradients gradients = outputs.views(0, source.entries);
    edit(rank, source, options, head, gradients);
    cross_entropy(Context(options), source.states(), head, batch.targets(), {}, gradients);
  });
  return {message_of(errors[0]), message_of(errors[1])};
}

// Ranks with different kinds of LoRA send different fields after it.
TEST(RankErrors, NameBothKindsOfLora) {
  const std::vector<float> a(2 * kHidden, 0.5F), b(kVocab * 2, 0.25F), states(kTokens * 2, 0.5F);
  const LoraAdapter none, of_a = {.a = {a.data(), 2, kHidden}, .b = {b.data(), kVocab, 2}};
  const LoraAdapter of_states = {.a = {}, .b = of_a.b, .states = {states.data(), kTokens, 2}};
  const auto expect = [](const LoraAdapter& of_first, const LoraAdapter& of_second, const char* values) {
    const auto messages = messages_of_batch([&](int rank, auto&, auto&, LmHead& head, Gradients& gradients) {
      head.lora = rank == 0 ? of_first : of_second;
      gradients = {};
    });
    for (const std::string& message : messages) EXPECT_EQ(message, message_about("lora", "data", values));
  };
  expect(none, of_a, "rank 0 has none where rank 1 has a of float32");
  expect(of_a, none, "rank 0 has a of float32 where rank 1 has none");
  expect(of_states, of_a, "rank 0 has states of float32 where rank 1 has a of float32");
}

// Ignored tokens are not compared, because their values are not read.
TEST(RankErrors, LetTokensThatTakeNoPartDiffer) {
  const auto errors = errors_of(
      [](GivenToRank& g) {
        g.source.hidden[5 * kHidden] = std::numeric_limits<float>::quiet_NaN();
        g.batch.ref_logps[5] = g.batch.old_logps[5] = std::numeric_limits<float>::quiet_NaN();
      },
      [](GivenToRank& given) {
        ASSERT_EQ(given.batch.mask[5], 0);
        PolicyLoss options;
        options.beta = 0.04;
        policy_loss(Context(given.context), given.source.states(), given.source.head(),
                    given.batch.policy_with_reference(), options, given.gradients);
      });
  for (const auto& error : errors) EXPECT_EQ(message_of(error), "");
}

// Ranks of a batch have different tokens, and the same head.
TEST(RankErrors, OfABatchNameWhatDiffers) {
  const auto expect = [](const auto& edit, const std::string& field, const std::string& values) {
    const auto messages = messages_of_batch([&](int rank, auto&... given) {
      if (rank == 1) edit(given...);
    });
    for (const std::string& message : messages) {
      EXPECT_EQ(message, field.empty() ? "" : message_about(field, "data", values));
    }
  };
  expect([](auto&, auto&, auto&, auto&) {}, "", "");
  expect([](auto&, auto&, LmHead& head, auto&) { head.softcap = 20; }, "softcap", "rank 0 has 0 where rank 1 has 20");
  expect([](auto&, ContextOptions& options, auto&, auto&) { options.ranks.sum_d_weight = false; }, "sum_d_weight",
         "rank 0 has true where rank 1 has false");
  expect(
      [](FromHidden& source, auto&, LmHead& head, Gradients& gradients) {
        source.entries = 90;
        head = source.head();
        gradients.d_weight.rows = 90;
        if (gradients.d_bias.data) gradients.d_bias.size = 90;
      },
      "the size of the vocabulary", "rank 0 has 101 where rank 1 has 90");
  expect([](FromHidden& source, auto&, auto&, auto&) { source.weight[3] = 1; }, "weight", kDiffer);
  expect([](auto&, auto&, auto&, Gradients& gradients) { gradients.d_weight = {}; }, "d_weight",
         "rank 0 has [101, 7] float32 where rank 1 has none");
}

// A rank dies before each of its exchanges: the others end with their communicator's exception.
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

}  // namespace rank_errors_test
}  // namespace logitless::testing

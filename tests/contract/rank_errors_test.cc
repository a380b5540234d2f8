// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// A rank has an error, makes a different call, or dies: all ranks end, and know why.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "support/calls.h"
#include "support/rank_of_task.h"
#include "support/thread_ranks.h"
#include "support/views.h"

namespace logitless::testing {
namespace rank_errors_test {

// The inputs of a rank.
struct GivenToRank {
  FromHidden source;
  Batch batch;
  ContextOptions context;
  CrossEntropy options;
  FromHidden::Outputs outputs;
  Gradients gradients;
  std::vector<float> class_weights;
};
using Change = std::function<void(GivenToRank&)>;

void run_cross_entropy(GivenToRank& given, int = 0) {
  given.options.class_weights = given.class_weights;
  cross_entropy(Context(given.context), given.source.states(), given.source.head(), given.batch.targets(),
                given.options, given.gradients);
}

// Runs `call` on three ranks of a vocabulary and returns the exception of each.
std::vector<std::exception_ptr> errors_of(const std::function<void(GivenToRank&, int rank)>& call) {
  ThreadGroup group(3);
  return run_ranks(3, [&](int rank) {
    const RankOfTask of_rank(kWorlds[2], static_cast<size_t>(rank));
    GivenToRank given = {of_rank.source, of_rank.batch, {}, {}, {}, {}, {}};
    given.context.row_tile = 3;
    given.context.vocab_tile = 16;
    given.context.ranks.vocab = &group.of(rank);
    given.context.ranks.slices = of_rank.slices;
    given.gradients = given.outputs.views(of_rank.source.first_entry, of_rank.source.entries);
    call(given, rank);
  });
}

// Rank 1 throws its own exception, and the others report which rank threw what.
void expect_one_ends_all(const char* message, const std::function<void(GivenToRank&, int rank)>& call) {
  SCOPED_TRACE(message);
  const auto errors = errors_of(call);
  const std::string own = message_of(errors[1]);
  EXPECT_NE(own.find(message), std::string::npos) << own;
  for (const size_t other : {size_t{0}, size_t{2}}) {
    EXPECT_THROW(std::rethrow_exception(errors[other]), RankError);
    EXPECT_EQ(message_of(errors[other]), "rank 1 of ranks.vocab: " + own);
  }
}

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

TEST(RankErrors, EndTogetherWhereOneIsWrong) {
  const std::pair<const char*, Change> mistakes[] = {
      {"targets[7] = 101 is outside [0, 101)", [](GivenToRank& g) { g.batch.ids[7] = kVocab; }},
      {"class_weights has 37 entries but the vocabulary has 101",
       [](GivenToRank& g) { g.class_weights.assign(37, 1.0F); }},
      {"ranks.slices has 38 vocabulary entries but weight has 37",
       [](GivenToRank& g) {
         g.context.ranks.slices = {30, 8};
       }},
      {"ranks.slices[1] = -3",
       [](GivenToRank& g) {
         g.context.ranks.slices = {40, -3};
       }},
      {"workspace_bytes = 1 is too small", [](GivenToRank& g) { g.context.workspace_bytes = 1; }},
      {"d_weight is [101, 7] but weight is [37, 7]", [](GivenToRank& g) { g.gradients.d_weight.rows = kVocab; }},
  };
  for (const auto& [message, make] : mistakes) {
    expect_one_ends_all(message, [&make = make](GivenToRank& given, int rank) {
      if (rank == 1) make(given);
      run_cross_entropy(given);
    });
  }
  expect_one_ends_all("bad_alloc", [](GivenToRank& given, int rank) {
    given.gradients.d_weight = {};
    given.gradients.weight_sink = [rank](int64_t, int64_t, const ConstMatrix&) {
      if (rank == 1) throw std::bad_alloc();
    };
    run_cross_entropy(given);
  });
  expect_one_ends_all("the loss does not like this row", [](GivenToRank& given, int rank) {
    ThrowingLoss loss(rank == 1);
    run_token_loss(Context(given.context), given.source.states(), given.source.head(), given.batch.targets(), {}, loss,
                   given.gradients);
  });
  expect_one_ends_all("reference.hidden has 10 rows", [](GivenToRank& given, int rank) {
    Reference reference = given.batch.reference_model();
    if (rank == 1) reference.hidden = HiddenStates(given.batch.model.hidden.data(), 2, kTime, kHidden);
    preference_loss(Context(given.context), given.source.states(), given.source.head(), given.batch.targets(),
                    reference, {}, given.gradients);
  });
}

constexpr const char* kDiffer = "the values of rank 0 and rank 1 differ";

std::string message_about(const std::string& field, const std::string& group, const std::string& values) {
  return field + " must be the same on all ranks of ranks." + group + ": " + values;
}

// Settings that each rank may choose, but that must be equal on all ranks. rank_arguments_test.cc has all
// arguments and options.
TEST(RankErrors, NameTheFieldThatDiffersAndBothRanks) {
  const auto expect = [](const char* field, const char* values, const Change& differ,
                         const std::function<void(GivenToRank&, int)>& call = run_cross_entropy) {
    const auto errors = errors_of([&](GivenToRank& given, int rank) {
      if (rank == 1) differ(given);
      call(given, rank);
    });
    for (const auto& error : errors) {
      ASSERT_TRUE(error);
      EXPECT_THROW(std::rethrow_exception(error), RankError);
      EXPECT_EQ(message_of(error), message_about(field, "vocab", values));
    }
  };
  const auto nothing = [](GivenToRank&) {};
  expect("plan", "rank 0 has one_pass where rank 1 has two_pass",
         [](GivenToRank& g) { g.context.plan = PlanKind::kTwoPass; });
  expect("vocab_tile", "rank 0 has 16 where rank 1 has 32", [](GivenToRank& g) { g.context.vocab_tile = 32; });
  expect("gradient_precision", "rank 0 has native where rank 1 has split",
         [](GivenToRank& g) { g.context.gradient_precision = GradientPrecision::kSplit; });
  expect("class_weights", "rank 0 has none where rank 1 has 101 values",
         [](GivenToRank& g) { g.class_weights.assign(kVocab, 1.0F); });
  expect("class_weights", kDiffer, nothing, [](GivenToRank& given, int rank) {
    given.class_weights.assign(kVocab, 1.0F);
    if (rank == 1) given.class_weights[70] = 0.5F;
    run_cross_entropy(given);
  });
  expect("z_loss", "rank 0 has 0 where rank 1 has -0", [](GivenToRank& g) { g.options.z_loss = -0.0; });
  expect("hidden.dtype", "rank 0 has float32 where rank 1 has float64", nothing, [](GivenToRank& given, int rank) {
    given.gradients = {};
    if (rank != 1) return run_cross_entropy(given);
    const FromHidden& source = given.source;
    const std::vector<double> hidden(source.hidden.begin(), source.hidden.end());
    const std::vector<double> weight(source.weight.begin(), source.weight.end());
    const LmHead head(ConstMatrix(weight.data(), source.entries, kHidden));
    cross_entropy(Context(given.context), HiddenStates(hidden.data(), kBatch, kTime, kHidden), head,
                  given.batch.targets(), given.options);
  });
  // A different call is reported first.
  expect("call", "rank 0 has cross_entropy where rank 1 has token_stats", nothing, [](GivenToRank& given, int rank) {
    if (rank != 1) return run_cross_entropy(given);
    compute_token_stats(Context(given.context), given.source.states(), given.source.head(), given.batch.targets());
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
  const auto errors = errors_of([](GivenToRank& given, int rank) {
    ASSERT_EQ(given.batch.mask[5], 0);
    if (rank == 1) {
      const float nan = std::numeric_limits<float>::quiet_NaN();
      given.source.hidden[5 * kHidden] = given.batch.ref_logps[5] = given.batch.old_logps[5] = nan;
    }
    PolicyLoss options;
    options.beta = 0.04;
    policy_loss(Context(given.context), given.source.states(), given.source.head(), given.batch.policy_with_reference(),
                options, given.gradients);
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

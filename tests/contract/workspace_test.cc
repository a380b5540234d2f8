// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Calls that take their memory from a Workspace: a repeated one allocates what it returns and nothing else,
// whatever the task, the source and the plan, and no bit changes.
#include "logitless/workspace.h"

#include <gtest/gtest.h>

#include <thread>

#include "support/allocation_counter.h"
#include "support/every_task.h"

namespace logitless::testing {
namespace {

ContextOptions small_tiles(PlanKind plan, int threads, Workspace* workspace) {
  ContextOptions options;
  options.plan = plan;
  options.threads = threads;
  options.row_tile = options.row_block = 8;
  options.vocab_tile = 32;
  options.workspace = workspace;
  return options;
}

int64_t columns_of(const auto&... columns) { return (0 + ... + static_cast<int64_t>(!columns.empty())); }
int64_t columns_of(const CrossEntropyResult& r) { return columns_of(r.per_token_loss, r.per_token_logps); }
int64_t columns_of(const PolicyResult& r) { return columns_of(r.per_token_loss, r.per_token_logps); }
int64_t columns_of(const PreferenceResult& r) { return columns_of(r.sequence_logps, r.per_token_logps); }
int64_t columns_of(const KtoResult& r) { return columns_of(r.sequence_losses, r.sequence_logps, r.per_token_logps); }
int64_t columns_of(const TokenStats& s) {
  return columns_of(s.logp, s.lse, s.entropy, s.prior, s.argmax, s.rank, s.max_logit, s.log_sum);
}
int64_t columns_of(int64_t columns) { return columns; }

template <class Source>
struct WorkspaceCalls : ::testing::Test {
  using Outputs = typename Source::Outputs;

  // Runs `call(context, gradients)` in every plan, without and with a Workspace.
  template <class Call>
  void allocates_what_it_returns(const Call& call) {
    for (const PlanKind plan : {PlanKind::kAuto, PlanKind::kTwoPass, PlanKind::kDense}) {
      for (const int threads : {1, 2}) {
        SCOPED_TRACE(::testing::Message() << name_of(plan) << ", " << threads << " threads");
        Outputs plain, own;
        call(Context(small_tiles(plan, threads, nullptr)), plain);
        Workspace workspace;
        const Context context(small_tiles(plan, threads, &workspace));
        for (int i = 0; i < 3; ++i) call(context, own);
        const size_t held = workspace.bytes();
        EXPECT_GT(held, 0u);
        const int64_t before = allocation_count().news;
        const auto result = call(context, own);
        const int64_t made = allocation_count().news - before;
        EXPECT_EQ(made, columns_of(result));
        EXPECT_EQ(workspace.bytes(), held);
        EXPECT_EQ(own.values(), plain.values());
      }
    }
  }

  Source source;
  Batch batch;
};

using Sources = ::testing::Types<FromHidden, FromLogits>;
TYPED_TEST_SUITE(WorkspaceCalls, Sources);

TYPED_TEST(WorkspaceCalls, CrossEntropy) {
  CrossEntropyOptions options;
  options.label_smoothing = 0.1;
  options.z_loss = 0.01;
  options.want_accuracy = options.want_entropy = true;
  this->allocates_what_it_returns([&](const Context& context, auto& outputs) {
    return this->source.call(LOGITLESS_TEST_CALL(cross_entropy), context, this->batch.targets(), options,
                             outputs.views());
  });
}

TYPED_TEST(WorkspaceCalls, CrossEntropyBackward) {
  CrossEntropyOptions options;
  options.reduction = Reduction::kNone;
  const CrossEntropyForward forward =
      this->source.call(LOGITLESS_TEST_CALL(cross_entropy_forward), Context(), this->batch.targets(), options);
  this->allocates_what_it_returns([&](const Context& context, auto& outputs) {
    this->source.call(LOGITLESS_TEST_CALL(cross_entropy_backward), context, this->batch.targets(), options, forward,
                      0.5, outputs.views());
    return int64_t{0};
  });
}

TYPED_TEST(WorkspaceCalls, PolicyLoss) {
  PolicyOptions options;
  options.top_entropy_quantile = 0.5;
  this->allocates_what_it_returns([&](const Context& context, auto& outputs) {
    return this->source.call(LOGITLESS_TEST_CALL(policy_loss), context, this->batch.policy(), options, outputs.views());
  });
}

TYPED_TEST(WorkspaceCalls, PreferenceLoss) {
  PreferenceOptions options;
  options.terms = {{PreferenceLoss::kAotUnpaired, 1.0}, {PreferenceLoss::kSigmoid, 0.5}};
  this->allocates_what_it_returns([&](const Context& context, auto& outputs) {
    return this->source.call(LOGITLESS_TEST_CALL(preference_loss), context, this->batch.targets(),
                             this->batch.reference(), options, outputs.views());
  });
}

TYPED_TEST(WorkspaceCalls, KtoLoss) {
  this->allocates_what_it_returns([&](const Context& context, auto& outputs) {
    return this->source.call(LOGITLESS_TEST_CALL(kto_loss), context, this->batch.kto(), KtoOptions(), outputs.views());
  });
}

TYPED_TEST(WorkspaceCalls, TokenStatistics) {
  StatsRequest request;
  request.rank = request.argmax = request.entropy = true;
  this->allocates_what_it_returns([&](const Context& context, auto&) {
    return this->source.call(LOGITLESS_TEST_CALL(compute_token_stats), context, this->batch.targets(), TokenOptions(),
                             request);
  });
}

// A reference model runs inside of the call, in the same memory.
TEST(WorkspaceOfACall, ReferenceModelsShareIt) {
  const FromHidden source;
  const Batch batch;
  Reference reference;
  reference.hidden = source.states();
  reference.head = source.head();
  Workspace workspace;
  const Context context(small_tiles(PlanKind::kAuto, 1, &workspace));
  const PreferenceOptions options;
  FromHidden::Outputs outputs;
  const auto call = [&] {
    return source.call(LOGITLESS_TEST_CALL(preference_loss), context, batch.targets(), reference, options,
                       outputs.views());
  };
  for (int i = 0; i < 3; ++i) call();
  const int64_t before = allocation_count().news;
  const PreferenceResult result = call();
  EXPECT_EQ(allocation_count().news - before, columns_of(result));
}

// Batches of growing length leave no trail of blocks: it holds what the longest one needs, within a factor of
// two.
TEST(WorkspaceOfACall, FollowsShapesThatGrow) {
  const std::vector<float> logits = normal(400 * kVocab, 5);
  const std::vector<int64_t> targets(400, 7);
  Workspace workspace, of_the_longest;
  const auto run = [&](int64_t tokens, Workspace& own) {
    return cross_entropy(Context(small_tiles(PlanKind::kDense, 1, &own)), Logits(logits.data(), 1, tokens, kVocab),
                         Targets(targets.data(), tokens))
        .loss;
  };
  for (int64_t tokens = 1; tokens <= 400; ++tokens) run(tokens, workspace);
  run(400, of_the_longest);
  EXPECT_LE(workspace.bytes(), 2 * of_the_longest.bytes() + 4096);
  workspace.release();
  EXPECT_EQ(workspace.bytes(), 0u);
  EXPECT_EQ(run(17, workspace), run(17, of_the_longest));
}

// A loss that calls the library again, with a Workspace, another one and none.
TEST(WorkspaceOfACall, CallsWithinCallsKeepApart) {
  const FromHidden source;
  const Batch batch;
  Workspace first, second;
  class Nested final : public TokenLoss {
   public:
    explicit Nested(std::function<double()> inner) : inner_(std::move(inner)) {}
    StatsRequest needs() const override { return {}; }
    GradientTerms gradients() const override { return {}; }
    void evaluate(std::span<const int64_t> rows, const TokenStats& stats, TokenGrads& grads) override {
      for (const int64_t row : rows)
        grads.logp[static_cast<size_t>(row)] = inner_() * stats.logp[static_cast<size_t>(row)];
    }

   private:
    std::function<double()> inner_;
  };
  std::vector<std::vector<float>> gradients;
  for (Workspace* inner : {static_cast<Workspace*>(nullptr), &first, &second}) {
    const Context inside(small_tiles(PlanKind::kAuto, 1, inner));
    Nested loss([&] { return source.call(LOGITLESS_TEST_CALL(cross_entropy), inside, batch.targets()).loss; });
    FromHidden::Outputs outputs;
    source.call(LOGITLESS_TEST_CALL(run_token_loss), Context(small_tiles(PlanKind::kOnePass, 2, &first)),
                batch.targets(), TokenOptions(), loss, outputs.views());
    gradients.push_back(outputs.values());
  }
  EXPECT_EQ(gradients[1], gradients[0]);
  EXPECT_EQ(gradients[2], gradients[0]);
}

// Several threads, contexts and shapes at once.
TEST(WorkspaceOfACall, ServesThreadsAtOnce) {
  const FromHidden source;
  const Batch batch;
  FromHidden::Outputs want;
  const Context plain(small_tiles(PlanKind::kAuto, 1, nullptr));
  const double loss =
      source.call(LOGITLESS_TEST_CALL(cross_entropy), plain, batch.targets(), CrossEntropyOptions(), want.views()).loss;
  Workspace workspace;
  std::vector<int> wrong(4, 0);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      const Context context(small_tiles(PlanKind::kAuto, 1 + static_cast<int>(t % 2), &workspace));
      for (int i = 0; i < 20; ++i) {
        FromHidden::Outputs got;
        const CrossEntropyResult result = source.call(LOGITLESS_TEST_CALL(cross_entropy), context, batch.targets(),
                                                      CrossEntropyOptions(), got.views());
        wrong[t] += result.loss != loss || got.values() != want.values();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

}  // namespace
}  // namespace logitless::testing

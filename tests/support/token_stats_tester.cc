// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>

#include "support/calls.h"
#include "support/given_gradients.h"
#include "support/testers.h"
#include "support/views.h"

namespace logitless::testing {

struct TokenStatsTester::Reference {
  explicit Reference(const InputSpec& spec) : inputs(spec) {}

  Inputs inputs;
  TokenOptions options;
  HostArray<double> temperatures;
  HostArray<float> cross;
  Expected expected;
};

namespace {

void expect_requested(const TokenStats& stats, StatsRequest request, int64_t tokens) {
  EXPECT_EQ(static_cast<int64_t>(stats.entropy.size()), request.entropy ? tokens : 0);
  EXPECT_EQ(static_cast<int64_t>(stats.cross.size()), request.cross ? tokens : 0);
  EXPECT_EQ(static_cast<int64_t>(stats.argmax.size()), request.argmax ? tokens : 0);
  EXPECT_EQ(static_cast<int64_t>(stats.rank.size()), request.rank ? tokens : 0);
  EXPECT_EQ(static_cast<int64_t>(stats.top_ids.size()), request.top_k * tokens);
  EXPECT_EQ(static_cast<int64_t>(stats.top_logps.size()), request.top_k * tokens);
  EXPECT_EQ(static_cast<int64_t>(stats.square_sum.size()), request.square_sum ? tokens : 0);
  for (const auto* column : {&stats.outside, &stats.outside_max}) {
    EXPECT_EQ(static_cast<int64_t>(column->size()), request.outside ? tokens : 0);
  }
}

}  // namespace

TokenGrads TokenStatsTester::token_grads() const { return random_token_grads(spec_.tokens, spec_.seed, terms_); }

StatsRequest TokenStatsTester::asked(const Reference& reference) const {
  StatsRequest request = request_;
  request.cross_weights = reference.cross.span();
  return request;
}

TokenStatsTester::Reference& TokenStatsTester::reference() {
  if (reference_) return *reference_;
  auto reference = std::make_shared<Reference>(spec_);
  reference->options = token_options(reference->temperatures);
  if (cross_on_) reference->cross = {random_class_weights(spec_.vocab, spec_.seed), spec_.allocate};
  const Inputs& inputs = reference->inputs;
  Expected& expected = reference->expected;
  oracle::Problem problem =
      oracle::read_problem(inputs.hidden_view(), inputs.head_view(), inputs.targets_view(), reference->options);
  oracle::set_cross(reference->cross.span(), problem);
  expected = expect_statistics(std::move(problem), arithmetic_for(spec_.dtype, context()));
  add_gradients(expected, oracle_grads(token_grads(), expected.problem), oracle::TokenGradients(spec_.tokens));
  reference_ = reference;
  return *reference_;
}

TokenStats TokenStatsTester::statistics(Reference& reference) const {
  const Inputs& inputs = reference.inputs;
  Plan plan;
  TokenStats stats = compute_token_stats(context(), inputs.hidden_view(), inputs.head_view(), inputs.targets_view(),
                                         reference.options, asked(reference), &plan);
  EXPECT_EQ(plan.kind, PlanKind::kForwardOnly);
  EXPECT_LE(plan.workspace_bytes, run_.context.workspace_bytes);
  return stats;
}

void TokenStatsTester::statistics_match_oracle() {
  SCOPED_TRACE(describe());
  Reference& truth = reference();
  const TokenStats stats = statistics(truth);
  expect_requested(stats, request_, spec_.tokens);
  expect_statistics_near(stats, truth.expected);
}

void TokenStatsTester::backward_matches_oracle() {
  SCOPED_TRACE(describe());
  Reference& truth = reference();
  const TokenStats stats = statistics(truth);
  // The backward pass never reads rows whose gradients are all 0.
  Inputs inputs(spec_);
  for (int64_t i = 0; i < spec_.tokens; ++i) {
    if (!truth.expected.grads.all_zero(i)) continue;
    for (int64_t h = 0; h < spec_.hidden; ++h) inputs.set_hidden(i, h, std::numeric_limits<double>::quiet_NaN());
  }
  GradientOutputs outputs(inputs, run_);
  Plan plan;
  backpropagate_token_grads(context(), inputs.hidden_view(), inputs.head_view(), inputs.targets_view(), truth.options,
                            asked(truth), stats, token_grads(), outputs.gradients(), &plan);
  EXPECT_EQ(plan.kind, PlanKind::kTwoPass);
  EXPECT_LE(plan.workspace_bytes, run_.context.workspace_bytes);
  expect_gradients_near(outputs, truth.expected, run_, spec_.layout);
}

Plan TokenStatsTester::token_loss_matches_oracle() {
  SCOPED_TRACE(describe());
  Reference& truth = reference();
  Inputs inputs(spec_);
  GradientOutputs outputs(inputs, run_);
  const TokenGrads grads = token_grads();
  GivenGradients loss(grads, asked(truth));
  Plan plan;
  const TokenStats stats = run_token_loss(context(), inputs.hidden_view(), inputs.head_view(), inputs.targets_view(),
                                          truth.options, loss, outputs.gradients(), &plan);
  EXPECT_LE(plan.workspace_bytes, run_.context.workspace_bytes);
  if (run_.context.plan != PlanKind::kAuto) {
    EXPECT_EQ(plan.kind, run_.context.plan);
  }

  // Every row that takes part was evaluated once, with its statistics in place.
  std::vector<int64_t> evaluated = loss.rows();
  for (size_t k = 0; k < evaluated.size(); ++k) EXPECT_EQ(loss.logp()[k], stats.logp[evaluated[k]]);
  std::sort(evaluated.begin(), evaluated.end());
  std::vector<int64_t> active;
  for (int64_t i = 0; i < spec_.tokens; ++i) {
    if (truth.expected.problem.takes_part(i)) active.push_back(i);
  }
  EXPECT_EQ(evaluated, active);
  expect_requested(stats, request_, spec_.tokens);
  expect_statistics_near(stats, truth.expected);
  expect_gradients_near(outputs, truth.expected, run_, spec_.layout);
  return plan;
}

}  // namespace logitless::testing

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "support/testers.h"
#include "support/calls.h"
#include "support/views.h"

#include <span>

namespace logitless::testing {

// Inputs, their options, and the expected results.
struct CrossEntropyTester::Reference {
  explicit Reference(const InputSpec& spec) : inputs(spec) {}

  Inputs inputs;
  CrossEntropy options;
  std::vector<double> temperatures;
  std::vector<float> class_weights;
  std::vector<double> upstream;  ///< ∂L/∂loss: one value, or with kNone one per token
  /// Set by truth(); a run without a comparison does not compute it.
  bool has_truth = false;
  Expected expected;
  oracle::Loss loss;
  oracle::Loss loss_bound;
};

namespace {

void append_bytes(std::vector<std::byte>& bytes, std::span<const double> values) {
  const auto more = std::as_bytes(values);
  bytes.insert(bytes.end(), more.begin(), more.end());
}

std::vector<std::byte> input_bytes(const Inputs& inputs) {
  std::vector<std::byte> all(inputs.hidden.bytes().begin(), inputs.hidden.bytes().end());
  all.insert(all.end(), inputs.weight.bytes().begin(), inputs.weight.bytes().end());
  if (inputs.spec.bias) all.insert(all.end(), inputs.bias.bytes().begin(), inputs.bias.bytes().end());
  return all;
}

}  // namespace

CrossEntropyTester::Reference& CrossEntropyTester::reference() {
  if (reference_) return *reference_;
  reference_ = std::make_shared<Reference>(spec_);
  CrossEntropy& options = reference_->options = options_;
  options.token.ignore_index = spec_.ignore_index;
  options.token.shift = spec_.shift;
  if (temperatures_on_)
    options.token.temperatures = reference_->temperatures = random_temperatures(spec_.tokens, spec_.seed);
  if (class_weights_on_)
    options.class_weights = reference_->class_weights = random_class_weights(spec_.vocab, spec_.seed);
  std::vector<double>& upstream = reference_->upstream;
  if (options.reduction != Reduction::kNone) {
    upstream = {upstream_on_ ? -1.75 : 1.0};
  } else if (upstream_on_) {
    upstream = random_token_gradients(spec_.tokens, spec_.seed);
  } else {
    upstream.assign(static_cast<size_t>(spec_.tokens), 1.0);
  }
  return *reference_;
}

CrossEntropyTester::Reference& CrossEntropyTester::truth() {
  Reference& truth = reference();
  if (truth.has_truth) return truth;
  const Arithmetic arithmetic = arithmetic_for(spec_.dtype, context());
  const Inputs& inputs = truth.inputs;
  Expected& expected = truth.expected;
  expected = expect_statistics(
      oracle::read_problem(inputs.hidden_view(), inputs.head_view(), inputs.targets_view(), truth.options), arithmetic);
  truth.loss = oracle::compute_cross_entropy(expected.problem, expected.stats, truth.options, truth.upstream);
  truth.loss_bound =
      bound_loss(expected.problem, expected.stats, expected.stat_bounds, truth.options, truth.loss, arithmetic);
  add_gradients(expected, truth.loss.grads, truth.loss_bound.grads);
  truth.has_truth = true;
  return truth;
}

CrossEntropyRun CrossEntropyTester::call(const Reference& reference, const Inputs& inputs,
                                         GradientOutputs& outputs) const {
  const Context context = this->context();
  const HiddenStates hidden = inputs.hidden_view();
  const LmHead head = inputs.head_view();
  const Targets targets = inputs.targets_view();
  const CrossEntropy& options = reference.options;
  CrossEntropyRun run;
  if (form_ == Form::kSplit) {
    const Forward<CrossEntropy> forward = cross_entropy.forward(context, hidden, head, targets, options);
    const std::vector<double>& each = reference.upstream;
    const Upstream upstream = options.reduction == Reduction::kNone ? Upstream(each) : Upstream(each[0]);
    run.backward_plan =
        cross_entropy.backward(context, hidden, head, targets, options, forward, upstream, outputs.gradients());
    run.result = forward.result;
  } else {
    run.result = cross_entropy(context, hidden, head, targets, options, outputs.gradients());
  }
  run.bytes = outputs.bytes();
  append_bytes(run.bytes, run.result.per_token_loss);
  const CrossEntropyMetrics& metrics = run.result.metrics;
  const double numbers[] = {run.result.loss, metrics.mean_nll, metrics.perplexity,
                            metrics.z_loss,  metrics.accuracy, metrics.mean_entropy};
  append_bytes(run.bytes, numbers);
  return run;
}

void CrossEntropyTester::expect_plan(const Reference& reference, const CrossEntropyRun& run) const {
  const Plan& plan = form_ == Form::kSplit ? run.backward_plan : run.result.plan;
  const auto active = reference.loss.metrics.tokens;
  EXPECT_EQ(plan.tokens, spec_.tokens);
  EXPECT_EQ(plan.hidden_size, spec_.hidden);
  EXPECT_EQ(plan.vocab_size, spec_.vocab);
  EXPECT_FALSE(plan.describe().empty());
  EXPECT_LE(plan.workspace_bytes, run_.context.workspace_bytes);
  if (form_ == Form::kFused) {
    EXPECT_EQ(plan.active_rows, active);
  }
  if (active == 0) return;
  const bool any_gradient = run_.d_hidden || run_.d_weight || (run_.d_bias && spec_.bias);
  if (!any_gradient) {
    EXPECT_EQ(plan.kind, PlanKind::kForwardOnly);
  } else {
    // backward() runs two pass, unless forward() returned expected rows.
    const PlanKind wanted = run_.context.plan;
    const bool leaves_rows = wanted == PlanKind::kExpectedRow && run_.d_hidden && !run_.context.ranks.cuts_vocab();
    if (form_ == Form::kSplit) {
      EXPECT_EQ(plan.kind, leaves_rows ? PlanKind::kExpectedRow : PlanKind::kTwoPass);
    } else if (wanted != PlanKind::kAuto) {
      EXPECT_EQ(plan.kind, wanted);
    }
  }
}

void CrossEntropyTester::matches_oracle() {
  SCOPED_TRACE(::testing::PrintToString(settings_));
  Reference& truth = this->truth();
  // A sink that destroys the weight gets its own inputs.
  std::unique_ptr<Inputs> spare = run_.sink_overwrites_weight ? std::make_unique<Inputs>(spec_) : nullptr;
  Inputs& inputs = spare ? *spare : truth.inputs;
  const std::vector<std::byte> before = input_bytes(inputs);
  GradientOutputs outputs(inputs, run_);
  const CrossEntropyRun run = call(truth, inputs, outputs);
  if (!spare) {
    EXPECT_TRUE(before == input_bytes(inputs)) << "an input was written";
  }
  expect_plan(truth, run);
  expect_loss_near(run.result, truth.expected, truth.loss, truth.loss_bound, truth.options);
  expect_gradients_near(outputs, truth.expected, run_, spec_.layout);
}

CrossEntropyRun CrossEntropyTester::run_once() {
  Reference& own = reference();
  GradientOutputs outputs(own.inputs, run_);
  return call(own, own.inputs, outputs);
}

Plan CrossEntropyTester::planned() {
  Reference& own = reference();
  GradientOutputs outputs(own.inputs, run_);
  return cross_entropy.plan(context(), own.inputs.hidden_view(), own.inputs.head_view(), own.inputs.targets_view(),
                            own.options, outputs.gradients());
}

}  // namespace logitless::testing

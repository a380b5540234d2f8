// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "support/testers.h"
#include "support/calls.h"
#include "support/views.h"

#include <algorithm>

namespace logitless::testing {

// Inputs, their options, and the expected results.
struct CrossEntropyTester::Reference {
  explicit Reference(const InputSpec& spec) : inputs(spec) {}

  Inputs inputs;
  CrossEntropy options;
  HostArray<double> temperatures;
  HostArray<float> class_weights;
  std::vector<double> upstream;
  /// Set by truth(); a run without a comparison does not compute it.
  bool has_truth = false;
  Expected expected;
  oracle::Loss loss;
  oracle::Loss loss_bound;
};

namespace {

template <class T>
void append_bytes(std::vector<std::byte>& bytes, const T* values, size_t count) {
  const auto* first = reinterpret_cast<const std::byte*>(values);
  bytes.insert(bytes.end(), first, first + count * sizeof(T));
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
  auto reference = std::make_shared<Reference>(spec_);
  reference->options = cross_entropy_options(token_options(reference->temperatures), reference->class_weights);
  reference->upstream = upstream_values();

  reference_ = reference;
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
    run.result = run_halves(context, targets, options, outputs.gradients(), run.backward_plan, hidden, head);
  } else {
    run.result = cross_entropy(context, hidden, head, targets, options, outputs.gradients());
  }
  run.bytes = outputs.bytes();
  append_bytes(run.bytes, run.result.per_token_loss.data(), run.result.per_token_loss.size());
  const CrossEntropyMetrics& metrics = run.result.metrics;
  const double numbers[] = {run.result.loss, metrics.mean_nll, metrics.perplexity,
                            metrics.z_loss,  metrics.accuracy, metrics.mean_entropy};
  append_bytes(run.bytes, numbers, std::size(numbers));
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
    expect_kind(plan);
  }
}

void CrossEntropyTester::matches_oracle() {
  SCOPED_TRACE(describe());
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

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "support/preference_tester.h"
#include "support/calls.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>

namespace logitless::testing {

namespace {

std::vector<double*> means_of(PreferenceMetrics& m) {
  return {&m.chosen_reward, &m.rejected_reward, &m.margin, &m.accuracy, &m.chosen_logp, &m.rejected_logp, &m.nll};
}
std::vector<double*> means_of(KtoMetrics& m) {
  return {&m.kl, &m.desirable_reward, &m.undesirable_reward, &m.margin, &m.desirable_logp, &m.undesirable_logp};
}

// Lists every number that follows from the log-probabilities.
std::vector<double*> numbers_of(oracle::PreferenceTruth& truth) {
  std::vector<double*> numbers = means_of(truth.metrics);
  numbers.push_back(&truth.loss);
  for (double& value : truth.sequence_logps) numbers.push_back(&value);
  for (double& value : truth.d_logp) numbers.push_back(&value);
  return numbers;
}
std::vector<double*> numbers_of(oracle::KtoTruth& truth) {
  std::vector<double*> numbers = means_of(truth.metrics);
  numbers.push_back(&truth.loss);
  for (std::vector<double>* column : {&truth.sequence_losses, &truth.sequence_logps, &truth.d_logp}) {
    for (double& value : *column) numbers.push_back(&value);
  }
  return numbers;
}

// How far each number may be off when each sequence's sum is off by its error: what the oracle answers to
// twice the error of one sum, added up over all sums. Twice, so that the curvature of a formula and two sums
// that move together are covered as long as the formula is smooth over this distance; that nothing jumps is
// what distance_from_kinks is asserted for.
template <class Truth>
Truth bound_truth(const SequenceData& data, const std::function<Truth(const oracle::SequenceBatch&)>& compute) {
  Truth at = compute(data.batch), bound = at;
  const std::vector<double*> center = numbers_of(at), total = numbers_of(bound);
  for (double* value : total) *value = kArithmeticUnits * kFloat64Unit * std::abs(*value);
  const auto add_change = [&](const std::function<void(oracle::SequenceBatch&, double)>& move, double error) {
    std::vector<double> worst(total.size(), 0.0);
    for (const double step : {-2 * error, 2 * error}) {
      oracle::SequenceBatch moved = data.batch;
      move(moved, step);
      Truth there = compute(moved);
      const std::vector<double*> values = numbers_of(there);
      for (size_t k = 0; k < worst.size(); ++k) worst[k] = std::max(worst[k], std::abs(*values[k] - *center[k]));
    }
    for (size_t k = 0; k < worst.size(); ++k) *total[k] += worst[k];
  };
  for (int64_t s = 0; s < data.batch.sequences(); ++s) {
    int64_t first = -1;
    for (int64_t i = data.batch.offsets[s]; i < data.batch.offsets[s + 1]; ++i) {
      if (!data.batch.takes_part[i]) continue;
      if (first < 0) first = i;
      add_change([=](oracle::SequenceBatch& batch, double step) { batch.square_sums[i] += step; },
                 data.expected.stat_bounds.square_sum[i]);
    }
    if (first < 0) continue;
    add_change([=](oracle::SequenceBatch& batch, double step) { batch.logp[first] += step; }, data.errors[s]);
    if (data.batch.reference.empty()) continue;
    const auto move_reference = [=](oracle::SequenceBatch& batch, double step) {
      batch.reference[s] += step;
      batch.reference_tokens[first] += step;
    };
    add_change(move_reference, data.reference_errors[s]);
  }
  return bound;
}

double largest_error(const SequenceData& data) {
  double largest = 0;
  for (const double error : data.errors) largest = std::max(largest, error);
  for (const double error : data.reference_errors) largest = std::max(largest, error);
  return largest;
}

void expect_columns_near(const std::string& what, const std::vector<double>& got, const std::vector<double>& want,
                         const std::vector<double>& tolerance) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < want.size(); ++i) {
    expect_near(what + "[" + std::to_string(i) + "]", got[i], want[i], tolerance[i]);
  }
}

// Compares what preference_loss and kto_loss have in common.
template <class Result, class Truth>
void expect_result_near(Result got, Truth want, Truth bound, SequenceData& data, bool want_entropy) {
  expect_near("loss", got.loss, want.loss, bound.loss);
  expect_columns_near("sequence_logps", got.sequence_logps, want.sequence_logps, bound.sequence_logps);
  expect_column_near("per_token_logps", got.per_token_logps, data.expected.stats.logp, data.expected.stat_bounds.logp);
  const std::vector<double*> got_means = means_of(got.metrics), want_means = means_of(want.metrics),
                             bounds = means_of(bound.metrics);
  for (size_t k = 0; k < got_means.size(); ++k) {
    expect_near("mean " + std::to_string(k) + " of the metrics", *got_means[k], *want_means[k], *bounds[k]);
  }
  EXPECT_EQ(got.metrics.tokens, want.metrics.tokens);
  if (want_entropy && want.metrics.tokens > 0) {
    const auto tokens = static_cast<double>(want.metrics.tokens);
    const double error = data.expected.stat_bounds.entropy.sum() / tokens;
    expect_near("mean_entropy", got.metrics.mean_entropy, want.metrics.mean_entropy,
                error + kArithmeticUnits * kFloat64Unit * want.metrics.mean_entropy);
  } else {
    EXPECT_TRUE(std::isnan(got.metrics.mean_entropy));
  }
}

// Returns everything that must not depend on threads.
template <class Result>
std::vector<std::byte> bytes_of(Result& result, const GradientOutputs& outputs) {
  std::vector<std::byte> bytes = outputs.bytes();
  std::vector<double> numbers = result.per_token_logps;
  numbers.insert(numbers.end(), result.sequence_logps.begin(), result.sequence_logps.end());
  for (const double* mean : means_of(result.metrics)) numbers.push_back(*mean);
  numbers.push_back(result.metrics.mean_entropy);
  numbers.push_back(result.loss);
  const auto* first = reinterpret_cast<const std::byte*>(numbers.data());
  bytes.insert(bytes.end(), first, first + numbers.size() * sizeof(double));
  return bytes;
}

}  // namespace

template <class Self>
void SequenceTester<Self>::add_token_gradients(const std::vector<double>& d_logp, const std::vector<double>& errors) {
  const double upstream = this->upstream_value();
  oracle::TokenGradients grads(data_->batch.tokens()), token_errors(data_->batch.tokens());
  for (int64_t i = 0; i < data_->batch.tokens(); ++i) {
    grads.logp[i] = upstream * d_logp[i];
    token_errors.logp[i] = std::abs(upstream) * (errors[i] + 2 * kFloat64Unit * std::abs(d_logp[i]));
  }
  add_gradients(data_->expected, grads, token_errors);
}

template <class Self>
template <class Result>
void SequenceTester<Self>::expect_plan(const SequenceRun<Result>& run) const {
  const bool split = this->form_ == Form::kSplit;
  const Plan& plan = split ? run.backward_plan : run.result.plan;
  int64_t active = 0;
  for (int64_t i = 0; i < data_->batch.tokens(); ++i) active += data_->batch.takes_part[i] ? 1 : 0;
  EXPECT_EQ(plan.tokens, data_->batch.tokens());
  EXPECT_EQ(run.result.plan.active_rows, active);
  EXPECT_LE(plan.workspace_bytes, this->run_.context.workspace_bytes);
  if (active == 0) return;
  if (split) {
    EXPECT_EQ(run.result.plan.kind, PlanKind::kForwardOnly);
  }
  if (!this->run_.d_hidden && !this->run_.d_weight && !(this->run_.d_bias && data_->inputs.spec.bias)) {
    EXPECT_EQ(plan.kind, PlanKind::kForwardOnly);
  } else {
    this->expect_kind(plan);
  }
}

PreferenceTester& PreferenceTester::loss(PreferenceLossType loss) {
  reference(oracle::compares_with_reference(loss) ? ReferenceForm::kTokens : ReferenceForm::kNone);
  return options(name_of(loss), options_of(loss));
}

PreferenceTester& PreferenceTester::options(const std::string& name, const PreferenceLoss& options) {
  return input("loss", name, options_, options);
}

SequenceData& PreferenceTester::given() {
  SequenceData& data = this->data(true);
  options_.token = data.token;
  options_.ref_logps_are = data.ref_logps_are;
  return data;
}

SequenceRun<PreferenceResult> PreferenceTester::call(SequenceData& data, GradientOutputs& outputs) const {
  SequenceRun<PreferenceResult> run;
  const Inputs& inputs = data.inputs;
  const Context context = this->context();
  const Targets targets = inputs.targets_view();
  with_source(inputs, outputs, [&](const auto& gradients, const auto&... source) {
    if (form_ == Form::kSplit) {
      const Forward<PreferenceLoss> forward =
          preference_loss.forward(context, source..., targets, data.reference, options_);
      run.backward_plan = preference_loss.backward(context, source..., targets, data.reference, options_, forward,
                                                   upstream_value(), gradients);
      run.result = forward.result;
    } else {
      run.result = preference_loss(context, source..., targets, data.reference, options_, gradients);
    }
  });
  run.bytes = bytes_of(run.result, outputs);
  return run;
}

SequenceRun<PreferenceResult> PreferenceTester::run_once() {
  SequenceData& own = given();
  GradientOutputs outputs(own.inputs, run_);
  return call(own, outputs);
}

Plan PreferenceTester::planned() {
  SequenceData& own = given();
  GradientOutputs outputs(own.inputs, run_);
  Plan plan;
  with_source(own.inputs, outputs, [&](const auto& gradients, const auto&... source) {
    plan = preference_loss.plan(context(), source..., own.inputs.targets_view(), own.reference, options_, gradients);
  });
  return plan;
}

void PreferenceTester::matches_oracle() {
  SCOPED_TRACE(describe());
  SequenceData& data = given();
  if (!data.pairs) {
    const auto compute = [&](const oracle::SequenceBatch& batch) {
      return oracle::compute_preference(batch, options_);
    };
    data.pairs = {compute(data.batch), bound_truth<oracle::PreferenceTruth>(data, compute)};
    add_token_gradients(data.pairs->first.d_logp, data.pairs->second.d_logp);
  }
  const auto& [truth, bound] = *data.pairs;
  // Four sums take part in any one comparison, each within twice its error.
  ASSERT_GT(oracle::distance_from_kinks(data.batch, options_), 8 * largest_error(data));
  GradientOutputs outputs(data.inputs, run_);
  const SequenceRun<PreferenceResult> run = call(data, outputs);
  expect_plan(run);
  EXPECT_EQ(run.result.metrics.pairs, truth.metrics.pairs);
  expect_result_near(run.result, truth, bound, data, options_.want_entropy);
  expect_gradients_near(outputs, data.expected, run_, spec_.layout);
}

SequenceData& KtoTester::given() {
  SequenceData& data = this->data(false);
  case_.options.token = data.token;
  case_.options.ref_logps_are = data.ref_logps_are;
  return data;
}

void KtoTester::with_batch(const SequenceData& data, const std::function<void(const KtoBatch&)>& call) const {
  const oracle::KtoInput input = kto_input(data.batch, case_);
  const HostArray<uint8_t> labels(input.labels, spec_.allocate);
  const HostArray<double> kl_logps(input.kl_logps, spec_.allocate), kl_ref_logps(input.kl_ref_logps, spec_.allocate);
  KtoBatch batch;
  batch.targets = data.inputs.targets_view();
  batch.labels = labels.span();
  batch.reference = data.reference;
  batch.kl_logps = ConstVector(kl_logps.data(), kl_logps.size());
  batch.kl_ref_logps = ConstVector(kl_ref_logps.data(), kl_ref_logps.size());
  const HostArray<double> weights(input.sequence_weights, spec_.allocate), fits(input.reward_targets, spec_.allocate);
  if (!input.sequence_weights.empty()) batch.sequence_weights = ConstVector(weights.data(), weights.size());
  if (!input.reward_targets.empty()) batch.reward_targets = ConstVector(fits.data(), fits.size());
  call(batch);
}

SequenceRun<KtoResult> KtoTester::call(SequenceData& data, GradientOutputs& outputs) const {
  SequenceRun<KtoResult> run;
  const Context context = this->context();
  with_batch(data, [&](const KtoBatch& batch) {
    with_source(data.inputs, outputs, [&](const auto& gradients, const auto&... source) {
      if (form_ == Form::kSplit) {
        const Forward<KtoLoss> forward = kto_loss.forward(context, source..., batch, case_.options);
        run.backward_plan =
            kto_loss.backward(context, source..., batch, case_.options, forward, upstream_value(), gradients);
        run.result = forward.result;
      } else {
        run.result = kto_loss(context, source..., batch, case_.options, gradients);
      }
    });
  });
  run.bytes = bytes_of(run.result, outputs);
  const auto losses = std::as_bytes(std::span(run.result.sequence_losses));
  run.bytes.insert(run.bytes.end(), losses.begin(), losses.end());
  return run;
}

Plan KtoTester::planned() {
  SequenceData& own = given();
  GradientOutputs outputs(own.inputs, run_);
  Plan plan;
  with_batch(own, [&](const KtoBatch& batch) {
    with_source(own.inputs, outputs, [&](const auto& gradients, const auto&... source) {
      plan = kto_loss.plan(context(), source..., batch, case_.options, gradients);
    });
  });
  return plan;
}

SequenceRun<KtoResult> KtoTester::run_once() {
  SequenceData& own = given();
  GradientOutputs outputs(own.inputs, run_);
  return call(own, outputs);
}

void KtoTester::matches_oracle() {
  SCOPED_TRACE(describe());
  SequenceData& data = given();
  if (!data.kto) {
    const auto compute = [&](const oracle::SequenceBatch& batch) {
      return oracle::compute_kto(kto_input(batch, case_), case_.options);
    };
    data.kto = {compute(data.batch), bound_truth<oracle::KtoTruth>(data, compute)};
    add_token_gradients(data.kto->first.d_logp, data.kto->second.d_logp);
  }
  const auto& [truth, bound] = *data.kto;
  GradientOutputs outputs(data.inputs, run_);
  const SequenceRun<KtoResult> run = call(data, outputs);
  expect_plan(run);
  EXPECT_EQ(run.result.metrics.desirable, truth.metrics.desirable);
  EXPECT_EQ(run.result.metrics.undesirable, truth.metrics.undesirable);
  expect_columns_near("sequence_losses", run.result.sequence_losses, truth.sequence_losses, bound.sequence_losses);
  expect_result_near(run.result, truth, bound, data, case_.options.want_entropy);
  expect_gradients_near(outputs, data.expected, run_, spec_.layout);
}

}  // namespace logitless::testing

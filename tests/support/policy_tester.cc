// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "support/policy_tester.h"
#include "support/calls.h"
#include "support/views.h"

#include <cmath>
#include <limits>
#include <random>
#include <stdexcept>

namespace logitless::testing {

// How far the engine's answer may be from the oracle's.
struct PolicyBounds {
  explicit PolicyBounds(int64_t tokens) : per_token_loss(tokens, 0.0), grads(tokens) {}

  double loss = 0, mean_ratio = 0, mean_kl = 0, mean_logp = 0, mean_entropy = 0, mean_teacher_kl = 0;
  std::vector<double> per_token_loss;
  oracle::TokenGradients grads;
};

struct PolicyTester::Reference {
  explicit Reference(const InputSpec& spec) : inputs(spec), bounds(spec.tokens) {}

  Inputs inputs;
  PolicyLoss options;
  HostArray<double> temperatures;
  HostArray<int64_t> ids;
  HostArray<uint8_t> mask;
  HostTensor advantages, old_logps, ref_logps, sampling_logps, teacher_logps, scores;
  PolicyBatch batch;
  Expected expected;  // its statistics; the rest and what follows is of truth()
  bool has_truth = false;
  oracle::PolicyValue want;
  PolicyBounds bounds;
};

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::vector<int64_t> offsets_of(const InputSpec& spec) {
  if (!spec.offsets.empty()) return spec.offsets;
  std::vector<int64_t> offsets;
  for (int64_t s = 0; s <= spec.sequences; ++s) offsets.push_back(s * (spec.tokens / spec.sequences));
  return offsets;
}

// The loss follows from the statistics, whose errors are bounded: each one is moved by its bound, both ways,
// and what the oracle's answer moves by is added up. Together they may move it by the second-order terms
// more, which are as much smaller as the bounds are small: below 1e-2, so 1.1 times the sum holds. The
// library and the oracle evaluate the formula itself in fp64, with some tens of roundings.
PolicyBounds bound_policy_loss(const oracle::PolicyTokens& tokens, const PolicyLoss& options,
                               const oracle::PolicyPoint& at, const Eigen::VectorXd& errors,
                               const oracle::PolicyValue& want) {
  constexpr double kTogether = 1.1, kFormula = 0x1p-46;
  const int64_t count = tokens.tokens();
  PolicyBounds bounds(count);
  const auto add = [&](double& bound, const oracle::Number& moved, const oracle::Number& value) {
    bound += kTogether * std::abs(moved.value - value.value);
  };
  const bool uses_entropy = !std::isnan(want.mean_entropy.value);
  for (int64_t input = 0; input < (uses_entropy ? 2 : 1) * count; ++input) {
    if (!tokens.takes_part[input % count]) continue;
    EXPECT_LT(errors[input], 1e-2);
    for (const double sign : {-1.0, 1.0}) {
      oracle::PolicyPoint moved = at;
      (input < count ? moved.logp : moved.entropy)[input % count] += sign * errors[input];
      const oracle::PolicyValue got = oracle::compute_policy_loss(tokens, options, moved);
      // The larger of two moves is at most their sum.
      add(bounds.loss, got.loss, want.loss);
      add(bounds.mean_ratio, got.mean_ratio, want.mean_ratio);
      add(bounds.mean_kl, got.mean_kl, want.mean_kl);
      add(bounds.mean_logp, got.mean_logp, want.mean_logp);
      add(bounds.mean_teacher_kl, got.mean_teacher_kl, want.mean_teacher_kl);
      add(bounds.mean_entropy, got.mean_entropy, want.mean_entropy);
      for (int64_t i = 0; i < count; ++i) {
        add(bounds.per_token_loss[i], got.per_token_loss[i], want.per_token_loss[i]);
        bounds.grads.logp[i] += kTogether * std::abs(got.d_logp(i) - want.d_logp(i));
        bounds.grads.entropy[i] += kTogether * std::abs(got.d_entropy(i) - want.d_entropy(i));
      }
    }
  }
  double largest = 0, largest_gradient = 0;
  for (int64_t i = 0; i < count; ++i) {
    largest = std::max(largest, std::abs(want.per_token_loss[i].value));
    largest_gradient = std::max(largest_gradient, std::abs(want.d_logp(i)));
  }
  bounds.loss +=
      kFormula * (largest * std::abs(options.loss_scale) * static_cast<double>(count) + std::abs(want.loss.value));
  bounds.mean_ratio += kFormula * want.mean_ratio.value;
  bounds.mean_kl += kFormula * (1 + std::abs(want.mean_kl.value));
  bounds.mean_logp += kFormula * std::abs(want.mean_logp.value);
  bounds.mean_teacher_kl += kFormula * (1 + std::abs(want.mean_teacher_kl.value));
  bounds.mean_entropy += kFormula * want.mean_entropy.value;
  for (int64_t i = 0; i < count; ++i) {
    if (!tokens.takes_part[i]) continue;
    bounds.per_token_loss[i] += kFormula * largest;
    if (want.d_logp(i) != 0) bounds.grads.logp[i] += kFormula * largest_gradient;
    bounds.grads.entropy[i] += kFormula * std::abs(want.d_entropy(i));
  }
  return bounds;
}

void expect_result_near(const PolicyResult& got, const oracle::PolicyValue& want, const PolicyBounds& bounds,
                        const Expected& expected) {
  expect_near("loss", got.loss, want.loss.value, bounds.loss);
  ASSERT_EQ(got.per_token_loss.size(), want.per_token_loss.size());
  for (size_t i = 0; i < got.per_token_loss.size(); ++i) {
    expect_near("per_token_loss[" + std::to_string(i) + "]", got.per_token_loss[i], want.per_token_loss[i].value,
                bounds.per_token_loss[i]);
  }
  expect_column_near("per_token_logps", got.per_token_logps, expected.stats.logp, expected.stat_bounds.logp);
  EXPECT_EQ(got.metrics.tokens, want.tokens);
  expect_near("mean_ratio", got.metrics.mean_ratio, want.mean_ratio.value, bounds.mean_ratio);
  expect_near("mean_kl", got.metrics.mean_kl, want.mean_kl.value, bounds.mean_kl);
  expect_near("mean_logp", got.metrics.mean_logp, want.mean_logp.value, bounds.mean_logp);
  expect_near("mean_teacher_kl", got.metrics.mean_teacher_kl, want.mean_teacher_kl.value, bounds.mean_teacher_kl);
  expect_near("mean_entropy", got.metrics.mean_entropy, want.mean_entropy.value, bounds.mean_entropy);
  // Quotients of the same counts.
  expect_near("clip_fraction_low", got.metrics.clip_fraction_low, want.clip_fraction_low, 0x1p-46);
  expect_near("clip_fraction_high", got.metrics.clip_fraction_high, want.clip_fraction_high, 0x1p-46);
  expect_near("clip_fraction", got.metrics.clip_fraction, want.clip_fraction, 0x1p-46);
}

}  // namespace

PolicyTester& PolicyTester::twist(const std::string& name) {
  for (const PolicyTwist& twist : policy_twists()) {
    if (twist.name != name) continue;
    PolicyCase twisted = case_;
    twist.apply(twisted);
    twisted.name += ", " + name;
    return policy(twisted);
  }
  throw std::logic_error("no twist is called " + name);
}

// Log-probabilities of other policies near those of the oracle: an old one some tenths away, a sampler near
// that, a reference further away.
void PolicyTester::make_batch(Reference& reference) const {
  const auto& [problem, stats] = std::tie(reference.expected.problem, reference.expected.stats);
  const std::vector<int64_t> offsets = offsets_of(spec_);
  const auto sequences = static_cast<int64_t>(offsets.size()) - 1;
  std::mt19937_64 random(spec_.seed * 7919 + 11);
  std::normal_distribution<double> normal(0, 1);
  const auto column = [&](int64_t size) { return HostTensor(batch_dtype_, 1, size, 0, spec_.allocate); };
  reference.old_logps = column(spec_.tokens);
  reference.ref_logps = column(spec_.tokens);
  reference.sampling_logps = column(spec_.tokens);
  reference.teacher_logps = column(spec_.tokens);
  std::vector<int64_t> ids(spec_.tokens);
  std::vector<uint8_t> mask(spec_.tokens);
  for (int64_t i = 0; i < spec_.tokens; ++i) {
    const double old = stats.logp[i] - 0.3 * normal(random), sampling = old + 0.2 * normal(random);
    const double ref = stats.logp[i] + 0.5 * normal(random);
    const bool active = problem.takes_part(i);
    mask[i] = active ? 1 : 0;
    ids[i] = active ? problem.labels[i] : i % 2 == 0 ? int64_t{-7} : int64_t{1} << 50;
    reference.old_logps.set(0, i, active ? old : kNaN);
    reference.ref_logps.set(0, i, active ? ref : kInfinity);
    reference.sampling_logps.set(0, i, active && i % 11 != 10 ? sampling : active ? kNaN : -kInfinity);
    reference.teacher_logps.set(0, i, active ? stats.logp[i] + 0.4 * std::sin(static_cast<double>(3 * i + 1)) : kNaN);
  }
  reference.advantages = column(case_.advantages_per_token ? spec_.tokens : sequences);
  for (int64_t i = 0; i < reference.advantages.cols(); ++i) {
    const bool read = !case_.advantages_per_token || problem.takes_part(i);
    reference.advantages.set(0, i, read ? normal(random) : kNaN);
  }
  if (reference.advantages.cols() > 2) reference.advantages.set(0, 2, 0);
  reference.scores = column(sequences);
  for (int64_t s = 0; s < sequences; ++s) reference.scores.set(0, s, s % 3 == 1 ? -0.5 : static_cast<double>(s % 3));
  reference.ids = reference.inputs.laid_out(ids);
  reference.mask = HostArray<uint8_t>(mask, spec_.allocate);

  PolicyBatch& batch = reference.batch;
  batch.chosen_ids = reference.inputs.targets_in(reference.ids);
  batch.mask = reference.mask.span();
  if (!case_.teacher_alone) batch.advantages = reference.advantages.vector_view();
  if (case_.options.teacher_weight != 0) batch.teacher_logps = reference.teacher_logps.vector_view();
  if (!case_.on_policy) batch.old_logps = reference.old_logps.vector_view();
  if (case_.options.beta != 0) batch.ref_logps = reference.ref_logps.vector_view();
  if (case_.with_sampling) batch.sampling_logps = reference.sampling_logps.vector_view();
  const bool scored = case_.options.loss_type == PolicyLossType::kTopr || case_.options.positive_nll_weight != 0;
  if (scored) batch.scores = reference.scores.vector_view();
}

PolicyTester::Reference& PolicyTester::reference() {
  if (reference_) return *reference_;
  auto made = std::make_shared<Reference>(spec_);
  made->options = case_.options;
  const TokenOptions token = token_options(made->temperatures);
  made->options.token = token;
  made->options.token.ignore_index = TokenOptions().ignore_index;
  made->options.token.shift = 0;
  const Arithmetic arithmetic =
      spec_.finished_logits ? arithmetic_of_logits(spec_.dtype) : arithmetic_for(spec_.dtype, context());
  made->expected = expect_statistics(
      oracle::read_problem(made->inputs.hidden_view(), made->inputs.head_view(), made->inputs.targets_view(), token),
      arithmetic);
  make_batch(*made);
  reference_ = made;
  return *reference_;
}

PolicyTester::Reference& PolicyTester::truth() {
  Reference& truth = reference();
  if (truth.has_truth) return truth;
  Expected& expected = truth.expected;
  const oracle::PolicyTokens tokens = oracle::read_policy_batch(with(truth.options, truth.batch), offsets_of(spec_));
  oracle::PolicyPoint at;
  at.logp.assign(expected.stats.logp.begin(), expected.stats.logp.end());
  at.entropy.assign(expected.stats.entropy.begin(), expected.stats.entropy.end());
  truth.want = oracle::compute_policy_loss(tokens, truth.options, at);

  Eigen::VectorXd errors(2 * spec_.tokens);
  errors << expected.stat_bounds.logp, expected.stat_bounds.entropy;
  for (const oracle::Kink& kink : truth.want.kinks) {
    EXPECT_FALSE(kink.is_near(errors)) << "the data are too near to a kink: try another seed (" << kink.distance
                                       << " at " << kink.from.value << ")";
  }
  truth.bounds = bound_policy_loss(tokens, truth.options, at, errors, truth.want);
  const double upstream = upstream_value();
  oracle::TokenGradients grads(spec_.tokens);
  for (int64_t i = 0; i < spec_.tokens; ++i) {
    grads.logp[i] = upstream * truth.want.d_logp(i);
    grads.entropy[i] = upstream * truth.want.d_entropy(i);
  }
  // The product with it rounds once in the library and once here, which kFormula has room for.
  truth.bounds.grads.logp *= std::abs(upstream);
  truth.bounds.grads.entropy *= std::abs(upstream);
  add_gradients(expected, grads, truth.bounds.grads);
  truth.has_truth = true;
  return truth;
}

PolicyRun PolicyTester::call(const Reference& reference, GradientOutputs& outputs) const {
  PolicyRun run;
  const Context context = this->context();
  const PolicyBatch& batch = reference.batch;
  const PolicyLoss& options = reference.options;
  with_source(reference.inputs, outputs, [&](const auto& gradients, const auto&... source) {
    if (form_ == Form::kSplit) {
      const Forward<PolicyLoss> forward = policy_loss.forward(context, source..., batch, options);
      run.backward_plan =
          policy_loss.backward(context, source..., batch, options, forward, upstream_value(), gradients);
      run.result = forward.result;
    } else {
      run.result = policy_loss(context, source..., batch, options, gradients);
    }
  });
  const PolicyMetrics& metrics = run.result.metrics;
  std::vector<double> numbers = run.result.per_token_loss;
  numbers.insert(numbers.end(), run.result.per_token_logps.begin(), run.result.per_token_logps.end());
  numbers.insert(numbers.end(), {run.result.loss, metrics.mean_ratio, metrics.clip_fraction_low,
                                 metrics.clip_fraction_high, metrics.clip_fraction, metrics.mean_kl,
                                 metrics.mean_entropy, metrics.mean_logp, metrics.mean_teacher_kl});
  run.bytes = outputs.bytes();
  const auto* first = reinterpret_cast<const std::byte*>(numbers.data());
  run.bytes.insert(run.bytes.end(), first, first + numbers.size() * sizeof(double));
  return run;
}

PolicyRun PolicyTester::run_once() {
  Reference& own = reference();
  GradientOutputs outputs(own.inputs, run_);
  return call(own, outputs);
}

void PolicyTester::expect_plan(const PolicyRun& run, int64_t tokens) {
  const Plan& plan = form_ == Form::kSplit ? run.backward_plan : run.result.plan;
  EXPECT_LE(plan.workspace_bytes, run_.context.workspace_bytes);
  expect_kind(plan);
  if (form_ == Form::kFused) {
    EXPECT_EQ(plan.kind, planned().kind);
  }
  EXPECT_EQ(run.result.plan.active_rows, tokens);
}

PolicyRun PolicyTester::matches_oracle() {
  SCOPED_TRACE(describe());
  Reference& truth = this->truth();
  GradientOutputs outputs(truth.inputs, run_);
  PolicyRun run = call(truth, outputs);
  expect_plan(run, truth.want.tokens);
  expect_result_near(run.result, truth.want, truth.bounds, truth.expected);
  expect_gradients_near(outputs, truth.expected, run_, spec_.layout);
  return run;
}

Plan PolicyTester::planned() {
  Reference& own = reference();
  GradientOutputs outputs(own.inputs, run_);
  Plan plan;
  with_source(own.inputs, outputs, [&](const auto& gradients, const auto&... source) {
    plan = policy_loss.plan(context(), source..., own.batch, own.options, gradients);
  });
  return plan;
}

}  // namespace logitless::testing

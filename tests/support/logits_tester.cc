// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "support/logits_tester.h"
#include "support/calls.h"

#include <cmath>
#include <limits>

#include "support/given_gradients.h"
#include "support/views.h"

namespace logitless::testing {

LogitsBuffer::LogitsBuffer(const Shape& shape, const Allocate& allocate)
    : shape_(shape),
      tensor_(shape.dtype, shape.batch * (shape.time + shape.later), shape.vocab, shape.padding, allocate) {}

int64_t LogitsBuffer::stored_row(int64_t row) const {
  const int64_t b = row / shape_.time, t = row % shape_.time;
  return shape_.time_first ? t * shape_.batch + b : b * stored_time() + t;
}

FinishedLogits LogitsBuffer::view() const {
  const int64_t batch_stride = shape_.time_first ? stride() : stored_time() * stride();
  return FinishedLogits(tensor_.view().data, shape_.dtype, shape_.batch, shape_.time, shape_.vocab, batch_stride,
                        shape_.time_first ? shape_.batch * stride() : stride());
}

LogitsGradient LogitsBuffer::output() {
  const FinishedLogits v = view();
  return LogitsGradient(tensor_.output().data, v.dtype, v.batch, v.time, v.vocab, v.batch_stride, v.row_stride);
}

bool LogitsBuffer::surroundings_are_intact() const {
  if (!tensor_.padding_is_intact()) return false;
  const HostTensor untouched(shape_.dtype, 1, shape_.vocab);
  std::vector<bool> inside(static_cast<size_t>(tensor_.rows()), false);
  for (int64_t row = 0; row < shape_.batch * shape_.time; ++row) inside[static_cast<size_t>(stored_row(row))] = true;
  for (int64_t row = 0; row < tensor_.rows(); ++row) {
    if (inside[static_cast<size_t>(row)]) continue;
    const auto bytes =
        tensor_.bytes().subspan(static_cast<size_t>(row * stride()) * size_of(shape_.dtype), untouched.bytes().size());
    if (!std::equal(bytes.begin(), bytes.end(), untouched.bytes().begin())) return false;
  }
  return true;
}

// The logits, and the same as a head behind hidden states that are the identity matrix: rows of the oracle's
// logits are then the logits themselves, without any rounding.
struct LogitsTester::Reference {
  Inputs inputs;
  CrossEntropy options;
  HostArray<double> temperatures;
  HostArray<float> class_weights;
  HostArray<double> upstream;
  LogitsBuffer logits;
  HostTensor identity;
  HostTensor finite_logits;  ///< 0 in rows that take no part, and in masked vocabulary entries
  HostTensor mask;           ///< [1, V]: 0, or -inf for a masked vocabulary entry
  Arithmetic arithmetic;

  explicit Reference(const InputSpec& spec) : inputs(spec) {}
  Targets targets() const { return inputs.targets_view(); }
  template <class Options>
  Expected expected(const Targets& targets, const Options& options) const {
    return expect_statistics(problem(targets, options), arithmetic);
  }
  /// The class weights are the weights of the cross.
  Expected expected_statistics() const {
    oracle::Problem weighted = problem(targets(), options.token);
    oracle::set_cross(options.class_weights, weighted);
    return expect_statistics(std::move(weighted), arithmetic);
  }
  StatsRequest everything() const {
    return {.entropy = true,
            .cross = true,
            .argmax = true,
            .rank = true,
            .top_k = 7,
            .cross_weights = options.class_weights,
            .outside = true,
            .square_sum = true};
  }

 private:
  template <class Options>
  oracle::Problem problem(const Targets& targets, const Options& options) const {
    LmHead head(finite_logits.view(), HeadLayout::kHiddenVocab);
    head.bias = mask.vector_view();
    return oracle::read_problem(HiddenStates(identity.view(), inputs.spec.sequences), head, targets, options);
  }
};

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::array<bool, 5> kEveryTerm{true, true, true, true, true};

template <class T>
void append(std::vector<std::byte>& bytes, std::span<const T> values) {
  const auto all = std::as_bytes(values);
  bytes.insert(bytes.end(), all.begin(), all.end());
}

}  // namespace

LogitsTester::Reference& LogitsTester::reference() {
  if (reference_) return *reference_;
  InputSpec source = spec_;
  source.dtype = DType::kFloat64;
  source.padding = 0;
  source.layout = HeadLayout::kHiddenVocab;
  auto reference = std::make_shared<Reference>(source);
  Reference& r = *reference;
  r.options = cross_entropy_options(token_options(r.temperatures), r.class_weights);
  r.upstream = {random_token_gradients(spec_.tokens, spec_.seed), spec_.allocate};

  // The poisoned hidden states of rows that take no part make NaN logits.
  const int64_t time = spec_.tokens / spec_.sequences;
  r.logits = LogitsBuffer({spec_.dtype, spec_.sequences, time, spec_.vocab, spec_.padding, later_, time_first_},
                          spec_.allocate);
  r.identity = HostTensor(DType::kFloat64, spec_.tokens, spec_.tokens);
  r.finite_logits = HostTensor(DType::kFloat64, spec_.tokens, spec_.vocab);
  r.mask = HostTensor(DType::kFloat64, 1, spec_.vocab);
  for (int64_t v = 0; v < spec_.vocab; ++v) r.mask.set(0, v, v >= masked_first_ && v < masked_last_ ? -kInfinity : 0);
  for (int64_t i = 0; i < spec_.tokens; ++i) {
    for (int64_t k = 0; k < spec_.tokens; ++k) r.identity.set(i, k, k == i);
    for (int64_t v = 0; v < spec_.vocab; ++v) {
      double logit = r.mask.get(0, v);
      for (int64_t h = 0; h < spec_.hidden; ++h) logit += r.inputs.hidden.get(i, h) * r.inputs.weight_at(v, h);
      r.logits.set(i, v, logit);
      const double stored = r.logits.get(i, v);
      r.finite_logits.set(i, v, std::isfinite(stored) ? stored : 0);
    }
  }
  r.arithmetic = arithmetic_of_logits(spec_.dtype);
  reference_ = reference;
  return r;
}

LogitsBuffer LogitsTester::copy_of_logits() const {
  const LogitsBuffer& from = reference_->logits;
  const int64_t time = spec_.tokens / spec_.sequences;
  LogitsBuffer copy({spec_.dtype, spec_.sequences, time, spec_.vocab, spec_.padding, later_, time_first_},
                    spec_.allocate);
  for (int64_t i = 0; i < spec_.tokens; ++i) {
    for (int64_t v = 0; v < spec_.vocab; ++v) copy.set(i, v, from.get(i, v));
  }
  return copy;
}

// Its strides are not the logits', so that nothing can take one for the other.
LogitsBuffer LogitsTester::new_gradient() const {
  const DType dtype = run_.gradient_dtype.value_or(spec_.dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32);
  return LogitsBuffer({dtype, spec_.sequences, spec_.tokens / spec_.sequences, spec_.vocab,
                       spec_.padding > 0 ? spec_.padding + 2 : 0, later_ > 0 ? later_ + 1 : 0, !time_first_},
                      run_.allocate);
}

template <class Call>
void LogitsTester::with_buffers(LogitsRun& run, const Call& call) {
  Reference& r = reference();
  const std::vector<std::byte> before(r.logits.bytes().begin(), r.logits.bytes().end());
  if (without_gradient_) {
    call(r.logits.view(), LogitsGradient());
  } else if (in_place_) {
    run.dlogits = copy_of_logits();
    call(run.dlogits.view(), run.dlogits.output());
  } else {
    run.dlogits = new_gradient();
    call(r.logits.view(), run.dlogits.output());
  }
  EXPECT_TRUE(std::equal(before.begin(), before.end(), r.logits.bytes().begin())) << "the logits were written";
  if (without_gradient_) return;
  EXPECT_TRUE(run.dlogits.surroundings_are_intact()) << "written outside of the slice";
  run.bytes.insert(run.bytes.end(), run.dlogits.bytes().begin(), run.dlogits.bytes().end());
}

Plan LogitsTester::planned() {
  Reference& r = reference();
  LogitsBuffer out = new_gradient();
  return cross_entropy.plan(context(), r.logits.view(), r.targets(), r.options,
                            without_gradient_ ? LogitsGradient() : out.output());
}

LogitsRun LogitsTester::cross_entropy_once() {
  Reference& r = reference();
  LogitsRun run;
  with_buffers(run, [&](const FinishedLogits& logits, const LogitsGradient& out) {
    if (form_ == Form::kSplit) {
      run.result = run_halves(context(), r.targets(), r.options, out, run.backward_plan, logits);
    } else {
      run.result = cross_entropy(context(), logits, r.targets(), r.options, out);
    }
  });
  append(run.bytes, std::span<const double>(run.result.per_token_loss));
  append(run.bytes, std::span<const double>(run.result.per_token_logps));
  append(run.bytes, std::span<const double>(&run.result.loss, 1));
  return run;
}

LogitsRun LogitsTester::token_loss_once() {
  Reference& r = reference();
  const TokenGrads grads = random_token_grads(spec_.tokens, spec_.seed, kEveryTerm);
  GivenGradients loss(grads, r.everything(),
                      groups_ ? std::vector<int64_t>(static_cast<size_t>(spec_.tokens)) : std::vector<int64_t>());
  LogitsRun run;
  with_buffers(run, [&](const FinishedLogits& logits, const LogitsGradient& out) {
    if (form_ == Form::kSplit) {
      run.stats = compute_token_stats(context(), logits, r.targets(), r.options.token, r.everything());
      backpropagate_token_grads(context(), logits, r.targets(), r.options.token, r.everything(), run.stats, grads, out,
                                &run.backward_plan);
    } else {
      run.stats = run_token_loss(context(), logits, r.targets(), r.options.token, loss, out);
    }
  });
  const std::vector<int64_t>& rows = loss.rows();
  EXPECT_TRUE(std::is_sorted(rows.begin(), rows.end())) << "rows out of order";
  for (size_t k = 0; k < rows.size(); ++k) {
    EXPECT_TRUE(is_near(loss.logp()[k], run.stats.logp[static_cast<size_t>(rows[k])], 0));
  }
  if (groups_ && form_ == Form::kFused) {
    EXPECT_EQ(loss.calls(), 1);
  }
  for (const std::vector<double>* column : {&run.stats.logp, &run.stats.lse, &run.stats.entropy, &run.stats.cross,
                                            &run.stats.outside, &run.stats.square_sum})
    append(run.bytes, std::span<const double>(*column));
  for (const std::vector<int64_t>* column : {&run.stats.argmax, &run.stats.rank})
    append(run.bytes, std::span<const int64_t>(*column));
  return run;
}

LogitsRun LogitsTester::entropy_once() {
  Reference& r = reference();
  LogitsRun run;
  with_buffers(run, [&](const FinishedLogits& logits, const LogitsGradient& out) {
    const std::span<const double> upstream = out.data ? r.upstream.span() : std::span<const double>();
    run.entropy = entropy_from_logits(context(), logits, r.options.token, upstream, out);
  });
  append(run.bytes, std::span<const double>(run.entropy));
  return run;
}

void LogitsTester::expect_gradient_near(const LogitsBuffer& got, const Expected& expected,
                                        const oracle::TokenGradients& grads,
                                        const oracle::TokenGradients& token_errors) const {
  const auto want = oracle::compute_logit_gradients(expected.problem, expected.stats, grads);
  const auto bound = bound_logit_gradients(expected.problem, expected.stats, expected.stat_bounds, grads, token_errors,
                                           want, expected.arithmetic);
  const DType dtype = got.view().dtype;
  int failures = 0;
  for (int64_t i = 0; i < spec_.tokens; ++i) {
    for (int64_t v = 0; v < spec_.vocab; ++v) {
      const double exact = want.d_raw(i, v), tolerance = bound(i, v);
      const double rounding = std::isfinite(exact) ? half_ulp(std::abs(exact) + tolerance, dtype) : 0.0;
      const bool nothing = exact == 0 && grads.all_zero(i);  // a row without gradient is exactly 0
      if (is_near(got.get(i, v), exact, nothing ? 0 : tolerance + rounding) || ++failures > 5) continue;
      ADD_FAILURE() << "dlogits[" << i << ", " << v << "] is " << got.get(i, v) << ", not " << exact << " within "
                    << tolerance + rounding;
    }
  }
  EXPECT_EQ(failures, 0);
}

void LogitsTester::expect_plan(const LogitsRun& run) const {
  if (form_ == Form::kFused) return;
  EXPECT_EQ(run.backward_plan.kind, without_gradient_ ? PlanKind::kForwardOnly : PlanKind::kTwoPass);
}

void LogitsTester::cross_entropy_matches_oracle() {
  SCOPED_TRACE(describe());
  Reference& r = reference();
  const LogitsRun run = cross_entropy_once();
  const Expected expected = r.expected(r.targets(), r.options);
  const oracle::Loss want =
      oracle::compute_cross_entropy(expected.problem, expected.stats, r.options, upstream_values());
  const oracle::Loss bound =
      bound_loss(expected.problem, expected.stats, expected.stat_bounds, r.options, want, expected.arithmetic);
  expect_loss_near(run.result, expected, want, bound, r.options);
  expect_plan(run);
  if (!without_gradient_) expect_gradient_near(run.dlogits, expected, want.grads, bound.grads);
}

void LogitsTester::token_loss_matches_oracle() {
  SCOPED_TRACE(describe());
  Reference& r = reference();
  const Expected expected = r.expected_statistics();
  expect_statistics_near(compute_token_stats(context(), r.logits.view(), r.targets(), r.options.token, r.everything()),
                         expected);
  const LogitsRun run = token_loss_once();
  expect_statistics_near(run.stats, expected);
  expect_plan(run);
  if (without_gradient_) return;
  const TokenGrads grads = random_token_grads(spec_.tokens, spec_.seed, kEveryTerm);
  expect_gradient_near(run.dlogits, expected, oracle_grads(grads, expected.problem),
                       oracle::TokenGradients(spec_.tokens));
}

void LogitsTester::entropy_matches_oracle() {
  // Every row takes part, so that none may be poisoned.
  LogitsTester whole = *this;
  whole.finite_everywhere().ignored(0).shift(false).temperature_meaning(TemperatureMeaning::kScaleLogits);
  whole.run_one_entropy();
}

void LogitsTester::run_one_entropy() {
  SCOPED_TRACE(describe());
  Reference& r = reference();
  const Expected expected = r.expected(r.targets(), r.options.token);
  const LogitsRun run = entropy_once();
  expect_column_near("entropy", run.entropy, expected.stats.entropy, expected.stat_bounds.entropy);
  if (without_gradient_) return;
  oracle::TokenGradients grads(spec_.tokens);
  for (int64_t i = 0; i < spec_.tokens; ++i) grads.entropy[i] = r.upstream.span()[static_cast<size_t>(i)];
  expect_gradient_near(run.dlogits, expected, grads, oracle::TokenGradients(spec_.tokens));
}

void LogitsTester::matches_oracle() {
  cross_entropy_matches_oracle();
  token_loss_matches_oracle();
  entropy_matches_oracle();
}

}  // namespace logitless::testing

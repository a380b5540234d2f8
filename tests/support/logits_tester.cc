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

struct LogitsTester::Reference {
  Inputs inputs;
  CrossEntropy options;
  HostArray<double> temperatures;
  HostArray<float> class_weights;
  HostArray<double> upstream;
  LogitsBuffer logits;

  explicit Reference(const InputSpec& spec) : inputs(spec) {}
  Targets targets() const { return inputs.targets_view(); }
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
};

namespace {

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
  r.logits = LogitsBuffer({spec_.dtype, spec_.sequences, time, spec_.vocab, spec_.padding}, spec_.allocate);
  for (int64_t i = 0; i < spec_.tokens; ++i) {
    for (int64_t v = 0; v < spec_.vocab; ++v) {
      double logit = 0;
      for (int64_t h = 0; h < spec_.hidden; ++h) logit += r.inputs.hidden.get(i, h) * r.inputs.weight_at(v, h);
      r.logits.set(i, v, logit);
    }
  }
  reference_ = reference;
  return r;
}

LogitsBuffer LogitsTester::copy_of_logits() const {
  const LogitsBuffer& from = reference_->logits;
  const int64_t time = spec_.tokens / spec_.sequences;
  LogitsBuffer copy({spec_.dtype, spec_.sequences, time, spec_.vocab, spec_.padding}, spec_.allocate);
  for (int64_t i = 0; i < spec_.tokens; ++i) {
    for (int64_t v = 0; v < spec_.vocab; ++v) copy.set(i, v, from.get(i, v));
  }
  return copy;
}

// Its strides are not the logits', so that nothing can take one for the other.
LogitsBuffer LogitsTester::new_gradient() const {
  const DType dtype = run_.gradient_dtype.value_or(spec_.dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32);
  return LogitsBuffer({dtype, spec_.sequences, spec_.tokens / spec_.sequences, spec_.vocab,
                       spec_.padding > 0 ? spec_.padding + 2 : 0, 0, true},
                      run_.allocate);
}

template <class Call>
void LogitsTester::with_buffers(LogitsRun& run, const Call& call) {
  Reference& r = reference();
  const std::vector<std::byte> before(r.logits.bytes().begin(), r.logits.bytes().end());
  if (in_place_) {
    run.dlogits = copy_of_logits();
    call(run.dlogits.view(), run.dlogits.output());
  } else {
    run.dlogits = new_gradient();
    call(r.logits.view(), run.dlogits.output());
  }
  EXPECT_TRUE(std::equal(before.begin(), before.end(), r.logits.bytes().begin())) << "the logits were written";
  run.bytes.insert(run.bytes.end(), run.dlogits.bytes().begin(), run.dlogits.bytes().end());
}

LogitsRun LogitsTester::cross_entropy_once() {
  Reference& r = reference();
  LogitsRun run;
  with_buffers(run, [&](const FinishedLogits& logits, const LogitsGradient& out) {
    run.result = cross_entropy(context(), logits, r.targets(), r.options, out);
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
    run.stats = run_token_loss(context(), logits, r.targets(), r.options.token, loss, out);
  });
  const std::vector<int64_t>& rows = loss.rows();
  EXPECT_TRUE(std::is_sorted(rows.begin(), rows.end())) << "rows out of order";
  for (size_t k = 0; k < rows.size(); ++k) {
    EXPECT_TRUE(is_near(loss.logp()[k], run.stats.logp[static_cast<size_t>(rows[k])], 0));
  }
  if (groups_) {
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
    run.entropy = entropy_from_logits(context(), logits, r.options.token, r.upstream.span(), out);
  });
  append(run.bytes, std::span<const double>(run.entropy));
  return run;
}

}  // namespace logitless::testing

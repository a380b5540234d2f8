// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "support/inputs.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <span>

#include "support/calls.h"

namespace logitless::testing {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

bool is_hidden_vocab(const InputSpec& spec) { return spec.layout == HeadLayout::kHiddenVocab; }

HostTensor head_tensor(const InputSpec& spec, DType dtype) {
  return is_hidden_vocab(spec) ? HostTensor(dtype, spec.hidden, spec.vocab, spec.padding)
                               : HostTensor(dtype, spec.vocab, spec.hidden, spec.padding);
}

HostTensor hidden_tensor(const InputSpec& spec, DType dtype, Rows places) {
  return HostTensor(dtype, spec.tokens, spec.hidden, spec.padding, places, spec.sequences);
}

// Returns the vocabulary entry that each row favours.
std::vector<int64_t> favourites(const InputSpec& spec) {
  std::mt19937_64 random(spec.seed * 7919 + 1);
  std::vector<int64_t> ids(spec.tokens);
  for (int64_t& id : ids) id = static_cast<int64_t>(random() % static_cast<uint64_t>(spec.vocab));
  return ids;
}

std::vector<int64_t> make_targets(const InputSpec& spec, const std::vector<int64_t>& favourite) {
  std::mt19937_64 random(spec.seed * 7919 + 2);
  std::uniform_real_distribution<double> uniform(0, 1);
  std::vector<int64_t> targets = favourite;
  for (int64_t& target : targets) {
    if (uniform(random) >= 0.5) target = static_cast<int64_t>(random() % static_cast<uint64_t>(spec.vocab));
    if (uniform(random) < spec.ignored) target = spec.ignore_index;
  }
  return targets;
}

}  // namespace

Inputs::Inputs(const InputSpec& input_spec)
    : spec(input_spec),
      hidden(hidden_tensor(spec, spec.dtype, spec.hidden_rows)),
      weight(head_tensor(spec, spec.dtype)),
      bias(spec.bias ? HostTensor(spec.dtype, 1, spec.vocab) : HostTensor()) {
  std::mt19937_64 random(spec.seed);
  std::normal_distribution<double> normal(0, 1);
  std::uniform_real_distribution<double> uniform(0, 1);
  // With normal hidden states, each logit without the bias has this standard deviation.
  constexpr double kSpread = 3;
  for (int64_t v = 0; v < spec.vocab; ++v) {
    for (int64_t h = 0; h < spec.hidden; ++h) {
      set_weight(v, h, normal(random) * kSpread / std::sqrt(static_cast<double>(spec.hidden)));
    }
    if (spec.bias) bias.set(0, v, normal(random) * kSpread / 3);
  }
  const std::vector<int64_t> favourite = favourites(spec);
  targets = make_targets(spec, favourite);
  for (int64_t i = 0; i < spec.tokens; ++i) {
    double norm = 0;
    for (int64_t h = 0; h < spec.hidden; ++h) norm += std::pow(weight_at(favourite[i], h), 2);
    // Raises the favourite's logit by up to 14, compared with 150 others at about 8: rows vary from flat to
    // nearly certain.
    const double push = norm > 0 ? 14 * uniform(random) / norm : 0.0;
    for (int64_t h = 0; h < spec.hidden; ++h) {
      const double value = normal(random) + push * weight_at(favourite[i], h);
      set_hidden(i, h, spec.poison && targets[i] == spec.ignore_index ? kNaN : value);
    }
  }
}

HiddenStates Inputs::hidden_view() const {
  HiddenStates view(hidden.view(), spec.sequences);
  view.batch_stride = hidden.batch_stride();
  return view;
}

LmHead Inputs::head_view() const {
  LmHead head(weight.view(), spec.layout);
  if (spec.bias) head.bias = bias.vector_view();
  return head;
}

Targets Inputs::targets_view() const { return Targets(std::span<const int64_t>(targets)); }

double Inputs::weight_at(int64_t entry, int64_t column) const {
  return is_hidden_vocab(spec) ? weight.get(column, entry) : weight.get(entry, column);
}

void Inputs::set_weight(int64_t entry, int64_t column, double value) {
  if (is_hidden_vocab(spec)) {
    weight.set(column, entry, value);
  } else {
    weight.set(entry, column, value);
  }
}

void Inputs::set_hidden(int64_t row, int64_t column, double value) { hidden.set(row, column, value); }

GradientOutputs::GradientOutputs(const Inputs& inputs, const RunSpec& run) {
  const InputSpec& spec = inputs.spec;
  const DType dtype = run.gradient_dtype.value_or(spec.dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32);
  if (run.d_hidden) d_hidden_ = hidden_tensor(spec, dtype, run.d_hidden_rows);
  if (run.d_weight) d_weight_ = head_tensor(spec, dtype);
  if (run.d_bias && spec.bias) d_bias_ = HostTensor(dtype, 1, spec.vocab);
}

Gradients GradientOutputs::gradients() {
  Gradients gradients;
  if (d_hidden_.cols() > 0) gradients.d_hidden = d_hidden_.output();
  gradients.d_hidden_batch_stride = d_hidden_.batch_stride();
  if (d_bias_.cols() > 0) gradients.d_bias = d_bias_.vector_output();
  if (d_weight_.cols() > 0) gradients.d_weight = d_weight_.output();
  return gradients;
}

std::vector<std::byte> GradientOutputs::bytes() const {
  std::vector<std::byte> all;
  for (const HostTensor* output : {&d_hidden_, &d_weight_, &d_bias_}) {
    if (output->cols() > 0) all.insert(all.end(), output->bytes().begin(), output->bytes().end());
  }
  return all;
}

SeededCall::Results SeededCall::run() const {
  GradientOutputs outputs(inputs_, run_);
  Results out;
  out.result = cross_entropy(Context(run_.context), inputs_.hidden_view(), inputs_.head_view(), inputs_.targets_view(),
                             {}, outputs.gradients());
  out.bytes = outputs.bytes();
  for (const std::vector<double>* column : {&out.result.per_token_loss, &out.result.per_token_logps}) {
    const auto bytes = std::as_bytes(std::span(*column));
    out.bytes.insert(out.bytes.end(), bytes.begin(), bytes.end());
  }
  return out;
}

Plan SeededCall::planned() const {
  GradientOutputs outputs(inputs_, run_);
  return cross_entropy.plan(Context(run_.context), inputs_.hidden_view(), inputs_.head_view(), inputs_.targets_view(),
                            {}, outputs.gradients());
}

}  // namespace logitless::testing

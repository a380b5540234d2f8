// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "model.h"

#include <cmath>
#include <numbers>
#include <random>

namespace {

/// Box-Muller by hand, because std::normal_distribution differs between standard libraries.
void fill_normal(std::span<float> values, double deviation, std::mt19937_64& generator) {
  constexpr double kUnit = 0x1p-53;
  for (float& value : values) {
    // In (0, 1], so that the logarithm is finite.
    const double u = (static_cast<double>(generator() >> 11) + 1.0) * kUnit;
    const double v = static_cast<double>(generator() >> 11) * kUnit;
    value = static_cast<float>(deviation * std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v));
  }
}

template <class Tensor>
std::span<float> span_of(Tensor& tensor) {
  return {tensor.data(), static_cast<size_t>(tensor.size())};
}

}  // namespace

std::array<std::span<float>, Parameters::kCount> Parameters::tensors() {
  return {span_of(embedding), span_of(trunk_weight), span_of(trunk_bias), span_of(head_weight), span_of(head_bias)};
}

Parameters zero_gradients(const ModelShape& shape, bool with_head_weight) {
  Parameters zero;
  zero.embedding = RowMatrix::Zero(shape.vocabulary, shape.embedding);
  zero.trunk_weight = RowMatrix::Zero(shape.context * shape.embedding, shape.hidden);
  zero.trunk_bias = RowVector::Zero(shape.hidden);
  if (with_head_weight) zero.head_weight = RowMatrix::Zero(shape.vocabulary, shape.hidden);
  zero.head_bias = RowVector::Zero(shape.vocabulary);
  return zero;
}

Parameters initial_parameters(const ModelShape& shape, uint64_t seed) {
  std::mt19937_64 generator(seed);
  Parameters parameters = zero_gradients(shape, true);
  const double fan_in = static_cast<double>(shape.context * shape.embedding);
  // The inputs of tanh have unit variance. The head starts small, near the uniform distribution: loss ≈ log
  // V.
  fill_normal(span_of(parameters.embedding), 1.0, generator);
  fill_normal(span_of(parameters.trunk_weight), 1.0 / std::sqrt(fan_in), generator);
  fill_normal(span_of(parameters.head_weight), 0.5 / std::sqrt(static_cast<double>(shape.hidden)), generator);
  return parameters;
}

const RowMatrix& Trunk::forward(const Parameters& parameters, const Batch& batch) {
  input_.resize(batch.tokens(), shape_.context * shape_.embedding);
  for (int64_t i = 0; i < batch.tokens(); ++i) {
    for (int64_t c = 0; c < shape_.context; ++c) {
      input_.row(i).segment(c * shape_.embedding, shape_.embedding) =
          parameters.embedding.row(batch.context[i * shape_.context + c]);
    }
  }
  hidden_.noalias() = input_ * parameters.trunk_weight;
  hidden_.rowwise() += parameters.trunk_bias;
  hidden_ = hidden_.array().tanh();
  return hidden_;
}

void Trunk::backward(const Parameters& parameters, const Batch& batch, RowMatrix& d_hidden, Parameters& gradients) {
  d_hidden.array() *= 1.0f - hidden_.array().square();  // now ∂loss/∂(x · trunk_weight + trunk_bias)
  gradients.trunk_weight.noalias() = input_.transpose() * d_hidden;
  gradients.trunk_bias = d_hidden.colwise().sum();
  d_input_.noalias() = d_hidden * parameters.trunk_weight.transpose();
  gradients.embedding.setZero();
  for (int64_t i = 0; i < batch.tokens(); ++i) {
    for (int64_t c = 0; c < shape_.context; ++c) {
      gradients.embedding.row(batch.context[i * shape_.context + c]) +=
          d_input_.row(i).segment(c * shape_.embedding, shape_.embedding);
    }
  }
}

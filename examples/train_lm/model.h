// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// A small causal language model with a hand-written backward: the neural probabilistic language model of
// Bengio et al. (2003), "A Neural Probabilistic Language Model", JMLR 3. It ends at the hidden states;
// logitless computes the LM head and its loss.
//
//   x_i      = [E[c_i1], ..., E[c_iC]]     embeddings of the C words before token i, side by side
//   hidden_i = tanh(x_i · trunk_weight + trunk_bias)
//   logits_i = hidden_i · head_weightᵀ + head_bias
#pragma once

#include <Eigen/Dense>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "text.h"

using RowMatrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using RowVector = Eigen::Matrix<float, 1, Eigen::Dynamic>;

struct ModelShape {
  int64_t vocabulary = 0;  ///< V
  int64_t context = 8;     ///< C
  int64_t embedding = 64;  ///< D
  int64_t hidden = 256;    ///< H
};

/// The model's tensors; their gradients have the same shapes.
struct Parameters {
  RowMatrix embedding;     ///< [V, D]
  RowMatrix trunk_weight;  ///< [C · D, H]
  RowVector trunk_bias;    ///< [H]
  RowMatrix head_weight;   ///< [V, H]
  RowVector head_bias;     ///< [V]

  enum Index { kEmbedding, kTrunkWeight, kTrunkBias, kHeadWeight, kHeadBias, kCount };
  std::array<std::span<float>, kCount> tensors();
};

/// Draws seeded initial values, the same on every machine.
Parameters initial_parameters(const ModelShape& shape, uint64_t seed);
/// All zero. `with_head_weight` is false for an optimizer that receives that gradient tile by tile: it is
/// then empty.
Parameters zero_gradients(const ModelShape& shape, bool with_head_weight);

/// Maps word ids to hidden states, and gradients back. Keeps its activations in between, [N, C · D + H].
class Trunk {
 public:
  explicit Trunk(const ModelShape& shape) : shape_(shape) {}

  /// Returns hidden, [N, H]; it lives until the next forward().
  const RowMatrix& forward(const Parameters& parameters, const Batch& batch);

  /// Writes the gradients of embedding, trunk_weight and trunk_bias, given ∂loss/∂hidden of the last
  /// forward(). Overwrites `d_hidden` as scratch.
  void backward(const Parameters& parameters, const Batch& batch, RowMatrix& d_hidden, Parameters& gradients);

 private:
  ModelShape shape_;
  RowMatrix input_;    // [N, C · D]
  RowMatrix hidden_;   // [N, H]
  RowMatrix d_input_;  // [N, C · D]
};

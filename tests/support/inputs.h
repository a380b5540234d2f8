// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Seeded inputs, and outputs that own their memory, for one call.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/matrices.h"
#include "logitless/context.h"
#include "logitless/cross_entropy.h"
#include "logitless/logits.h"
#include "support/host_tensor.h"
#include "support/views.h"

namespace logitless::testing {

/// The tensors of a call. The default sizes are multiples of no tile or vector. Each row favours one entry,
/// which is the target half of the time: near-uniform probabilities would hide errors of the softmax.
struct InputSpec {
  int64_t tokens = 37;
  int64_t vocab = 150;
  int64_t hidden = 19;
  int64_t sequences = 1;  ///< of equal length
  DType dtype = DType::kFloat32;
  HeadLayout layout = HeadLayout::kHiddenVocab;
  int64_t padding = 0;                  ///< NaN elements after each row of every matrix
  Rows hidden_rows = Rows::kFollowing;  ///< of hidden states
  bool bias = true;
  double ignored = 0;  ///< fraction of targets that are ignored
  int64_t ignore_index = -100;
  /// Hidden states of ignored rows are NaN.
  bool poison = true;
  uint64_t seed = 1;
};

struct Inputs {
  explicit Inputs(const InputSpec& spec);

  HiddenStates hidden_view() const;
  LmHead head_view() const;
  Targets targets_view() const;
  /// Reads or writes an element of a vocabulary entry, in any layout.
  double weight_at(int64_t entry, int64_t column) const;
  void set_weight(int64_t entry, int64_t column, double value);
  void set_hidden(int64_t row, int64_t column, double value);

  InputSpec spec;
  HostTensor hidden;  ///< [N, H]
  HostTensor weight;  ///< in the head's layout
  HostTensor bias;    ///< [1, V], or [0, 0]
  std::vector<int64_t> targets;
};

/// The outputs of a call, and how it runs.
struct RunSpec {
  ContextOptions context = {};
  bool d_hidden = true;
  bool d_weight = true;
  bool d_bias = true;                        ///< if the head has a bias
  Rows d_hidden_rows = Rows::kFollowing;     ///< of the gradients of hidden states
  std::optional<DType> gradient_dtype = {};  ///< of the outputs; unset: float32, or float64 for float64 inputs
};

/// Gradient outputs with their own memory. They hold NaN before the call.
class GradientOutputs {
 public:
  GradientOutputs(const Inputs& inputs, const RunSpec& run);

  /// Returns views for one call.
  Gradients gradients();

  const HostTensor& d_hidden() const { return d_hidden_; }
  const HostTensor& d_weight() const { return d_weight_; }
  const HostTensor& d_bias() const { return d_bias_; }
  /// Returns all outputs, byte for byte.
  std::vector<std::byte> bytes() const;

 private:
  HostTensor d_hidden_, d_weight_, d_bias_;
};

/// A mean cross-entropy on seeded inputs: SeededCall({.tokens = 200}, {.context = {.threads = 3}}).run().
class SeededCall {
 public:
  explicit SeededCall(const InputSpec& spec, const RunSpec& run = {}) : inputs_(spec), run_(run) {}

  struct Results {
    CrossEntropyResult result;
    std::vector<std::byte> bytes;  ///< gradients, losses, log-probabilities
  };
  Results run() const;
  /// Returns the plan that the call would run.
  Plan planned() const;

 private:
  Inputs inputs_;
  RunSpec run_;
};

}  // namespace logitless::testing

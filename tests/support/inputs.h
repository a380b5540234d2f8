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
#include "logitless/logits.h"
#include "support/host_tensor.h"
#include "support/views.h"

namespace logitless::testing {

/// The tensors of a call. The default sizes are multiples of no tile or vector.
struct InputSpec {
  int64_t tokens = 37;
  int64_t vocab = 150;
  int64_t hidden = 19;
  int64_t sequences = 1;  ///< of equal length
  std::vector<int64_t> offsets;
  DType dtype = DType::kFloat32;
  HeadLayout layout = HeadLayout::kHiddenVocab;
  int64_t padding = 0;                  ///< NaN elements after each row of every matrix
  Rows hidden_rows = Rows::kFollowing;  ///< of hidden states
  bool bias = true;
  double softcap = 0;
  /// If true, each row favours one vocabulary entry, which is the target half of the time; near-uniform
  /// probabilities would hide errors of the softmax. Otherwise logits are a few tenths.
  bool peaked = true;
  double ignored = 0;  ///< fraction of targets that are ignored
  int64_t ignore_index = -100;
  int64_t shift = 0;
  std::vector<int64_t> targets;  ///< repeated as needed; empty: random
  /// Targets are every other id of a table with one extra column. The other ids are not vocabulary entries.
  bool strided_targets = false;
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
  HostTensor hidden;             ///< [N, H]
  HostTensor weight;             ///< in the head's layout
  HostTensor bias;               ///< [1, V], or [0, 0]
  std::vector<int64_t> targets;  ///< or a table, if strided
};

/// Draw one number per token or per vocabulary entry, from the same seed as the inputs.
std::vector<double> random_temperatures(int64_t tokens, uint64_t seed);
std::vector<float> random_class_weights(int64_t vocab, uint64_t seed);
/// Draws normal numbers, with 0 for about a third of the tokens.
std::vector<double> random_token_gradients(int64_t tokens, uint64_t seed);

/// The outputs of a call, and how it runs.
struct RunSpec {
  ContextOptions context;
  std::optional<Context> shared_context;  ///< used instead of `context` if set
  bool d_hidden = true;
  bool d_weight = true;
  bool d_bias = true;  ///< if the head has a bias
  bool accumulate = false;
  Rows d_hidden_rows = Rows::kFollowing;  ///< of the gradients of hidden states
  std::optional<DType> gradient_dtype;    ///< of the outputs; unset: float32, or float64 for float64 inputs
  bool sink = false;                      ///< d_weight through a WeightGradientSink
  bool sink_overwrites_weight = false;    ///< the sink then fills each tile of the weight with NaN
};

/// Gradient outputs with their own memory. They hold NaN before the call, or numbers if it accumulates.
class GradientOutputs {
 public:
  GradientOutputs(Inputs& inputs, const RunSpec& run);

  /// Returns views for one call. The sink, if there is one, writes into d_weight() and records errors in its
  /// calls.
  Gradients gradients();

  const HostTensor& d_hidden() const { return d_hidden_; }
  const HostTensor& d_weight() const { return d_weight_; }
  const HostTensor& d_bias() const { return d_bias_; }
  /// Returns the value of (row, col) before the call that remains in the sum: 0 unless the call accumulates.
  double held(int64_t row, int64_t col) const;
  /// Returns the number of vocabulary entries that reached the sink, in order and once each.
  int64_t words_received() const { return next_entry_; }
  const std::string& sink_complaints() const { return complaints_; }
  /// Returns all outputs, byte for byte.
  std::vector<std::byte> bytes() const;

 private:
  void receive(int64_t first, int64_t count, const ConstMatrix& tile);

  Inputs& inputs_;
  RunSpec run_;
  HostTensor d_hidden_, d_weight_, d_bias_;
  int64_t next_entry_ = 0;
  std::string complaints_;
};

}  // namespace logitless::testing

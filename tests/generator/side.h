// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The logits of a drawn call, its reference or its teacher: the tensors, and their float64 values.
#pragma once

#include <random>
#include <span>
#include <vector>

#include "generator/drawn_call.h"
#include "generator/guarded_tensor.h"
#include "logitless/logits.h"
#include "oracle/oracle.h"

namespace logitless::testing {

using Random = std::mt19937_64;
inline double normal_of(Random& random) { return std::normal_distribution<double>()(random); }
inline int64_t below(Random& random, int64_t count) {
  return static_cast<int64_t>(random() % static_cast<uint64_t>(count));
}

/// Creates [N, cols] or [B, T, cols], in the memory layout of the call's inputs or outputs.
enum Direction { kInputs, kOutputs };
GuardedTensor rows_of_tokens(const DrawnCall& call, DType dtype, int64_t cols, Direction direction);

/// Returns the boundaries of a call's sequences.
std::vector<int64_t> offsets_of(const DrawnCall& call);

struct Side {
  Side(const DrawnCall& call, int64_t hidden_size, std::span<const int64_t> offsets, Random& random);

  int64_t vocab() const { return raw.cols(); }
  /// Returns a view; the vocabulary may be cut to `count` entries from `first` on.
  Logits logits(int64_t first, int64_t count);
  Logits logits() { return logits(0, vocab()); }
  bool unchanged() const;
  /// Sets a row to NaN, so that the test fails if it is read.
  void poison(int64_t row);
  /// Returns whether an entry's logits are -inf.
  bool is_masked(int64_t entry) const { return bias_of.size() > 0 && std::isinf(bias_of[entry]); }

  DrawnCall call;
  std::vector<int64_t> offsets;  ///< of packed sequences
  GuardedTensor hidden, weight, scales, bias, lora_a, lora_b, lora_states, finished;
  std::vector<int64_t> ids;  ///< LmHead::vocab_ids

  // The values of these tensors.
  oracle::MatrixXd x, w;        ///< [N, H], [V, H]: the LoRA is part of w, unless it has states
  oracle::MatrixXd a, b, rows;  ///< of the LoRA: [r, H], [V, r], [N, r]
  oracle::VectorXd bias_of;     ///< [V], or empty
  oracle::MatrixXd raw;         ///< [N, V]
  oracle::MatrixXd raw_error;   ///< largest error of an engine's sums

 private:
  void draw_hidden(Random& random, int64_t hidden_size);
  void draw_weight(Random& random, int64_t hidden_size);
  void draw_packed(Random& random, double scale, oracle::MatrixXd& stored);
  void draw_blocks(Random& random, double scale, oracle::MatrixXd& stored);
  void draw_lora(Random& random, int64_t hidden_size);
  void draw_finished(Random& random);
  void multiply();

  int64_t stored_ = 0;  ///< rows of the weight
};

/// Draws a number of a tensor. Whole numbers are between -most and most.
inline double number_of(const DrawnCall& call, Random& random, double scale, int64_t most = 2) {
  if (call.values != Values::kWhole) return scale * normal_of(random);
  return static_cast<double>(below(random, 2 * most + 1) - most);
}

/// The unit roundoff of the sums of a call.
inline double unit_of(DType states) { return states == DType::kFloat64 ? 0x1p-53 : 0x1p-24; }
/// The relative error of a sum of n rounded terms, with respect to the sum of their sizes: eight standard
/// deviations of a random walk (Higham and Mary 2019).
inline double sum_error(double n, double unit) { return std::min(n + 2, 8 * std::sqrt(n + 2)) * unit; }

}  // namespace logitless::testing

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// How far two computations of the same loss and gradients may lie apart.
#pragma once

#include <optional>
#include <string>

#include "logitless/dtype.h"

namespace logitless::io {

/// What a config says; an empty entry takes its default from the types (resolve()).
struct ToleranceConfig {
  std::optional<double> loss_atol;
  std::optional<double> losses_rel_l2;
  std::optional<double> d_hidden_rel_l2;
  std::optional<double> d_weight_rel_l2;
  std::optional<double> d_bias_rel_l2;
  /// Of the gradient of the logits themselves. Checked here, used by `gradcheck` alone: `compare` never sees logits.
  std::optional<double> dlogits_max_abs;
  std::optional<double> dlogits_max_rel;
};

struct Tolerances {
  double loss_atol;      ///< nats a token
  double losses_rel_l2;  ///< of the vector of per-token losses, under reduction none
  double d_hidden_rel_l2;
  double d_weight_rel_l2;
  double d_bias_rel_l2;
  double dlogits_max_abs;
  double dlogits_max_rel;
};

/// Fills what the config leaves open, for inputs of `dtype` and gradients stored as `gradient_dtype`.
Tolerances resolve(const ToleranceConfig& config, DType dtype, DType gradient_dtype);

/// One comparison and what came of it. A NaN on either side fails.
struct Gate {
  std::string name;
  double value;
  double limit;
  bool pass;
};

Gate make_gate(std::string name, double value, double limit);

}  // namespace logitless::io

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// How far two computations of the same loss and gradients may differ from each other, or from the exact
// numbers.
#pragma once

#include <cstdint>
#include <string>

#include "logitless/dtype.h"
#include "logitless/plan.h"

namespace logitless::io {

/// The keys of `tolerances` in a config, which are also names of gates. The last four are only for
/// `gradcheck`: `compare` has neither logits nor log-probabilities.
inline constexpr const char* kToleranceNames[] = {
    "loss_atol",       "losses_rel_l2",   "d_hidden_rel_l2", "d_weight_rel_l2", "d_bias_rel_l2", "d_lora_a_rel_l2",
    "d_lora_b_rel_l2", "dlogits_max_abs", "dlogits_max_rel", "dlogits_rel_l2",  "logp_max_abs"};

/// How far two computations may differ, unless the config says otherwise.
struct Tolerances {
  double loss_atol;      ///< nats per token
  double losses_rel_l2;  ///< of the vector of per-token losses
  double d_hidden_rel_l2;
  double of_head_rel_l2;  ///< of each gradient of the head and its LoRA
};

/// Returns the spacing of the type to which a plan rounds dL/dlogits before it multiplies them, relative to
/// the numbers; 0 if it does not round.
double gradient_spacing(const Plan& plan);
/// The same for two computations. If only one of them sums d_hidden from expected rows, they round different
/// numbers, and both roundings count.
struct TermSpacing {
  double terms = 0;         ///< the larger gradient_spacing() of the two
  double hidden_apart = 0;  ///< from rounding different numbers, relative to d_hidden
};
TermSpacing term_spacing(const Plan& a, const Plan& b);

/// For inputs of `dtype` and gradients stored as `gradient_dtype`. `of_parts`: one of the two computations
/// has stored the head's gradients between parts, and rounded them each time.
Tolerances tolerances_of(DType dtype, DType gradient_dtype, const TermSpacing& spacing = {}, bool of_parts = false);

/// The magnitude of a tensor of exact numbers.
struct TensorSize {
  double largest = 0;  ///< max |x|
  double norm = 0;     ///< ‖x‖
  int64_t count = 0;   ///< elements
};

/// How far a tensor that is computed from inputs of `dtype` and stored as `stored` may differ from the exact
/// one. `growth` multiplies the errors of the sums, for formulas that amplify them. `spacing` is the
/// gradient_spacing() of the summed numbers.
struct ExactTolerances {
  double max_abs;
  double max_rel;  ///< of one element without cancellation: a product of exponentials
  double rel_l2;
};

ExactTolerances tolerances_of_exact(DType dtype, DType stored, const TensorSize& exact, double growth = 1,
                                    double spacing = 0);

/// Returns the factor by which errors grow if logits, after sums of `dtype`, are rounded to `rounded`.
double growth_by_rounded_logits(DType dtype, DType rounded);

/// One comparison and its result. A NaN on either side fails.
struct Gate {
  std::string name;
  double value;
  double limit;
  bool pass;
};

Gate make_gate(std::string name, double value, double limit);

}  // namespace logitless::io

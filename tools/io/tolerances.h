// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// How far two computations of the same loss and gradients, or one of them and the exact numbers, may lie
// apart.
#pragma once

#include <cstdint>
#include <string>

#include "logitless/dtype.h"
#include "logitless/plan.h"

namespace logitless::io {

/// The keys of `tolerances` in a config, which are names of gates. The last four are for `gradcheck` alone:
/// `compare` sees neither logits nor log-probabilities.
inline constexpr const char* kToleranceNames[] = {
    "loss_atol",       "losses_rel_l2",   "d_hidden_rel_l2", "d_weight_rel_l2", "d_bias_rel_l2", "d_lora_a_rel_l2",
    "d_lora_b_rel_l2", "dlogits_max_abs", "dlogits_max_rel", "dlogits_rel_l2",  "logp_max_abs"};

/// How far two computations may lie apart if the config does not say it.
struct Tolerances {
  double loss_atol;      ///< nats a token
  double losses_rel_l2;  ///< of the vector of per-token losses
  double d_hidden_rel_l2;
  double of_head_rel_l2;  ///< of each gradient of the head and its LoRA
};

/// Returns the largest distance of two neighbours among the numbers that dL/dlogits is rounded to before a
/// plan multiplies it, relative to the numbers; 0 where it is not rounded.
double gradient_spacing(const Plan& plan);
/// The same of two computations, of which one may sum d_hidden of expected rows, and so of other numbers than
/// the other: then both roundings count.
struct TermSpacing {
  double terms = 0;         ///< the larger gradient_spacing() of the two
  double hidden_apart = 0;  ///< of rounding different numbers, relative to d_hidden
};
TermSpacing term_spacing(const Plan& a, const Plan& b);

/// For inputs of `dtype` and gradients stored as `gradient_dtype`. `of_parts`: one of the two has summed the
/// head's gradients of parts that were stored before.
Tolerances tolerances_of(DType dtype, DType gradient_dtype, const TermSpacing& spacing = {}, bool of_parts = false);

/// The size of a tensor of exact numbers.
struct TensorSize {
  double largest = 0;  ///< max |x|
  double norm = 0;     ///< ‖x‖
  int64_t count = 0;   ///< elements
};

/// How far a tensor that is computed from inputs of `dtype` and stored as `stored` may lie from the exact
/// one. `growth` multiplies the errors of the sums, where a formula amplifies them; `spacing` is the
/// gradient_spacing() of what is summed.
struct ExactTolerances {
  double max_abs;
  double max_rel;  ///< of one element without cancellation: a product of exponentials
  double rel_l2;
};

ExactTolerances tolerances_of_exact(DType dtype, DType stored, const TensorSize& exact, double growth = 1,
                                    double spacing = 0);

/// What rounding the logits to `rounded` on the way, after sums of `dtype`, multiplies the errors by.
double growth_by_rounded_logits(DType dtype, DType rounded);

/// One comparison and what came of it. A NaN on either side fails.
struct Gate {
  std::string name;
  double value;
  double limit;
  bool pass;
};

Gate make_gate(std::string name, double value, double limit);

}  // namespace logitless::io

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// What a call at level fused costs a machine: its products and what it moves.
#pragma once

#include <cstddef>

#include "cli/common/job.h"
#include "logitless/plan.h"

namespace logitless::cli {

/// What a machine does in a second.
struct Rates {
  double flops = 0;  ///< of one large product, on all threads
  double bytes = 0;  ///< of the head that are read, on all threads
};

/// What one call asks for.
struct Cost {
  /// Of the products that the call itself makes: the logits, again in two pass, and a product for each
  /// gradient. Dense computes every row, the other plans those that take part.
  double flops = 0;
  /// That do not stay in a cache between their uses: the head, d_weight, and logits that are kept. Hidden
  /// states and d_hidden are counted once; exponentials are not counted.
  double bytes = 0;

  /// The time, were nothing done at the same time and nothing else lost.
  double seconds(const Rates& rates) const { return flops / rates.flops + bytes / rates.bytes; }
};

Cost cost_of(const Plan& plan, const Job& job, bool forward_only);

/// Reads every byte, on `threads` threads, and returns something that depends on them.
size_t read_all(const TensorBytes& tensor, int threads);

}  // namespace logitless::cli

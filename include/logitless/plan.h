// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
/// @file
/// A plan says how a call divides its work, and what that costs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "logitless/dtype.h"
#include "logitless/export.h"
#include "logitless/names.h"

namespace logitless {

/// How a call runs: what it stores and what it computes twice (docs/memory.md, docs/performance.md).
enum class PlanKind {
  kAuto,         ///< the fastest plan that fits the workspace
  kForwardOnly,  ///< statistics only, for calls without gradients; some with a teacher run kOnePass instead
  kOnePass,      ///< stores the logits of a chunk of rows until their gradients are done: 3 GEMMs
  kTwoPass,      ///< recomputes the logits for the gradients: 4 GEMMs, a few tiles of memory
  /// Sums d_hidden while the logits are computed for the first time, up to per-row factors that the loss
  /// supplies: 2 GEMMs, a few tiles of memory. For a head that is not trained, and for losses with gradients
  /// only with respect to logp, lse and cross. d_weight, d_bias and d_lora_b cost two further GEMMs, as in
  /// two pass. With forward() and backward(), forward() returns TokenStats::expected if the loss and the
  /// workspace allow it, and runs as forward_only if not; backward() computes d_hidden from them without a
  /// GEMM, and runs as two_pass if there are none (docs/performance.md, "A frozen head").
  kExpectedRow,
};

/// The names of PlanKind.
template <>
inline constexpr std::array kNamesOf<PlanKind> = {"auto", "forward_only", "one_pass", "two_pass", "expected_row"};

/// A plan does not depend on the number of threads, except for `threads`, `tiles_alive`, `stored_entries` and
/// the sizes in bytes. It follows from shapes, types, active rows, requested outputs, ContextOptions, and the
/// CPU's kernels and backends.
struct LOGITLESS_API Plan {
  PlanKind kind = PlanKind::kForwardOnly;  ///< the plan that runs; never kAuto
  int64_t tokens = 0;                      ///< N, including ignored rows
  int64_t active_rows = 0;                 ///< rows whose target is not ignored
  int64_t hidden_size = 0;                 ///< H
  int64_t vocab_size = 0;                  ///< V
  int64_t row_tile = 0;                    ///< maximum rows of a logits tile; 0 for finished logits
  /// Finished logits: rows that a thread processes together; otherwise 0.
  int64_t row_block = 0;
  int64_t vocab_tile = 0;    ///< columns of a logits tile; the last one may be narrower
  int64_t hidden_block = 0;  ///< columns of hidden that one gradient GEMM writes
  /// One pass: maximum rows whose logits are in memory together; otherwise active_rows.
  int64_t chunk_rows = 0;
  /// The library that computes the logits: one of gemm_backends(), or "logitless" for few rows (at most 64);
  /// empty for finished logits.
  std::string gemm_library;
  DType gradient_dtype = DType::kFloat32;  ///< type of dL/dlogits in the gradient products
  int gradient_terms = 1;                  ///< terms of dL/dlogits in the gradient products
  int threads = 1;                         ///< threads that work, at most one per tile in memory
  int tiles_alive = 1;                     ///< logits tiles in memory at once
  /// Vocabulary entries whose logits are stored until their gradients are computed: in one pass all, in two
  /// pass all for which the budget has room, if the library chose the plan. No bits depend on it.
  int64_t stored_entries = 0;
  /// The most memory that the call allocates for tiles, widened tiles, gathered rows, accumulators and
  /// partial statistics. Per-token vectors and a few others are not included (docs/memory.md, "What is not
  /// counted").
  size_t workspace_bytes = 0;
  /// The part of workspace_bytes that stores a pass's hidden states in the backend's packed format; 0 if the
  /// backend reads them as they are, or if they do not fit in the budget.
  size_t packed_bytes = 0;
  /// The smallest ContextOptions::workspace_bytes that this call accepts with its other options unchanged;
  /// the error of a call with less names it. Filled by plan(); 0 in the plan of a call that ran, because
  /// computing it takes several times as long as planning.
  size_t least_workspace_bytes = 0;
  /// Sampled and certified gradients (BackwardOptions), filled after a call: the share of the pairs (row with
  /// a gradient, segment of 64 vocabulary entries) whose gradients were computed; 1: all of them.
  double kept_share = 1;
  double noise_estimate = 0;  ///< expected error of gradients sampled by BackwardOptions::noise
  /// Certified: upper bound of |d_hidden - exact| (Frobenius), apart from rounding. Each rank returns the
  /// contribution of its own slices and tokens; the sum over all ranks is the bound.
  double d_hidden_bound = 0;
  double d_weight_bound = 0;  ///< the same for d_weight; LoRA gradients have no bound
  size_t blas_bytes = 0;      ///< estimate of the BLAS's own packing buffers, not part of workspace_bytes

  /// Describes the plan in one line, e.g. "two_pass: 2048 of 2048 rows in chunks of 2048, tiles 256 x 1024,
  /// 4 alive, 6.1 MiB workspace, openblas".
  std::string describe() const;
};

}  // namespace logitless

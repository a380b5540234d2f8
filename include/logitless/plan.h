// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
/// @file
/// A plan says how one call cuts its work, and what that costs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "logitless/dtype.h"
#include "logitless/export.h"
#include "logitless/names.h"

namespace logitless {

/// How a call runs: what it keeps and what it computes twice (docs/memory.md, docs/performance.md).
enum class PlanKind {
  kAuto,         ///< the fastest plan that fits the workspace
  kForwardOnly,  ///< statistics only; what calls without gradients run, but those of two heads that run one pass
  kOnePass,      ///< the logits of a chunk of rows are kept until their gradients are done: 3 GEMMs
  kTwoPass,      ///< the logits are computed again for the gradients: 4 GEMMs, a few tiles of memory
  /// d_hidden is summed while the logits are walked for the first time, up to factors of each row that the
  /// loss decides: 2 GEMMs, a few tiles of memory. For a head that is not trained, and for losses whose
  /// gradients are those of log-probabilities, lse and cross alone. d_weight, d_bias and d_lora_b take the
  /// two further GEMMs that they have in two pass. Where the halves of a loss are called apart, the forward
  /// half leaves TokenStats::expected, if the loss and the workspace allow it, and is forward_only else; the
  /// backward half makes d_hidden of them without a GEMM, and is two_pass where there are none
  /// (docs/performance.md, "A frozen head").
  kExpectedRow,
};

/// The names of plans.
template <>
inline constexpr std::array kNamesOf<PlanKind> = {"auto", "forward_only", "one_pass", "two_pass", "expected_row"};

/// A plan is chosen from shapes, requests and the workspace budget alone. Only `threads`, `tiles_alive` and
/// the sizes in bytes depend on the number of threads; the bits of all results do not.
struct LOGITLESS_API Plan {
  PlanKind kind = PlanKind::kForwardOnly;  ///< what runs; never kAuto
  int64_t tokens = 0;                      ///< N, with the rows that take no part
  int64_t active_rows = 0;                 ///< rows that take part (target not ignored)
  int64_t hidden_size = 0;                 ///< H
  int64_t vocab_size = 0;                  ///< V
  int64_t row_tile = 0;                    ///< most rows of a logits tile; 0 for finished logits
  /// For finished logits this is the number of rows that a thread works on together; else it is 0.
  int64_t row_block = 0;
  int64_t vocab_tile = 0;    ///< columns of a logits tile; the last one may be narrower
  int64_t hidden_block = 0;  ///< columns of hidden that one gradient GEMM writes
  /// In one pass this is the most rows whose logits are alive together; else it equals active_rows.
  int64_t chunk_rows = 0;
  /// What multiplies: what reads hidden states and head to make logits (one of gemm_backends(), or
  /// "logitless" for few rows, at most 64; empty for finished logits), and, where gradients of such are asked
  /// for, the type in which their products read dL/dlogits, of `gradient_terms` terms.
  std::string gemm_library;
  DType gradient_dtype = DType::kFloat32;  ///< see gemm_library
  int gradient_terms = 1;                  ///< see gemm_library
  int threads = 1;                         ///< threads that can work with the tiles that fit
  int tiles_alive = 1;                     ///< logits tiles in memory at once
  /// The most that the call allocates: tiles, widened tiles, gathered rows, accumulators and partial
  /// statistics. Vectors with an entry a token (statistics, row lists) come on top: they take below 220 bytes
  /// a token, 40 more for each id of a token's set, and a byte for each tile.
  size_t workspace_bytes = 0;
  /// Of these bytes so many hold a pass's hidden states in the form that the backend multiplies; it is 0
  /// where it takes them as they stand, or where the budget has no room.
  size_t packed_bytes = 0;
  /// The least ContextOptions::workspace_bytes with which the same call is accepted, where the other options
  /// stay as they are; a call with less names it in its message. plan() fills it; in the plan of a call that
  /// ran it is 0, because to know it takes several times as long as to plan.
  size_t least_workspace_bytes = 0;
  /// Of gradients that are sampled or certified (BackwardOptions), in what a call returns: the share of the
  /// pairs of a row that has a gradient and a segment of 64 vocabulary entries whose gradients were made. 1:
  /// all were.
  double kept_share = 1;
  double noise_estimate = 0;  ///< the expected error that BackwardOptions::noise has led to
  /// Certified: |d_hidden - exact| (Frobenius) is at most this, apart from rounding. Ranks say what their own
  /// slices and tokens add to it: the sum over all ranks is the bound.
  double d_hidden_bound = 0;
  double d_weight_bound = 0;  ///< the same of d_weight; a LoRA's gradients have none
  size_t blas_bytes = 0;      ///< estimate of the BLAS's own packing buffers, not part of workspace_bytes

  /// Describes the plan in one line, e.g. "two_pass: 2048 of 2048 rows in chunks of 2048, tiles 256 x 1024,
  /// 4 alive, 6.1 MiB workspace, openblas".
  std::string describe() const;
};

}  // namespace logitless

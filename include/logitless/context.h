// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
/// @file
/// A Context holds the options for how a call runs: threads, memory, plan and instruction set. What the call
/// computes is set in the loss's options.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "logitless/export.h"
#include "logitless/names.h"
#include "logitless/plan.h"
#include "logitless/ranks.h"

namespace logitless {

/// The largest row_tile, vocab_tile and row_block. A tile should stay in a core's cache, and its edges
/// must fit in 32 bits.
inline constexpr int64_t kMostTileEdge = 65536;

class Workspace;

/// The type in which dL/dlogits enters the gradient products when hidden states and head are both bfloat16
/// and the backend multiplies bfloat16 natively. In all other cases this has no effect: dL/dlogits has the
/// type of the sums. Sums are always float32 here (docs/numerics.md has the error bounds).
enum class GradientPrecision {
  kNative,   ///< bfloat16: each element of dL/dlogits is rounded once, with a relative error of at most 2^-8
  kSplit,    ///< two bfloat16 terms: relative error at most 2^-17, at twice the gradient products
  kFloat32,  ///< float32: no rounding; the gradient products widen their operands
};

/// The names of GradientPrecision.
template <>
inline constexpr std::array kNamesOf<GradientPrecision> = {"native", "split", "float32"};

/// The options of a Context. Every default suits training.
struct ContextOptions {
  /// Threads of the OpenMP team; 0: omp_get_max_threads() at each call. Results have the same bits for every
  /// value.
  int threads = 0;
  /// The upper bound of a call's workspace (Plan::workspace_bytes). Per-token vectors and the BLAS's packing
  /// buffers are not included (docs/memory.md, "What is not counted"). With a small budget fewer threads
  /// work.
  size_t workspace_bytes = size_t{256} << 20;
  /// Calls take their memory from here (workspace.h); null: from the heap. It must outlive the calls of all
  /// contexts that name it.
  Workspace* workspace = nullptr;
  /// One of kAuto, kOnePass, kTwoPass or kExpectedRow. A call without gradients runs kForwardOnly, unless
  /// forward() returns expected rows (kExpectedRow), or another plan saves it a pass over the logits. A plan
  /// that cannot run (because of its budget or outputs) is an InvalidInput. On finished logits (logits.h)
  /// kOnePass reads the logits once, kTwoPass twice. A call that computes the logits of given ids alone
  /// (PolicyLoss::kept, OutsideSet::kRenormalised, NormaliseOver::kSet) has a single plan, kTwoPass, and
  /// ignores this option.
  PlanKind plan = PlanKind::kAuto;
  /// Rows of a logits tile; 0: the library chooses from the shape.
  int64_t row_tile = 0;
  /// Columns of a logits tile; for finished logits, the vocabulary entries that a row kernel processes at
  /// once. 0: the library chooses. Sampled and certified gradients round it up to a multiple of 64.
  /// Plan::vocab_tile returns the value used.
  int64_t vocab_tile = 0;
  /// Only for finished logits (logits.h): the rows that a thread folds and then turns into gradients while
  /// they are in its cache. 0: the library chooses.
  int64_t row_block = 0;
  /// "auto" (the first of gemm_backends()) or one of gemm_backends():
  /// - "amx" multiplies bfloat16 on the tile unit of Intel CPUs with kernels of this library, if Linux grants
  ///   the process its use.
  /// - "bfmmla" multiplies bfloat16 with an Arm instruction; it has never been timed on such a CPU.
  /// - "onednn" is there if the build found oneDNN and this CPU has AMX or AMD's AVX512-BF16 (for bfloat16),
  ///   or wider vectors than OpenBLAS's kernels use (for float32).
  /// - "openblas" is OpenBLAS alone.
  ///
  /// All backends except "openblas" leave float32 to the faster of the two libraries, and float64 to
  /// OpenBLAS.
  std::string gemm_backend = "auto";
  /// How dL/dlogits enters bfloat16 products.
  GradientPrecision gradient_precision = GradientPrecision::kNative;
  /// "auto" (the best this CPU has), one of simd_targets(), or "plain" (the readable reference kernels).
  std::string simd_target = "auto";
  /// This rank's part of calls that several ranks share; by default it has everything.
  Ranks ranks = {};
};

class Context;

namespace detail {
struct ContextState;
const ContextState& state_of(const Context& context);
}  // namespace detail

/// Immutable after construction; one Context may serve several threads at once. Copies are cheap.
class LOGITLESS_API Context {
 public:
  /// Throws InvalidInput for a negative size or an unknown name.
  explicit Context(ContextOptions options = {});

  /// Returns the options given to the constructor.
  const ContextOptions& options() const;
  /// Returns the most threads that the next call from this thread uses: the number asked for, limited by the
  /// BLAS and by OpenMP (OMP_THREAD_LIMIT; 1 if as many parallel regions are active as OMP_MAX_ACTIVE_LEVELS
  /// allows). A smaller team, as under OMP_DYNAMIC, gives the same bits.
  int threads() const;
  /// Returns the name of the kernels in use, e.g. "AVX3".
  const std::string& simd_target() const;
  /// Returns the name of the backend in use, e.g. "openblas".
  const std::string& gemm_backend() const;

 private:
  friend const detail::ContextState& detail::state_of(const Context& context);

  std::shared_ptr<const detail::ContextState> state_;
};

/// Returns the valid values of ContextOptions::gemm_backend in this build, best first.
LOGITLESS_API std::vector<std::string> gemm_backends();
/// Returns the valid values of ContextOptions::simd_target on this CPU, best first ("plain" is always last).
/// They are Highway's names: AVX3 is AVX-512, AVX3_ZEN4 and AVX3_SPR add to it, SCALAR uses no vectors.
LOGITLESS_API std::vector<std::string> simd_targets();

}  // namespace logitless

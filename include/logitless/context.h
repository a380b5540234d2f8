// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
/// @file
/// How a call runs: threads, memory, plan, instruction set. What it computes stands in the loss's options.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "logitless/export.h"
#include "logitless/plan.h"

namespace logitless {

/// The largest row_tile, vocab_tile and row_block: a tile is made to stay in a core's cache, and its edges
/// are 32-bit.
inline constexpr int64_t kMostTileEdge = 65536;

class Workspace;

/// What a Context is made of. Every entry has a default that suits training.
struct ContextOptions {
  /// Threads of the OpenMP team; 0 follows omp_get_max_threads() at each call. Results have the same bits for
  /// every value (but for plan dense).
  int threads = 0;
  /// Upper bound for everything a call allocates, the BLAS's packing buffers apart.
  size_t workspace_bytes = size_t{256} << 20;
  /// Where calls take their memory (workspace.h); null: the heap. It must outlive the calls of all contexts
  /// that name it.
  Workspace* workspace = nullptr;
  /// kAuto, kOnePass, kTwoPass or kDense (the baseline of dense.h). A plan that cannot run (its budget, a
  /// sink, 16-bit outputs) is an InvalidInput. Of finished logits (logits.h) kOnePass is one sweep, kTwoPass
  /// and kDense are two.
  PlanKind plan = PlanKind::kAuto;
  /// Rows of a logits tile; 0 lets the library choose from the shape.
  int64_t row_tile = 0;
  /// Columns of a logits tile; 0 likewise. Of finished logits: words that a row kernel takes at once.
  int64_t vocab_tile = 0;
  /// Rows of finished logits (logits.h) that a thread folds and turns into gradients while they are in its
  /// cache; 0 likewise. They have no tiles, and products have no such blocks.
  int64_t row_block = 0;
  /// "auto" or one of gemm_backends().
  std::string gemm_backend = "auto";
  /// "auto" (the best this CPU has), one of simd_targets(), or "plain" (the readable reference kernels).
  std::string simd_target = "auto";
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

  /// What it was made of.
  const ContextOptions& options() const;
  /// The most threads that the next call from here works on: what was asked for, after the limits of the BLAS
  /// and of OpenMP (OMP_THREAD_LIMIT; 1 inside as many parallel regions as OMP_MAX_ACTIVE_LEVELS allows). A
  /// team that is smaller still, as under OMP_DYNAMIC, gives the same bits.
  int threads() const;
  /// The kernels that run, e.g. "AVX3_DL".
  const std::string& simd_target() const;
  /// The backend that runs, e.g. "openblas".
  const std::string& gemm_backend() const;
  /// One line when the BLAS runs kernels that are narrower than the CPU, and what to do (blas.h); empty when
  /// it does not. Asked anew at every call: the BLAS belongs to the process.
  std::string blas_warning() const;

 private:
  friend const detail::ContextState& detail::state_of(const Context& context);

  std::shared_ptr<const detail::ContextState> state_;
};

/// What ContextOptions::gemm_backend may name in this build, best first.
LOGITLESS_API std::vector<std::string> gemm_backends();
/// What ContextOptions::simd_target may name on this CPU, best first ("plain" is always last).
LOGITLESS_API std::vector<std::string> simd_targets();

}  // namespace logitless

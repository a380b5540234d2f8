// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
/// @file
/// A Context says how a call runs: its threads, memory, plan and instruction set. What the call computes
/// stands in the loss's options.
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

/// The largest row_tile, vocab_tile and row_block: a tile is made to stay in a core's cache, and its
/// edges are 32-bit.
inline constexpr int64_t kMostTileEdge = 65536;

class Workspace;

/// This says in which type dL/dlogits is multiplied, where hidden states and head are both bfloat16 and the
/// backend multiplies bfloat16 as it stands. Everywhere else it has no effect: dL/dlogits then has the type
/// of the sums. Sums are float32 in every case (docs/numerics.md has the bounds).
enum class GradientPrecision {
  kNative,   ///< bfloat16: each element of dL/dlogits is rounded once, by at most 2^-8 of itself
  kSplit,    ///< two terms of bfloat16: at most 2^-17 of itself, for twice the gradient products
  kFloat32,  ///< float32: nothing is rounded, and the gradient products widen the operands
};

/// The names of precisions.
template <>
inline constexpr std::array kNamesOf<GradientPrecision> = {"native", "split", "float32"};

/// A Context is made of these options. Every entry has a default that suits training.
struct ContextOptions {
  /// The number of threads of the OpenMP team; 0 follows omp_get_max_threads() at each call. Results
  /// have the same bits for every value.
  int threads = 0;
  /// The upper bound of a call's workspace (Plan::workspace_bytes). Vectors with an entry a token, below 220
  /// bytes a token and 40 for each id of its set, and the BLAS's packing buffers come on top. Where it is
  /// small, fewer threads work.
  size_t workspace_bytes = size_t{256} << 20;
  /// Calls take their memory from here (workspace.h), or from the heap where this is null. It must outlive
  /// the calls of all contexts that name it.
  Workspace* workspace = nullptr;
  /// One of kAuto, kOnePass, kTwoPass or kExpectedRow. A call without gradients runs kForwardOnly, except
  /// where another one saves it a walk. A plan that cannot run (for its budget or its outputs) is an
  /// InvalidInput. On finished logits (logits.h) kOnePass is one walk and kTwoPass two.
  PlanKind plan = PlanKind::kAuto;
  /// The number of rows of a logits tile; 0 lets the library choose from the shape.
  int64_t row_tile = 0;
  /// The number of columns of a logits tile, or for finished logits the number of vocabulary entries that a
  /// row kernel takes at once; 0 lets the library choose. Sampled and certified gradients round it up to a
  /// multiple of 64. Plan::vocab_tile has the number that runs.
  int64_t vocab_tile = 0;
  /// A thread folds this many rows of finished logits (logits.h) and turns them into gradients while they are
  /// in its cache; 0 lets the library choose. Finished logits have no tiles, and products have no such
  /// blocks.
  int64_t row_block = 0;
  /// "auto" (the first of gemm_backends()) or one of them. "amx" multiplies bfloat16 on the tile unit of an
  /// Intel CPU by kernels of this library, where Linux lets a process use it. "bfmmla" multiplies bfloat16 by
  /// an instruction of Arm's CPUs, and was never timed on one. "onednn" is there where oneDNN, if the build
  /// found it, is the faster library: for bfloat16 on AMD's AVX512-BF16 and on AMX, and for float32 where
  /// OpenBLAS's kernels are narrower than the CPU. "openblas" is OpenBLAS alone. All others leave float32 to
  /// the faster of the two, and float64 to OpenBLAS.
  std::string gemm_backend = "auto";
  /// In which type dL/dlogits is multiplied, where all operands are bfloat16.
  GradientPrecision gradient_precision = GradientPrecision::kNative;
  /// "auto" (the best this CPU has), one of simd_targets(), or "plain" (the readable reference
  /// kernels).
  std::string simd_target = "auto";
  /// The part that this rank has of calls that several share; by default it has all.
  Ranks ranks = {};
};

class Context;

namespace detail {
struct ContextState;
const ContextState& state_of(const Context& context);
}  // namespace detail

/// A Context is immutable after construction; one Context may serve several threads at once. Copies are
/// cheap.
class LOGITLESS_API Context {
 public:
  /// Throws InvalidInput for a negative size or an unknown name.
  explicit Context(ContextOptions options = {});

  /// Returns the options that it was made of.
  const ContextOptions& options() const;
  /// Returns the most threads that the next call from here works on: the number asked for, after the limits
  /// of the BLAS and of OpenMP (OMP_THREAD_LIMIT; 1 inside as many parallel regions as OMP_MAX_ACTIVE_LEVELS
  /// allows). A team that is smaller still, as under OMP_DYNAMIC, gives the same bits.
  int threads() const;
  /// Names the kernels that run, e.g. "AVX3_DL".
  const std::string& simd_target() const;
  /// Names the backend that runs, e.g. "openblas".
  const std::string& gemm_backend() const;

 private:
  friend const detail::ContextState& detail::state_of(const Context& context);

  std::shared_ptr<const detail::ContextState> state_;
};

/// Returns what ContextOptions::gemm_backend may name in this build, best first.
LOGITLESS_API std::vector<std::string> gemm_backends();
/// Returns what ContextOptions::simd_target may name on this CPU, best first ("plain" is always last).
LOGITLESS_API std::vector<std::string> simd_targets();

}  // namespace logitless

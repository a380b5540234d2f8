// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
/// @file
/// Splits one call over ranks: processes or threads that each hold a part of the vocabulary, a part of the
/// batch, or both, and make the same call at the same time. docs/parallel.md says how to choose.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <vector>

#include "logitless/export.h"

namespace logitless {

/// Carries bytes between the ranks of one group. The library itself computes all sums, in rank order, so
/// results do not depend on the communicator. mpi.h has one on MPI.
///
/// All ranks of a group call the same functions in the same order. A call uses the communicator only from the
/// thread that made the call, possibly within an OpenMP region whose other threads compute meanwhile; there a
/// function may not open a work-sharing construct or wait at a barrier. An exception from these functions
/// ends the call.
class LOGITLESS_API Communicator {
 public:
  virtual ~Communicator();

  /// Returns the index of this rank, in [0, size()).
  virtual int rank() const = 0;
  /// Returns the number of ranks, in [1, 65536].
  virtual int size() const = 0;
  /// Sends `bytes` bytes at `mine` to every rank, and receives rank r's bytes at all + r * bytes.
  virtual void all_gather(const void* mine, void* all, size_t bytes) = 0;
  /// Sends the `bytes` bytes at mine + r * bytes to rank r, and receives rank r's bytes at theirs + r *
  /// bytes.
  virtual void all_to_all(const void* mine, void* theirs, size_t bytes) = 0;
};

/// Thrown if another rank has failed, or if ranks do not make the same call. what() names the rank and its
/// error. The failing rank throws its own exception.
class LOGITLESS_API RankError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// One slice of a vocabulary, for callers that exchange data themselves, as inside a compiled graph.
/// fold_slice() computes the bytes of a slice; a call that gets the bytes of all slices returns the results
/// of the whole vocabulary, the gradients of its own slice, and d_hidden summed over its own slice.
/// Statistics have the same bits as in one process with all slices. The target's rank is not available.
struct VocabSlice {
  int64_t first = 0;       ///< vocabulary entries before this slice
  int64_t vocab_size = 0;  ///< entries of the whole vocabulary
  /// The bytes of all slices, concatenated in vocabulary order; empty in fold_slice().
  std::span<const std::byte> gathered = {};
};

/// This rank's part of a call (ContextOptions::ranks). Communicators must outlive the calls. All ranks call
/// every function that takes a Context with ranks, plan() included, one call at a time.
struct Ranks {
  /// Cuts the vocabulary over these ranks, in rank order: each rank's LmHead, d_weight, d_bias and d_lora_b
  /// hold its own vocabulary entries, possibly none. All other inputs are the same on all ranks: hidden
  /// states, targets, a LoRA's a or states, options and per-vocabulary-entry vectors (which cover the whole
  /// vocabulary), and the type and mode of a summed d_hidden, d_lora_a or d_lora_states. All ranks return the
  /// same results. Finished logits cannot be cut. Null: this rank holds the whole vocabulary.
  Communicator* vocab = nullptr;
  /// Cuts this rank's vocabulary entries into slices of these sizes; empty: one slice. Results have the same
  /// bits however many ranks share the slices, including a single rank. Each slice has a budget of
  /// ContextOptions::workspace_bytes. On top of it come float32 or float64 sums of d_hidden [N, H] and of
  /// d_lora_a or d_lora_states per slice, about 24 MiB of messages, and the statistics sent for every slice
  /// of the vocabulary (docs/parallel.md). A rank with one slice needs no such sums if d_hidden is one matrix
  /// of that type and is overwritten.
  std::vector<int64_t> slices;
  /// If true, d_hidden, d_lora_a and d_lora_states are summed over this rank's vocabulary entries only, for
  /// callers that sum later; if false, over all ranks.
  bool own_d_hidden = false;

  /// One slice of a vocabulary whose exchange the caller does: set it without `vocab` and `slices`. The plan
  /// is chosen for this slice, so all slices should have the same size.
  std::optional<VocabSlice> slice = {};

  /// Splits the batch over these ranks: each has its own tokens (any number) and the same head. Means are
  /// over the tokens, sequences or pairs of all ranks. Loss and metrics cover the whole batch;
  /// per-token and per-sequence values and gradients are the rank's own, unless summed (sum_d_weight).
  /// Options that sort or sum over other ranks' tokens (top_entropy_quantile, clip_cov, kl_cov, m2_threshold,
  /// aot) are refused. Null: this rank has the whole batch. Together with `vocab` the ranks form a grid: a
  /// `data` group shares vocabulary entries, a `vocab` group shares tokens.
  Communicator* data = nullptr;
  /// Sums d_weight, d_bias, d_lora_a and d_lora_b over `data`, in rank order, by the end of the call; in mode
  /// accumulate the sum includes the previous content. 16-bit elements are widened, summed and rounded once.
  /// A weight_sink receives the rank's own part and cannot be summed. If every rank has at least two threads,
  /// rows of a d_weight [V, H] are summed while later ones are computed, so a call that fails may have summed
  /// some rows.
  bool sum_d_weight = false;

  /// Returns whether anything is shared or cut.
  bool any() const { return vocab || data || !slices.empty() || slice; }
  /// Returns whether the vocabulary is shared or cut.
  bool cuts_vocab() const { return vocab || !slices.empty() || slice; }
};

}  // namespace logitless

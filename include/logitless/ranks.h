// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
/// @file
/// These split one call over ranks: processes, or threads, that each hold a part of the vocabulary, a part of
/// the batch, or both, and make the same call at the same time. docs/parallel.md says how to choose.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <vector>

#include "logitless/export.h"

namespace logitless {

/// A Communicator carries bytes between the ranks of one group. It computes nothing: what is summed is summed
/// by the library, in the order of the ranks, so that results do not depend on what carries the bytes. mpi.h
/// has one on MPI.
///
/// All ranks of a group call the same functions in the same order. A call uses the communicator from the
/// thread that made it, and never from two threads at once. It may do so from within an OpenMP region, in
/// which its other threads compute meanwhile: a function may not open a work-sharing construct or wait at a
/// barrier there. What a function throws ends the call.
class LOGITLESS_API Communicator {
 public:
  virtual ~Communicator();

  /// Returns the place of this rank, in [0, size()).
  virtual int rank() const = 0;
  /// Returns the number of ranks, in [1, 65536].
  virtual int size() const = 0;
  /// Each rank gives `bytes` bytes; every rank gets those of rank r at all + r * bytes.
  virtual void all_gather(const void* mine, void* all, size_t bytes) = 0;
  /// Each rank gives `bytes` bytes to each rank, those for rank r at mine + r * bytes; it gets what rank r
  /// gave to it at theirs + r * bytes.
  virtual void all_to_all(const void* mine, void* theirs, size_t bytes) = 0;
};

/// It is thrown where another rank has failed, or where ranks do not make the same call. what() says which
/// rank, and what it threw. That rank throws its own exception.
class LOGITLESS_API RankError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A slice of a vocabulary whose other slices are out of a call's reach, as inside a compiled graph: its
/// caller carries what a call says to the others. fold_slice() makes the bytes of each slice; a call that has
/// those of all slices returns the results of the whole vocabulary, with the gradients of its own slice, and
/// d_hidden summed over it. Statistics have the same bits as where one
/// process has all slices. The target's rank is not among them.
struct VocabSlice {
  int64_t first = 0;       ///< entries of the vocabulary that stand before those of the LmHead
  int64_t vocab_size = 0;  ///< entries of the whole vocabulary
  /// The bytes of all slices, one after the other in the order of the vocabulary; empty where they are made.
  std::span<const std::byte> gathered = {};
};

/// Which part of a call a rank has (ContextOptions::ranks). Communicators must outlive the
/// calls. Every function that takes a Context of ranks, those that plan included, is called by all ranks,
/// one call at a time.
struct Ranks {
  /// These ranks hold the entries of the vocabulary, in the order of the ranks: the LmHead of each, and the
  /// d_weight, d_bias and d_lora_b of each, have its own vocabulary entries, of which there may be none.
  /// Everything else that is given is the same on all of them: hidden states, targets, a LoRA's a or
  /// states, options and their vectors with an entry a vocabulary entry, which mean the whole vocabulary,
  /// and type and mode of a d_hidden, d_lora_a or d_lora_states that is summed. All of them return the same
  /// results. Finished logits are not split. Null: this rank holds the whole vocabulary.
  Communicator* vocab = nullptr;
  /// This rank's vocabulary entries are cut into slices of these sizes; empty: they are one slice. Results
  /// have the same bits however many ranks share the slices of a vocabulary, one of them included. Each
  /// slice has a budget of ContextOptions::workspace_bytes. On top come float32 or float64 sums of d_hidden
  /// [N, H], and of d_lora_a or d_lora_states, for each slice (none for a rank's only slice whose d_hidden
  /// is one matrix of that type, which is overwritten), some 24 MiB of messages, and what is sent of
  /// statistics (docs/parallel.md) for each slice there is.
  std::vector<int64_t> slices;
  /// Where it is set, a rank's d_hidden, d_lora_a and d_lora_states are the sums over its own vocabulary
  /// entries, for a caller who sums later; else they are the sums over all of them.
  bool own_d_hidden = false;

  /// This rank has a slice of a vocabulary, and meets nobody: set it without the others. Plans are made for
  /// the slice, so all should have one size.
  std::optional<VocabSlice> slice = {};

  /// These ranks have parts of the batch: other tokens, as many as each likes, and the same head. Means are
  /// over the tokens, sequences or pairs of all of them; loss and metrics are those of the whole batch,
  /// values with an entry a token or a sequence are the rank's own, and so are its gradients, unless they
  /// are summed. A loss that sorts or sums what other ranks hold (top_entropy_quantile, clip_cov, kl_cov,
  /// m2_threshold, aot) is refused. Null: this rank
  /// has the whole batch. With `vocab` too, ranks are a grid: those of one `data` group hold the same
  /// vocabulary entries, and those of one `vocab` group have the same tokens.
  Communicator* data = nullptr;
  /// After a call, what d_weight, d_bias, d_lora_a and d_lora_b hold is summed over `data`, in the order of
  /// its ranks: with mode accumulate, what they held before is too. Elements of 16 bits are widened, summed
  /// and rounded once. A weight_sink gets the rank's own part, and cannot be summed. Where every rank has two
  /// threads or more, rows of a d_weight [V, H] are summed while later ones are made: a call that fails may
  /// have summed some.
  bool sum_d_weight = false;

  /// Tells whether there is anything to split or to cut.
  bool any() const { return vocab || data || !slices.empty() || slice; }
  /// Tells whether the vocabulary is shared or cut.
  bool cuts_vocab() const { return vocab || !slices.empty() || slice; }
};

}  // namespace logitless

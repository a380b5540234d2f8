// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Sinks sum the gradients of logits into outputs: a sink takes memory for its sums, adds parts to them and
// stores the result. A schedule chooses the order of the parts and the multiplier. Any sink works with any
// schedule.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "core/arena.h"
#include "core/store.h"
#include "sink/gradient_part.h"
#include "source/multiplier.h"
#include "source/source.h"

namespace logitless::sink {

/// The sizes of the gradient computation that sinks depend on.
struct Sizes {
  source::PartSizes part;
  int64_t rows = 0;     // largest number of rows in a chunk
  int64_t entries = 0;  // vocabulary entries of all parts together
  int threads = 1;      // number of threads that may add parts
  /// Number of vocabulary tiles that are summed at the same time, if d_weight is summed in separate tiles.
  int64_t weight_tiles = 0;
  /// If d_weight cannot be summed in the output, it is summed in one separate matrix until the call ends, not
  /// in tiles.
  bool weight_apart = false;
  /// Sums of d_hidden are kept apart from the output until they cover all vocabulary entries.
  bool hidden_apart = false;
  /// Some part may have rows that are not consecutive in d_hidden.
  bool scatter = false;
  /// Parts have residuals, for which the sums are corrected.
  bool keeps_residuals = false;
  /// Gradients of states are computed from expected rows, not by a sink of this call.
  bool states_elsewhere = false;
};

/// The unit for which a sink keeps separate sums. Parts that are added to the same sums form a chain and are
/// added one after another.
enum class ChainOf {
  kRowBlock,   // sums over the vocabulary, in vocabulary order
  kVocabTile,  // sums over the rows, in row-block order
};

template <class Sum>
class Sink {
 public:
  explicit Sink(ChainOf chain_of) : chain_of_(chain_of) {}
  virtual ~Sink() = default;
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;

  /// Takes memory for sums that live until the call ends.
  virtual void take_lasting(core::Arena&) {}
  /// Takes memory for sums and scratch that live from the first part of a chunk to finish_chunk().
  virtual void take(core::Arena&) {}

  ChainOf chain_of() const { return chain_of_; }
  /// Returns the number of tasks that share the components of a part. Each task has its own chain.
  virtual int64_t splits() const { return 1; }
  /// Returns how many vocabulary tiles are summed at the same time, apart from the output; 0: tiles are not
  /// summed apart. Once a tile covers all rows, finish_tile() stores it or passes it to a callback, and
  /// another tile reuses its memory.
  virtual int64_t tiles_apart() const { return 0; }
  /// If this sink uses another sink's chains, returns that sink's index in the list. That sink has the same
  /// chain_of() and at least this sink's number of splits.
  const std::optional<size_t>& joins() const { return joins_; }
  void join(size_t sink) { joins_ = sink; }

  /// Returns whether finish_tile() must be called for each vocabulary tile once it covers all rows of the
  /// chunk.
  virtual bool finishes_tiles() const { return tiles_apart() > 0; }

  /// Prepares for a chunk with these rows of hidden, with at most `threads` threads.
  virtual void begin_chunk(std::span<const int64_t> /*rows*/, int /*threads*/) {}
  /// Adds the components of split number `split`. `first`: the sums hold nothing yet. Concurrent calls have
  /// different values of `thread`.
  virtual void add(const GradientPart& part, int64_t split, bool first, int thread,
                   const source::Multiplier& multiply) = 0;

  /// Completes the sums of one vocabulary tile and, if they are apart from the output, stores them or passes
  /// them to a callback, with at most `threads` threads.
  virtual void finish_tile(int64_t /*first_entry*/, int64_t /*entries*/, int /*threads*/) {}
  /// Stores the sums of a chunk if they are apart from the output. Row i of the chunk is row rows[i] of
  /// hidden.
  virtual void finish_chunk(std::span<const int64_t> /*rows*/, int /*threads*/) {}
  /// Completes the output after the last chunk. has_parts[N] marks the rows that were in a part; `any`: at
  /// least one row is marked. Rows and entries without parts become zeros if the output is overwritten.
  virtual void finish(const core::Array<bool>& has_parts, bool any) = 0;

 private:
  ChainOf chain_of_;
  std::optional<size_t> joins_;
};

/// Sinks in the order in which each part is added to them.
template <class Sum>
using Sinks = std::span<Sink<Sum>* const>;

}  // namespace logitless::sink

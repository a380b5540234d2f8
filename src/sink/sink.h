// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// What becomes of the gradients of logits. A sink takes the memory of its sums, adds parts to them, and hands
// them to an output. It does not know who calls: the order of the parts, and what multiplies, are the
// schedule's. And no schedule knows which sinks there are.
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

/// How the work on gradients is cut, as far as sinks need to know.
struct Sizes {
  source::PartSizes part;
  int64_t rows = 0;     // most rows of a chunk
  int64_t entries = 0;  // of the vocabulary, all parts together
  int threads = 1;      // that may add parts
  /// This many vocabulary tiles are summed at the same time where each is handed on by itself.
  int64_t weight_tiles = 0;
  /// Sums of d_weight that cannot stand in the output are those of all entries, until the call ends.
  bool weight_apart = false;
  /// Sums of d_hidden stand apart from the output until all vocabulary entries are in them.
  bool hidden_apart = false;
  /// Rows of some part may not follow one another in d_hidden.
  bool scatter = false;
  /// Parts have residuals, which are put back.
  bool keeps_residuals = false;
  /// Gradients of states are made of expected rows, and no sink of the call makes them.
  bool states_elsewhere = false;
};

/// What a sink has sums for. Parts that go into the same sums are added one after another: they form a chain.
enum class ChainOf {
  kRowBlock,   // sums over the vocabulary, in its order
  kVocabTile,  // sums over the rows, in the order of row blocks
};

template <class Sum>
class Sink {
 public:
  explicit Sink(ChainOf chain_of) : chain_of_(chain_of) {}
  virtual ~Sink() = default;
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;

  /// Takes the sums that live as long as the call.
  virtual void take_lasting(core::Arena&) {}
  /// Takes the sums and scratch that live from the first part of a chunk to finish_chunk().
  virtual void take(core::Arena&) {}

  ChainOf chain_of() const { return chain_of_; }
  /// Returns how many tasks share the components of a part. Each of them has a chain of its own.
  virtual int64_t splits() const { return 1; }
  /// Returns how many vocabulary tiles are summed at the same time, apart from the output: finish_tile()
  /// hands each on once all rows are in it, and another one takes its place. 0: tiles are not handed on.
  virtual int64_t tiles_apart() const { return 0; }
  /// Returns the place in the list of the sink whose chains this one's parts join, instead of chains of their
  /// own. It has the same chain_of(), and at least as many splits.
  const std::optional<size_t>& joins() const { return joins_; }
  void join(size_t sink) { joins_ = sink; }

  /// Returns whether finish_tile() is to be called for each vocabulary tile once all rows of the chunk are
  /// in it.
  virtual bool finishes_tiles() const { return tiles_apart() > 0; }

  /// Makes ready for a chunk of these rows of hidden, on a team of at most `threads`.
  virtual void begin_chunk(std::span<const int64_t> /*rows*/, int /*threads*/) {}
  /// Adds the components of one split of the part. `first` says that nothing was added to these sums before.
  /// Threads that add at the same time have different numbers `thread`.
  virtual void add(const GradientPart& part, int64_t split, bool first, int thread,
                   const source::Multiplier& multiply) = 0;

  /// Completes the sums of one vocabulary tile, and hands them on where they are apart, on a team of at most
  /// `threads`.
  virtual void finish_tile(int64_t /*first_entry*/, int64_t /*entries*/, int /*threads*/) {}
  /// Hands the sums of a chunk on, where these are apart; its row i is row rows[i] of hidden.
  virtual void finish_chunk(std::span<const int64_t> /*rows*/, int /*threads*/) {}
  /// Does what is left after the last chunk. Parts had the rows that has_parts[N] marks, and where there was
  /// any, `any` is true; other outputs become zeros, unless they are added to.
  virtual void finish(const core::Array<bool>& has_parts, bool any) = 0;

 private:
  ChainOf chain_of_;
  std::optional<size_t> joins_;
};

/// Sinks in the order in which a part goes to them.
template <class Sum>
using Sinks = std::span<Sink<Sum>* const>;

}  // namespace logitless::sink

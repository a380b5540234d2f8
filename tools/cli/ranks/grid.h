// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The processes that compute one call together, as a grid: parallel.vocab ranks with the same tokens,
// parallel.data of these groups. mpi_grid.cc is the one place of the command that knows MPI.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "io/config.h"
#include "logitless/ranks.h"

namespace logitless::cli {

/// What a rank has sent to others, and how long it has sent and waited.
struct Traffic {
  uint64_t bytes = 0;
  double seconds = 0;
};

/// By the groups that share the vocabulary, and the batch.
struct Exchanges {
  Traffic vocab, data;
};

/// Where a rank stands.
struct GridPlace {
  int vocab = 0;
  int data = 0;
};

/// The ranks end together, and rank 0 tells why: this one ends without a vocabulary entry, and with status 0,
/// for mpirun kills the others as soon as one has another.
struct RankEnds {};

/// A grid of one process; mpirun's is a class of its own.
class RankGrid {
 public:
  using Bytes = std::vector<std::byte>;

  RankGrid() = default;
  virtual ~RankGrid() = default;
  RankGrid(const RankGrid&) = delete;
  RankGrid& operator=(const RankGrid&) = delete;

  virtual int rank() const { return 0; }
  virtual int size() const { return 1; }
  bool is_root() const { return rank() == 0; }
  /// The ranks that share this machine's memory.
  virtual int ranks_on_this_machine() const { return 1; }
  virtual GridPlace place_of(int) const { return {}; }
  GridPlace place() const { return place_of(rank()); }

  /// For a Context: the groups of this rank, null where they would be this rank alone.
  virtual Ranks ranks() const { return {}; }
  /// Since the last call.
  virtual Exchanges take_exchanges() { return {}; }

  /// Lets all ranks do `step`, and ends all where one of them throws: rank 0 throws the first failure, which
  /// names its rank, as io::Error where the input is to blame and else as ChildFailure; the others throw
  /// RankEnds. Ranks that are through wait for the others without keeping a core busy. One process just does
  /// it.
  virtual void together(const std::function<void()>& step) { step(); }
  /// On rank 0 what each rank gives, which may be of any size; elsewhere nothing. Fails as together() does.
  virtual std::vector<Bytes> gather(std::span<const std::byte> mine) { return {{mine.begin(), mine.end()}}; }
};

/// Begins MPI, and ends it with the grid. Throws io::Error where this command was built without MPI, and on
/// rank 0 where mpirun has not started as many ranks as the config splits its call over.
std::unique_ptr<RankGrid> begin_ranks(const io::ParallelConfig& parallel);

}  // namespace logitless::cli

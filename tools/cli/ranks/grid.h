// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The processes that compute one call together, as a grid: parallel.data groups of parallel.vocab ranks each.
// The ranks of a group have the same tokens. Only mpi_grid.cc uses MPI.
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

/// Bytes sent to other ranks, and the time spent sending and waiting.
struct Traffic {
  uint64_t bytes = 0;
  double seconds = 0;
};

/// Traffic in the group that shares the vocabulary, and in the one that shares the batch.
struct Exchanges {
  Traffic vocab, data;
};

/// The coordinates of a rank.
struct GridPlace {
  int vocab = 0;
  int data = 0;
};

/// Thrown on every rank except 0 after a failure: rank 0 reports it, and this rank ends silently with status
/// 0, because mpirun kills the others as soon as one rank has another status.
struct RankEnds {};

/// A grid of one process. MpiGrid is the grid of mpirun's ranks.
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
  /// The number of ranks that share this machine's memory.
  virtual int ranks_on_this_machine() const { return 1; }
  virtual GridPlace place_of(int) const { return {}; }
  GridPlace place() const { return place_of(rank()); }

  /// The groups of this rank, for a Context; null for a group of one.
  virtual Ranks ranks() const { return {}; }
  /// Returns the traffic since the last call.
  virtual Exchanges take_exchanges() { return {}; }

  /// Runs `step` on all ranks. If it throws on one of them, all end: rank 0 throws the first failure, which
  /// names its rank, as io::Error if the input caused it and else as ChildFailure; the others throw RankEnds.
  /// Ranks that are done wait without keeping a core busy. A grid of one process just runs `step`.
  virtual void together(const std::function<void()>& step) { step(); }
  /// Returns each rank's bytes on rank 0, nothing elsewhere. Their sizes may differ. Fails as together()
  /// does.
  virtual std::vector<Bytes> gather(std::span<const std::byte> mine) { return {{mine.begin(), mine.end()}}; }
};

/// Initialises MPI, which ends with the grid. Throws io::Error if this command was built without MPI, and on
/// rank 0 if the config needs another number of ranks.
std::unique_ptr<RankGrid> begin_ranks(const io::ParallelConfig& parallel);

}  // namespace logitless::cli

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The processes that mpirun has started, as a grid: parallel.vocab ranks with the same tokens, parallel.data
// of these groups. grid.cc is the one place of the command that knows MPI.
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

/// Where a rank stands.
struct GridPlace {
  int vocab = 0;
  int data = 0;
};

/// The ranks end together, and rank 0 tells why: this one ends without a vocabulary entry, and with status 0,
/// for mpirun kills the others as soon as one has another.
struct RankEnds {};

class RankGrid {
 public:
  /// Begins MPI. Throws io::Error where this command was built without it.
  explicit RankGrid(const io::ParallelConfig& parallel);
  /// Ends MPI.
  ~RankGrid();
  RankGrid(const RankGrid&) = delete;
  RankGrid& operator=(const RankGrid&) = delete;

  int rank() const;
  int size() const;
  /// The ranks that share this machine's memory.
  int ranks_on_this_machine() const;
  GridPlace place_of(int rank) const { return {rank % parallel_.vocab, rank / parallel_.vocab}; }
  GridPlace place() const { return place_of(rank()); }

  /// For a Context: the groups of this rank, null where they would be this rank alone.
  Ranks ranks() const;
  /// Since the last call.
  Traffic take_vocab_traffic();
  Traffic take_data_traffic();

  /// Lets all ranks do `step`, and ends all where one of them throws: rank 0 throws the first failure, which
  /// names its rank, as io::Error where the input is to blame and else as ChildFailure; the others throw
  /// RankEnds. Ranks that are through wait for the others without keeping a core busy.
  void together(const std::function<void()>& step);
  /// On rank 0 what each rank gives, which may be of any size; elsewhere nothing. Fails as together() does.
  std::vector<std::vector<std::byte>> gather(std::span<const std::byte> mine);

 private:
  struct Mpi;

  void wait();

  const io::ParallelConfig parallel_;
  std::unique_ptr<Mpi> mpi_;
};

}  // namespace logitless::cli

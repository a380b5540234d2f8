// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
/// @file
/// A Communicator on MPI. The library itself does not depend on MPI: this header is compiled as part of the
/// program that includes it, with the program's own MPI:
///
///     find_package(logitless REQUIRED COMPONENTS mpi)
///     target_link_libraries(trainer PRIVATE logitless::logitless logitless::mpi)
#pragma once

#include "logitless/ranks.h"
// The include above reports a missing C++20 before a missing mpi.h.
#include <mpi.h>

#include <climits>
#include <cstddef>
#include <stdexcept>
#include <string>

namespace logitless {

/// Uses a duplicate of the given communicator, so its messages do not mix with others. All ranks construct it
/// together; construct it once and keep it. MPI must be initialised for the calling thread
/// (MPI_THREAD_FUNNELED if calls use several threads) and finalised after this object is destroyed. An error
/// that MPI returns is thrown as std::runtime_error. If a rank dies, MPI handles the other ranks: mpirun ends
/// them.
class MpiCommunicator final : public Communicator {
 public:
  /// Duplicates `communicator`.
  explicit MpiCommunicator(MPI_Comm communicator) {
    check("MPI_Comm_dup", MPI_Comm_dup(communicator, &communicator_));
    check("MPI_Comm_set_errhandler", MPI_Comm_set_errhandler(communicator_, MPI_ERRORS_RETURN));
    check("MPI_Comm_rank", MPI_Comm_rank(communicator_, &rank_));
    check("MPI_Comm_size", MPI_Comm_size(communicator_, &size_));
  }
  ~MpiCommunicator() override {
    int finalised = 0;
    MPI_Finalized(&finalised);
    if (!finalised) MPI_Comm_free(&communicator_);
  }
  MpiCommunicator(const MpiCommunicator&) = delete;
  MpiCommunicator& operator=(const MpiCommunicator&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void all_gather(const void* mine, void* all, size_t bytes) override {
    const int count = count_of(bytes);
    check("MPI_Allgather", MPI_Allgather(mine, count, MPI_BYTE, all, count, MPI_BYTE, communicator_));
  }
  void all_to_all(const void* mine, void* theirs, size_t bytes) override {
    const int count = count_of(bytes);
    check("MPI_Alltoall", MPI_Alltoall(mine, count, MPI_BYTE, theirs, count, MPI_BYTE, communicator_));
  }

 private:
  // MPI counts in int.
  static int count_of(size_t bytes) {
    if (bytes <= size_t{INT_MAX}) return static_cast<int>(bytes);
    throw std::length_error("a message of " + std::to_string(bytes) + " bytes is more than MPI counts");
  }
  static void check(const char* function, int code) {
    if (code == MPI_SUCCESS) return;
    char text[MPI_MAX_ERROR_STRING] = {};
    int length = 0;
    MPI_Error_string(code, text, &length);
    throw std::runtime_error(std::string(function) + ": " + text);
  }

  MPI_Comm communicator_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
};

}  // namespace logitless

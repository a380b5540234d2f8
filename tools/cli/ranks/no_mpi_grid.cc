// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/ranks/grid.h"
#include "io/error.h"

namespace logitless::cli {

std::unique_ptr<RankGrid> begin_ranks(const io::ParallelConfig&) {
  throw io::Error("parallel: this command was built without MPI");
}

}  // namespace logitless::cli

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// One rank of MPI has the whole vocabulary.
#include <logitless/logitless.h>
#include <logitless/mpi.h>

#include <vector>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  double loss = 0;
  {
    logitless::MpiCommunicator ranks(MPI_COMM_WORLD);
    logitless::ContextOptions options;
    options.ranks.vocab = &ranks;
    const std::vector<float> hidden(6, 0.5F), weight(20, 0.25F);
    const std::vector<int64_t> targets = {1, 2, 3};
    loss = logitless::cross_entropy(logitless::Context(options), logitless::ConstMatrix(hidden.data(), 3, 2),
                                    logitless::LmHead({weight.data(), 10, 2}), targets)
               .loss;
  }
  MPI_Finalize();
  return loss > 2.3 && loss < 2.31 ? 0 : 1;  // log 10
}

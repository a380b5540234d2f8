// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// MPI ranks share a head: each has its own vocabulary entries, and all get the loss of the whole vocabulary.
#include <vector>

// [head]
#include <logitless/logitless.h>
#include <logitless/mpi.h>

// Everything is as without ranks, except the head: `entries` [V, H] are this rank's rows; V may differ
// between ranks.
double loss_of_ranks(MPI_Comm communicator, const logitless::ConstTensor& hidden, const logitless::ConstTensor& entries,
                     const logitless::ConstTensor& targets, const logitless::Gradients& gradients) {
  logitless::MpiCommunicator ranks(communicator);
  logitless::ContextOptions options;
  options.ranks.vocab = &ranks;
  const logitless::CrossEntropy task = {.targets = targets};
  return logitless::run(logitless::Context(options), logitless::Logits::of(hidden, entries), task, gradients).loss;
}
// [/head]

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  const std::vector<float> hidden(6, 0.5F), weight(20, 0.25F);
  const std::vector<int64_t> targets = {1, 2, 3};
  const double loss = loss_of_ranks(MPI_COMM_WORLD, logitless::view(hidden.data(), {3, 2}),
                                    logitless::view(weight.data(), {10, 2}), targets, {});
  MPI_Finalize();
  return loss > 2.3 && loss < 2.31 ? 0 : 1;  // log 10
}

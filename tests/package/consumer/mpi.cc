// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// MPI ranks share a head: each has its own vocabulary entries, and all get the loss of the whole vocabulary.
#include <cmath>
#include <vector>

// [head]
#include <logitless/logitless.h>
#include <logitless/mpi.h>

// Everything is as without ranks, except the head: `entries` [V, H] are this rank's rows; V may differ
// between ranks.
double loss_of_ranks(const logitless::Context& context, const logitless::ConstTensor& hidden,
                     const logitless::ConstTensor& entries, const logitless::ConstTensor& targets,
                     const logitless::Gradients& gradients) {
  const logitless::CrossEntropy task = {.targets = targets};
  return logitless::run(context, logitless::Logits::of(hidden, entries), task, gradients).loss;
}
// [/head]

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  const std::vector<float> hidden(6, 0.5F), weight(20, 0.25F);
  const std::vector<int64_t> targets = {1, 2, 3};
  double error = 0;
  {
    // [context]
    logitless::MpiCommunicator ranks(MPI_COMM_WORLD);  // all ranks make it together; it outlives the calls
    logitless::ContextOptions options;
    options.ranks.vocab = &ranks;
    const logitless::Context context(options);  // make both once and keep them
    // [/context]
    const double loss = loss_of_ranks(context, logitless::view(hidden.data(), {3, 2}),
                                      logitless::view(weight.data(), {10, 2}), targets, {});
    error = std::abs(loss - std::log(10.0 * ranks.size()));  // ten entries per rank, and all logits are equal
  }
  MPI_Finalize();
  return error < 1e-6 ? 0 : 1;
}

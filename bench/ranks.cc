// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Time, memory and bytes of one call whose vocabulary or batch is split over MPI ranks:
//
//     mpirun -n 2 ranks --split vocab --threads 1 --tokens 2048 --hidden 1536 --vocab 151936
#include <mpi.h>
#include <omp.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdio>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "logitless/logitless.h"
#include "logitless/mpi.h"

using namespace logitless;

namespace {

struct Options {
  std::string split = "vocab", dtype = "float32", plan = "auto";
  int64_t tokens = 2048, hidden = 576, vocab = 49152;
  int threads = 1, calls = 3;
  double link = 0;  // GB/s
};

// Counts the bytes that this rank sends to others, and sleeps as long as a link with this bandwidth would
// take. Like a network card, it needs no core. With 0 it adds no delay to MPI's own.
class Link final : public Communicator {
 public:
  Link(Communicator& ranks, double bytes_per_second) : ranks_(ranks), bytes_per_second_(bytes_per_second) {}
  int rank() const override { return ranks_.rank(); }
  int size() const override { return ranks_.size(); }
  void all_gather(const void* mine, void* all, size_t bytes) override {
    ranks_.all_gather(mine, all, bytes);
    send(bytes * static_cast<size_t>(size() - 1));
  }
  void all_to_all(const void* mine, void* theirs, size_t bytes) override {
    ranks_.all_to_all(mine, theirs, bytes);
    send(bytes * static_cast<size_t>(size() - 1));
  }
  size_t sent = 0;

 private:
  void send(size_t bytes) {
    sent += bytes;
    if (bytes_per_second_ == 0) return;
    std::this_thread::sleep_for(std::chrono::duration<double>(static_cast<double>(bytes) / bytes_per_second_));
  }

  Communicator& ranks_;
  const double bytes_per_second_;
};

// A matrix of small random numbers, in float32 or bfloat16.
struct Tensor {
  std::vector<float> wide;
  std::vector<bfloat16> narrow;
  int64_t rows, cols;

  Tensor(int64_t rows_, int64_t cols_, bool is_narrow, uint64_t seed) : rows(rows_), cols(cols_) {
    std::mt19937 random(static_cast<uint32_t>(seed));
    std::uniform_real_distribution<float> draw(-0.1F, 0.1F);
    const auto size = static_cast<size_t>(rows * cols);
    if (is_narrow) {
      narrow.resize(size);
      for (bfloat16& value : narrow) value = {static_cast<uint16_t>(std::bit_cast<uint32_t>(draw(random)) >> 16)};
    } else {
      wide.resize(size);
      for (float& value : wide) value = draw(random);
    }
  }
  ConstTensor view() const {
    return wide.empty() ? logitless::view(narrow.data(), {rows, cols}) : logitless::view(wide.data(), {rows, cols});
  }
  logitless::Tensor output() {
    return wide.empty() ? logitless::view(narrow.data(), {rows, cols}) : logitless::view(wide.data(), {rows, cols});
  }
};

double peak_mib() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

void run(const Options& options) {
  MpiCommunicator mpi(MPI_COMM_WORLD);
  Link ranks(mpi, options.link * 1e9);
  const int64_t size = ranks.size(), rank = ranks.rank();
  const auto share = [&](int64_t all) { return all * (rank + 1) / size - all * rank / size; };
  const bool vocab = options.split == "vocab", narrow = options.dtype == "bfloat16";
  const int64_t tokens = vocab ? options.tokens : share(options.tokens);
  const int64_t entries = vocab ? share(options.vocab) : options.vocab;

  const Tensor hidden(tokens, options.hidden, narrow, 1);
  Tensor weight(entries, options.hidden, narrow, 2);
  Tensor d_hidden = hidden;
  Tensor d_weight = weight;
  std::vector<int64_t> targets(static_cast<size_t>(tokens));
  for (size_t i = 0; i < targets.size(); ++i) targets[i] = static_cast<int64_t>(i * 7919) % options.vocab;
  Gradients gradients;
  gradients.d_hidden = d_hidden.output();
  gradients.d_weight = d_weight.output();

  ContextOptions of_context;
  of_context.threads = options.threads;
  if (options.plan == "one_pass") of_context.plan = PlanKind::kOnePass;
  if (options.plan == "two_pass") of_context.plan = PlanKind::kTwoPass;
  if (size > 1) {
    (vocab ? of_context.ranks.vocab : of_context.ranks.data) = &ranks;
    of_context.ranks.sum_d_weight = !vocab;
  }
  const Context context(of_context);
  std::vector<double> seconds;
  std::string plan;
  for (int call = 0; call <= options.calls; ++call) {
    MPI_Barrier(MPI_COMM_WORLD);
    ranks.sent = 0;
    const double start = MPI_Wtime();
    plan = run(context, Logits::of(hidden.view(), weight.view()), CrossEntropy{.targets = targets}, gradients)
               .plan.describe();
    MPI_Barrier(MPI_COMM_WORLD);
    if (call > 0) seconds.push_back(MPI_Wtime() - start);
  }
  std::sort(seconds.begin(), seconds.end());
  const double peak = peak_mib();
  std::vector<double> peaks(static_cast<size_t>(size));
  MPI_Gather(&peak, 1, MPI_DOUBLE, peaks.data(), 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
  if (rank != 0) return;
  std::printf(
      "%s over %lld ranks of %d threads, %s: median %.3f s (%.3f to %.3f), %.1f bytes per token sent by a rank, ",
      options.split.c_str(), static_cast<long long>(size), options.threads, options.dtype.c_str(),
      seconds[seconds.size() / 2], seconds.front(), seconds.back(),
      static_cast<double>(ranks.sent) / static_cast<double>(tokens));
  std::printf("MiB at most");
  for (const double one : peaks) std::printf(" %.0f", one);
  std::printf("; %s\n", plan.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  Options options;
  CLI::App app("Measures a cross-entropy call that MPI ranks share.", "ranks");
  app.add_option("--split", options.split)->check(CLI::IsMember({"vocab", "data"}));
  app.add_option("--dtype", options.dtype)->check(CLI::IsMember({"float32", "bfloat16"}));
  app.add_option("--plan", options.plan)->check(CLI::IsMember({"auto", "one_pass", "two_pass"}));
  app.add_option("--tokens", options.tokens)->check(CLI::PositiveNumber);
  app.add_option("--hidden", options.hidden)->check(CLI::PositiveNumber);
  app.add_option("--vocab", options.vocab)->check(CLI::PositiveNumber);
  app.add_option("--threads", options.threads)->check(CLI::PositiveNumber);
  app.add_option("--calls", options.calls)->check(CLI::PositiveNumber);
  app.add_option("--link", options.link, "GB/s of a simulated link that needs no core; 0: none")
      ->check(CLI::NonNegativeNumber);
  CLI11_PARSE(app, argc, argv);
  int result = 0;
  try {
    run(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "ranks: %s\n", error.what());
    result = 1;
  }
  MPI_Finalize();
  return result;
}

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Runs every task on 1, 2, 3 and 4 MPI processes that share a vocabulary, and checks that all have the bits
// of a single process. An error on one rank ends the call on all of them. Run it with mpirun -n 4.
#include <mpi.h>

#include <cstdio>
#include <string>
#include <vector>

#include "logitless/mpi.h"
#include "support/calls.h"
#include "support/rank_of_task.h"

namespace logitless::testing {
namespace {

int failures = 0;

void check(bool good, const std::string& what) {
  if (good) return;
  ++failures;
  std::fprintf(stderr, "%s\n", what.c_str());
}

ContextOptions small_tiles(PlanKind plan) {
  ContextOptions options;
  options.plan = plan;
  options.row_tile = 3;
  options.vocab_tile = 16;
  options.threads = 1;
  return options;
}

// Compares the results and gradients of this rank of a world with a single process.
void run_world(const std::vector<size_t>& world, int rank, MPI_Comm communicator) {
  MpiCommunicator ranks(communicator);
  const RankOfTask given(world, static_cast<size_t>(rank)), whole(kWorlds[0], 0);
  const std::vector<std::string> names = task_names();
  for (size_t number = 0; number < names.size(); ++number) {
    for (const PlanKind plan : {PlanKind::kOnePass, PlanKind::kTwoPass}) {
      const std::string where = names[number] + " " + name_of(plan) + " on " + std::to_string(world.size()) + " ranks";
      ContextOptions options = small_tiles(plan);
      options.ranks.slices = whole.slices;
      FromHidden::Outputs at_once, apart, my_at_once, my_apart;
      const auto expected = run_rank(number, Context(options), whole, at_once, apart);
      options.ranks.slices = given.slices;
      options.ranks.vocab = &ranks;
      const auto returned = run_rank(number, Context(options), given, my_at_once, my_apart);
      check(returned == expected, where + ": what is returned has other bits");
      // Other ranks' entries are not written here, so copy them from the single process.
      for (auto [mine, one] : {std::pair{&my_at_once, &at_once}, std::pair{&my_apart, &apart}}) {
        mine->take_entries(*one, 0, given.source.first_entry);
        const int64_t end = given.source.first_entry + given.source.entries;
        mine->take_entries(*one, end, kVocab - end);
        check(mine->values() == one->values(), where + ": gradients have other bits");
      }
    }
  }
}

// Returns the message of a call in which rank 2 has another target or another option.
std::string message_of(int rank, int64_t target, double z_loss) {
  MpiCommunicator ranks(MPI_COMM_WORLD);
  RankOfTask given(kWorlds[3], static_cast<size_t>(rank));
  if (rank == 2) given.batch.ids[7] = target;
  ContextOptions options;
  options.ranks.vocab = &ranks;
  CrossEntropy loss;
  if (rank == 2) loss.z_loss = z_loss;
  try {
    cross_entropy(Context(options), given.source.states(), given.source.head(), given.batch.targets(), loss);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

void check_messages(int rank) {
  const int64_t right = Batch().ids[7];
  const std::string own = "targets[7] = 101 is outside [0, 101) and is not ignore_index (-100)";
  const std::string of_mistake = message_of(rank, kVocab, 0), of_option = message_of(rank, right, 0.3);
  check(of_mistake == (rank == 2 ? own : "rank 2 of ranks.vocab: " + own), of_mistake);
  check(of_option == "z_loss must be the same on all ranks of ranks.vocab: rank 0 has 0 where rank 2 has 0.3",
        of_option);
}

int run() {
  int rank = 0, size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  check(size == 4, "needs four processes");
  for (size_t w = 0; failures == 0 && w < 4; ++w) {
    const int ranks = static_cast<int>(kWorlds[w].size());
    MPI_Comm communicator = MPI_COMM_NULL;
    MPI_Comm_split(MPI_COMM_WORLD, rank < ranks ? 0 : MPI_UNDEFINED, rank, &communicator);
    if (communicator == MPI_COMM_NULL) continue;
    run_world(kWorlds[w], rank, communicator);
    MPI_Comm_free(&communicator);
  }
  check_messages(rank);
  int all = 0;
  MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) std::printf("%d failures\n", all);
  return all == 0 ? 0 : 1;
}

}  // namespace
}  // namespace logitless::testing

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  const int result = logitless::testing::run();
  MPI_Finalize();
  return result;
}

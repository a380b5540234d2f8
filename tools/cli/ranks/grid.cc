// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/ranks/grid.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <new>
#include <string>
#include <thread>
#include <utility>

#include "cli/measure/process.h"
#include "io/error.h"
#include "logitless/error.h"
#ifdef LOGITLESS_COMMAND_HAS_MPI
#include "logitless/mpi.h"
#endif

namespace logitless::cli {

#ifdef LOGITLESS_COMMAND_HAS_MPI

namespace {

constexpr auto kNap = std::chrono::milliseconds(1);
constexpr size_t kPiece = size_t{16} << 20;  // of what all ranks gather at a time

// Counts what goes through another communicator.
class Counted final : public Communicator {
 public:
  explicit Counted(MPI_Comm ranks) : ranks_(ranks) {}

  int rank() const override { return ranks_.rank(); }
  int size() const override { return ranks_.size(); }
  void all_gather(const void* mine, void* all, size_t bytes) override {
    count(bytes, [&] { ranks_.all_gather(mine, all, bytes); });
  }
  void all_to_all(const void* mine, void* theirs, size_t bytes) override {
    count(bytes, [&] { ranks_.all_to_all(mine, theirs, bytes); });
  }
  Traffic take_traffic() { return std::exchange(traffic_, {}); }

 private:
  template <class Exchange>
  void count(size_t bytes, const Exchange& exchange) {
    const double start = MPI_Wtime();
    exchange();
    traffic_.seconds += MPI_Wtime() - start;
    traffic_.bytes += bytes * static_cast<uint64_t>(size() - 1);
  }

  MpiCommunicator ranks_;
  Traffic traffic_;
};

// What of a failure travels to the other ranks.
struct Failure {
  enum Kind : int { kNone, kOfAnotherRank, kInput, kOther };
  Kind kind = kNone;
  std::array<char, 1020> text = {};

  Failure() = default;
  Failure(Kind kind_, const char* what) : kind(kind_) { std::strncpy(text.data(), what, text.size() - 1); }
};

template <class Step>
Failure failure_of(const Step& step) {
  try {
    step();
  } catch (const RankError& e) {
    return {Failure::kOfAnotherRank, e.what()};
  } catch (const io::Error& e) {
    return {Failure::kInput, e.what()};
  } catch (const InvalidInput& e) {
    return {Failure::kInput, e.what()};
  } catch (const std::bad_alloc&) {
    return {Failure::kOther, "out of memory"};
  } catch (const std::exception& e) {
    return {Failure::kOther, e.what()};
  }
  return {};
}

// A group of all ranks that name the same colour, in the order of their keys.
std::unique_ptr<Counted> split_world(int colour, int key) {
  MPI_Comm group = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, colour, key, &group);
  auto out = std::make_unique<Counted>(group);  // has a duplicate
  MPI_Comm_free(&group);
  return out;
}

int ranks_that_share_memory() {
  MPI_Comm machine = MPI_COMM_NULL;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine);
  int count = 1;
  MPI_Comm_size(machine, &count);
  MPI_Comm_free(&machine);
  return count;
}

}  // namespace

// MPI itself ends after all that was made of it.
struct MpiRuns {
  MpiRuns() {
    int provided = 0;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided);
  }
  ~MpiRuns() { MPI_Finalize(); }
};

struct RankGrid::Mpi {
  MpiRuns runs;
  MpiCommunicator world{MPI_COMM_WORLD};
  int on_this_machine = ranks_that_share_memory();
  std::vector<Failure> failures = std::vector<Failure>(static_cast<size_t>(world.size()));  // of together()
  std::unique_ptr<Counted> vocab, data;  // null where mpirun has started too few ranks, or too many
};

RankGrid::RankGrid(const io::ParallelConfig& parallel) : parallel_(parallel), mpi_(std::make_unique<Mpi>()) {
  if (size() != parallel.ranks()) return;
  mpi_->vocab = split_world(place().data, place().vocab);
  mpi_->data = split_world(place().vocab, place().data);
}

RankGrid::~RankGrid() = default;

int RankGrid::rank() const { return mpi_->world.rank(); }
int RankGrid::size() const { return mpi_->world.size(); }
int RankGrid::ranks_on_this_machine() const { return mpi_->on_this_machine; }

Ranks RankGrid::ranks() const {
  Ranks ranks;
  if (parallel_.vocab > 1) ranks.vocab = mpi_->vocab.get();
  if (parallel_.data > 1) ranks.data = mpi_->data.get();
  ranks.sum_d_weight = parallel_.data > 1;
  return ranks;
}

Traffic RankGrid::take_vocab_traffic() { return mpi_->vocab->take_traffic(); }
Traffic RankGrid::take_data_traffic() { return mpi_->data->take_traffic(); }

void RankGrid::together(const std::function<void()>& step) {
  const Failure mine = failure_of(step);
  wait();
  std::vector<Failure>& all = mpi_->failures;
  mpi_->world.all_gather(&mine, all.data(), sizeof(Failure));
  // A rank that was told of another one's failure has nothing to add, unless nobody has failed by itself.
  const auto worst = std::max_element(all.begin(), all.end(), [](const Failure& a, const Failure& b) {
    return std::min<int>(a.kind, Failure::kInput) < std::min<int>(b.kind, Failure::kInput);
  });
  if (worst->kind == Failure::kNone) return;
  if (rank() > 0) throw RankEnds();
  const auto failed = worst - all.begin();
  const std::string text = (failed > 0 ? "rank " + std::to_string(failed) + ": " : "") + worst->text.data();
  if (worst->kind == Failure::kInput) throw io::Error(text);
  throw ChildFailure(text);
}

void RankGrid::wait() {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Ibarrier(MPI_COMM_WORLD, &request);
  for (int all_are_here = 0; !all_are_here;) {
    MPI_Test(&request, &all_are_here, MPI_STATUS_IGNORE);
    if (!all_are_here) std::this_thread::sleep_for(kNap);
  }
}

// What may fail is done together, so that no rank waits in an exchange for one that has left.
std::vector<std::vector<std::byte>> RankGrid::gather(std::span<const std::byte> mine) {
  const auto ranks = static_cast<size_t>(size());
  const uint64_t my_size = mine.size();
  std::vector<uint64_t> sizes;
  together([&] { sizes.resize(ranks); });
  mpi_->world.all_gather(&my_size, sizes.data(), sizeof(my_size));
  const size_t most = *std::max_element(sizes.begin(), sizes.end()), piece = std::min(most, kPiece / ranks);
  std::vector<std::vector<std::byte>> out;
  std::vector<std::byte> part, all;
  together([&] {
    out.resize(rank() == 0 ? ranks : 0);
    for (size_t r = 0; r < out.size(); ++r) out[r].resize(sizes[r]);
    part.resize(piece);
    all.resize(piece * ranks);
  });
  const auto bytes_at = [&](size_t begin, size_t size) { return begin < size ? std::min(piece, size - begin) : 0; };
  for (size_t begin = 0; begin < most; begin += piece) {
    std::copy_n(mine.data() + std::min(begin, mine.size()), bytes_at(begin, mine.size()), part.data());
    mpi_->world.all_gather(part.data(), all.data(), piece);
    for (size_t r = 0; r < out.size(); ++r) {
      std::copy_n(all.data() + r * piece, bytes_at(begin, sizes[r]), out[r].data() + std::min(begin, sizes[r]));
    }
  }
  return out;
}

#else

struct RankGrid::Mpi {};

RankGrid::RankGrid(const io::ParallelConfig& parallel) : parallel_(parallel) {
  throw io::Error("parallel: this command was built without MPI");
}
RankGrid::~RankGrid() = default;
int RankGrid::rank() const { return 0; }
int RankGrid::size() const { return 1; }
int RankGrid::ranks_on_this_machine() const { return 1; }
Ranks RankGrid::ranks() const { return {}; }
Traffic RankGrid::take_vocab_traffic() { return {}; }
Traffic RankGrid::take_data_traffic() { return {}; }
void RankGrid::together(const std::function<void()>& step) { step(); }
void RankGrid::wait() {}
std::vector<std::vector<std::byte>> RankGrid::gather(std::span<const std::byte>) { return {}; }

#endif

}  // namespace logitless::cli

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

#include "cli/common/failure.h"
#include "cli/measure/process.h"
#include "cli/ranks/grid.h"
#include "io/error.h"
#include "logitless/mpi.h"

namespace logitless::cli {
namespace {

constexpr auto kPollInterval = std::chrono::milliseconds(1);
constexpr size_t kMostSent = size_t{1} << 30;  // per message: MPI counts in int

// Ends MPI after everything that uses it.
struct MpiRuns {
  MpiRuns() {
    int provided = 0;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided);
  }
  ~MpiRuns() { MPI_Finalize(); }
};

// A communicator that counts its traffic.
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

// A failure as ranks exchange it. Its text is cut to a fixed size.
struct RankFailure {
  enum Kind : int { kNone, kOfAnotherRank, kInput, kOther };
  Kind kind = kNone;
  std::array<char, 1020> text = {};

  RankFailure() = default;
  RankFailure(Kind kind_, const std::string& what) : kind(kind_) {
    std::strncpy(text.data(), what.c_str(), text.size() - 1);
  }
};

RankFailure failure_of(const std::function<void()>& step) try {
  step();
  return {};
} catch (const RankError& e) {
  return {RankFailure::kOfAnotherRank, e.what()};
} catch (const std::exception&) {
  const Failure failure = current_failure();
  return {failure.bad_input ? RankFailure::kInput : RankFailure::kOther, failure.what};
}

// Returns the group of all ranks with this colour, in the order of their keys.
std::unique_ptr<Counted> split_world(int colour, int key) {
  MPI_Comm group = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, colour, key, &group);
  auto out = std::make_unique<Counted>(group);  // duplicates the group
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

class MpiGrid final : public RankGrid {
 public:
  explicit MpiGrid(const io::ParallelConfig& parallel) : parallel_(parallel), failures_(world_.size()) {
    together([&] { check_size(); });
    vocab_ = split_world(place().data, place().vocab);
    data_ = split_world(place().vocab, place().data);
  }

  int rank() const override { return world_.rank(); }
  int size() const override { return world_.size(); }
  int ranks_on_this_machine() const override { return on_this_machine_; }
  GridPlace place_of(int rank) const override { return {rank % parallel_.vocab, rank / parallel_.vocab}; }

  Ranks ranks() const override {
    Ranks ranks;
    if (parallel_.vocab > 1) ranks.vocab = vocab_.get();
    if (parallel_.data > 1) ranks.data = data_.get();
    ranks.sum_d_weight = parallel_.data > 1;
    return ranks;
  }
  Exchanges take_exchanges() override { return {vocab_->take_traffic(), data_->take_traffic()}; }

  void together(const std::function<void()>& step) override {
    const RankFailure mine = failure_of(step);
    wait();
    world_.all_gather(&mine, failures_.data(), sizeof(RankFailure));
    // A rank's own failure comes before one that it was only told of.
    const auto worst =
        std::max_element(failures_.begin(), failures_.end(), [](const RankFailure& a, const RankFailure& b) {
          return std::min<int>(a.kind, RankFailure::kInput) < std::min<int>(b.kind, RankFailure::kInput);
        });
    if (worst->kind == RankFailure::kNone) return;
    if (rank() > 0) throw RankEnds();
    const auto failed = worst - failures_.begin();
    const std::string text = (failed > 0 ? "rank " + std::to_string(failed) + ": " : "") + worst->text.data();
    if (worst->kind == RankFailure::kInput) throw io::Error(text);
    throw ChildFailure(text);
  }

  std::vector<Bytes> gather(std::span<const std::byte> mine) override {
    std::vector<size_t> sizes;
    std::vector<Bytes> all;
    together([&] { sizes.resize(failures_.size()); });
    const size_t my_size = mine.size();
    world_.all_gather(&my_size, sizes.data(), sizeof(my_size));
    // Ranks allocate together, so that none of them sends to a rank that has ended.
    together([&] {
      for (size_t r = 0; is_root() && r < sizes.size(); ++r) all.emplace_back(sizes[r]);
    });
    if (!is_root()) return send_to_root(mine), all;
    std::copy(mine.begin(), mine.end(), all[0].begin());
    for (int r = 1; r < size(); ++r) receive_from(r, all[static_cast<size_t>(r)]);
    return all;
  }

 private:
  void check_size() const {
    if (size() == parallel_.ranks()) return;
    throw io::Error("parallel.vocab = " + std::to_string(parallel_.vocab) + " and parallel.data = " +
                    std::to_string(parallel_.data) + " are " + std::to_string(parallel_.ranks()) +
                    " ranks, but there " + (size() == 1 ? "is 1" : "are " + std::to_string(size())) + ": mpirun -n " +
                    std::to_string(parallel_.ranks()) + " logitless compare ...");
  }
  static void wait() {
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Ibarrier(MPI_COMM_WORLD, &request);
    for (int done = 0; !done;) {
      MPI_Test(&request, &done, MPI_STATUS_IGNORE);
      if (!done) std::this_thread::sleep_for(kPollInterval);
    }
  }
  static int count_at(size_t begin, size_t size) { return static_cast<int>(std::min(kMostSent, size - begin)); }
  static void send_to_root(std::span<const std::byte> mine) {
    for (size_t begin = 0; begin < mine.size(); begin += kMostSent) {
      MPI_Send(mine.data() + begin, count_at(begin, mine.size()), MPI_BYTE, 0, 0, MPI_COMM_WORLD);
    }
  }
  static void receive_from(int rank, Bytes& all) {
    for (size_t begin = 0; begin < all.size(); begin += kMostSent) {
      MPI_Recv(all.data() + begin, count_at(begin, all.size()), MPI_BYTE, rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
  }

  MpiRuns runs_;
  const io::ParallelConfig parallel_;
  MpiCommunicator world_{MPI_COMM_WORLD};
  const int on_this_machine_ = ranks_that_share_memory();
  std::vector<RankFailure> failures_;  // of together()
  std::unique_ptr<Counted> vocab_, data_;
};

}  // namespace

std::unique_ptr<RankGrid> begin_ranks(const io::ParallelConfig& parallel) {
  return std::make_unique<MpiGrid>(parallel);
}

}  // namespace logitless::cli

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The tasks of a pass that computes tiles and passes their gradients to sinks: which task waits for which.
#pragma once

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "core/first_error.h"
#include "core/parallel.h"
#include "core/store.h"
#include "ranks/batch_sums.h"
#include "sink/sink.h"
#include "stream/active_blocks.h"
#include "stream/pass.h"
#include "stream/tile_buffers.h"

namespace logitless::stream {

// How many vocabulary tiles per thread, each with all its row blocks, may have unfinished tasks. This many
// keep the team busy. More would delay long chains: OpenMP runs ready tasks in the order in which they became
// ready, so a chain advances by one task while all other ready tasks run once. With many of those, a single
// thread would have to complete the chain at the end.
inline constexpr int64_t kVocabTilesAhead = 2;
// For the same reason sums over rows wait until the sums over the vocabulary lag by at most this many tiles.
inline constexpr int64_t kVocabTilesBehind = 3;
// At most this many tiles per thread are submitted ahead, however many row blocks there are: OpenMP keeps a
// record of each waiting task.
inline constexpr int64_t kMostTilesAhead = 16;

/// The tasks of one pass over the tiles of some row blocks. The derived class Steps defines the tasks:
///
///     kInOrder                   whether there is a fold_tile()
///     make_tile(j, b, slot)      computes the gradients of vocabulary tile j for row block b
///     fold_tile(j, b, slot)      does the work that must be in vocabulary order
///     first(sink, j, b)          returns whether this is a sink's first part for these sums
///     part_of(j, b, slot)        returns the part for the sinks
template <class Types, class Steps>
class TileTasks {
 public:
  using Sum = typename Types::Sum;
  using Logit = typename Types::Logit;
  using Gradient = typename Types::Gradient;

  TileTasks(const Pass<Types>& pass, BackwardBuffers<Types>& buffers, sink::Sinks<Sum> sinks,
            const ActiveBlocks& active, ranks::BatchSums* sums = nullptr)
      : pass_(pass),
        grid_(pass.run.grid),
        buffers_(buffers),
        sinks_(sinks),
        active_(active),
        keeps_logits_(pass.run.keeps_logits()),
        batch_sums_(sums) {}

  void run() {
    for (const planning::RowBlock& rows : active_.blocks.blocks) {
      if (keeps_logits_ && !rows.contiguous) {
        pass_.source.gather(active_.blocks.rows(rows), pass_.run.plan.threads, buffers_.gathered.from(rows.begin));
      }
    }
    const auto alone = pass_.run.gemm->single_threaded_region();
    // There is at least one slot per thread.
    buffers_.reordered.reorder(pass_.source, *pass_.run.gemm, pass_.tiles->row_kernels(), pass_.run.plan.threads,
                               active_.blocks, active_.blocks.blocks,
                               [&](size_t thread) { return buffers_.slots[thread].gathered; });
    Dependences dependences(*this);
    core::parallel_tasks(pass_.run.plan.threads, [&](core::FirstError& error) { submit(dependences, &error); });
  }

 protected:
  typename BackwardBuffers<Types>::PerThread& scratch() const {
    return buffers_.threads[static_cast<size_t>(omp_get_thread_num())];
  }

  const planning::RowBlock& block(int64_t b) const { return active_.blocks.blocks[static_cast<size_t>(b)]; }

  // Returns the address of a tile's logits. Their gradients replace them: row k of the gradients begins at
  // row k of the logits, and its low terms, if any, follow it.
  Logit* logits(int64_t j, int64_t b, int64_t slot) const {
    if (!pass_.run.stores(j)) return buffers_.slots[static_cast<size_t>(slot)].tile;
    return pass_.chunk_tile(active_.tile_block[static_cast<size_t>(b)], active_.chunk_begin, j);
  }
  stats::GradientRows<Gradient> gradient(int64_t j, int64_t b, int64_t slot) const {
    constexpr size_t kLogit = sizeof(Logit), kGradient = sizeof(Gradient);
    static_assert(kLogit % kGradient == 0, "gradients take the place of their logits");
    constexpr auto kPerLogit = static_cast<int64_t>(kLogit / kGradient);
    auto* data = reinterpret_cast<Gradient*>(logits(j, b, slot));
    return {data, kPerLogit * grid_.tile_stride, pass_.run.gradient_terms == 2 ? data + grid_.tile_stride : nullptr,
            residuals(j, b, slot)};
  }
  int64_t alive_tile(int64_t j, int64_t b, int64_t slot) const {
    return keeps_logits_ ? b * grid_.vocab_tiles() + j : slot;
  }
  // Returns where the rounding residuals of a tile's gradients are summed; column sums only if a sink uses
  // them.
  kernels::Residuals residuals(int64_t j, int64_t b, int64_t slot) const {
    if (!buffers_.row_residuals) return {};
    const int64_t tile = alive_tile(j, b, slot);
    float* const columns = sums_columns_ ? buffers_.column_residuals + tile * grid_.vocab_tile : nullptr;
    return {buffers_.row_residuals + tile * grid_.row_tile, columns, b == 0 ? scratch().sizes : nullptr};
  }
  // Returns the tile's column weights for the head's weighted mean; the first row block fills them in.
  bfloat16* entry_weights(int64_t j, int64_t b, int64_t slot) const {
    if (!buffers_.entry_weights || b > 0) return nullptr;
    return buffers_.entry_weights + alive_tile(j, b, slot) * grid_.vocab_tile;
  }
  // Computes the entry weights from the column sizes that this thread has just summed.
  void weigh_entries(int64_t j, int64_t b, int64_t slot) const {
    bfloat16* const weights = entry_weights(j, b, slot);
    if (weights) pass_.tiles->row_kernels().round_bf16(scratch().sizes, grid_.entries(j), false, weights);
  }

  // Returns the buffer with the copied states of a tile's rows; empty if the rows are contiguous.
  source::GatherBuffer gathered(int64_t b, int64_t slot) const {
    if (block(b).contiguous) return {};
    return keeps_logits_ ? buffers_.gathered.from(block(b).begin) : buffers_.slots[static_cast<size_t>(slot)].gathered;
  }

  // Computes the logits of a tile in its slot, unless they are stored, and gathers its rows there.
  void make_logits(int64_t j, int64_t b, int64_t slot) const {
    source::TileRows tile = {active_.blocks, block(b), gathered(b, slot)};
    // The sinks multiply the gathered states even if they were reordered for the logits.
    pass_.source.gather(*pass_.run.gemm, tile);
    tile.reordered = buffers_.reordered.of(b);
    if (!pass_.run.stores(j)) {
      pass_.source.make_tile(tile, grid_.first_entry(j), grid_.entries(j), logits(j, b, slot), grid_.tile_stride,
                             pass_.multiplier(scratch().products));
    }
    // The gradients have no padding rows, so the states that they are multiplied by must not have any either.
    pass_.source.close_holes(tile);
  }

  sink::GradientPart part(int64_t j, int64_t b, int64_t slot) const {
    const planning::RowBlock& rows = block(b);
    const stats::GradientRows<Gradient> of_rows = gradient(j, b, slot);
    const auto term = [&](const Gradient* data) {
      return gemm::Operand{data, DTypeOf<Gradient>::value, of_rows.stride, false};
    };
    sink::GradientPart out;
    out.terms = {term(of_rows.data), term(of_rows.low)};
    out.term_count = of_rows.low ? 2 : 1;
    out.residuals = of_rows.residuals;
    out.entry_weights = entry_weights(j, b, slot);
    out.rows = active_.blocks.rows(rows);
    out.contiguous = rows.contiguous;
    out.gathered = gathered(b, slot);
    out.first_row = rows.begin;
    out.first_entry = grid_.first_entry(j);
    out.entries = grid_.entries(j);
    return out;
  }

  const Pass<Types>& pass_;
  const planning::TileGrid& grid_;
  BackwardBuffers<Types>& buffers_;
  const sink::Sinks<Sum> sinks_;
  const ActiveBlocks& active_;
  const bool keeps_logits_;
  ranks::BatchSums* const batch_sums_;  // notified when gradients of entries are final; may be null
  const bool sums_columns_ = std::any_of(sinks_.begin(), sinks_.end(), [](const sink::Sink<Sum>* sink) {
    return sink->chain_of() == sink::ChainOf::kVocabTile;
  });

 private:
  Steps& steps() { return static_cast<Steps&>(*this); }

  void add(size_t s, int64_t split, int64_t j, int64_t b, int64_t slot) {
    sink::Sink<Sum>& sink = *sinks_[s];
    sink.add(steps().part_of(j, b, slot), split, steps().first(sink, j, b), omp_get_thread_num(),
             pass_.multiplier(scratch().products));
  }

  /// The chains of one sink: one per row block, or one per vocabulary tile in progress.
  struct Chains {
    sink::Sink<Sum>* sink;
    bool of_rows;
    int64_t turns;   // number of row blocks, or of vocabulary tiles in progress
    int64_t splits;  // chains per row block or vocabulary tile
    int64_t begin;   // first of its [turns, splits] entries in Dependences::chain_places

    /// Returns whether these are the sink's own chains, which end when a vocabulary tile is complete.
    bool sums_tiles() const { return !of_rows && !sink->joins(); }
  };

  /// The addresses that tasks depend on; the values are not used.
  struct Dependences {
    int64_t row_blocks;
    int64_t slots;               // tiles in memory: Plan::tiles_alive in two pass, all in one pass
    core::Array<char> tile;      // [slots]: a tile is computed, used, and free again
    core::Array<Chains> chains;  // [sinks]
    core::Array<char> chain_places;
    core::Array<char> entries;  // [vocabulary tiles]: this part of the head is no longer read
    // [tiles that may be submitted before they are done]: all tasks of a tile are done
    core::Array<char> ahead;
    // [tiles in `follow`, splits of `leader`]: a tile is in the sums of its rows
    core::Array<char> sums_of_rows;
    core::Array<char> follow;                  // [tiles]: sums over rows may continue
    std::optional<size_t> leader;              // index in `chains` of the first sums over the vocabulary
    core::Array<std::atomic<int>> unfinished;  // [vocabulary tiles]: sinks that still sum a tile
    core::Array<char> folded;                  // [row blocks]: fold_tile() is done, in vocabulary order
    char finished = 0;                         // tiles of sums are passed on one at a time, in order

    explicit Dependences(const TileTasks& tasks)
        : unfinished(tasks.batch_sums_ ? static_cast<size_t>(tasks.grid_.vocab_tiles()) : 0) {
      const planning::TileGrid& grid = tasks.grid_;
      row_blocks = static_cast<int64_t>(tasks.active_.blocks.blocks.size());
      slots = tasks.keeps_logits_ ? row_blocks * grid.vocab_tiles() : static_cast<int64_t>(tasks.buffers_.slots.size());
      tile.resize(static_cast<size_t>(slots));
      chains.reserve(tasks.sinks_.size());
      int64_t places = 0;
      for (sink::Sink<Sum>* sink : tasks.sinks_) {
        const bool of_rows = sink->chain_of() == sink::ChainOf::kRowBlock;
        const int64_t apart = sink->tiles_apart();
        const int64_t turns = of_rows ? row_blocks : apart > 0 ? apart : grid.vocab_tiles();
        chains.push_back({sink, of_rows, turns, sink->splits(), places});
        // A sink may instead join the chains of another sink.
        if (!sink->joins()) places += turns * sink->splits();
      }
      chain_places.resize(static_cast<size_t>(places));
      entries.resize(static_cast<size_t>(grid.vocab_tiles()));
      if constexpr (Steps::kInOrder) folded.resize(static_cast<size_t>(row_blocks));
      const int64_t tiles_ahead = std::clamp<int64_t>(kVocabTilesAhead * row_blocks, 1, kMostTilesAhead);
      ahead.resize(static_cast<size_t>(tiles_ahead * tasks.pass_.run.plan.threads));
      if (kVocabTilesBehind * row_blocks < static_cast<int64_t>(ahead.size())) lead();
      const auto sinks_of_tiles =
          std::count_if(chains.begin(), chains.end(), [](const Chains& c) { return c.sums_tiles(); });
      for (std::atomic<int>& tile_sinks : unfinished) tile_sinks = static_cast<int>(sinks_of_tiles);
    }

    /// Makes the sums over rows, which complete tiles of d_weight, follow the first sums over the vocabulary,
    /// if the call has both.
    void lead() {
      const auto of_rows = std::find_if(chains.begin(), chains.end(), [](const Chains& c) { return c.of_rows; });
      const auto of_tiles = std::find_if(chains.begin(), chains.end(), [](const Chains& c) { return !c.of_rows; });
      if (of_rows == chains.end() || of_tiles == chains.end()) return;
      leader = static_cast<size_t>(of_rows - chains.begin());
      // A place is reused only when all tasks that name it are done.
      follow.resize(static_cast<size_t>(kVocabTilesBehind * row_blocks) + ahead.size());
      sums_of_rows.resize(follow.size() * static_cast<size_t>(of_rows->splits));
    }
    size_t place(int64_t vocab_tile, int64_t row_block) const {
      return static_cast<size_t>(vocab_tile * row_blocks + row_block) % follow.size();
    }
    /// Returns the places of a tile's sums over the vocabulary, one per split.
    std::span<char> summed(int64_t vocab_tile, int64_t row_block) {
      const auto splits = static_cast<size_t>(chains[*leader].splits);
      return std::span<char>(sums_of_rows).subspan(place(vocab_tile, row_block) * splits, splits);
    }

    /// Returns the first chain of sink s for a row block or a vocabulary tile.
    char* chain(size_t s, int64_t row_block, int64_t vocab_tile) {
      const Chains& of = chains[chains[s].sink->joins().value_or(s)];
      return &chain_places[static_cast<size_t>(of.begin +
                                               (of.of_rows ? row_block : vocab_tile) % of.turns * of.splits)];
    }
  };

  // Tiles are ordered by vocabulary first and by rows second: a part of the head stays in cache while all row
  // blocks use it, and its part of d_weight is complete when the next one begins. Sums into the same place
  // form a chain in that order, whatever the number of threads. Each task has its own copy of its variables.
  void submit(Dependences& dependences, core::FirstError* error) {
    const int64_t row_blocks = dependences.row_blocks, vocab_tiles = grid_.vocab_tiles();
    int64_t slot = 0, final_tiles = 0;
    size_t ahead = 0;
    for (int64_t j = 0; j < vocab_tiles; ++j) {
      [[maybe_unused]] char* head_part = &dependences.entries[static_cast<size_t>(j)];
      for (int64_t b = 0; b < row_blocks; ++b, slot = (slot + 1) % dependences.slots) {
        [[maybe_unused]] char* done = &dependences.ahead[ahead];
        ahead = (ahead + 1) % dependences.ahead.size();
// The task group waits for the tile submitted ahead.size() tiles ago, and this thread runs tasks meanwhile.
// `task if (false) depend(...)` would be shorter, but LLVM's runtime before version 19 keeps such a task's
// record on the stack and leaves that frame too soon (https://github.com/llvm/llvm-project/issues/85963).
#pragma omp taskgroup
#pragma omp task depend(inout : done[0])
        {}
        report_final_tiles(dependences, error, final_tiles);
        [[maybe_unused]] char* tile = &dependences.tile[static_cast<size_t>(slot)];
#pragma omp task depend(inout : tile[0]) depend(in : head_part[0], done[0])
        error->guard([&] { steps().make_tile(j, b, slot); });
        if constexpr (Steps::kInOrder) {
          [[maybe_unused]] char* folded = &dependences.folded[static_cast<size_t>(b)];
#pragma omp task depend(inout : tile[0], folded[0]) depend(in : done[0])
          error->guard([&] { steps().fold_tile(j, b, slot); });
        }
        [[maybe_unused]] char* const followed = followed_sums(dependences, j, b, done);
        for (size_t s = 0; s < dependences.chains.size(); ++s) {
          [[maybe_unused]] char* const chain = dependences.chain(s, b, j);
          [[maybe_unused]] char* const after = dependences.chains[s].of_rows ? done : followed;
          for (int64_t split = 0; split < dependences.chains[s].splits; ++split) {
            // If no sums follow these, `sum` is the chain itself, named twice.
            [[maybe_unused]] char* const sum =
                s == dependences.leader ? &dependences.summed(j, b)[split] : chain + split;
#pragma omp task depend(in : tile[0], head_part[0], done[0], after[0]) depend(inout : chain[split], sum[0])
            error->guard([&] { add(s, split, j, b, slot); });
          }
        }
      }
      submit_ends(dependences, j, &dependences.ahead[(ahead + dependences.ahead.size() - 1) % dependences.ahead.size()],
                  error);
    }
    // Waits for the remaining tiles one by one, so that finished sums are sent while others are computed.
    for (size_t remaining = batch_sums_ ? dependences.ahead.size() : 0; remaining > 0; --remaining) {
      [[maybe_unused]] char* done = &dependences.ahead[ahead];
      ahead = (ahead + 1) % dependences.ahead.size();
#pragma omp taskgroup
#pragma omp task depend(inout : done[0])
      {}
      report_final_tiles(dependences, error, final_tiles);
    }
#pragma omp taskwait
  }

  // Submits the tasks that follow the last part of vocabulary tile j; `done` is the address of that part's
  // tile in `ahead`.
  void submit_ends(Dependences& dependences, int64_t j, [[maybe_unused]] char* done, core::FirstError* error) {
    for (size_t s = 0; s < dependences.chains.size(); ++s) {
      sink::Sink<Sum>* const sink = dependences.chains[s].sink;
      if (!sink->finishes_tiles()) continue;
      [[maybe_unused]] char* chain = dependences.chain(s, 0, j);
      [[maybe_unused]] const int splits = static_cast<int>(dependences.chains[s].splits);
      // Tiles that are summed apart are stored or passed to a callback in order, and a callback may overwrite
      // this part of the head. For other sinks, both addresses are the chain again.
      const bool apart = sink->tiles_apart() > 0;
      [[maybe_unused]] char* const order = apart ? &dependences.finished : chain;
      [[maybe_unused]] char* const head = apart ? &dependences.entries[static_cast<size_t>(j)] : chain;
#pragma omp task depend(iterator(h = 0 : splits), inout : chain[h]) depend(inout : order[0], head[0])
      error->guard([&] { sink->finish_tile(grid_.first_entry(j), grid_.entries(j), 1); });
    }
    // These follow all finish_tile() tasks, because a sink may share another sink's chain.
    for (size_t s = 0; batch_sums_ && s < dependences.chains.size(); ++s) {
      if (!dependences.chains[s].sums_tiles()) continue;
      [[maybe_unused]] char* chain = dependences.chain(s, 0, j);
      [[maybe_unused]] const int splits = static_cast<int>(dependences.chains[s].splits);
      std::atomic<int>* const unfinished = &dependences.unfinished[static_cast<size_t>(j)];
// submit() waits for `done` before it gets far ahead, so this task cannot be delayed for long.
#pragma omp task depend(iterator(h = 0 : splits), inout : chain[h]) depend(in : done[0])
      unfinished->fetch_sub(1, std::memory_order_release);
    }
  }

  // Returns the address that the sums over a tile's rows wait for.
  static char* followed_sums(Dependences& dependences, int64_t j, int64_t b, char* done) {
    if (!dependences.leader || j < kVocabTilesBehind) return done;
    const std::span<char> summed = dependences.summed(j - kVocabTilesBehind, b);
    [[maybe_unused]] char* const sums = summed.data();
    [[maybe_unused]] const int splits = static_cast<int>(summed.size());
    char* const follow = &dependences.follow[dependences.place(j, b)];
#pragma omp task depend(iterator(h = 0 : splits), in : sums[h]) depend(out : follow[0])
    {}
    return follow;
  }

  // Tells batch_sums_, if any, how many vocabulary entries are complete. Runs on the calling thread.
  void report_final_tiles(const Dependences& dependences, core::FirstError* error, int64_t& final_tiles) const {
    if (!batch_sums_) return;
    const int64_t before = final_tiles;
    const auto is_final = [&](int64_t j) {
      return dependences.unfinished[static_cast<size_t>(j)].load(std::memory_order_acquire) == 0;
    };
    while (final_tiles < grid_.vocab_tiles() && is_final(final_tiles)) ++final_tiles;
    if (final_tiles == before) return;
    const int64_t entries = grid_.first_entry(final_tiles - 1) + grid_.entries(final_tiles - 1);
    error->guard([&] { batch_sums_->reached(entries); });
  }
};

}  // namespace logitless::stream

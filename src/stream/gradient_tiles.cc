// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "stream/gradient_tiles.h"

#include <omp.h>

#include <algorithm>

#include "core/parallel.h"
#include "core/store.h"
#include "core/views.h"
#include "sink/sinks.h"
#include "stats/row_gradients.h"

namespace logitless::stream {
namespace {

// For each thread, the tasks of this many tiles are submitted before they are done. OpenMP keeps a record of
// each task that waits: this many keep the team busy while the submitting thread works on a task itself, and
// bound the records whatever the shape. (libgomp's own bound, 64 tasks a thread, does not count tasks that
// wait for others.)
constexpr int64_t kTilesAhead = 16;

template <class Types>
sink::WeightSink<typename Types::Sum> weight_sink(const Pass<Types>& pass, plan::BackwardBuffers<Types>& buffers,
                                                  const Gradients& outputs) {
  using Sum = typename Types::Sum;
  std::span<Sum* const> tiles;
  if (plan::needs_weight_tiles<Sum>(outputs)) tiles = buffers.d_weight;
  return {*pass.context.kernels, pass.problem, outputs, tiles, pass.run.grid.vocab_tile};
}

/// The tasks of one backward pass. What one task does stands in its function; who waits for whom
/// stands in run().
template <class Types>
class GradientTasks {
 public:
  using Sum = typename Types::Sum;
  using Logit = typename Types::Logit;
  using Gradient = typename Types::Gradient;

  GradientTasks(const Pass<Types>& pass, plan::BackwardBuffers<Types>& buffers, const ActiveBlocks& active, bool begin,
                const TokenGrads& grads, const Gradients& outputs)
      : pass_(pass),
        grid_(pass.run.grid),
        buffers_(buffers),
        active_(active),
        begin_(begin),
        logits_stay_(pass.run.logits_stay),
        hidden_(*pass.context.kernels, pass.problem, outputs, buffers.d_hidden),
        weight_(weight_sink(pass, buffers, outputs)),
        bias_(*pass.context.kernels, outputs, pass.bias_sums) {
    const auto any = [](const std::vector<double>& g) {
      return std::any_of(g.begin(), g.end(), [](double x) { return x != 0; });
    };
    parts_ = {any(grads.entropy), any(grads.cross)};
  }

  void run() {
    for (const plan::RowBlock& rows : active_.blocks.blocks) {
      if (logits_stay_ && !rows.contiguous) {
        pass_.source.gather(active_.blocks.rows(rows), pass_.run.plan.threads, buffers_.gathered.from(rows.begin));
      }
    }
    const auto alone = pass_.run.gemm->single_threaded_region();
    // A thread has at least one slot.
    buffers_.packed.pack(pass_.source, *pass_.run.gemm, pass_.run.plan.threads, active_.blocks, active_.blocks.blocks,
                         [&](size_t thread) { return buffers_.slots[thread].gathered; });
    Dependences dependences(*this);
    core::parallel_tasks(pass_.run.plan.threads, [&](core::FirstError& error) { submit(dependences, &error); });
    hidden_.finish(active_.blocks.order, pass_.run.plan.threads);
  }

 private:
  /// The places that tasks depend on; only their addresses matter.
  struct Dependences {
    int64_t slots;              // tiles that are alive: in two pass those of the plan, in one pass all
    core::Array<char> tile;     // [slots]: a tile is made, used, and free again
    core::Array<char> hidden;   // [row blocks, hidden blocks]: chains of d_hidden
    core::Array<char> weight;   // [vocabulary tiles, weight blocks]: chains of d_weight and d_bias
    core::Array<char> entries;  // [vocabulary tiles]: the head's part is read no more
    // [tiles that are submitted before they are done]: all tasks of a tile are done
    core::Array<char> ahead;
    char finished = 0;  // weight tiles are handed on one at a time, in order

    explicit Dependences(const GradientTasks& tasks) {
      const plan::TileGrid& grid = tasks.grid_;
      const auto row_blocks = static_cast<int64_t>(tasks.active_.blocks.blocks.size());
      slots = tasks.logits_stay_ ? row_blocks * grid.vocab_tiles() : static_cast<int64_t>(tasks.buffers_.slots.size());
      tile.resize(static_cast<size_t>(slots));
      hidden.resize(static_cast<size_t>(row_blocks * grid.hidden_blocks()));
      weight.resize(static_cast<size_t>(grid.vocab_tiles() * grid.weight_blocks()));
      entries.resize(static_cast<size_t>(grid.vocab_tiles()));
      ahead.resize(static_cast<size_t>(kTilesAhead * tasks.pass_.run.plan.threads));
    }
  };

  // Tiles go by vocabulary first and by rows second: a part of the head stays near while all row blocks use
  // it, and its part of d_weight is complete when the next one begins. Sums into one place form a chain in
  // that order, whatever the number of threads. Each task has its own copy of what it names.
  void submit([[maybe_unused]] Dependences& dependences, core::FirstError* error) {
    const auto row_blocks = static_cast<int64_t>(active_.blocks.blocks.size());
    const int64_t vocab_tiles = grid_.vocab_tiles();
    const int hidden_blocks = static_cast<int>(grid_.hidden_blocks());
    const int weight_blocks = static_cast<int>(grid_.weight_blocks());
    int64_t slot = 0;
    size_t ahead = 0;
    for (int64_t j = 0; j < vocab_tiles; ++j) {
      // Tiles of d_weight that are summed apart take turns.
      [[maybe_unused]] char* weight_chain =
          &dependences.weight[static_cast<size_t>((weight_.apart() ? j % plan::kWeightTiles : j) * weight_blocks)];
      [[maybe_unused]] char* head_part = &dependences.entries[static_cast<size_t>(j)];
      for (int64_t b = 0; b < row_blocks; ++b, slot = (slot + 1) % dependences.slots) {
        [[maybe_unused]] char* done = &dependences.ahead[ahead];
        ahead = (ahead + 1) % dependences.ahead.size();
// The group waits for the tile that was submitted this many tiles ago, and the thread runs tasks meanwhile.
// `task if (false) depend(...)` would be shorter: LLVM's runtime before version 19 keeps the record of such a
// task on the stack and leaves it too soon (https://github.com/llvm/llvm-project/issues/85963).
#pragma omp taskgroup
#pragma omp task depend(inout : done[0])
        {}
        [[maybe_unused]] char* tile_slot = &dependences.tile[static_cast<size_t>(slot)];
        [[maybe_unused]] char* hidden_chain = &dependences.hidden[static_cast<size_t>(b * hidden_blocks)];
#pragma omp task depend(inout : tile_slot[0]) depend(in : head_part[0], done[0])
        error->guard([&] { make_tile(j, b, slot); });
        for (int h = 0; hidden_.wanted() && h < hidden_blocks; ++h) {
#pragma omp task depend(in : tile_slot[0], head_part[0], done[0]) depend(inout : hidden_chain[h])
          error->guard([&] { add_d_hidden(j, b, slot, h); });
        }
        for (int h = 0; weight_.wanted() && h < weight_blocks; ++h) {
#pragma omp task depend(in : tile_slot[0], done[0]) depend(inout : weight_chain[h])
          error->guard([&] { add_d_weight(j, b, slot, h); });
        }
        if (bias_.wanted()) {
          // d_weight's first chain of this tile has the order that these sums need, and costs nothing when it
          // is alone.
#pragma omp task depend(in : tile_slot[0], done[0]) depend(inout : weight_chain[0])
          error->guard([&] { bias_.add(part(j, b, slot), begin_ && b == 0); });
        }
      }
      if (weight_.apart()) {
#pragma omp task depend(iterator(h = 0                  \
                                 : weight_blocks),      \
                        inout                           \
                        : weight_chain[h]) depend(inout \
                                                  : dependences.finished, head_part[0])
        error->guard([&] { weight_.finish(j, grid_.first_entry(j), grid_.entries(j), 1); });
      }
    }
#pragma omp taskwait
  }

  typename plan::BackwardBuffers<Types>::PerThread& scratch() {
    return buffers_.threads[static_cast<size_t>(omp_get_thread_num())];
  }

  const plan::RowBlock& block(int64_t b) const { return active_.blocks.blocks[static_cast<size_t>(b)]; }

  // Returns where the logits of a tile stand. Their gradients take their place: row k of these begins with
  // row k of the logits, and its low terms, where there are any, stand behind it.
  Logit* logits(int64_t j, int64_t b, int64_t slot) const {
    if (!logits_stay_) return buffers_.slots[static_cast<size_t>(slot)].tile;
    return pass_.chunk_tile(active_.tile_block[static_cast<size_t>(b)], active_.chunk_begin, j);
  }
  stats::GradientRows<Gradient> gradient(int64_t j, int64_t b, int64_t slot) const {
    constexpr size_t kLogit = sizeof(Logit), kGradient = sizeof(Gradient);
    static_assert(kLogit % kGradient == 0, "gradients take the place of their logits");
    constexpr auto kPerLogit = static_cast<int64_t>(kLogit / kGradient);
    auto* data = reinterpret_cast<Gradient*>(logits(j, b, slot));
    return {data, kPerLogit * grid_.tile_stride, pass_.run.gradient_terms == 2 ? data + grid_.tile_stride : nullptr};
  }

  // Returns where the states of a tile's rows have been copied together; it has no memory where they stand in
  // place.
  source::Room gathered(int64_t b, int64_t slot) const {
    if (block(b).contiguous) return {};
    return logits_stay_ ? buffers_.gathered.from(block(b).begin) : buffers_.slots[static_cast<size_t>(slot)].gathered;
  }

  // Computes the logits of a tile, unless they have stayed, and then their gradients.
  void make_tile(int64_t j, int64_t b, int64_t slot) {
    const plan::RowBlock& rows = block(b);
    auto& mine = scratch();
    Logit* raw = logits(j, b, slot);
    if (!logits_stay_) {
      source::TileRows tile = {active_.blocks, rows, gathered(b, slot)};
      pass_.source.gather(*pass_.run.gemm, tile);  // the sinks read these, where the backend has packed others
      tile.packed = buffers_.packed.of(b);
      pass_.source.make_tile(tile, grid_.first_entry(j), grid_.entries(j), raw, grid_.tile_stride,
                             pass_.multiplier(mine.products));
      // The gradients stand without holes, and so must the states that they are multiplied with.
      pass_.source.close_holes(tile);
    }
    std::copy_n(buffers_.gradients + rows.begin, rows.count, mine.gradients);
    const int64_t tile_rows = logits_stay_ ? active_.tile_block[static_cast<size_t>(b)].tile_rows : rows.tile_rows;
    pass_.tiles.gradient(pass_.tile(raw, tile_rows, j), active_.blocks.places(rows), parts_, mine.gradients, mine.row,
                         gradient(j, b, slot));
  }

  sink::GradientPart part(int64_t j, int64_t b, int64_t slot) const {
    const plan::RowBlock& rows = block(b);
    const stats::GradientRows<Gradient> of_rows = gradient(j, b, slot);
    const auto term = [&](const Gradient* data) {
      return gemm::Operand{data, DTypeOf<Gradient>::value, of_rows.stride, false};
    };
    sink::GradientPart out;
    out.terms = {term(of_rows.data), term(of_rows.low)};
    out.term_count = of_rows.low ? 2 : 1;
    const source::Product& product = pass_.source.products().front();
    out.hidden = product.states.operand(active_.blocks.rows(rows), product.rows_in(gathered(b, slot)));
    out.rows = active_.blocks.rows(rows);
    out.contiguous = rows.contiguous;
    out.first_entry = grid_.first_entry(j);
    out.entries = grid_.entries(j);
    return out;
  }

  void multiply(const gemm::Product<Sum>& product) { pass_.multiplier(scratch().products)(product); }

  void add_d_hidden(int64_t j, int64_t b, int64_t slot, int64_t h) {
    const int64_t component = h * grid_.hidden_block;
    const int64_t columns = std::min(grid_.hidden_block, grid_.hidden_size - component);
    hidden_.add(part(j, b, slot), block(b).begin, component, columns, j == 0, scratch().scatter,
                [this](const gemm::Product<Sum>& product) { multiply(product); });
  }

  void add_d_weight(int64_t j, int64_t b, int64_t slot, int64_t h) {
    const int64_t component = h * grid_.weight_block;
    const int64_t components = std::min(grid_.weight_block, grid_.hidden_size - component);
    weight_.add(part(j, b, slot), j, component, components, begin_ && b == 0,
                [this](const gemm::Product<Sum>& product) { multiply(product); });
  }

  const Pass<Types>& pass_;
  const plan::TileGrid& grid_;
  plan::BackwardBuffers<Types>& buffers_;
  const ActiveBlocks& active_;
  bool begin_;
  bool logits_stay_;
  const sink::HiddenSink<Sum> hidden_;
  const sink::WeightSink<Sum> weight_;
  const sink::BiasSink<Sum> bias_;
  typename stats::TileKernels<Types>::GradientParts parts_;
};

}  // namespace

template <class Types>
void gradient_tiles(const Pass<Types>& pass, plan::BackwardBuffers<Types>& buffers, const ActiveBlocks& active,
                    bool begin, const TokenStats& stats, const TokenGrads& grads, const Gradients& outputs) {
  if (active.empty()) return;
  for (size_t i = 0; i < active.blocks.order.size(); ++i) {
    buffers.gradients[i] =
        stats::row_gradient<typename Types::Logit>(pass.problem, stats, grads, active.blocks.order[i]);
  }
  GradientTasks<Types>(pass, buffers, active, begin, grads, outputs).run();
}

template <class Types>
void finish_gradients(const Pass<Types>& pass, plan::BackwardBuffers<Types>& buffers,
                      const core::Array<bool>& wrote_rows, bool wrote_any, const Gradients& outputs) {
  sink::clear_other_rows(pass.problem, outputs, [&](int64_t row) { return wrote_rows[static_cast<size_t>(row)]; });
  if (wrote_any) {
    return sink::BiasSink(*pass.context.kernels, outputs, pass.bias_sums).finish(0, outputs.d_bias.size);
  }
  if (outputs.d_bias.data && outputs.d_bias_mode == WriteMode::kOverwrite) core::fill_zero(outputs.d_bias);
  if (outputs.d_weight.data && outputs.d_weight_mode == WriteMode::kOverwrite) core::fill_zero(outputs.d_weight);
  if (outputs.weight_sink) {
    const plan::TileGrid& grid = pass.run.grid;
    const auto weight = weight_sink(pass, buffers, outputs);
    weight.clear(0);
    for (int64_t j = 0; j < grid.vocab_tiles(); ++j) weight.finish(0, grid.first_entry(j), grid.entries(j), 1);
  }
}

#define LOGITLESS_INSTANTIATE(Types)                                                                                \
  template void gradient_tiles(const Pass<Types>&, plan::BackwardBuffers<Types>&, const ActiveBlocks&, bool,        \
                               const TokenStats&, const TokenGrads&, const Gradients&);                             \
  template void finish_gradients(const Pass<Types>&, plan::BackwardBuffers<Types>&, const core::Array<bool>&, bool, \
                                 const Gradients&);
LOGITLESS_INSTANTIATE(kernels::FloatTiles)
LOGITLESS_INSTANTIATE(kernels::DoubleTiles)
LOGITLESS_INSTANTIATE(kernels::BFloat16Tiles)
#undef LOGITLESS_INSTANTIATE

}  // namespace logitless::stream

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "stream/gradient_tiles.h"

#include "stats/divergence.h"
#include "stats/row_gradients.h"
#include "stream/tile_tasks.h"

namespace logitless::stream {
namespace {

/// The tasks of one backward pass.
template <class Types>
class GradientTasks : public TileTasks<Types, GradientTasks<Types>> {
 public:
  using Base = TileTasks<Types, GradientTasks<Types>>;
  using typename Base::Logit;
  using typename Base::Sum;
  static constexpr bool kInOrder = false;

  GradientTasks(const Pass<Types>& pass, planning::BackwardBuffers<Types>& buffers, sink::Sinks<Sum> sinks,
                const ActiveBlocks& active, bool begin, const TokenGrads& grads, ranks::BatchSums* sums)
      : Base(pass, buffers, sinks, active, pass.run.logits_stay, sums),
        begin_(begin),
        summands_(stats::gradient_summands(grads)) {}

  // Computes the logits of a tile, unless they are stored, and then their gradients.
  void make_tile(int64_t j, int64_t b, int64_t slot) {
    const planning::RowBlock& rows = this->block(b);
    if (!this->logits_stay_) this->make_logits(j, b, slot);
    const int64_t tile_rows =
        this->logits_stay_ ? this->active_.tile_block[static_cast<size_t>(b)].tile_rows : rows.tile_rows;
    const planning::BackwardBuffers<Types>& buffers = this->buffers_;
    this->pass_.tiles.gradient(this->pass_.tile(this->logits(j, b, slot), tile_rows, 0, tile_rows, j),
                               this->active_.blocks.places(rows), summands_, buffers.gradients + rows.begin,
                               buffers.divergences ? buffers.divergences + rows.begin : nullptr, this->scratch().row,
                               this->gradient(j, b, slot));
    this->weigh_entries(j, b, slot);
  }
  bool first(const sink::Sink<Sum>& sink, int64_t j, int64_t b) const {
    return sink.chain_of() == sink::ChainOf::kRowBlock ? j == 0 : begin_ && b == 0;
  }
  sink::GradientPart part_of(int64_t j, int64_t b, int64_t slot) const { return this->part(j, b, slot); }

 private:
  bool begin_;
  stats::GradientSummands summands_;
};

}  // namespace

template <class Types>
void gradient_tiles(const Pass<Types>& pass, planning::BackwardBuffers<Types>& buffers,
                    sink::Sinks<typename Types::Sum> sinks, const ActiveBlocks& active, bool begin,
                    const TokenStats& stats, const TokenGrads& grads, ranks::BatchSums* sums) {
  if (active.empty()) return;
  kernels::PickGradient<typename Types::Logit>* picks = buffers.picks;
  for (size_t i = 0; i < active.blocks.order.size(); ++i) {
    buffers.gradients[i] = stats::row_gradient(pass.problem, stats, grads, active.blocks.order[i], picks);
    picks += buffers.gradients[i].pick_count;
    if (buffers.divergences) {
      buffers.divergences[i] =
          stats::row_divergence<typename Types::Logit>(pass.problem, stats, grads, active.blocks.order[i]);
    }
  }
  for (sink::Sink<typename Types::Sum>* sink : sinks) sink->begin_chunk(active.blocks.order, pass.run.plan.threads);
  GradientTasks<Types>(pass, buffers, sinks, active, begin, grads, sums).run();
  for (sink::Sink<typename Types::Sum>* sink : sinks) sink->finish_chunk(active.blocks.order, pass.run.plan.threads);
}

#define LOGITLESS_INSTANTIATE(Types)                                                                           \
  template void gradient_tiles(const Pass<Types>&, planning::BackwardBuffers<Types>&, sink::Sinks<Types::Sum>, \
                               const ActiveBlocks&, bool, const TokenStats&, const TokenGrads&, ranks::BatchSums*);
LOGITLESS_INSTANTIATE(kernels::FloatTiles)
LOGITLESS_INSTANTIATE(kernels::DoubleTiles)
LOGITLESS_INSTANTIATE(kernels::BFloat16Tiles)
#undef LOGITLESS_INSTANTIATE

}  // namespace logitless::stream

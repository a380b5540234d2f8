// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Gradients of all tiles of logits, for every loss and output: from stored logits in one pass, from
// recomputed ones in two pass.
#include <optional>

#include "core/store.h"
#include "sink/call_sinks.h"
#include "stats/divergence.h"
#include "stats/row_gradients.h"
#include "stream/active_blocks.h"
#include "stream/gradient_way.h"
#include "stream/tile_buffers.h"
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

  GradientTasks(const Pass<Types>& pass, BackwardBuffers<Types>& buffers, sink::Sinks<Sum> sinks,
                const ActiveBlocks& active, bool begin, const TokenGrads& grads, ranks::BatchSums* sums)
      : Base(pass, buffers, sinks, active, sums), begin_(begin), summands_(stats::gradient_summands(grads)) {}

  // Computes the logits of a tile, unless they are stored, and then their gradients.
  void make_tile(int64_t j, int64_t b, int64_t slot) {
    const planning::RowBlock& rows = this->block(b);
    if (!this->keeps_logits_) this->make_logits(j, b, slot);
    const int64_t tile_rows =
        this->keeps_logits_ ? this->active_.tile_block[static_cast<size_t>(b)].tile_rows : rows.tile_rows;
    const BackwardBuffers<Types>& buffers = this->buffers_;
    this->pass_.tiles->gradient(this->pass_.tile(this->logits(j, b, slot), tile_rows, 0, tile_rows, j),
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

template <class Types>
class TileWay final : public GradientWay<Types> {
 public:
  using Sum = typename Types::Sum;
  using Logit = typename Types::Logit;

  explicit TileWay(const Pass<Types>& pass)
      : pass_(pass), sinks_(pass.sink_inputs(), pass.outputs, sink_sizes(pass.run)) {}

  bool has_sinks() const { return !sinks_.all().empty(); }

  void take_lasting(core::Arena& arena) override {
    for (sink::Sink<Sum>* sink : sinks_.all()) sink->take_lasting(arena);
  }
  void take(core::Arena& arena) override {
    buffers_.emplace(arena, pass_);
    for (sink::Sink<Sum>* sink : sinks_.all()) sink->take(arena);
  }

  bool make(int64_t chunk, const TokenStats& stats, const TokenGrads& grads) override {
    const planning::RunPlan& run = pass_.run;
    const auto c = static_cast<size_t>(chunk);
    const ActiveBlocks active = active_blocks(pass_.problem, run, run.chunks[c], run.chunks[c + 1], grads);
    if (active.empty()) return true;
    const core::Array<int64_t>& rows = active.blocks.order;
    make_rows(rows, stats, grads);
    for (sink::Sink<Sum>* sink : sinks_.all()) sink->begin_chunk(rows, run.plan.threads);
    GradientTasks<Types>(pass_, *buffers_, sinks_.all(), active, !wrote_any_, grads,
                         chunk == run.chunk_count() - 1 ? sums_ : nullptr)
        .run();
    for (sink::Sink<Sum>* sink : sinks_.all()) sink->finish_chunk(rows, run.plan.threads);
    wrote_any_ = true;
    wrote_rows_.resize(static_cast<size_t>(pass_.problem.tokens));
    for (const int64_t row : rows) wrote_rows_[static_cast<size_t>(row)] = true;
    return true;
  }

  void finish() override {
    wrote_rows_.resize(static_cast<size_t>(pass_.problem.tokens));
    for (sink::Sink<Sum>* sink : sinks_.all()) sink->finish(wrote_rows_, wrote_any_);
  }

  void report_final_rows_to(ranks::BatchSums& sums) override { sums_ = &sums; }

 private:
  // Fills the factors of the rows' gradients.
  void make_rows(const core::Array<int64_t>& rows, const TokenStats& stats, const TokenGrads& grads) {
    kernels::PickGradient<Logit>* picks = buffers_->picks;
    for (size_t i = 0; i < rows.size(); ++i) {
      buffers_->gradients[i] = stats::row_gradient(pass_.problem, stats, grads, rows[i], picks);
      picks += buffers_->gradients[i].pick_count;
      if (!buffers_->divergences) continue;
      buffers_->divergences[i] = stats::row_divergence<Logit>(pass_.problem, stats, grads, rows[i]);
    }
  }

  const Pass<Types>& pass_;
  const sink::CallSinks<Sum> sinks_;
  std::optional<BackwardBuffers<Types>> buffers_;
  ranks::BatchSums* sums_ = nullptr;  // notified when vocabulary entries are final; may be null
  core::Array<bool> wrote_rows_;      // [N]: rows with gradients in any chunk so far
  bool wrote_any_ = false;
};

template <class Types>
WayOfRun<Types> make_way(const Pass<Types>& pass) {
  if (!pass.run.backward) return nullptr;
  auto way = core::make_shared<TileWay<Types>>(pass);
  if (pass.run.expected_rows() && !way->has_sinks()) return nullptr;
  return way;
}

}  // namespace

const WayKind kTileGradients = {
    nullptr, {make_way<kernels::FloatTiles>, make_way<kernels::DoubleTiles>, make_way<kernels::BFloat16Tiles>}};

}  // namespace logitless::stream

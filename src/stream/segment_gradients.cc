// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Gradients of some segments of each row: sampled ones, which are unbiased, and certified ones, whose error
// is bounded (BackwardOptions).
#include <algorithm>
#include <optional>
#include <string_view>

#include "core/checks.h"
#include "core/parallel.h"
#include "core/store.h"
#include "fold/segment_masses.h"
#include "sink/call_sinks.h"
#include "stream/gradient_way.h"
#include "stream/segment_buffers.h"
#include "stream/segment_choice.h"
#include "stream/segment_panel.h"

namespace logitless::stream {
namespace {

/// Returns why segments cannot be chosen for a loss with these token gradients; empty: they can.
std::string_view no_choice_of_segments(const problem::HiddenProblem& problem, const TokenLoss::GradsFilled& filled) {
  if (problem.over_picks) return "the call normalises over sets of token ids, without a pass over the vocabulary";
  if (filled.entropy) return "the loss has a gradient of the entropy, which is not linear in the probabilities";
  if (filled.square_sum) return "the loss has a gradient of square_sum, which is not linear in the probabilities";
  if (filled.outside) return "the loss has a gradient of the probability outside its ids";
  return {};
}

template <class Types>
class SegmentWay final : public GradientWay<Types> {
 public:
  using Sum = typename Types::Sum;

  explicit SegmentWay(const Pass<Types>& pass)
      : pass_(pass), sinks_(pass.sink_inputs(), pass.outputs, segment_sink_sizes(pass.run)) {}

  void take_lasting(core::Arena& arena) override {
    const planning::TileGrid& grid = pass_.run.grid;
    masses_.take(arena, pass_.problem, pass_.run.plan.chunk_rows, grid.vocab_size, grid.vocab_tile);
  }
  const fold::CallMasses* masses() const override { return &masses_; }

  void take(core::Arena& arena) override {
    buffers_.emplace(arena, pass_);
    for (sink::Sink<Sum>* sink : sinks_.all()) sink->take_lasting(arena);
    for (sink::Sink<Sum>* sink : sinks_.all()) sink->take(arena);
  }

  bool make(int64_t, const TokenStats& stats, const TokenGrads& grads) override {
    SegmentChoice<Types> choice(pass_, masses_, *buffers_, stats, grads);
    if (!choice.choose()) return false;
    report_ = choice.report();
    const std::span<const int64_t> rows = choice.rows();
    const int threads = pass_.run.plan.threads;
    clear_states(rows);
    if (!rows.empty()) {
      SegmentPanel<Types> panel(pass_, *buffers_, rows, choice.summands());
      const Choice chosen = choice.chosen();
      for (int64_t column = 0; column < chosen.columns;) {
        column = panel.fill(chosen, column);
        add(panel, rows);
      }
      for (sink::Sink<Sum>* sink : sinks_.all()) sink->finish_chunk(rows, threads);
    }
    core::Array<bool> has_parts(static_cast<size_t>(pass_.problem.tokens), false);
    for (const int64_t row : rows) has_parts[static_cast<size_t>(row)] = true;
    for (sink::Sink<Sum>* sink : sinks_.all()) sink->finish(has_parts, !rows.empty());
    return true;
  }

  void report(Plan& plan) const override {
    plan.kept_share = report_.kept_share;
    plan.noise_estimate = report_.noise_estimate;
    plan.d_hidden_bound = report_.d_hidden_bound;
    plan.d_weight_bound = report_.d_weight_bound;
  }

 private:
  // Returns a function that maps i to the sums of row rows[i].
  static auto sums_of(const sink::HiddenSink<Sum>& sink, std::span<const int64_t> rows) {
    return [&sink, rows](int64_t i) { return sink.sums(i, rows[static_cast<size_t>(i)]); };
  }

  void clear_states(std::span<const int64_t> rows) const {
    sinks_.for_each_of_states([&](const sink::HiddenSink<Sum>& sink) {
      core::parallel_ranges(pass_.run.plan.threads, static_cast<int64_t>(rows.size()), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) std::fill_n(sums_of(sink, rows)(i), sink.head().components(), Sum{0});
      });
    });
  }

  // Computes the gradients of a panel and adds them to the outputs.
  void add(SegmentPanel<Types>& panel, std::span<const int64_t> rows) {
    panel.make(false, [&](const sink::GradientPart& part, int64_t, int64_t done, int thread) {
      const source::Multiplier multiply = pass_.multiplier(buffers_->threads[static_cast<size_t>(thread)].products);
      for (sink::Sink<Sum>* sink : sinks_.all()) {
        if (sink->chain_of() != sink::ChainOf::kVocabTile) continue;
        for (int64_t split = 0; split < sink->splits(); ++split) sink->add(part, split, done == 0, thread, multiply);
      }
    });
    // Before finish_tile(), whose callback may overwrite the head's rows.
    sinks_.for_each_of_states([&](const sink::HiddenSink<Sum>& sink) {
      panel.add_states(sink.head(), sums_of(sink, rows), [](const auto&...) {});
    });
    for (const auto& of : panel.columns()) {
      const int64_t first = of.segment * kernels::kSegment;
      const int64_t entries = std::min(kernels::kSegment, pass_.run.grid.vocab_size - first);
      for (sink::Sink<Sum>* sink : sinks_.all()) {
        if (sink->tiles_apart() > 0) sink->finish_tile(first, entries, pass_.run.plan.threads);
      }
    }
  }

  const Pass<Types>& pass_;
  fold::CallMasses masses_;
  const sink::CallSinks<Sum> sinks_;
  std::optional<SegmentBuffers<Types>> buffers_;
  Plan report_;
};

void ask(const CallOnHidden& call, planning::Computation& computation) {
  const BackwardOptions& options = call.outputs.backward;
  if (!computation.backward || options.mode == BackwardMode::kExact) return;
  const auto refuse = [&](const auto&... why) {
    core::fail("backward.mode = ", name_of(options.mode), " cannot run: ", why...);
  };
  if (const std::string_view why = no_choice_of_segments(call.problem, call.filled); !why.empty()) refuse(why);
  const PlanKind plan = call.options.plan;
  if (plan != PlanKind::kAuto && plan != PlanKind::kTwoPass) {
    refuse("it needs plan two_pass, but plan = ", name_of(plan), " is set");
  }
  if (is_by_noise(options)) {
    // d_bias alone costs next to nothing to compute exactly, and its noise is not estimated.
    const bool held = call.outputs.wants_d_hidden() || call.outputs.d_weight.data || call.outputs.weight_sink;
    if (options.noise == 0 || !held) return;
    if (call.problem.head.lora.given())
      refuse("the head has a LoRA, and the noise of its gradients is not estimated: give backward.theta");
    if (call.shared.cut)
      refuse("the vocabulary is cut into slices, which cannot estimate the total noise: give backward.theta");
  }
  computation.approximates = true;
}

template <class Types>
WayOfRun<Types> make_way(const Pass<Types>& pass) {
  return pass.run.approximates ? core::make_shared<SegmentWay<Types>>(pass) : nullptr;
}

}  // namespace

const WayKind kSegmentGradients = {
    ask, {make_way<kernels::FloatTiles>, make_way<kernels::DoubleTiles>, make_way<kernels::BFloat16Tiles>}};

}  // namespace logitless::stream

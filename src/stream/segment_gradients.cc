// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "stream/segment_gradients.h"

#include <omp.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "core/parallel.h"
#include "core/sum_of_squares.h"
#include "stats/divergence.h"
#include "stats/row_gradients.h"
#include "stream/noise_pilot.h"

namespace logitless::stream {
namespace {

// A pair costs about twice as much in a gathered product, so exact gradients are faster if a larger share is
// kept.
constexpr double kMostKept = 0.5;
constexpr float kAlways = std::numeric_limits<float>::quiet_NaN();
constexpr size_t kBuckets = 1024;

// Returns the bucket of a mass; there are four buckets per octave.
size_t bucket_of(float mass) {
  uint32_t bits = 0;
  std::memcpy(&bits, &mass, sizeof bits);
  return bits >> 21;
}

}  // namespace

std::string_view no_choice_of_segments(const problem::HiddenProblem& problem, const TokenLoss::GradsFilled& filled) {
  if (problem.over_picks) return "the call is over sets of ids, and walks no vocabulary";
  if (filled.entropy) return "the loss has a gradient of the entropy, which is not linear in the probabilities";
  if (filled.outside) return "the loss has a gradient of the probability outside of its ids";
  return {};
}

template <class Types>
SegmentGradients<Types>::SegmentGradients(const Pass<Types>& pass, const GradientMatrices& outputs,
                                          const fold::CallMasses& masses)
    : pass_(pass),
      outputs_(outputs),
      softmax_masses_(masses.softmax),
      masses_(masses.pairs() ? *masses.pairs() : masses.softmax),
      sinks_({*pass.context.kernels, *pass.run.gemm, pass.problem, pass.source}, outputs,
             planning::segment_sink_sizes(pass.run)) {}

template <class Types>
void SegmentGradients<Types>::find_rows(const TokenStats& stats, const TokenGrads& grads) {
  const problem::HiddenProblem& problem = pass_.problem;
  const core::Array<int64_t>& order = pass_.run.blocks.order;
  rows_.reserve(order.size());
  places_.reserve(order.size());
  scales_.reserve(order.size());
  kernels::PickGradient<Logit>* picks = buffers_->picks;
  double sum = 0;
  int64_t numbers = 0;
  for (size_t place = 0; place < order.size(); ++place) {
    const int64_t row = order[place];
    if (!stats::has_gradient(problem, grads, row)) continue;
    const auto gradient = stats::row_gradient(problem, stats, grads, row, picks);
    picks += gradient.pick_count;
    double scale = std::abs(static_cast<double>(gradient.softmax_scale)) +
                   std::abs(static_cast<double>(gradient.cross_scale)) * problem.cross_mass(row);
    if (buffers_->divergences) {
      buffers_->divergences[rows_.size()] = stats::row_divergence<Logit>(problem, stats, grads, row);
      scale += std::abs(stats::divergence_scale(problem, grads, row));
    }
    buffers_->gradients[rows_.size()] = gradient;
    rows_.push_back(row);
    places_.push_back(static_cast<int32_t>(place));
    scales_.push_back(scale);
    if (!std::isfinite(scale)) continue;
    sum += scale;
    ++numbers;
  }
  if (sum > 0) unit_ = sum / static_cast<double>(numbers);
  kept_.resize(rows_.size());
}

// Sums the cross weights of each segment: those of `row`, which without per-row weights are the same for all
// rows.
template <class Types>
void SegmentGradients<Types>::sum_cross(int64_t row, core::Array<double>& sums) const {
  sums.assign(static_cast<size_t>(masses_.segments()), 0.0);
  for (int64_t v = 0; v < pass_.run.grid.vocab_size; ++v) {
    sums[static_cast<size_t>(v / kernels::kSegment)] += pass_.problem.cross_weight(row, pass_.problem.first_entry + v);
  }
}

// Replaces the masses by weights of the pairs: the sum of |dL/da| over a pair's entries, or an upper bound of
// it, in units of `unit_`. Pairs that are always kept get NaN.
template <class Types>
void SegmentGradients<Types>::weigh(const TokenStats& stats, const TokenGrads& grads) {
  const problem::HiddenProblem& problem = pass_.problem;
  const int64_t segments = masses_.segments(), entries = pass_.run.grid.vocab_size;
  const bool own_cross = summands_.cross && problem.cross.rows;
  core::Array<double> shared_cross;
  if (summands_.cross && !own_cross) sum_cross(0, shared_cross);
  core::parallel_for(pass_.run.plan.threads, core::div_up(static_cast<int64_t>(rows_.size()), 64), [&](int64_t group) {
    core::Array<double> cross_of_row;
    const size_t end = std::min(rows_.size(), static_cast<size_t>(group + 1) * 64);
    for (auto i = static_cast<size_t>(group) * 64; i < end; ++i) {
      const auto row = static_cast<size_t>(rows_[i]);
      const kernels::RowGradient<Logit>& gradient = buffers_->gradients[i];
      softmax_masses_.normalise(places_[i], stats.max_logit[row], stats.log_sum[row],
                                problem.inverse_temperature(rows_[i]));
      const float* const softmax = softmax_masses_.row(places_[i]);
      float* const masses = masses_.row(places_[i]);
      const auto scale = static_cast<float>(std::abs(static_cast<double>(gradient.softmax_scale)) / unit_);
      const double of_cross = std::abs(static_cast<double>(gradient.cross_scale)) / unit_;
      const bool has_pairs = buffers_->divergences != nullptr;
      const auto of_pairs =
          static_cast<float>(has_pairs ? stats::largest_scale(problem, stats, grads, rows_[i]) / unit_ : 0);
      const bool lost = !std::isfinite(stats.max_logit[row]) || !std::isfinite(stats.log_sum[row]) ||
                        !std::isfinite(scale) || !std::isfinite(of_cross) || !std::isfinite(of_pairs);
      if (own_cross && of_cross > 0) sum_cross(rows_[i], cross_of_row);
      const core::Array<double>& cross = own_cross ? cross_of_row : shared_cross;
      for (int64_t s = 0; s < segments; ++s) {
        float mass = scale == 0 ? 0 : softmax[s] * scale;
        if (has_pairs && of_pairs != 0) mass += masses[s] * of_pairs;
        if (of_cross > 0) mass += static_cast<float>(of_cross * cross[static_cast<size_t>(s)]);
        masses[s] = lost ? kAlways : mass;
      }
      for (int32_t k = 0; k < gradient.pick_count; ++k) {
        const int64_t entry = gradient.picks[k].id - problem.first_entry;
        if (entry >= 0 && entry < entries) masses[entry / kernels::kSegment] = kAlways;
      }
    }
  });
}

// Returns the expected share of the pairs that θ keeps.
template <class Types>
double SegmentGradients<Types>::share_at(double theta) const {
  core::Array<double> of_rows(rows_.size());
  core::parallel_ranges(pass_.run.plan.threads, static_cast<int64_t>(rows_.size()), [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      const float* masses = masses_.row(places_[i]);
      double taken = 0;
      for (int64_t s = 0; s < masses_.segments(); ++s) {
        const float weight = weight_of(masses[s], theta);
        taken += weight == 0 ? 0 : 1 / static_cast<double>(weight);
      }
      of_rows[i] = taken;
    }
  });
  const double pairs = static_cast<double>(rows_.size()) * static_cast<double>(masses_.segments());
  return std::accumulate(of_rows.begin(), of_rows.end(), 0.0) / pairs;
}

// Replaces the masses by the weights of the drawn pairs, 0 for the others.
template <class Types>
void SegmentGradients<Types>::draw(double theta) {
  core::parallel_ranges(pass_.run.plan.threads, static_cast<int64_t>(rows_.size()), [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      float* const masses = masses_.row(places_[i]);
      int64_t next = 0;
      draw_row(masses, masses_.segments(), theta,
               drawing_bits(static_cast<uint64_t>(outputs_.backward.seed), 0, pass_.problem.first_entry, rows_[i]),
               [&](int64_t s, float weight) {
                 std::fill(masses + next, masses + s, 0.0F);
                 masses[s] = weight;
                 next = s + 1;
                 ++kept_[i];
               });
      std::fill(masses + next, masses + masses_.segments(), 0.0F);
    }
  });
}

// Replaces the masses by 1 for kept pairs and 0 for the smallest ones. Returns the dropped mass of each row.
template <class Types>
core::Array<double> SegmentGradients<Types>::certify() {
  core::Array<double> dropped(rows_.size());
  core::parallel_ranges(pass_.run.plan.threads, static_cast<int64_t>(rows_.size()), [&](int64_t begin, int64_t end) {
    std::array<double, kBuckets> buckets;
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      const double most = outputs_.backward.tolerance * scales_[i] / unit_;
      float* const masses = masses_.row(places_[i]);
      buckets.fill(0);
      for (int64_t s = 0; s < masses_.segments(); ++s) {
        if (masses[s] >= 0) buckets[bucket_of(masses[s])] += static_cast<double>(masses[s]);
      }
      size_t first_kept = 0;
      while (first_kept < kBuckets && dropped[i] + buckets[first_kept] <= most) {
        dropped[i] += buckets[first_kept++];
      }
      for (int64_t s = 0; s < masses_.segments(); ++s) {
        const bool keep = !(masses[s] >= 0) || bucket_of(masses[s]) >= first_kept;
        masses[s] = keep ? 1.0F : 0.0F;
        kept_[i] += keep;
      }
    }
  });
  return dropped;
}

// Returns the largest norm of a row of a head.
template <class Types>
double SegmentGradients<Types>::longest_entry(const source::Head& head) const {
  const int64_t h = head.components(), groups = masses_.segments();
  core::Array<double> longest(static_cast<size_t>(groups));
  core::parallel_for(pass_.run.plan.threads, groups, [&](int64_t group) {
    core::Array<double> stored(static_cast<size_t>(h));  // of any type
    core::Array<Sum> wide(static_cast<size_t>(h));
    const int64_t end = std::min(pass_.run.grid.vocab_size, (group + 1) * kernels::kSegment);
    for (int64_t v = group * kernels::kSegment; v < end; ++v) {
      head.copy_entry(*pass_.context.kernels, v, stored.data());
      const Sum* values = pass_.context.kernels->values(stored.data(), head.dtype(), h, wide.data());
      double& most = longest[static_cast<size_t>(group)];
      most = std::max(most, core::sum_of_squares(values, h));
    }
  });
  return std::sqrt(*std::max_element(longest.begin(), longest.end()));
}

// Returns an upper bound of the norm of the head's rows that multiply the hidden states: for w_v + scale ·
// b_v a, the bound is |w| + scale |b| |a|.
template <class Types>
double SegmentGradients<Types>::bound_of_entries() const {
  const std::span<const source::Product> products = pass_.source.differentiated();
  const double of_weight = longest_entry(products.front().head);
  const LoraMatrices& lora = pass_.problem.head.lora;
  if (!lora.given() || lora.has_states()) return of_weight;
  const source::Head a = source::Head(HeadMatrices(lora.a));
  core::Array<double> stored(static_cast<size_t>(a.components()));  // of any type
  core::Array<Sum> wide(static_cast<size_t>(a.components()));
  double squares = 0;
  for (int64_t k = 0; k < a.entries(); ++k) {
    a.copy_entry(*pass_.context.kernels, k, stored.data());
    const Sum* values = pass_.context.kernels->values(stored.data(), a.dtype(), a.components(), wide.data());
    squares += core::sum_of_squares(values, a.components());
  }
  return of_weight + std::abs(lora.scale) * longest_entry(products[1].head) * std::sqrt(squares);
}

// `dropped` bounds the dropped weight of each row: |Δd_hidden| of the row is at most `dropped` times the
// largest norm of the head's rows, and |Δd_weight| at most the sum of `dropped` times the norms of the rows'
// states.
template <class Types>
void SegmentGradients<Types>::bound(const core::Array<double>& dropped) {
  const source::States& states = pass_.source.products().front().states;
  const int64_t h = pass_.problem.hidden_size;
  core::Array<Sum> wide(static_cast<size_t>(h));
  double squares = 0, sum = 0;
  for (size_t i = 0; i < rows_.size(); ++i) {
    if (!(dropped[i] > 0)) continue;
    const gemm::Operand of_row = states.operand(std::span(rows_).subspan(i, 1), nullptr);
    const Sum* values = pass_.context.kernels->values(of_row.data, of_row.dtype, h, wide.data());
    squares += dropped[i] * dropped[i];
    sum += dropped[i] * std::sqrt(core::sum_of_squares(values, h));
  }
  said_.d_hidden_bound = squares > 0 ? std::sqrt(squares) * bound_of_entries() * unit_ : 0;
  said_.d_weight_bound = sum * unit_;
}

template <class Types>
bool SegmentGradients<Types>::choose(core::Arena& arena, const TokenStats& stats, const TokenGrads& grads) {
  const BackwardOptions& options = outputs_.backward;
  buffers_.emplace(arena, pass_.problem, pass_.source, pass_.run, planning::is_by_noise(options));
  summands_ = stats::gradient_summands(grads);
  find_rows(stats, grads);
  if (rows_.empty()) return true;
  weigh(stats, grads);
  core::Array<double> dropped;
  if (options.mode == BackwardMode::kCertified) {
    dropped = certify();
  } else {
    double theta = options.theta;
    if (planning::is_by_noise(options)) {
      SegmentWave<Types> wave(pass_, *buffers_, rows_, summands_);
      const Weighed weighed = {
          masses_, rows_, places_, unit_, static_cast<uint64_t>(options.seed), pass_.problem.first_entry};
      const NoiseFound found = find_theta(pass_, outputs_, weighed, options.noise, wave, *buffers_);
      theta = found.theta;
      said_.noise_estimate = found.noise;
    }
    if (!(theta > 0) || share_at(theta) > kMostKept) {
      said_ = {};
      return false;
    }
    draw(theta);
  }
  const double kept = static_cast<double>(std::accumulate(kept_.begin(), kept_.end(), int64_t{0}));
  said_.kept_share = kept / (static_cast<double>(rows_.size()) * static_cast<double>(masses_.segments()));
  // Whether a sample is used must not depend on the sample: that would be a bias.
  if (options.mode == BackwardMode::kSampled) return true;
  if (said_.kept_share > kMostKept) {
    said_ = {};
    return false;
  }
  bound(dropped);
  return true;
}

template <class Types>
void SegmentGradients<Types>::make(core::Arena& arena) {
  for (sink::Sink<Sum>* sink : sinks_.all()) sink->take_lasting(arena);
  for (sink::Sink<Sum>* sink : sinks_.all()) sink->take(arena);
  const int threads = pass_.run.plan.threads;
  const auto count = static_cast<int64_t>(rows_.size());
  const auto sums_of = [&](const sink::HiddenSink<Sum>& sink) {
    return [&](int64_t i) { return sink.sums(i, rows_[static_cast<size_t>(i)]); };
  };
  sinks_.for_each_of_states([&](const sink::HiddenSink<Sum>& sink) {
    core::parallel_ranges(threads, count, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) std::fill_n(sums_of(sink)(i), sink.head().components(), Sum{0});
    });
  });
  if (count > 0) {
    SegmentWave<Types> wave(pass_, *buffers_, rows_, summands_);
    const Choice choice = {masses_.row(0), masses_.segments(), count, masses_.segments(), places_};
    for (int64_t column = 0; column < choice.columns;) {
      column = wave.fill(choice, column);
      wave.make(false, [&](const sink::GradientPart& part, int64_t, int64_t done, int thread) {
        const source::Multiplier multiply = pass_.multiplier(buffers_->threads[static_cast<size_t>(thread)].products);
        for (sink::Sink<Sum>* sink : sinks_.all()) {
          if (sink->chain_of() != sink::ChainOf::kVocabTile) continue;
          for (int64_t split = 0; split < sink->splits(); ++split) sink->add(part, split, done == 0, thread, multiply);
        }
      });
      // Before finish_tile(), whose callback may overwrite the head's rows.
      sinks_.for_each_of_states([&](const sink::HiddenSink<Sum>& sink) {
        wave.add_states(sink.head(), sums_of(sink), [](const auto&...) {});
      });
      for (const auto& of : wave.columns()) {
        const int64_t first = of.segment * kernels::kSegment;
        for (sink::Sink<Sum>* sink : sinks_.all()) {
          if (sink->tiles_apart() == 0) continue;
          sink->finish_tile(first, std::min(kernels::kSegment, pass_.run.grid.vocab_size - first), threads);
        }
      }
    }
    for (sink::Sink<Sum>* sink : sinks_.all()) sink->finish_chunk(rows_, threads);
  }
  core::Array<bool> has_parts(static_cast<size_t>(pass_.problem.tokens), false);
  for (const int64_t row : rows_) has_parts[static_cast<size_t>(row)] = true;
  for (sink::Sink<Sum>* sink : sinks_.all()) sink->finish(has_parts, count > 0);
}

template <class Types>
void SegmentGradients<Types>::report(Plan& plan) const {
  plan.kept_share = said_.kept_share;
  plan.noise_estimate = said_.noise_estimate;
  plan.d_hidden_bound = said_.d_hidden_bound;
  plan.d_weight_bound = said_.d_weight_bound;
}

template class SegmentGradients<kernels::FloatTiles>;
template class SegmentGradients<kernels::DoubleTiles>;
template class SegmentGradients<kernels::BFloat16Tiles>;

}  // namespace logitless::stream

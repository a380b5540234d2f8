// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Chooses the segments of each row whose gradients are computed: a sample, or all but the smallest.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <span>
#include <utility>

#include "core/parallel.h"
#include "core/store.h"
#include "core/sum_of_squares.h"
#include "fold/segment_masses.h"
#include "logitless/plan.h"
#include "stats/divergence.h"
#include "stats/row_gradients.h"
#include "stream/noise_pilot.h"
#include "stream/segment_buffers.h"
#include "stream/segment_drawing.h"
#include "stream/segment_panel.h"

namespace logitless::stream {

/// The choice for the rows of a call that have a gradient. A row's segments are chosen by weights, which are
/// computed from its token gradients and the masses stored while folding.
template <class Types>
class SegmentChoice {
 public:
  using Sum = typename Types::Sum;
  using Logit = typename Types::Logit;

  /// Fills the row gradients of `buffers`. All arguments must outlive this.
  SegmentChoice(const Pass<Types>& pass, const fold::CallMasses& masses, SegmentBuffers<Types>& buffers,
                const TokenStats& stats, const TokenGrads& grads)
      : pass_(pass),
        softmax_masses_(masses.softmax),
        masses_(masses.pairs() ? *masses.pairs() : masses.softmax),
        buffers_(buffers),
        stats_(stats),
        grads_(grads),
        summands_(stats::gradient_summands(grads)) {
    const problem::HiddenProblem& problem = pass_.problem;
    const core::Array<int64_t>& order = pass_.run.blocks.order;
    rows_.reserve(order.size());
    places_.reserve(order.size());
    scales_.reserve(order.size());
    kernels::PickGradient<Logit>* picks = buffers_.picks;
    double sum = 0;
    int64_t numbers = 0;
    for (size_t place = 0; place < order.size(); ++place) {
      const int64_t row = order[place];
      if (!stats::has_gradient(problem, grads, row)) continue;
      const auto gradient = stats::row_gradient(problem, stats, grads, row, picks);
      picks += gradient.pick_count;
      double scale = std::abs(static_cast<double>(gradient.softmax_scale)) +
                     std::abs(static_cast<double>(gradient.cross_scale)) * problem.cross_mass(row);
      if (buffers_.divergences) {
        buffers_.divergences[rows_.size()] = stats::row_divergence<Logit>(problem, stats, grads, row);
        scale += std::abs(stats::divergence_scale(problem, grads, row));
      }
      buffers_.gradients[rows_.size()] = gradient;
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

  /// Returns false if too many segments would be kept: exact gradients are cheaper then.
  bool choose() {
    if (rows_.empty()) return true;
    compute_weights();
    switch (pass_.outputs.backward.mode) {
      case BackwardMode::kExact:
        break;
      case BackwardMode::kSampled:
        return choose_sample();
      case BackwardMode::kCertified:
        return choose_largest();
    }
    return false;
  }

  std::span<const int64_t> rows() const { return rows_; }
  const stats::GradientSummands& summands() const { return summands_; }
  /// Returns the chosen pairs, after choose().
  Choice chosen() const {
    return {masses_.row(0), masses_.segments(), static_cast<int64_t>(rows_.size()), masses_.segments(), places_};
  }
  /// Returns a plan with the fields about the choice.
  const Plan& report() const { return report_; }

 private:
  // A pair costs about twice as much in a gathered product, so exact gradients are faster if a larger share
  // is kept.
  static constexpr double kMostKept = 0.5;
  static constexpr float kAlways = std::numeric_limits<float>::quiet_NaN();
  static constexpr size_t kBuckets = 1024;

  bool choose_sample() {
    const double theta = find_theta();
    // Whether a sample is used must not depend on what is drawn, which would bias the gradients.
    if (!(theta > 0) || share_at(theta) > kMostKept) return false;
    draw(theta);
    report_.kept_share = kept_share();
    return true;
  }
  bool choose_largest() {
    const core::Array<double> dropped = certify();
    report_.kept_share = kept_share();
    if (report_.kept_share > kMostKept) return false;
    bound(dropped);
    return true;
  }

  // Returns the bucket of a mass; there are four buckets per octave.
  static size_t bucket_of(float mass) {
    uint32_t bits = 0;
    std::memcpy(&bits, &mass, sizeof bits);
    return bits >> 21;
  }

  // Calls use(i) for each row i of rows_, with a team.
  template <class Use>
  void each_row(const Use& use) const {
    core::parallel_ranges(pass_.run.plan.threads, static_cast<int64_t>(rows_.size()), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) use(static_cast<size_t>(i));
    });
  }

  // Sums the cross weights of `row` over each segment. Without per-row weights the sums are the same for all
  // rows.
  void sum_cross(int64_t row, core::Array<double>& sums) const {
    sums.assign(static_cast<size_t>(masses_.segments()), 0.0);
    for (int64_t v = 0; v < pass_.run.grid.vocab_size; ++v) {
      sums[static_cast<size_t>(v / kernels::kSegment)] +=
          pass_.problem.cross_weight(row, pass_.problem.first_entry + v);
    }
  }

  double kept_share() const {
    const auto kept = static_cast<double>(std::accumulate(kept_.begin(), kept_.end(), int64_t{0}));
    return kept / (static_cast<double>(rows_.size()) * static_cast<double>(masses_.segments()));
  }

  // Replaces the masses by weights of the pairs: the sum of |dL/da| over a pair's entries, or an upper bound
  // of it, in units of `unit_`. Pairs that are always kept get NaN.
  void compute_weights() {
    const bool own_cross = summands_.cross && pass_.problem.cross.rows;
    core::Array<double> shared_cross;
    if (summands_.cross && !own_cross) sum_cross(0, shared_cross);
    core::parallel_ranges(pass_.run.plan.threads, static_cast<int64_t>(rows_.size()), [&](int64_t begin, int64_t end) {
      core::Array<double> cross_of_row;
      for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
        if (own_cross && of_cross(i) > 0) sum_cross(rows_[i], cross_of_row);
        compute_row_weights(i, own_cross ? cross_of_row : shared_cross);
      }
    });
  }

  double of_cross(size_t i) const { return std::abs(static_cast<double>(buffers_.gradients[i].cross_scale)) / unit_; }

  // `cross` has the row's sum of cross weights over each segment, if the loss has cross weights.
  void compute_row_weights(size_t i, const core::Array<double>& cross) {
    const problem::HiddenProblem& problem = pass_.problem;
    const auto row = static_cast<size_t>(rows_[i]);
    const kernels::RowGradient<Logit>& gradient = buffers_.gradients[i];
    const double max = stats_.max_logit[row], log_sum = stats_.log_sum[row];
    softmax_masses_.normalise(places_[i], max, log_sum, problem.inverse_temperature(rows_[i]));
    const float* const softmax = softmax_masses_.row(places_[i]);
    float* const masses = masses_.row(places_[i]);
    const auto scale = static_cast<float>(std::abs(static_cast<double>(gradient.softmax_scale)) / unit_);
    const double cross_scale = of_cross(i);
    const bool has_pairs = buffers_.divergences != nullptr;
    const auto of_pairs =
        static_cast<float>(has_pairs ? stats::largest_scale(problem, stats_, grads_, rows_[i]) / unit_ : 0);
    const bool not_finite = !std::isfinite(max) || !std::isfinite(log_sum) || !std::isfinite(scale) ||
                            !std::isfinite(cross_scale) || !std::isfinite(of_pairs);
    for (int64_t s = 0; s < masses_.segments(); ++s) {
      float mass = scale == 0 ? 0 : softmax[s] * scale;
      if (has_pairs && of_pairs != 0) mass += masses[s] * of_pairs;
      if (cross_scale > 0) mass += static_cast<float>(cross_scale * cross[static_cast<size_t>(s)]);
      masses[s] = not_finite ? kAlways : mass;
    }
    for (int32_t k = 0; k < gradient.pick_count; ++k) {
      const int64_t entry = gradient.picks[k].id - problem.first_entry;
      if (entry >= 0 && entry < pass_.run.grid.vocab_size) masses[entry / kernels::kSegment] = kAlways;
    }
  }

  // Returns θ; 0: everything must be kept.
  double find_theta() {
    const BackwardOptions& options = pass_.outputs.backward;
    if (!is_by_noise(options)) return options.theta;
    SegmentPanel<Types> panel(pass_, buffers_, rows_, summands_);
    const PilotInput input = {masses_, rows_, places_, unit_};
    const NoiseFound found = Pilot<Types>(pass_, input, panel, buffers_).find();
    report_.noise_estimate = found.noise;
    return found.theta;
  }

  // Returns the expected share of the pairs that θ keeps.
  double share_at(double theta) const {
    core::Array<double> of_rows(rows_.size());
    each_row([&](size_t i) {
      const float* masses = masses_.row(places_[i]);
      double taken = 0;
      for (int64_t s = 0; s < masses_.segments(); ++s) {
        const float weight = weight_of(masses[s], theta);
        taken += weight == 0 ? 0 : 1 / static_cast<double>(weight);
      }
      of_rows[i] = taken;
    });
    const double pairs = static_cast<double>(rows_.size()) * static_cast<double>(masses_.segments());
    return std::accumulate(of_rows.begin(), of_rows.end(), 0.0) / pairs;
  }

  // Replaces the masses by the weights of the drawn pairs, 0 for the others.
  void draw(double theta) {
    each_row([&](size_t i) {
      float* const masses = masses_.row(places_[i]);
      const uint64_t bits =
          drawing_bits(static_cast<uint64_t>(pass_.outputs.backward.seed), 0, pass_.problem.first_entry, rows_[i]);
      stream::draw(
          masses_.segments(), theta, bits, [&](int64_t s) { return std::exchange(masses[s], 0.0F); },
          [&](int64_t s, float weight) {
            masses[s] = weight;
            ++kept_[i];
          });
    });
  }

  // Replaces the masses by 1 for kept pairs and 0 for the smallest ones. Returns the dropped mass of each
  // row.
  core::Array<double> certify() {
    core::Array<double> dropped(rows_.size());
    each_row([&](size_t i) {
      std::array<double, kBuckets> buckets = {};
      const double most = pass_.outputs.backward.tolerance * scales_[i] / unit_;
      float* const masses = masses_.row(places_[i]);
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
    });
    return dropped;
  }

  // Calls use(|w_v|²) for the rows [begin, end) of a head.
  template <class Use>
  void each_square(const source::Head& head, int64_t begin, int64_t end, const Use& use) const {
    const int64_t h = head.components();
    core::Array<double> stored(static_cast<size_t>(h));  // one row, whatever its type
    core::Array<Sum> wide(static_cast<size_t>(h));
    for (int64_t v = begin; v < end; ++v) {
      head.copy_entry(*pass_.context.kernels, v, stored.data());
      use(core::sum_of_squares(pass_.context.kernels->values(stored.data(), head.dtype(), h, wide.data()), h));
    }
  }

  // Returns the largest norm of a row of a head.
  double longest_entry(const source::Head& head) const {
    core::Array<double> longest(static_cast<size_t>(masses_.segments()));
    core::parallel_for(pass_.run.plan.threads, masses_.segments(), [&](int64_t s) {
      const int64_t end = std::min(pass_.run.grid.vocab_size, (s + 1) * kernels::kSegment);
      double& most = longest[static_cast<size_t>(s)];
      each_square(head, s * kernels::kSegment, end, [&](double square) { most = std::max(most, square); });
    });
    return std::sqrt(*std::max_element(longest.begin(), longest.end()));
  }

  // Returns an upper bound of the norms of the rows by which hidden states are multiplied: for w_v + scale ·
  // b_v a, the bound is |w| + scale |b| |a|.
  double bound_of_entries() const {
    const std::span<const source::Product> products = pass_.source.differentiated();
    const double of_weight = longest_entry(products.front().head);
    const LoraMatrices& lora = pass_.problem.head.lora;
    if (!lora.given() || lora.has_states()) return of_weight;
    const source::Head a{HeadMatrices(lora.a)};
    double squares = 0;
    each_square(a, 0, a.entries(), [&](double square) { squares += square; });
    return of_weight + std::abs(lora.scale) * longest_entry(products[1].head) * std::sqrt(squares);
  }

  // Computes the error bounds from `dropped`, an upper bound of each row's dropped weight: |Δd_hidden| of a
  // row is at most `dropped` times the largest norm of the head's rows, and |Δd_weight| is at most the sum
  // over the rows of `dropped` times the norm of the row's states.
  void bound(const core::Array<double>& dropped) {
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
    report_.d_hidden_bound = squares > 0 ? std::sqrt(squares) * bound_of_entries() * unit_ : 0;
    report_.d_weight_bound = sum * unit_;
  }

  const Pass<Types>& pass_;
  const fold::SegmentMasses& softmax_masses_;
  const fold::SegmentMasses& masses_;  // masses of the pairs; without a teacher, softmax_masses_
  SegmentBuffers<Types>& buffers_;
  const TokenStats& stats_;
  const TokenGrads& grads_;
  const stats::GradientSummands summands_;
  core::Array<int64_t> rows_;    // rows of the call that have a gradient
  core::Array<int32_t> places_;  // [rows_]: place of a row among the rows whose masses are stored
  core::Array<double> scales_;   // [rows_]: sum of the absolute factors of a row's distributions
  core::Array<int32_t> kept_;    // [rows_]: number of kept segments
  double unit_ = 1;              // the mean of the scales
  Plan report_;
};

}  // namespace logitless::stream

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Finds the largest θ for a requested noise. Two small samples, one of rows and one of segments, estimate the
// size of the exact gradients and the variance of d_hidden and d_weight under any θ. With the mass m of a
// pair (row i, segment s), its gradients of logits G, the head's rows W and the states x,
//
//     variance of d_hidden:  Σ_is (1 / q − 1) |G W|²          variance of d_weight:  Σ_is (1 / q − 1) |G|² |x|²
//
// with q = min(1, m / θ) (Horvitz and Thompson 1952). A systematic sample of a row always has the same total
// mass, so the direction common to all its segments does not vary. The remaining variance of a row's d_hidden
// is, with y = G W,
//
//     Σ_s (1 / q − 1) |y_s|² − |Σ_s (1 − q_s) y_s|² / Σ_s q_s (1 − q_s)
//
// (Hájek 1964). The segments of d_weight have no common direction.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <utility>

#include "core/parallel.h"
#include "core/random_bits.h"
#include "core/store.h"
#include "core/sum_of_squares.h"
#include "fold/segment_masses.h"
#include "stream/segment_buffers.h"
#include "stream/segment_drawing.h"
#include "stream/segment_panel.h"

namespace logitless::stream {

/// The input of a pilot: the rows that have a gradient, and the mass of each pair (row, segment).
struct PilotInput {
  const fold::SegmentMasses& masses;  // NaN: the pair is always kept
  std::span<const int64_t> rows;
  std::span<const int32_t> places;
  double unit = 1;  // the unit of the masses
};

/// The result of a pilot.
struct NoiseFound {
  double theta = 0;  // 0: everything must be kept
  double noise = 0;  // the expected error
};

/// Estimates the noise of a call's sample.
template <class Types>
class Pilot {
 public:
  using Sum = typename Types::Sum;

  Pilot(const Pass<Types>& pass, const PilotInput& input, SegmentPanel<Types>& panel, SegmentBuffers<Types>& buffers)
      : pass_(pass), input_(input), panel_(panel), buffers_(buffers) {}

  /// Returns the largest θ whose expected error is at most BackwardOptions::noise.
  NoiseFound find() {
    measure_pairs();
    measure_segments();
    pilot_theta_ = theta_of_pilot();
    measure_pilot_rows();
    if (wants_weight()) measure_pilot_segments();
    if (!(largest_ > 0)) return {};
    const double noise = pass_.outputs.backward.noise;
    const double theta = solve(1e3 * largest_, noise, [&](double at) { return noise_at(at); });
    return {theta, theta > 0 ? noise_at(theta) : 0};
  }

 private:
  // The drawings of a pilot. Drawing 0 selects the segments of the call itself.
  enum Drawing : uint64_t { kRows = 1, kSegmentsOfRows, kSegments, kRowsOfSegments };

  // A pair that the pilot has sampled.
  struct Pair {
    double mass;    // infinity: always kept
    double factor;  // 1 / the probability that the pilot samples it
    double hidden;  // |G W|²
    double weight;  // |G|² |x|²
  };

  // What a pilot row adds, for one θ: to the variance of d_hidden if segments were drawn independently, and
  // to the sums by which Hájek's formula corrects it.
  struct Shared {
    double variance = 0;
    double weights = 0;
    double excess = 0;  // excess of the squared sum, caused by the pilot's own sampling noise
  };

  // Returns the largest theta with value(theta) <= most, for an increasing value(), or 0 if there is none.
  template <class Value>
  static double solve(double largest, double most, const Value& value) {
    if (value(largest) <= most) return largest;
    const double below = largest * 1e-12;
    if (value(below) > most) return 0;
    return bisect(below, largest, [&](double theta) { return value(theta) <= most; }).first;
  }
  // Returns a narrow interval around the theta up to which below(theta) holds.
  template <class Below>
  static std::pair<double, double> bisect(double low, double high, const Below& below) {
    for (int step = 0; step < 50 && low < high; ++step) {
      const double middle = std::sqrt(low * high);
      (below(middle) ? low : high) = middle;
    }
    return {low, high};
  }

  bool wants_weight() const { return pass_.outputs.d_weight.data || pass_.outputs.weight_sink; }
  int64_t rows() const { return static_cast<int64_t>(input_.rows.size()); }
  int64_t segments() const { return input_.masses.segments(); }
  const float* masses(int64_t i) const { return input_.masses.row(input_.places[static_cast<size_t>(i)]); }
  uint64_t bits(Drawing drawing, int64_t index) const {
    return drawing_bits(static_cast<uint64_t>(pass_.outputs.backward.seed), drawing, pass_.problem.first_entry, index);
  }

  // Sums the masses of each row, and |gradient| of its picks, which masses exclude. Finds the largest mass.
  void measure_pairs() {
    row_sizes_.resize(static_cast<size_t>(rows()));
    core::Array<double> largest(static_cast<size_t>(rows()));
    core::parallel_ranges(pass_.run.plan.threads, rows(), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        double sum = 0, most = 0;
        each_pick(i, [&](int64_t, double gradient) { sum += std::abs(gradient); });
        const float* of_row = masses(i);
        for (int64_t s = 0; s < segments(); ++s) {
          if (!(of_row[s] >= 0)) continue;
          sum += static_cast<double>(of_row[s]);
          most = std::max(most, static_cast<double>(of_row[s]));
        }
        row_sizes_[static_cast<size_t>(i)] = std::isfinite(sum) ? sum : 0;
        largest[static_cast<size_t>(i)] = most;
      }
    });
    for (const double most : largest) largest_ = std::max(largest_, most);
  }

  void measure_segments() {
    segment_sizes_.resize(static_cast<size_t>(segments()));
    core::parallel_ranges(pass_.run.plan.threads, segments(), [&](int64_t begin, int64_t end) {
      for (int64_t i = 0; i < rows(); ++i) {
        const float* of_row = masses(i);
        for (int64_t s = begin; s < end; ++s) {
          if (of_row[s] >= 0) segment_sizes_[static_cast<size_t>(s)] += static_cast<double>(of_row[s]);
        }
      }
    });
    // In d_weight, the gradients of targets and other frequent entries add up over the batch.
    core::Array<double> entries(static_cast<size_t>(pass_.run.grid.vocab_size));
    for (int64_t i = 0; i < rows(); ++i) {
      each_pick(i, [&](int64_t entry, double gradient) { entries[static_cast<size_t>(entry)] += std::abs(gradient); });
    }
    for (double& size : segment_sizes_) size = std::pow(size, 1.5) / 4;
    for (size_t v = 0; v < entries.size(); ++v) {
      if (std::isfinite(entries[v])) segment_sizes_[v / kernels::kSegment] += std::pow(entries[v], 1.5);
    }
    const double all = std::accumulate(segment_sizes_.begin(), segment_sizes_.end(), 0.0);
    for (double& size : segment_sizes_) size += 1e-3 * all / static_cast<double>(segments());
  }

  template <class Use>
  void each_pick(int64_t i, const Use& use) const {
    const auto& gradient = buffers_.gradients[i];
    for (int32_t k = 0; k < gradient.pick_count; ++k) {
      const int64_t entry = gradient.picks[k].id - pass_.problem.first_entry;
      if (k > 0 && gradient.picks[k - 1].id == gradient.picks[k].id) continue;
      if (entry < 0 || entry >= pass_.run.grid.vocab_size) continue;
      use(entry, static_cast<double>(gradient.picks[k].gradient) / input_.unit);
    }
  }

  // Draws the pilot rows, and returns the theta at which about pilot_pairs() of their pairs are sampled.
  double theta_of_pilot() {
    draw_by_size(row_sizes_, kPilotRows, bits(kRows, 0), [&](int32_t i, double q) {
      pilot_rows_.push_back(i);
      row_factors_.push_back(1 / q);
    });
    const auto pairs = static_cast<double>(pilot_pairs(rows(), segments()));
    // A larger theta samples fewer pairs.
    const auto samples_more = [&](double theta) {
      double taken = 0;
      for (const int32_t i : pilot_rows_) {
        const float* of_row = masses(i);
        for (int64_t s = 0; s < segments(); ++s) {
          taken += of_row[s] >= 0 ? std::min(1.0, static_cast<double>(of_row[s]) / theta) : 1;
        }
      }
      return taken > pairs;
    };
    return bisect(largest_ * 1e-12, largest_ * 1e3, samples_more).second;
  }

  // Samples pairs of the pilot rows, and measures their parts of d_hidden and their squares in d_weight.
  void measure_pilot_rows() {
    const auto count = static_cast<int64_t>(pilot_rows_.size());
    std::fill_n(buffers_.pilot_weights, count * segments(), 0.0F);
    for (int64_t k = 0; k < count; ++k) {
      const int32_t i = pilot_rows_[static_cast<size_t>(k)];
      draw(
          segments(), pilot_theta_, bits(kSegmentsOfRows, input_.rows[static_cast<size_t>(i)]),
          [&](int64_t s) { return masses(i)[s]; },
          [&](int64_t s, float weight) { buffers_.pilot_weights[k * segments() + s] = weight; });
    }
    const Choice choice = {buffers_.pilot_weights, segments(), count, segments(), {}, pilot_rows_};
    std::fill_n(buffers_.pilot_sums, (1 + kPilotLevels) * kPilotRows * pass_.problem.hidden_size, Sum{0});
    excess_.resize(pilot_rows_.size());
    shared_.resize(pilot_rows_.size() * kLevels);
    for (int64_t column = 0; column < choice.columns;) {
      column = panel_.fill(choice, column);
      panel_.make(true, [](const auto&...) {});
      find_masses();
      add_pilot_sums();
      add_pairs();
    }
    finish_rows();
  }

  // Returns the sums of a pilot row: its d_hidden (level 0), and the part of it that each θ leaves out.
  Sum* pilot_sums(int64_t level, int64_t k) const {
    return buffers_.pilot_sums + (level * kPilotRows + k) * pass_.problem.hidden_size;
  }

  // Looks up the masses of a panel's pairs.
  void find_masses() {
    panel_masses_.resize(static_cast<size_t>(buffers_.panel_rows));
    for (const auto& of : panel_.columns()) {
      for (int64_t at = of.begin; at < of.begin + of.count; ++at) {
        const auto i = pilot_rows_[static_cast<size_t>(buffers_.items[at])];
        const auto mass = static_cast<double>(masses(i)[of.segment]);
        panel_masses_[static_cast<size_t>(at)] = mass >= 0 ? mass : std::numeric_limits<double>::infinity();
      }
    }
  }

  // Adds the parts of d_hidden from a panel's pairs.
  void add_pilot_sums() {
    panel_.add_states(
        pass_.source.products().front().head, [&](int64_t k) { return pilot_sums(0, k); },
        [&](int64_t at, int64_t split, int64_t component, const Sum* values, int64_t entries) {
          buffers_.hidden_squares[split * buffers_.panel_rows + at] = core::sum_of_squares(values, entries);
          for (int64_t level = 0; level < kPilotLevels; ++level) {
            const double q = chance(panel_masses_[static_cast<size_t>(at)], theta_of(level));
            const auto out = static_cast<Sum>(1 - q);
            if (out == 0) continue;
            Sum* const to = pilot_sums(1 + level, buffers_.items[at]) + component;
            for (int64_t c = 0; c < entries; ++c) to[c] += out * values[c];
          }
        });
  }

  // Appends a panel's pairs to pairs_, and adds them to the sums of their rows.
  void add_pairs() {
    const int64_t splits = core::div_up(pass_.problem.hidden_size, kHiddenColumns);
    for (const auto& of : panel_.columns()) {
      for (int64_t at = of.begin; at < of.begin + of.count; ++at) {
        const auto k = static_cast<size_t>(buffers_.items[at]);
        const double factor = buffers_.weights[at];
        double hidden = 0;
        for (int64_t split = 0; split < splits; ++split) {
          hidden += buffers_.hidden_squares[split * buffers_.panel_rows + at];
        }
        Pair pair;
        pair.mass = panel_masses_[static_cast<size_t>(at)];
        pair.hidden = hidden / (factor * factor);
        pair.weight = buffers_.tile_squares[at] / (factor * factor) * buffers_.state_squares[at];
        pair.factor = factor * row_factors_[k];
        excess_[k] += factor * (factor - 1) * pair.hidden;
        for (size_t level = 0; level < kLevels; ++level) {
          const double q = chance(pair.mass, theta_of(static_cast<int64_t>(level)));
          Shared& of_level = shared_[k * kLevels + level];
          of_level.variance += factor * (1 / q - 1) * pair.hidden;
          of_level.weights += factor * q * (1 - q);
          of_level.excess += factor * (factor - 1) * (1 - q) * (1 - q) * pair.hidden;
        }
        pairs_.push_back(pair);
      }
    }
  }

  // Estimates |d_hidden|² from the pilot rows, and the rest share of its variance for each θ.
  void finish_rows() {
    const int64_t h = pass_.problem.hidden_size;
    std::array<double, kLevels> variance = {}, rest = {};
    for (size_t k = 0; k < excess_.size(); ++k) {
      const auto row = static_cast<int64_t>(k);
      hidden_square_ += row_factors_[k] * (core::sum_of_squares(pilot_sums(0, row), h) - excess_[k]);
      for (size_t level = 0; level < kLevels; ++level) {
        const Shared& shared = shared_[k * kLevels + level];
        if (!(shared.weights > 0)) continue;
        const double of_sum = core::sum_of_squares(pilot_sums(1 + static_cast<int64_t>(level), row), h);
        const double square = std::max(0.0, of_sum - shared.excess);
        variance[level] += row_factors_[k] * shared.variance;
        rest[level] += row_factors_[k] * std::clamp(shared.variance - square / shared.weights, 0.0, shared.variance);
      }
    }
    for (size_t level = 0; level < kLevels; ++level) {
      remaining_[level] = variance[level] > 0 ? std::max(rest[level] / variance[level], kLeastRemaining) : 1;
    }
  }

  void measure_pilot_segments() {
    core::Array<int32_t> chosen;
    core::Array<double> factors;
    draw_by_size(segment_sizes_, kPilotSegments, bits(kSegments, 0), [&](int32_t s, double q) {
      chosen.push_back(s);
      factors.push_back(1 / q);
    });
    const auto columns = static_cast<int64_t>(chosen.size());
    std::fill_n(buffers_.pilot_weights, rows() * columns, 0.0F);
    core::parallel_for(pass_.run.plan.threads, columns, [&](int64_t c) {
      const int32_t segment = chosen[static_cast<size_t>(c)];
      draw(
          rows(), pilot_theta_, bits(kRowsOfSegments, segment), [&](int64_t i) { return masses(i)[segment]; },
          [&](int64_t i, float weight) { buffers_.pilot_weights[i * columns + c] = weight; });
    });
    const Choice choice = {buffers_.pilot_weights, columns, rows(), columns, {}, {}, chosen};
    const source::Product& product = pass_.source.products().front();
    const int64_t h = pass_.problem.hidden_size;
    core::Array<double> squares(static_cast<size_t>(columns));
    for (int64_t column = 0; column < columns;) {
      const int64_t first = column;
      column = panel_.fill(choice, column);
      panel_.make(true, [&](const sink::GradientPart& part, int64_t c, int64_t done, int thread) {
        auto& mine = buffers_.threads[static_cast<size_t>(thread)];
        const auto count = static_cast<int64_t>(part.rows.size());
        const auto& of = panel_.columns()[static_cast<size_t>(c)];
        gemm::Product<Sum> gradients;
        gradients.m = part.entries;
        gradients.n = gradients.ldc = h;
        gradients.k = count;
        gradients.c = mine.weights;
        gradients.b = product.states.operand(part.rows, product.rows_in(part.gathered));
        part.for_each_term([&](gemm::Operand term, bool first_term) {
          term.transposed = true;
          gradients.a = term;
          gradients.accumulate = !first_term || done > 0;
          pass_.multiplier(mine.products)(gradients);
        });
        double& square = squares[static_cast<size_t>(first + c)];
        for (int64_t r = 0; r < count; ++r) {
          const int64_t at = of.begin + done + r;
          const double factor = buffers_.weights[at];
          square -= (1 - 1 / factor) * buffers_.tile_squares[at] * buffers_.state_squares[at];
        }
        if (done + count < of.count) return;
        square += core::sum_of_squares(mine.weights, part.entries * h);
      });
    }
    for (size_t c = 0; c < factors.size(); ++c) weight_square_ += factors[c] * squares[c];
  }

  static double chance(double mass, double theta) { return mass < theta ? mass / theta : 1; }
  double theta_of(int64_t level) const { return pilot_theta_ * std::pow(3.0, static_cast<double>(level)); }
  // Returns the share of d_hidden's variance that remains with systematic sampling, interpolated over θ.
  double remaining_share_at(double theta) const {
    const double level = std::clamp(std::log(theta / pilot_theta_) / std::log(3.0), 0.0, double{kLevels - 1});
    const auto below = std::min(static_cast<size_t>(level), kLevels - 2);
    const double share = level - static_cast<double>(below);
    return (1 - share) * remaining_[below] + share * remaining_[below + 1];
  }

  // Returns the expected error of d_hidden or d_weight, whichever is larger.
  double noise_at(double theta) const {
    double hidden = 0, weight = 0;
    for (const Pair& pair : pairs_) {
      if (pair.mass >= theta) continue;
      const double odds = pair.factor * (theta / pair.mass - 1);
      hidden += odds * pair.hidden;
      weight += odds * pair.weight;
    }
    hidden *= remaining_share_at(theta);
    const auto error = [](double variance, double square) {
      return variance == 0 ? 0 : square > 0 ? std::sqrt(variance / square) : std::numeric_limits<double>::infinity();
    };
    return std::max(pass_.outputs.wants_d_hidden() ? error(hidden, hidden_square_) : 0,
                    wants_weight() ? error(weight, weight_square_) : 0);
  }

  static constexpr size_t kLevels = kPilotLevels;
  // Lower bound of the estimated remaining share of the variance.
  static constexpr double kLeastRemaining = 0.05;

  const Pass<Types>& pass_;
  const PilotInput& input_;
  SegmentPanel<Types>& panel_;
  SegmentBuffers<Types>& buffers_;
  core::Array<double> row_sizes_, segment_sizes_;
  double largest_ = 0, pilot_theta_ = 0;  // the largest mass of a pair, and the θ of the pilot's own sample
  core::Array<int32_t> pilot_rows_;       // indices in input_.rows
  core::Array<double> row_factors_, panel_masses_;
  core::Array<double> excess_;  // [pilot rows]: excess of |d_hidden|², caused by the pilot's noise
  core::Array<Shared> shared_;  // [pilot rows, levels]
  core::Array<Pair> pairs_;
  std::array<double, kLevels> remaining_ = {};
  double hidden_square_ = 0, weight_square_ = 0;  // squares of the exact gradients
};

}  // namespace logitless::stream

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Calls of row kernels on tiles in memory of the exact size, and bounds on the difference of two kernels.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "kernels/row_kernels.h"
#include "support/guard_pages.h"

namespace logitless::kernels {

/// Prints an instruction set's name in the list of tests, instead of an address.
inline void PrintTo(const RowKernels* kernels, std::ostream* out) { *out << kernels->name; }

using logitless::testing::Flush;
using logitless::testing::guarded_memory;

inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
inline constexpr double kInf = std::numeric_limits<double>::infinity();

/// An array whose last (or first) byte is next to a protected page.
template <class T>
class Guarded {
 public:
  Guarded(const std::vector<T>& values, Flush flush)
      : memory_(guarded_memory(std::max<size_t>(1, values.size()) * sizeof(T), flush)), size_(values.size()) {
    if (!values.empty()) std::memcpy(data(), values.data(), values.size() * sizeof(T));
  }
  T* data() const { return static_cast<T*>(memory_.get()); }
  std::vector<T> values() const { return {data(), data() + size_}; }

 private:
  std::shared_ptr<void> memory_;
  size_t size_;
};

/// The operands of one kernel call. A test names only what it varies.
template <class T>
struct Tile {
  int64_t rows = 3;
  int64_t cols = 37;
  int64_t padding = 3;
  bool bias = false;
  T softcap = 0;
  std::optional<DType> round_to;
  bool entropy = false;
  bool argmax = false;
  bool cross = false;
  bool cross_weights = false;
  bool row_weights = false;  // each row has its own weights
  bool masses = false;       // of segments
  std::vector<T> logits;     // drawn by seed() if not given

  int64_t stride() const { return cols + padding; }
  // The last row has no padding, so a kernel that reads there overruns the memory.
  size_t elements() const { return static_cast<size_t>((rows - 1) * stride() + cols); }
  void seed(unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<double> normal(0, 4);
    logits.resize(elements());
    for (T& x : logits) x = static_cast<T>(normal(random));
    logits[elements() / 2] += 15;  // peaked
  }
};

/// Counts up from `from` in steps, and starts again after eleven.
template <class T>
std::vector<T> sequence(int64_t count, double from, double step) {
  std::vector<T> out;
  for (int64_t i = 0; i < count; ++i) out.push_back(static_cast<T>(from + step * static_cast<double>(i % 11)));
  return out;
}

/// Picks for the rows of a tile whose first column is vocabulary entry 100. One pick goes through all columns
/// and the ones next to them. Every second row has two more, which may be equal.
struct TilePicks {
  explicit TilePicks(int64_t rows, int64_t cols) {
    for (int64_t r = 0; r < rows; ++r) {
      // The kernel looks up a row by its number in the call.
      call_rows.push_back(rows - 1 - r);
      ids.push_back(99 + r % (cols + 2));
      if (r % 2 == 1) ids.insert(ids.end(), {100 + r * 7 % (cols + 1), 100 + r * 5 % (cols + 1)});
      std::sort(ids.begin() + offsets.back(), ids.end());
      offsets.push_back(static_cast<int64_t>(ids.size()));
    }
  }
  /// Returns the index of the first pick of row r of the tile.
  size_t first_of(size_t r) const { return static_cast<size_t>(offsets[static_cast<size_t>(call_rows[r])]); }

  std::vector<int64_t> ids, call_rows, offsets = {0};
};

/// The results of a fold. A pick outside the tile is NaN.
struct Folded {
  std::vector<RowStats> stats;
  std::vector<double> picked;
  std::vector<float> masses = {};  // [rows, segments]
  std::vector<double> largest = {};
};

template <class T>
Folded fold(const TypedKernels<T>& kernels, const Tile<T>& tile, Flush flush = Flush::kEnd) {
  const Guarded<T> logits(tile.logits, flush);
  const Guarded<T> bias(sequence<T>(tile.cols, -1, 0.25), flush);
  const Guarded<float> weights(sequence<float>(tile.cols, 0, 0.125), flush);
  const Guarded<T> own(sequence<T>(tile.rows * tile.cols, 0, 0.125), flush);
  const Guarded<T> scratch(std::vector<T>(static_cast<size_t>(tile.cols), static_cast<T>(kNan)), flush);
  const Guarded<T> inverse_temperature(sequence<T>(tile.rows, 0.5, 0.25), flush);
  const TilePicks picks(tile.rows, tile.cols);
  const Guarded<int64_t> ids(picks.ids, flush);
  const Guarded<double> picked(std::vector<double>(picks.ids.size(), kNan), flush);
  std::vector<RowStats> stats(static_cast<size_t>(tile.rows));
  FoldArgs<T> args;
  args.shape = {tile.rows, tile.cols, tile.stride(), tile.bias ? bias.data() : nullptr, tile.softcap, tile.round_to};
  args.logits = logits.data();
  args.inverse_temperature = inverse_temperature.data();
  args.first_column = 100;
  args.picks = {ids.data(), picks.offsets.data()};
  args.call_rows = picks.call_rows.data();
  args.picked = picked.data();
  args.entropy = tile.entropy;
  args.argmax = tile.argmax;
  args.cross = tile.cross;
  args.cross_weights = tile.cross_weights ? weights.data() : nullptr;
  args.uniform_cross = 0.01;
  const std::vector<float> q = weights.values();
  args.weights_mass = std::accumulate(q.begin(), q.end(), 0.0);
  args.row_weights = tile.row_weights ? own.data() : nullptr;
  args.row_weights_stride = tile.cols;
  args.scratch = scratch.data();
  args.stats = stats.data();
  const int64_t segments = (tile.cols + kSegment - 1) / kSegment;
  const Guarded<float> masses(std::vector<float>(static_cast<size_t>(tile.rows * segments), 99), flush);
  const Guarded<double> largest(std::vector<double>(static_cast<size_t>(tile.rows), 99), flush);
  if (tile.masses) {
    args.masses = masses.data();
    args.masses_stride = segments;
    args.largest = largest.data();
    args.largest_stride = 1;
  }
  kernels.fold(args);
  EXPECT_EQ(0, std::memcmp(logits.data(), tile.logits.data(), tile.logits.size() * sizeof(T))) << "fold wrote logits";
  return {stats, picked.values(), masses.values(), largest.values()};
}

/// Adds the number of columns above threshold[row] to 5.
template <class T>
std::vector<int64_t> count_above(const TypedKernels<T>& kernels, const Tile<T>& tile, const std::vector<T>& threshold,
                                 Flush flush = Flush::kEnd) {
  const Guarded<T> logits(tile.logits, flush);
  const Guarded<T> bias(sequence<T>(tile.cols, -1, 0.25), flush);
  const Guarded<T> scratch(std::vector<T>(static_cast<size_t>(tile.cols), static_cast<T>(kNan)), flush);
  const Guarded<T> limits(threshold, flush);
  const Guarded<int64_t> counts(std::vector<int64_t>(threshold.size(), 5), flush);
  kernels.count_above(
      {{tile.rows, tile.cols, tile.stride(), tile.bias ? bias.data() : nullptr, tile.softcap, tile.round_to},
       logits.data(),
       limits.data(),
       scratch.data(),
       counts.data()});
  EXPECT_EQ(0, std::memcmp(logits.data(), tile.logits.data(), tile.logits.size() * sizeof(T))) << "the logits changed";
  return counts.values();
}

/// Returns the coefficients for the gradients of the rows `kept` of a tile.
template <class T>
std::vector<RowGradient<T>> row_gradients(const Tile<T>& tile, const std::vector<int32_t>& kept) {
  std::vector<RowGradient<T>> gradients;
  for (const int32_t row : kept) {
    RowGradient<T> g;
    g.max = static_cast<T>(8 + row);
    g.log_sum = static_cast<T>(9.5);
    g.inverse_temperature = static_cast<T>(0.5 + 0.25 * row);
    g.softmax_scale = static_cast<T>(-1.25);
    g.entropy_scale = tile.entropy ? static_cast<T>(0.75) : 0;
    g.entropy = static_cast<T>(2.5);
    g.square_scale = tile.entropy ? static_cast<T>(0.375) : 0;
    g.others = static_cast<T>(0.125);
    g.cross_scale = tile.cross ? static_cast<T>(-0.5) : 0;
    gradients.push_back(g);
  }
  return gradients;
}

/// The inputs of a gradient kernel, each in memory of the exact size, with all terms enabled.
template <class T>
class GradientInputs {
 public:
  /// The kernel gets a scratch buffer of this many rows.
  GradientInputs(const Tile<T>& tile, const std::vector<int32_t>& kept, Flush flush, int64_t scratch_rows)
      : logits(tile.logits, flush),
        tile_(tile),
        bias_(sequence<T>(tile.cols, -1, 0.25), flush),
        weights_(sequence<float>(tile.cols, 0, 0.125), flush),
        own_(sequence<T>(tile.rows * (100 + tile.cols), 0, 0.125), flush),
        scratch_(std::vector<T>(static_cast<size_t>(scratch_rows * tile.cols), static_cast<T>(kNan)), flush),
        kept_(kept),
        gradients_(row_gradients(tile, kept)),
        picks_(kept.size()) {
    for (size_t k = 0; k < kept.size(); ++k) {
      // A column of the tile, another one twice, and one outside it.
      const int64_t column = kept[k] % (tile.cols + 1), other = std::max<int64_t>(column, tile.cols - 1);
      picks_[k] = {{100 + column, T{3}}, {100 + other, T{-2}}, {100 + other, T{-2}}, {100 + tile.cols, T{5}}};
      if (column == other) picks_[k].erase(picks_[k].begin());
      gradients_[k].weights = own_.data() + kept[k] * (100 + tile.cols);
      gradients_[k].picks = picks_[k].data();
      gradients_[k].pick_count = static_cast<int32_t>(picks_[k].size());
    }
  }

  /// Returns all arguments except the output.
  template <class Gradient>
  GradientArgs<T, Gradient> args() const {
    GradientArgs<T, Gradient> out;
    out.shape = {tile_.rows,    tile_.cols,    tile_.stride(), tile_.bias ? bias_.data() : nullptr,
                 tile_.softcap, tile_.round_to};
    out.logits = logits.data();
    out.count = static_cast<int64_t>(gradients_.size());
    out.gradients = gradients_.data();
    out.places = kept_.data();
    out.first_column = 100;
    out.nonlinear = tile_.entropy;
    out.cross = tile_.cross;
    out.cross_weights = tile_.cross_weights ? weights_.data() : nullptr;
    out.row_weights = tile_.row_weights;
    out.uniform_cross = 0.01;
    out.scratch = scratch_.data();
    return out;
  }
  void expect_logits_untouched() const {
    EXPECT_EQ(0, std::memcmp(logits.data(), tile_.logits.data(), tile_.logits.size() * sizeof(T)))
        << "the logits were written";
  }

  Guarded<T> logits;

 private:
  const Tile<T>& tile_;
  Guarded<T> bias_;
  Guarded<float> weights_;
  Guarded<T> own_;  // [rows, 100 + cols]
  Guarded<T> scratch_;
  std::vector<int32_t> kept_;
  std::vector<RowGradient<T>> gradients_;
  std::vector<std::vector<PickGradient<T>>> picks_;
};

/// The form of bfloat16 gradients: the number of terms, and whether they have their own buffer.
struct NarrowForm {
  int terms = 1;
  bool apart = false;
  Residuals residuals = {};  // of [kept] and [cols]
};

/// Computes bfloat16 gradients of the rows `kept` of the tile, with all terms enabled. Returns the terms one
/// after another, each [kept, cols].
inline std::vector<bfloat16> narrow_gradient(const TypedKernels<float, float, bfloat16>& kernels,
                                             const Tile<float>& tile, const std::vector<int32_t>& kept, Flush flush,
                                             NarrowForm form) {
  const GradientInputs<float> inputs(tile, kept, flush, 2);
  const Guarded<float> memory(tile.logits, flush);
  auto args = inputs.args<bfloat16>();
  args.out = reinterpret_cast<bfloat16*>(form.apart ? memory.data() : inputs.logits.data());
  // In place, a row of both terms replaces a row of logits.
  args.out_stride = 2 * tile.stride();
  args.low = form.terms == 2 ? args.out + tile.cols : nullptr;
  args.residuals = form.residuals;
  kernels.gradient(args);
  if (form.apart) inputs.expect_logits_untouched();
  std::vector<bfloat16> out;
  for (const bfloat16* term : {args.out, args.low}) {
    for (size_t k = 0; term && k < kept.size(); ++k) {
      const bfloat16* row = term + static_cast<int64_t>(k) * args.out_stride;
      out.insert(out.end(), row, row + tile.cols);
    }
  }
  return out;
}

/// Computes gradients of the rows `kept` of the tile, with all terms enabled.
template <class T>
std::vector<T> gradient(const TypedKernels<T>& kernels, const Tile<T>& tile, const std::vector<int32_t>& kept,
                        Flush flush = Flush::kEnd, bool apart = false) {
  const GradientInputs<T> inputs(tile, kept, flush, 1);
  const Guarded<T> memory(tile.logits, flush);
  const Guarded<T>& out = apart ? memory : inputs.logits;
  auto args = inputs.template args<T>();
  args.out = out.data();
  args.out_stride = tile.stride();
  kernels.gradient(args);
  if (apart) inputs.expect_logits_untouched();
  return out.values();
}

/// Expects |got − want| within `relative` of want, and the same NaN or infinity.
inline void expect_close(double got, double want, double relative, const char* what) {
  if (std::isnan(want)) {
    EXPECT_TRUE(std::isnan(got)) << what << " is " << got << ", not NaN";
  } else if (std::isinf(want)) {
    EXPECT_EQ(got, want) << what;
  } else {
    EXPECT_TRUE(std::abs(got - want) <= relative * std::abs(want)) << what << " is " << got << ", not " << want;
  }
}

template <class T>
void expect_same_stats(const Folded& all_got, const Folded& all_want, const Tile<T>& tile) {
  const std::vector<RowStats>&got = all_got.stats, &want = all_want.stats;
  const double eps = std::numeric_limits<T>::epsilon();
  // Both sides round u = (c − max) / t once or twice, which exp turns into a relative error of |u| eps; tanh
  // differs by 4 ulp, which a softcap scales up to its size. |u| is at most a few dozen on these inputs. Sums
  // add (cols + 8) eps, as in the contract.
  const double term = eps * (64 + 16 * static_cast<double>(tile.softcap));
  const double sum = term + eps * static_cast<double>(tile.cols + 8);
  for (size_t r = 0; r < want.size(); ++r) {
    expect_close(got[r].max, want[r].max, tile.softcap > 0 ? 8 * eps : 0, "max");
    expect_close(got[r].rest, want[r].rest, sum, "rest");
    expect_close(got[r].weighted, want[r].weighted, sum, "weighted");
    expect_close(got[r].cross, want[r].cross, sum, "cross");
    expect_close(got[r].cross_mass, want[r].cross_mass, 1e-12, "cross_mass");
    EXPECT_EQ(got[r].argmax, want[r].argmax);
  }
  for (size_t k = 0; k < all_want.picked.size(); ++k) {
    expect_close(all_got.picked[k], all_want.picked[k], tile.softcap > 0 ? 8 * eps : 0, "pick");
  }
}

template <class T>
void expect_same_gradient(const std::vector<T>& got, const std::vector<T>& want, double softcap) {
  const double eps = std::numeric_limits<T>::epsilon();
  double scale = 0;
  for (const T x : want) scale = std::max(scale, std::abs(static_cast<double>(x)));
  for (size_t i = 0; i < want.size(); ++i) {
    // As above. The terms of an element may cancel, so the bound is relative to the tile's largest element.
    EXPECT_TRUE(std::abs(static_cast<double>(got[i]) - want[i]) <= eps * (64 + 16 * softcap) * scale)
        << i << ": " << got[i] << ", not " << want[i];
  }
}

/// Runs a test for every instruction set of this CPU. rows_test.cc instantiates them for all files.
class SimdTargets : public ::testing::TestWithParam<const RowKernels*> {};

}  // namespace logitless::kernels

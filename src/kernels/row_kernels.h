// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The contracts of the row kernels, which do everything that is done to a tile of logits between
// two GEMMs. T is float or double; a table of kernels is chosen once, by a Context, never inside a loop.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <type_traits>
#include <vector>

#include "kernels/row_stats.h"
#include "logitless/dtype.h"

namespace logitless::kernels {

/// The types of a tile: of its sums, of its logits, and of their gradients as the gradient products
/// read them.
template <class SumType, class LogitType = SumType, class GradientType = LogitType>
struct TileTypes {
  using Sum = SumType;
  using Logit = LogitType;
  using Gradient = GradientType;
};
/// The types for float64 tensors, for all others, and for bfloat16 tensors whose gradients are
/// multiplied as bfloat16.
using DoubleTiles = TileTypes<double>;
using FloatTiles = TileTypes<float>;
using BFloat16Tiles = TileTypes<float, float, bfloat16>;

/// A tile of products x · w, row-major, with what turns a product into a capped logit:
///   r = round(product + bias)      to the nearest value of `round_to`, ties to even, when that is set
///   c = softcap · tanh(r / softcap)
/// The derivative of the rounding counts as 1.
template <class T>
struct TileShape {
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;             // in elements, >= cols
  const T* bias = nullptr;        // [cols], or null
  T softcap = 0;                  // 0: c = r
  std::optional<DType> round_to;  // kBFloat16 or kFloat16

  /// Returns whether c is the product itself.
  bool plain() const { return !bias && !(softcap > 0) && !round_to; }
};

/// Token ids at which rows are looked up, increasing in each row. Those of row r of a call are entries
/// [offsets[r], offsets[r + 1]) of `ids`; without offsets row r has the one pick r, and without ids none.
struct Picks {
  const int64_t* ids = nullptr;
  const int64_t* offsets = nullptr;

  int64_t begin(int64_t row) const { return offsets ? offsets[row] : row; }
  int64_t end(int64_t row) const { return ids ? begin(row + 1) : begin(row); }
};

/// The gradient in the column of a pick, which replaces the formula there: its 1 - p is computed without
/// cancellation.
template <class T>
struct PickGradient {
  int64_t id = 0;
  T gradient = 0;
};

inline int64_t id_of(int64_t id) { return id; }
template <class T>
int64_t id_of(const PickGradient<T>& pick) {
  return pick.id;
}
/// Calls visit(pick, column) for those of [begin, end), whose ids increase, that a tile holds: it has `cols`
/// columns, of which the first is vocabulary entry `first_column`.
template <class Pick, class Visit>
void for_each_pick(const Pick* begin, const Pick* end, int64_t first_column, int64_t cols, const Visit& visit) {
  const auto before = [](const Pick& pick, int64_t id) { return id_of(pick) < id; };
  for (const Pick* pick = std::lower_bound(begin, end, first_column, before); pick != end; ++pick) {
    const int64_t column = id_of(*pick) - first_column;
    if (column >= cols) return;
    visit(*pick, column);
  }
}

/// Does the same, and visits only the first of picks with equal ids.
template <class Pick, class Visit>
void for_each_picked_column(const Pick* begin, const Pick* end, int64_t first_column, int64_t cols,
                            const Visit& visit) {
  int64_t last = -1;
  for_each_pick(begin, end, first_column, cols, [&](const Pick& pick, int64_t column) {
    if (column != last) visit(pick, column);
    last = column;
  });
}

/// Gradients of a sample are made of segments of so many vocabulary entries, a multiple of any vector's
/// lanes.
inline constexpr int64_t kSegment = 64;

/// Folds the tile's columns into each row's running statistics, and looks up the row's picks.
///   logits  [rows, cols]; read only, nothing outside of it is read.
///   stats   [rows]; on entry the fold of all columns before these (or RowStats{}).
///   picked  gets, at the place of a pick that the tile holds, its capped logit.
///   scratch [cols]; may hold anything on entry.
/// cols = 0 leaves stats untouched. A row that holds a NaN ends with stats.max = NaN; -inf columns weigh
/// nothing. rest and weighted have a relative error below (cols / lanes + 8) · eps with 1 <= lanes; max and
/// picks are exact.
template <class T>
struct FoldArgs {
  TileShape<T> shape;
  const T* logits = nullptr;
  const T* inverse_temperature = nullptr;  // [rows]
  int64_t first_column = 0;                // of the tile in the vocabulary, which picks and stats.argmax mean
  Picks picks;
  const int64_t* call_rows = nullptr;  // [rows]: which rows of the call these are, where there are picks
  double* picked = nullptr;

  /// Calls visit(place in `picked`, column) for the picks of a row that the tile holds.
  template <class Visit>
  void for_each_pick(int64_t row, const Visit& visit) const {
    if (!picks.ids) return;
    const int64_t call_row = call_rows[row];
    kernels::for_each_pick(picks.ids + picks.begin(call_row), picks.ids + picks.end(call_row), first_column, shape.cols,
                           [&](const int64_t& pick, int64_t column) { visit(picked + (&pick - picks.ids), column); });
  }
  bool entropy = false;                  // fill stats.weighted
  bool argmax = false;                   // fill stats.argmax
  bool cross = false;                    // fill stats.cross and cross_mass, with
  const float* cross_weights = nullptr;  //   q = cross_weights[0 .. cols), or when null
  double uniform_cross = 0;              //   q = uniform_cross
  double weights_mass = 0;               // Σ cross_weights[0 .. cols), where these are given
  // Instead of these, each row may have weights of its own, whose mass is summed here: those of row r are
  // row_weights[call_rows[r] * row_weights_stride + (0 .. cols)].
  const T* row_weights = nullptr;
  int64_t row_weights_stride = 0;
  // Σ exp((a - largest) · inverse_temperature) of each kSegment columns, relative to the row's largest of the
  // tile: masses[r * masses_stride + (0 .. cols / kSegment, rounded up)], and that largest in largest[r *
  // largest_stride]. All are NaN in a row that holds a NaN or +inf. Null: they are not wanted.
  float* masses = nullptr;
  int64_t masses_stride = 0;
  double* largest = nullptr;
  int64_t largest_stride = 0;
  T* scratch = nullptr;
  RowStats* stats = nullptr;

  /// Returns the masses of a row, whose largest is `max`, as they are before a column is in them, or null.
  float* begin_masses(int64_t row, double max) const {
    if (!masses) return nullptr;
    largest[row * largest_stride] = max;
    float* const of_row = masses + row * masses_stride;
    const bool is_number = max < std::numeric_limits<double>::infinity();
    std::fill_n(of_row, (shape.cols + kSegment - 1) / kSegment,
                is_number ? 0.0F : std::numeric_limits<float>::quiet_NaN());
    return of_row;
  }
};

/// Counts, in each row, the columns whose capped logit is larger than the row's `threshold`.
///   logits  [rows, cols]; read only, nothing outside of it is read.
///   counts  [rows]; added to.
///   scratch [cols]; may hold anything on entry.
/// The counts are exact, and the capped logits are those of fold() to the bit: the column of a pick that is
/// the threshold never counts. A NaN never counts, nor does anything where the threshold is NaN.
template <class T>
struct CountArgs {
  TileShape<T> shape;
  const T* logits = nullptr;
  const T* threshold = nullptr;  // [rows]
  T* scratch = nullptr;
  int64_t* counts = nullptr;
};

/// What the gradient of one row needs. dL/da_v = -p_v (softmax_scale + entropy_scale (log p_v +
/// entropy)) + cross_scale q_v for every column but those of picks; all scales are already divided by the
/// row's temperature, so that the kernel only multiplies with the softcap's derivative.
template <class T>
struct RowGradient {
  T max = 0;  // of the capped logits
  T log_sum = 0;
  T inverse_temperature = 1;
  T softmax_scale = 0;
  T entropy_scale = 0;
  T entropy = 0;
  T cross_scale = 0;
  int32_t pick_count = 0;
  const T* weights = nullptr;              // q of this row alone, by the columns of the whole vocabulary
  const PickGradient<T>* picks = nullptr;  // [pick_count], their ids increasing; those of equal ids are equal
};

/// What rounding to bfloat16 has left of gradients d, d - out, summed along both edges of a tile; of a
/// gradient whose rounding is no finite number nothing is left. A product with a matrix whose rows share a
/// direction multiplies these sums with it, so that sinks put them back (sink/kept_residuals.h).
struct Residuals {
  float* rows = nullptr;     // of each row over the columns
  float* columns = nullptr;  // of each column over the rows, where they are wanted
  float* sizes = nullptr;    // Σ |d| of each column, where it is wanted
};

/// Turns raw logits into gradients of raw logits. Entry k of `gradients` takes the logits of tile row
/// source_rows[k] >= k and writes row k of the output: rows that are not named are dropped and the others
/// move up (source rows must increase).
///   logits  [shape.rows, cols]
///   out     [count, cols] with out_stride: memory apart from the logits, or their own, where row k of `out`
///           begins with row k of the logits and ends before row k + 1.
///   low     [count, cols] with out_stride, or null. It gets what rounding to `out` has left of a gradient d,
///           rounded in turn: |d - out - low| <= 2^-17 |d| for bfloat16, where low is a normal number. It
///           stands as `out` does: behind row k of it, or in memory apart.
///   residuals  [count], [cols] and [cols], or null: where `out` is bfloat16 and `low` is null.
///   scratch [cols], or [2 * cols] where Gradient is not Logit; may hold anything on entry.
/// Gradients are rounded to nearest even once. A row whose max or log_sum is NaN becomes NaN in every column.
template <class Logit, class Gradient = Logit>
struct GradientArgs {
  TileShape<Logit> shape;
  const Logit* logits = nullptr;
  Gradient* out = nullptr;
  int64_t out_stride = 0;  // in elements, >= cols
  Gradient* low = nullptr;
  Residuals residuals;
  int64_t count = 0;
  const RowGradient<Logit>* gradients = nullptr;  // [count]
  const int32_t* source_rows = nullptr;           // [count]
  int64_t first_column = 0;                       // of the tile in the vocabulary, which picks mean
  bool entropy = false;                           // some entropy_scale is not zero
  bool cross = false;                             // some cross_scale is not zero
  const float* cross_weights = nullptr;           // as in FoldArgs
  bool row_weights = false;                       // instead of these, RowGradient::weights
  double uniform_cross = 0;
  Logit* scratch = nullptr;
};

/// The most rows of FewRowsArgs, and how many of them are multiplied together with rows of B that stand as
/// they are multiplied.
inline constexpr int64_t kMostFewRows = 64;
inline constexpr int64_t kFewRowsTogether = 16;
/// A few rows are multiplied with so many vocabulary entries of a transposed B at a time, of which so much
/// of the depth, and else with so many of its rows and columns: they stay in the nearest caches while all
/// rows of A use them.
inline constexpr int64_t kFewRowsEntries = 8;
inline constexpr int64_t kFewRowsStretch = 768;
inline constexpr int64_t kFewRowsDepth = 4;
inline constexpr int64_t kFewRowsCols = 1024;
/// Sums over the rows of B are made of parts of so many, a multiple of kFewRowsDepth.
inline constexpr int64_t kFewRowsPart = 256;

/// Computes C [rows, cols] (+)= A [rows, depth] · op(B), where B is [depth, cols], or [cols, depth] when
/// `b_transposed`, row-major, and read once. Each element of C is summed in an order that follows from depth
/// and b_transposed alone. B is float64 for double, and else float32, bfloat16 or float16.
///   scratch [scratch_elements()] where B is float16 and there are more than 4 rows; may hold anything on entry.
template <class T>
struct FewRowsArgs {
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t depth = 0;  // > 0
  const T* a = nullptr;
  int64_t a_stride = 0;
  const void* b = nullptr;
  DType b_dtype = DType::kFloat32;
  int64_t b_stride = 0;
  bool b_transposed = false;
  T* c = nullptr;
  int64_t c_stride = 0;
  bool accumulate = false;
  T* scratch = nullptr;

  static int64_t scratch_elements(int64_t depth) {
    return std::max(kFewRowsEntries * depth, kFewRowsDepth * kFewRowsCols);
  }
};

template <class Sum, class Logit = Sum, class Gradient = Logit>
struct TypedKernels {
  void (*fold)(const FoldArgs<Logit>&) = nullptr;
  void (*count_above)(const CountArgs<Logit>&) = nullptr;
  void (*gradient)(const GradientArgs<Logit, Gradient>&) = nullptr;
  /// Computes sums[c] (+)= Σ_r tile[r, c] in row order, where the tile is [rows, cols] with `stride`.
  void (*add_column_sums)(const Gradient* tile, int64_t stride, int64_t rows, int64_t cols, bool accumulate,
                          Sum* sums) = nullptr;
  /// Computes to[i] += from[i].
  void (*add)(const Sum* from, int64_t count, Sum* to) = nullptr;
  /// Computes to[i] += scale * from[i].
  void (*add_scaled)(const Sum* from, Sum scale, int64_t count, Sum* to) = nullptr;
};

struct RowKernels {
  const char* name = "";
  TypedKernels<float> f32;
  TypedKernels<double> f64;
  TypedKernels<float, float, bfloat16> bf16;  // of BFloat16Tiles
  void (*few_rows_f32)(const FewRowsArgs<float>&) = nullptr;
  void (*few_rows_f64)(const FewRowsArgs<double>&) = nullptr;
  /// Sets to[i] = from[i], which is exact.
  void (*widen_bf16)(const bfloat16* from, int64_t count, float* to) = nullptr;
  /// Sets to[i] = from[i] (+ to[i] when accumulating), rounded to nearest even; a NaN stays a NaN.
  void (*round_bf16)(const float* from, int64_t count, bool accumulate, bfloat16* to) = nullptr;
  /// These do the same for float16: subnormals are kept, and what rounds to 65536 or more becomes infinity.
  void (*widen_f16)(const float16* from, int64_t count, float* to) = nullptr;
  void (*round_f16)(const float* from, int64_t count, bool accumulate, float16* to) = nullptr;

  /// Sets to[i] = from[i], which is exact, from a type that is stored in 16 bits.
  void widen(const void* from, DType dtype, int64_t count, float* to) const {
    switch (dtype) {
      case DType::kFloat16:
        return widen_f16(static_cast<const float16*>(from), count, to);
      case DType::kBFloat16:
        return widen_bf16(static_cast<const bfloat16*>(from), count, to);
      default:
        break;  // They are read as they are.
    }
  }
  /// Returns `count` stored numbers as T: where they stand, or those of a 16-bit type in `wide`.
  template <class T>
  const T* values(const void* from, DType dtype, int64_t count, T* wide) const {
    if constexpr (sizeof(T) == 4) {
      if (dtype == DType::kFloat16 || dtype == DType::kBFloat16) {
        widen(from, dtype, count, wide);
        return wide;
      }
    }
    return static_cast<const T*>(from);
  }
  /// Sets to[i] = from[i] (+ to[i] when accumulating), rounded once to a type that is stored in 16 bits.
  /// float64 sums have no narrower output: for them this does nothing.
  template <class T>
  void round([[maybe_unused]] const T* from, [[maybe_unused]] int64_t count, [[maybe_unused]] bool accumulate,
             [[maybe_unused]] void* to, [[maybe_unused]] DType dtype) const {
    if constexpr (sizeof(T) == 4) {
      switch (dtype) {
        case DType::kFloat16:
          return round_f16(from, count, accumulate, static_cast<float16*>(to));
        case DType::kBFloat16:
          return round_bf16(from, count, accumulate, static_cast<bfloat16*>(to));
        default:
          break;  // Sums are written to them as they are.
      }
    }
  }

  /// Returns the kernels of tiles of these types.
  template <class Types>
  const auto& of_tiles() const {
    if constexpr (std::is_same_v<Types, DoubleTiles>) {
      return f64;
    } else if constexpr (std::is_same_v<Types, BFloat16Tiles>) {
      return bf16;
    } else {
      static_assert(std::is_same_v<Types, FloatTiles>);
      return f32;
    }
  }
  template <class T>
  const TypedKernels<T>& typed() const {
    return of_tiles<TileTypes<T>>();
  }
};

/// Returns the readable version, which has scalar loops and std::exp.
const RowKernels& plain_kernels();

/// Returns the vectorised tables of this CPU, best first.
std::vector<const RowKernels*> simd_kernels();

/// Finds "auto", "plain" or a name of simd_kernels(); returns null when there is none of that name.
const RowKernels* find_kernels(std::string_view name);

}  // namespace logitless::kernels

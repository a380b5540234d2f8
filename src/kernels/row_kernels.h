// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The contracts of the row kernels, which do all work on a tile of logits between two GEMMs, and their table.
// T is float or double. A Context chooses the table of an instruction set once, never inside a loop.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <type_traits>
#include <vector>

#include "kernels/row_stats.h"
#include "kernels/unpack_kernels.h"
#include "logitless/dtype.h"

namespace logitless::kernels {

/// The types of a tile: of its sums, of its logits, and of the gradients that the gradient products read.
template <class SumType, class LogitType = SumType, class GradientType = LogitType>
struct TileTypes {
  using Sum = SumType;
  using Logit = LogitType;
  using Gradient = GradientType;
};
/// The types for float64 tensors, for all other tensors, and for bfloat16 tensors whose gradients are
/// multiplied as bfloat16.
using DoubleTiles = TileTypes<double>;
using FloatTiles = TileTypes<float>;
using BFloat16Tiles = TileTypes<float, float, bfloat16>;

/// A tile of dot products x · w, row-major, and how one becomes a capped logit:
///   r = round(x · w + bias)        to the nearest value of `round_to`, ties to even, if that is set
///   c = softcap · tanh(r / softcap)
/// The derivative of the rounding is taken as 1.
template <class T>
struct TileShape {
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;             // in elements, >= cols
  const T* bias = nullptr;        // [cols], or null
  T softcap = 0;                  // 0: c = r
  std::optional<DType> round_to;  // kBFloat16 or kFloat16

  /// Returns whether c equals x · w.
  bool plain() const { return !bias && !(softcap > 0) && !round_to; }
};

/// Token ids whose logits are picked, sorted in each row. Row r of a call has ids[offsets[r] .. offsets[r +
/// 1]); without offsets its only pick is ids[r], and without ids it has no picks.
struct Picks {
  const int64_t* ids = nullptr;
  const int64_t* offsets = nullptr;

  int64_t begin(int64_t row) const { return offsets ? offsets[row] : row; }
  int64_t end(int64_t row) const { return ids ? begin(row + 1) : begin(row); }
};

/// The gradient in the column of a pick. It replaces the formula there, because its 1 - p is computed without
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
/// Calls visit(pick, column) for each pick in [begin, end) that is in a tile of `cols` columns, which begins
/// at vocabulary entry `first_column`. The picks are sorted by id.
template <class Pick, class Visit>
void for_each_pick(const Pick* begin, const Pick* end, int64_t first_column, int64_t cols, const Visit& visit) {
  const auto before = [](const Pick& pick, int64_t id) { return id_of(pick) < id; };
  for (const Pick* pick = std::lower_bound(begin, end, first_column, before); pick != end; ++pick) {
    const int64_t column = id_of(*pick) - first_column;
    if (column >= cols) return;
    visit(*pick, column);
  }
}

/// Like for_each_pick(), but visits only the first of several picks with equal ids.
template <class Pick, class Visit>
void for_each_picked_column(const Pick* begin, const Pick* end, int64_t first_column, int64_t cols,
                            const Visit& visit) {
  int64_t last = -1;
  for_each_pick(begin, end, first_column, cols, [&](const Pick& pick, int64_t column) {
    if (column != last) visit(pick, column);
    last = column;
  });
}

/// Sampled gradients choose segments of this many vocabulary entries; a multiple of any vector's lanes.
inline constexpr int64_t kSegment = 64;

/// Folds the tile's columns into each row's running statistics, and stores the logits of the row's picks.
///   logits  [rows, cols]; read only, nothing outside it is read.
///   stats   [rows]; on entry the fold of all columns before these (or RowStats{}).
///   picked  gets the capped logit of each pick in the tile, at the pick's index in picks.ids.
///   scratch [cols]; may hold anything on entry.
/// cols = 0 has no effect. A row that holds a NaN ends with stats.max = NaN; -inf columns have no mass. rest
/// and weighted have a relative error below (cols / lanes + 8) · eps, where lanes >= 1 is the length of a
/// vector; max and picks are exact.
template <class T>
struct FoldArgs {
  TileShape<T> shape;
  const T* logits = nullptr;
  const T* inverse_temperature = nullptr;  // [rows]
  int64_t first_column = 0;                // vocabulary entry of column 0, for picks and stats.argmax
  Picks picks;
  bool over_picks = false;             // the columns are the row's distinct picks, in order
  const int64_t* call_rows = nullptr;  // [rows]: row numbers in the call, if there are picks or row_weights
  double* picked = nullptr;

  /// Calls visit(address in `picked`, column) for each pick of a row that is in the tile.
  template <class Visit>
  void for_each_pick(int64_t row, const Visit& visit) const {
    if (!picks.ids) return;
    const int64_t begin = picks.begin(call_rows[row]), end = picks.end(call_rows[row]);
    if (over_picks) {
      int64_t column = 0;
      for (int64_t pick = begin; pick < end; ++pick) {
        if (pick > begin && picks.ids[pick] != picks.ids[pick - 1]) ++column;
        visit(picked + pick, column);
      }
      return;
    }
    kernels::for_each_pick(picks.ids + begin, picks.ids + end, first_column, shape.cols,
                           [&](const int64_t& pick, int64_t column) { visit(picked + (&pick - picks.ids), column); });
  }
  bool entropy = false;                  // fill stats.weighted
  bool argmax = false;                   // fill stats.argmax
  bool cross = false;                    // fill stats.cross and cross_mass, with weights
  const float* cross_weights = nullptr;  // q = cross_weights[0 .. cols); null: see uniform_cross
  double uniform_cross = 0;              // q of every column if cross_weights is null
  double weights_mass = 0;               // Σ cross_weights[0 .. cols), if they are given
  // Per-row weights instead; the kernel computes their sums. Row r has row_weights[call_rows[r] *
  // row_weights_stride + (0 .. cols)]. Null: not used.
  const T* row_weights = nullptr;
  int64_t row_weights_stride = 0;
  // Σ exp((c - largest) · inverse_temperature) over each kSegment columns, where `largest` is the row's
  // largest c in the tile: masses[r * masses_stride + (0 .. cols / kSegment, rounded up)], and largest[r *
  // largest_stride]. All masses of a row that holds a NaN or +inf are NaN. Null: not requested.
  float* masses = nullptr;
  int64_t masses_stride = 0;
  double* largest = nullptr;
  int64_t largest_stride = 0;
  T* scratch = nullptr;
  RowStats* stats = nullptr;

  /// Sets the `largest` of a row to `max`, initialises the row's masses and returns them, or returns null.
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

/// Counts the columns of each row whose capped logit is larger than the row's `threshold`.
///   logits  [rows, cols]; read only, nothing outside it is read.
///   counts  [rows]; added to.
///   scratch [cols]; may hold anything on entry.
/// The counts are exact, and the capped logits have the same bits as in fold(): a pick that gave the
/// threshold is never counted. A NaN is never counted, and if the threshold is NaN nothing is counted.
template <class T>
struct CountArgs {
  TileShape<T> shape;
  const T* logits = nullptr;
  const T* threshold = nullptr;  // [rows]
  T* scratch = nullptr;
  int64_t* counts = nullptr;
};

/// The gradient kernel's input for one row. For every column except picks,
///
///     dL/da_v = -p_v (softmax_scale + entropy_scale (log p_v + entropy) + square_scale (1 - p_v)) + cross_scale q_v
///
/// All scales are already divided by the row's temperature, so the kernel only multiplies by the softcap's
/// derivative.
template <class T>
struct RowGradient {
  T max = 0;  // max of the capped logits
  T log_sum = 0;
  T inverse_temperature = 1;
  T softmax_scale = 0;
  T entropy_scale = 0;
  T entropy = 0;
  T square_scale = 0;
  T others = 0;  // 1 - p of a column with a = max, whose p may be nearly 1; read if square_scale is not 0
  T cross_scale = 0;
  int32_t pick_count = 0;
  const T* weights = nullptr;              // q of this row alone, indexed by vocabulary entry
  const PickGradient<T>* picks = nullptr;  // [pick_count], sorted by id; entries with equal ids are equal
};

/// The residuals d - out of gradients d that were rounded to bfloat16, summed along both edges of a tile. A
/// residual that is not finite counts as 0. In a product with a matrix whose rows share a direction, these
/// sums become an error, which the sinks correct (sink/kept_residuals.h).
struct Residuals {
  float* rows = nullptr;     // per row, the sum over the columns
  float* columns = nullptr;  // per column, the sum over the rows; null: not requested
  float* sizes = nullptr;    // per column, Σ |d| over finite d; null: not requested
};

/// Computes gradients of raw logits from raw logits. gradients[k] applies to the logits of tile row
/// places[k] >= k and fills row k of the output. Places must increase; rows that are not named are dropped
/// and later rows move up.
///   logits  [shape.rows, cols]
///   out     [count, cols] with out_stride. Either separate memory, or in place: row k of `out` begins at
///           row k of the logits and ends before row k + 1.
///   low     [count, cols] with out_stride, or null. Gets the residual of rounding a gradient d to `out`,
///           rounded in turn: |d - out - low| <= 2^-17 |d| for bfloat16, if low is a normal number. In place,
///           it is within row k of the logits, after row k of `out`; or it is separate memory.
///   residuals  [count], [cols] and [cols], overwritten, or null. Only if `out` is bfloat16 and `low` null.
///   scratch [cols], or [2 * cols] if Gradient is not Logit; may hold anything on entry.
/// Gradients are rounded once, to nearest even. A row whose max or log_sum is NaN becomes NaN in every
/// column.
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
  const int32_t* places = nullptr;                // [count]
  int64_t first_column = 0;                       // vocabulary entry of column 0, for picks
  bool nonlinear = false;                         // some entropy_scale or square_scale is not 0
  bool cross = false;                             // some cross_scale is not 0
  const float* cross_weights = nullptr;           // as in FoldArgs
  bool row_weights = false;                       // use RowGradient::weights instead
  double uniform_cross = 0;
  Logit* scratch = nullptr;
};

/// The largest number of rows in FewRowsArgs, and how many of them are multiplied together if B is not
/// transposed.
inline constexpr int64_t kMostFewRows = 64;
inline constexpr int64_t kFewRowsTogether = 16;
/// Block sizes for which B stays in the nearest caches while all rows of A use it. Each step multiplies
/// kFewRowsEntries vocabulary entries and kFewRowsBlockDepth of the depth if B is transposed, else
/// kFewRowsDepth rows and kFewRowsCols columns of B.
inline constexpr int64_t kFewRowsEntries = 8;
inline constexpr int64_t kFewRowsBlockDepth = 768;
inline constexpr int64_t kFewRowsDepth = 4;
inline constexpr int64_t kFewRowsCols = 1024;
/// If B is not transposed, sums over its rows accumulate kFewRowsSummed rows at a time: a multiple of
/// kFewRowsDepth.
inline constexpr int64_t kFewRowsSummed = 256;

/// Computes C [rows, cols] (+)= A [rows, depth] · op(B). B is row-major, [depth, cols] or, if `b_transposed`,
/// [cols, depth], and is read once. The order in which an element of C is summed depends only on depth and
/// b_transposed. B is float64 for double, else float32, bfloat16 or float16.
///   scratch [scratch_elements()] if B is float16 and there are more than 4 rows; may hold anything on entry.
template <class T, class A = T>
struct FewRowsArgs {
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t depth = 0;  // > 0
  const A* a = nullptr;
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

template <class T>
struct TopArgs;  // top_kernels.h
template <class T>
struct DrawArgs;  // draw_kernels.h
template <class T>
struct DivergenceFoldArgs;  // divergence_kernels.h
template <class Logit, class Gradient = Logit>
struct DivergenceGradientArgs;

template <class Sum, class Logit = Sum, class Gradient = Logit>
struct TypedKernels {
  void (*fold)(const FoldArgs<Logit>&) = nullptr;
  void (*count_above)(const CountArgs<Logit>&) = nullptr;
  void (*top)(const TopArgs<Logit>&) = nullptr;
  void (*draw)(const DrawArgs<Logit>&) = nullptr;
  /// Sets capped[0 .. shape.cols) to the capped logits of the row at `logits`, with the same bits as in fold.
  /// `capped` may be `logits`.
  void (*cap)(const TileShape<Logit>& shape, const Logit* logits, Logit* capped) = nullptr;
  void (*gradient)(const GradientArgs<Logit, Gradient>&) = nullptr;
  void (*divergence_fold)(const DivergenceFoldArgs<Logit>&) = nullptr;
  void (*divergence_gradient)(const DivergenceGradientArgs<Logit, Gradient>&) = nullptr;
  /// Computes sums[c] (+)= Σ_r tile[r, c] in row order, for a tile [rows, cols] with `stride`.
  void (*add_column_sums)(const Gradient* tile, int64_t stride, int64_t rows, int64_t cols, bool accumulate,
                          Sum* sums) = nullptr;
  /// Computes to[i] += from[i].
  void (*add)(const Sum* from, int64_t count, Sum* to) = nullptr;
  /// Computes to[i] += scale * from[i].
  void (*add_scaled)(const Sum* from, Sum scale, int64_t count, Sum* to) = nullptr;
  void (*few_rows)(const FewRowsArgs<Sum>&) = nullptr;
};

struct RowKernels {
  const char* name = "";
  TypedKernels<float> f32;
  TypedKernels<double> f64;
  TypedKernels<float, float, bfloat16> bf16;  // for BFloat16Tiles
  UnpackKernels unpack;
  /// Sets to[i] = from[i], exactly.
  void (*widen_bf16)(const bfloat16* from, int64_t count, float* to) = nullptr;
  /// Sets to[i] = from[i] (+ to[i] if `accumulate`), rounded to nearest even; a NaN stays a NaN.
  void (*round_bf16)(const float* from, int64_t count, bool accumulate, bfloat16* to) = nullptr;
  /// The same for float16: subnormals are kept, and results that round to 65536 or more become infinity.
  void (*widen_f16)(const float16* from, int64_t count, float* to) = nullptr;
  void (*round_f16)(const float* from, int64_t count, bool accumulate, float16* to) = nullptr;

  /// Sets to[i] = from[i], exactly, from a 16-bit type.
  void widen(const void* from, DType dtype, int64_t count, float* to) const {
    switch (dtype) {
      case DType::kFloat16:
        return widen_f16(static_cast<const float16*>(from), count, to);
      case DType::kBFloat16:
        return widen_bf16(static_cast<const bfloat16*>(from), count, to);
      default:
        break;  // other types are not widened
    }
  }
  /// Returns `count` stored numbers as T: `from` itself, or `wide`, filled with the widened numbers, for a
  /// 16-bit type.
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
  /// Sets to[i] = from[i] (+ to[i] if `accumulate`), rounded once to a 16-bit type. No effect for other
  /// types, nor for float64 sums, which have no narrower output.
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
          break;  // other types are not rounded to
      }
    }
  }

  /// Calls set(kernels) for each of the typed kernels.
  template <class Set>
  void for_each_type(const Set& set) {
    set(f32);
    set(f64);
    set(bf16);
  }
  /// Returns the kernels for tiles of these types.
  template <class Types>
  const auto& of_tiles() const {
    if constexpr (std::is_same_v<Types, FloatTiles>) return f32;
    if constexpr (std::is_same_v<Types, DoubleTiles>) return f64;
    if constexpr (std::is_same_v<Types, BFloat16Tiles>) return bf16;
  }
  template <class T>
  const TypedKernels<T>& typed() const {
    return of_tiles<TileTypes<T>>();
  }
};

/// Returns the plain kernels: scalar loops and std::exp.
const RowKernels& plain_kernels();

/// Returns the SIMD tables that this CPU supports, best first.
std::vector<const RowKernels*> simd_kernels();

/// Returns the kernels named `name`: "auto", "plain" or a name in simd_kernels(); null if there is none.
const RowKernels* find_kernels(std::string_view name);

}  // namespace logitless::kernels

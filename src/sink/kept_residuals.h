// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Gradients of logits that are multiplied as bfloat16 have a rounding residual r = d - bf16(d). If all rows
// of a matrix share a direction, the sum of the residuals becomes an error in that direction: with the mean
// row w̄ of the head and the mean row x̄ of the states,
//
//     Σ_v r_iv w_v = (Σ_v r_iv) w̄ + Σ_v r_iv (w_v - w̄)    Σ_i r_iv x_i = (Σ_i r_iv) x̄ + Σ_i r_iv (x_i - x̄)
//
// The row kernels compute the sums in brackets (kernels::Residuals); this file adds the first terms to the
// gradients. The second terms have no common direction, so the roundings cancel in them.
#pragma once

#include <omp.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <span>

#include "core/arena.h"
#include "core/parallel.h"
#include "gemm/gemm.h"
#include "kernels/row_kernels.h"
#include "sink/gradient_part.h"
#include "source/multiplier.h"
#include "source/states.h"

namespace logitless::sink {

/// Adds (Σ_v r_iv) w̄ to the sums of a chunk's rows. Each entry's weight in w̄ is its sum of |gradient| over
/// the first row block of the first chunk, because entries with small gradients may share a direction that
/// the others do not have. Any weights give a valid correction if w̄ is finite. If it is not, because the
/// head's values are too large to sum, no correction is added.
template <class Sum>
class RowResiduals {
 public:
  void take_lasting(core::Arena& arena, int64_t cols) {
    cols_ = cols;
    mean_ = arena.take<Sum>(cols);
  }
  void take(core::Arena& arena, int64_t rows) { residual_sums_ = arena.take<double>(rows); }

  /// Adds the residuals of a part; parts arrive in vocabulary order. `product` is the one that added the part
  /// to the components from `component` on.
  void add(const GradientPart& part, int64_t component, bool first, gemm::Product<Sum> product,
           const source::Multiplier& multiply) {
    if (component == 0) {
      for (size_t r = 0; r < part.rows.size(); ++r) {
        double& sum = residual_sums_[part.first_row + static_cast<int64_t>(r)];
        if (first) sum = 0;
        if (part.row_scales) sum *= part.row_scales[r];
        sum += part.residuals.rows[r];
      }
    }
    if (!part.entry_weights || has_mean_) return;
    if (!first && part.row_scales) scale(mean_of(part.row_scales, part.rows.size()), component, product.n);
    if (component == 0) {
      if (first) mass_ = 0;
      for (int64_t v = 0; v < part.entries; ++v) mass_ += widened(part.entry_weights[v]);
    }
    // The chain of the first row block also sums the head's rows, because it has the head's operand at hand.
    product.a = {part.entry_weights, DType::kBFloat16, product.k, false};
    product.m = 1;
    product.c = mean_ + component;
    product.ldc = cols_;
    product.accumulate = !first;
    multiply(product);
  }

  /// Adds the correction to sums(i, rows[i]) for each row i of the chunk.
  template <class Sums>
  void correct_rounding(const kernels::RowKernels& kernels, std::span<const int64_t> rows, int threads,
                        const Sums& sums) {
    if (!rows.empty() && !has_mean_) find_mean();
    if (!(mass_ > 0)) return;
    core::parallel_ranges(threads, static_cast<int64_t>(rows.size()), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const auto share = static_cast<Sum>(residual_sums_[i]);
        kernels.typed<Sum>().add_scaled(mean_, share, cols_, sums(i, rows[static_cast<size_t>(i)]));
      }
    });
  }

 private:
  static double widened(bfloat16 x) { return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16); }

  static double mean_of(const double* scales, size_t count) {
    return std::accumulate(scales, scales + count, 0.0) / static_cast<double>(count);
  }

  // Scales the weighted sums so far.
  void scale(double by, int64_t component, int64_t components) {
    if (by == 1) return;
    if (component == 0) mass_ *= by;
    for (int64_t c = component; c < component + components; ++c) mean_[c] *= static_cast<Sum>(by);
  }

  void find_mean() {
    has_mean_ = true;
    if (mass_ == 0) return;
    for (int64_t c = 0; c < cols_; ++c) {
      mean_[c] = static_cast<Sum>(mean_[c] / mass_);
      if (std::isfinite(mean_[c])) continue;
      mass_ = 0;
      return;
    }
  }

  int64_t cols_ = 0;
  Sum* mean_ = nullptr;              // [cols]: the weighted sum of the head's rows, then their mean
  double* residual_sums_ = nullptr;  // [rows]: Σ_v r_iv
  double mass_ = 0;                  // the sum of the weights; 0: no correction
  bool has_mean_ = false;
};

/// Adds (Σ_i r_iv) x̄ to each vocabulary entry's sum over the rows of a chunk.
template <class Sum>
class EntryResiduals {
 public:
  void take(core::Arena& arena, int64_t cols, int64_t entries) {
    cols_ = cols;
    residual_sums_ = arena.take<Sum>(entries);
    mean_ = arena.take<Sum>((1 + 2 * kParts) * cols);
  }

  /// Computes the mean of these rows: kParts partial sums in parallel, then their sum in order.
  void begin_chunk(const kernels::RowKernels& kernels, const source::States& states, std::span<const int64_t> rows,
                   int threads) {
    const auto count = static_cast<int64_t>(rows.size());
    const auto& typed = kernels.typed<Sum>();
    const Sum share = Sum{1} / static_cast<Sum>(std::max<int64_t>(count, 1));
    core::parallel_for(threads, kParts, [&](int64_t part) {
      Sum* const sums = mean_ + (1 + 2 * part) * cols_;
      std::fill_n(sums, cols_, Sum{0});
      for (int64_t i = part * count / kParts; i < (part + 1) * count / kParts; ++i) {
        const gemm::Operand row = states.operand(rows.subspan(static_cast<size_t>(i), 1), nullptr);
        typed.add_scaled(kernels.values(row.data, row.dtype, cols_, sums + cols_), share, cols_, sums);
      }
    });
    std::fill_n(mean_, cols_, Sum{0});
    for (int64_t part = 0; part < kParts; ++part) typed.add(mean_ + (1 + 2 * part) * cols_, cols_, mean_);
  }

  /// Adds the residuals of a part; parts arrive in row order.
  void add(const GradientPart& part) {
    Sum* const to = residual_sums_ + part.first_entry;
    for (int64_t v = 0; v < part.entries; ++v) {
      to[v] = (part.first_row == 0 ? Sum{0} : to[v]) + static_cast<Sum>(part.residuals.columns[v]);
    }
  }

  const Sum* mean() const { return mean_; }
  const Sum* residual_sums() const { return residual_sums_; }

 private:
  static constexpr int64_t kParts = 16;
  int64_t cols_ = 0;
  Sum* residual_sums_ = nullptr;  // [entries]: Σ_i r_iv
  // [1 + 2 kParts, cols]: the mean, then for each part its sum and a widened row
  Sum* mean_ = nullptr;
};

}  // namespace logitless::sink
